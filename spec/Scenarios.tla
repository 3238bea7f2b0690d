------------------------------ MODULE Scenarios ------------------------------
(* The cases that are checked. *)
EXTENDS TLC, Naturals

Req(db, t, p, u) == [o \in {o \in {"db", "t", "p", "u"} : [db |-> db, t |-> t, p |-> p, u |-> u][o] # "-"} |->
                       [db |-> db, t |-> t, p |-> p, u |-> u][o]]
ReadT == Req("S", "S", "-", "-")
WriteT == Req("S", "X", "-", "-")
ReadP == Req("S", "S", "S", "-")
WriteP == Req("S", "S", "X", "-")
NoFaults == [crashes |-> 0, losses |-> 0, expiries |-> 0, unlocks |-> 0, giveups |-> 0, hivedeaths |-> 0]
Case(requests, processes) ==
  [requests |-> requests, processes |-> processes, priority |-> [x \in DOMAIN requests |-> 0], nowait |-> {},
   looks |-> TRUE, hive |-> <<>>, tries |-> 0, patience |-> FALSE, made |-> {"db", "t", "u"}, unlock |-> {},
   faults |-> NoFaults]
TwoWriters == Case([a |-> <<WriteP>>, b |-> <<WriteP>>], <<"a", "b">>)
ThreeTwice == Case([a |-> <<WriteT, ReadT>>, b |-> <<ReadT, WriteT>>, c |-> <<WriteT>>], <<"a", "b", "c">>)
=============================================================================
