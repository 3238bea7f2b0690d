------------------------------ MODULE Scenarios ------------------------------
(* The cases that are checked. *)
EXTENDS TLC, Naturals

Req(db, t, p, u) == LET all == [db |-> db, t |-> t, p |-> p, u |-> u]
                    IN  [o \in {o \in DOMAIN all : all[o] # "-"} |-> all[o]]
ReadT == Req("S", "S", "-", "-")
WriteT == Req("S", "X", "-", "-")
ReadP == Req("S", "S", "S", "-")
WriteP == Req("S", "S", "X", "-")
ReadU == Req("S", "-", "-", "S")
WriteU == Req("S", "-", "-", "X")
ReadDb == Req("S", "-", "-", "-")
WriteDb == Req("X", "-", "-", "-")
WriteTU == Req("S", "X", "-", "X")
ReadTWriteU == Req("S", "S", "-", "X")
WriteTReadU == Req("S", "X", "-", "S")
LockP == Req("-", "-", "X", "-")  \* Hive's LOCK TABLE t PARTITION
LockT == Req("-", "X", "-", "-")
ShareT == Req("-", "S", "-", "-")

NoFaults == [crashes |-> 0, losses |-> 0, expiries |-> 0, unlocks |-> 0, giveups |-> 0, hivedeaths |-> 0]
Case(requests, processes) ==
  [requests |-> requests, processes |-> processes, priority |-> [x \in DOMAIN requests |-> 0], nowait |-> {},
   looks |-> TRUE, hive |-> <<>>, tries |-> 0, patience |-> FALSE, made |-> {"db", "t", "u"}, unlock |-> {},
   faults |-> NoFaults, sweep |-> {}, holding |-> {}]
Faults(f) == f @@ NoFaults
abc == <<"a", "b", "c">>
ab == <<"a", "b">>

A1t == Case([a |-> <<WriteT>>, b |-> <<WriteT>>, c |-> <<ReadT>>], abc)
A2 == Case([a |-> <<WriteP>>, b |-> <<ReadP>>, c |-> <<WriteT>>], abc)
A3 == Case([a |-> <<WriteP, ReadP>>, b |-> <<ReadP, WriteP>>, c |-> <<WriteT>>], abc)
A4 == Case([a |-> <<ReadTWriteU>>, b |-> <<WriteTReadU>>, c |-> <<WriteTU>>], abc)
A5 == Case([a |-> <<WriteT>>, b |-> <<WriteU>>, c |-> <<WriteDb>>], abc)
A5s == Case([a |-> <<WriteT>>, c |-> <<WriteDb>>], <<"a", "c">>)
A6 == Case([a |-> <<ReadT, ReadT>>, b |-> <<ReadU>>, c |-> <<WriteDb, WriteDb>>], abc)
A7 == [made |-> {}] @@ Case([a |-> <<WriteP>>, b |-> <<ReadP>>, c |-> <<WriteU>>], abc)
A8 == [nowait |-> {"a", "b"}] @@ Case([a |-> <<WriteP>>, b |-> <<WriteP>>, c |-> <<WriteT>>], abc)
Prio(x) == [a |-> 0, b |-> 0, c |-> x]
B1 == [priority |-> Prio(1)] @@ Case([a |-> <<WriteP>>, b |-> <<WriteP>>, c |-> <<WriteP>>], abc)
B2 == [priority |-> Prio(1)] @@ Case([a |-> <<WriteTU>>, b |-> <<WriteTReadU>>, c |-> <<ReadTWriteU>>], abc)
B3 == [priority |-> [a |-> 0, b |-> 1, c |-> 2]] @@ Case([a |-> <<WriteT>>, b |-> <<WriteT>>, c |-> <<WriteT>>], abc)
B4 == [priority |-> Prio(1)] @@ Case([a |-> <<WriteP, WriteP>>, b |-> <<WriteT>>, c |-> <<WriteP>>], abc)
B5 == [priority |-> Prio(1), faults |-> Faults([crashes |-> 1])] @@ Case([a |-> <<WriteP>>, b |-> <<WriteP>>, c |-> <<WriteP>>], abc)
B6 == [priority |-> [a |-> 0, b |-> 1], hive |-> [h |-> <<WriteT>>], tries |-> 1, patience |-> TRUE] @@ Case([a |-> <<WriteT>>, b |-> <<WriteT>>], ab)
B6h == [holding |-> {1}] @@ B6
BLater == [priority |-> Prio(1)] @@ Case([a |-> <<WriteP>>, b |-> <<WriteP>>, c |-> <<WriteP>>], <<"a", "b", "c", "a">>)
C1s == [hive |-> [h |-> <<WriteP, ReadP>>], tries |-> 1] @@ Case([a |-> <<WriteP>>], <<"a">>)
C3s == [hive |-> [h |-> <<LockP>>], tries |-> 2] @@ Case([a |-> <<WriteT, WriteT>>], <<"a">>)
C3 == [hive |-> [h |-> <<LockP>>], tries |-> 2] @@ Case([a |-> <<WriteT, WriteT>>, b |-> <<ReadP>>], ab)
C5 == [hive |-> [h |-> <<LockT, ShareT>>], tries |-> 1, patience |-> TRUE] @@ Case([a |-> <<WriteT>>, b |-> <<ReadT>>], ab)
C5s == [hive |-> [h |-> <<LockT, ShareT>>], tries |-> 1, patience |-> TRUE] @@ Case([a |-> <<WriteT>>], <<"a">>)
C7 == [hive |-> [h |-> <<WriteT>>], tries |-> 1] @@ Case([a |-> <<WriteDb>>, b |-> <<ReadT>>], ab)
D1b == [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 4])] @@ Case([a |-> <<ReadP>>, b |-> <<ReadP, ReadP>>], ab)
D1 == [unlock |-> {"t", "p"}, faults |-> Faults([unlocks |-> 3])] @@ Case([a |-> <<ReadP>>, b |-> <<ReadP>>], ab)
D1h == [holding |-> {1}, made |-> {"db", "t", "u", "p"}] @@ D1b
D3 == [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 4])] @@ Case([a |-> <<WriteP, WriteP>>, b |-> <<WriteP>>], ab)
D2b == [unlock |-> {"t"}, faults |-> Faults([unlocks |-> 3])] @@ Case([a |-> <<ReadT, ReadT>>, b |-> <<ReadT, ReadT>>], ab)
D6 == [unlock |-> {"db", "t", "p", "u"}, faults |-> Faults([unlocks |-> 5])] @@ Case([a |-> <<ReadT>>, b |-> <<ReadU>>], ab)
D6s == [sweep |-> {"db"}, made |-> {"db", "t"}, faults |-> Faults([unlocks |-> 1]), holding |-> {1}] @@ Case([a |-> <<ReadT>>, b |-> <<ReadU>>, c |-> <<ReadT>>], abc)
D2u == [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 2])] @@ Case([a |-> <<ReadP>>, b |-> <<ReadP>>], ab)
D8 == [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 3, losses |-> 1])] @@ Case([a |-> <<ReadP>>, b |-> <<ReadP, ReadP>>], ab)
D8h == [holding |-> {1}, made |-> {"db", "t", "u", "p"}] @@ D8
E1t == [faults |-> Faults([crashes |-> 1, losses |-> 1])] @@ Case([a |-> <<WriteT>>, b |-> <<WriteT>>], <<"a", "a", "b">>)
E2t == [hive |-> [h |-> <<ReadT>>], tries |-> 1, faults |-> Faults([crashes |-> 1, losses |-> 1])] @@ Case([a |-> <<WriteT>>], <<"a", "a">>)
E5t == [faults |-> Faults([expiries |-> 1])] @@ Case([a |-> <<WriteT>>, b |-> <<WriteT>>, c |-> <<ReadT>>], <<"a", "a", "b", "c">>)
E9 == [unlock |-> {"t"}, faults |-> Faults([crashes |-> 1, unlocks |-> 2])] @@ Case([a |-> <<ReadT>>, b |-> <<ReadT>>], <<"a", "a", "b">>)
=============================================================================
