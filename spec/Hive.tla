--------------------------------- MODULE Hive --------------------------------
(***************************************************************************)
(* Hive's own clients, as ZooKeeperHiveLockManager does it, and UNLOCK.    *)
(***************************************************************************)
EXTENDS Keeper

VARIABLES hives  \* Hive's client -> step, request, its lock nodes (paths), tries

HiveWant(h) == Scenario.hive[h][hives[h].round + 1]
(* The objects without a lock node of this client, in Hive's order.        *)
Missing(h) == DOMAIN HiveWant(h) \ {q.on : q \in hives[h].paths}
Lowest(S) == CHOOSE o \in S : \A k \in S : Rank[o] <= Rank[k]
Deepest(S) == CHOOSE o \in S : \A k \in S : Rank[o] >= Rank[k]
Above == [db |-> {"db"}, t |-> {"db", "t"}, p |-> {"db", "t", "p"}, u |-> {"db", "u"}]

HiveGo(h, s) == hives' = [hives EXCEPT ![h] = s] /\ UNCHANGED <<pr, keeper, fresh, left, tickets, alive, records, permits>>

(* Make one missing parent, or create the lock node.                       *)
hive_creates(h) ==
  LET s == hives[h] o == Lowest(Missing(h)) new == NewLocks({o}, {}, HiveWant(h), h, Zxid)
      absent == {k \in Above[o] : ~Exists(k)}
  IN  /\ s.step = "create"
      /\ UNCHANGED history
      /\ IF absent # {} THEN /\ objects' = ObjectsWith({Lowest(absent)}, {}, Zxid)
                             /\ HiveGo(h, s) /\ UNCHANGED locks
         ELSE /\ objects' = [objects EXCEPT ![o].next = @ + 1]
              /\ locks' = locks \cup new
              /\ HiveGo(h, [s EXCEPT !.step = "check", !.paths = @ \cup {Path(l) : l \in new}])

(* Read the children: a conflicting lock with a smaller number wins.       *)
hive_checks(h) ==
  LET s == hives[h] mine == CHOOSE q \in s.paths : q.on = Deepest({k.on : k \in s.paths})
      refused == \E l \in locks : l.on = mine.on /\ l.by # h /\ l.seq < mine.seq /\ Clash(l.mode, mine.mode)
  IN  /\ s.step = "check"
      /\ HiveGo(h, [s EXCEPT !.step = IF refused THEN "undo" ELSE IF Missing(h) = {} THEN "holds" ELSE "create"])
      /\ UNCHANGED <<objects, locks, history>>

(* Delete the last lock node, by its path, and the object if it is empty.  *)
hive_unlocks(h) ==
  LET s == hives[h] q == CHOOSE q \in s.paths : q.on = Deepest({k.on : k \in s.paths})
  IN  /\ s.step \in {"undo", "holds", "unlock"} /\ s.paths # {}
      /\ locks' = locks \ HivesAt({q})
      /\ HiveGo(h, [s EXCEPT !.paths = @ \ {q}, !.tries = IF s.step = "undo" THEN @ + 1 ELSE @,
                             !.step = IF s.step = "undo" THEN "unlock" ELSE "parent", !.at = q.on,
                             !.refused = s.step = "undo" \/ @])
      /\ UNCHANGED <<objects, history>>
hive_deletes_parent(h) ==
  LET s == hives[h]
  IN  /\ s.step = "parent"
      /\ objects' = IF Empty(s.at) THEN [objects EXCEPT ![s.at] = Absent] ELSE objects
      /\ HiveGo(h, [s EXCEPT !.step = "unlock", !.at = ""])
      /\ UNCHANGED <<locks, history>>

HiveBlank == [step |-> "create", round |-> 0, paths |-> {}, tries |-> 0, at |-> "", refused |-> FALSE]
hive_ends(h) ==
  LET s == hives[h]
  IN  /\ s.step = "unlock" /\ s.paths = {}
      /\ HiveGo(h, IF s.refused /\ s.tries <= Scenario.tries
                     THEN [HiveBlank EXCEPT !.round = s.round, !.tries = s.tries]
                   ELSE IF s.round + 1 < Len(Scenario.hive[h]) THEN [HiveBlank EXCEPT !.round = s.round + 1]
                   ELSE [HiveBlank EXCEPT !.step = "done", !.round = s.round])
      /\ history' = [history EXCEPT !.cleared[h] = {}]
      /\ UNCHANGED <<objects, locks>>

(* A client of Hive's dies: its lock nodes are ephemeral.                  *)
hive_dies(h) ==
  /\ left.hivedeaths > 0 /\ hives[h].step # "done"
  /\ left' = [left EXCEPT !.hivedeaths = @ - 1]
  /\ locks' = {l \in locks : l.by # h}
  /\ hives' = [hives EXCEPT ![h] = [HiveBlank EXCEPT !.step = "done", !.round = hives[h].round]]
  /\ UNCHANGED <<pr, keeper, fresh, tickets, alive, records, permits, objects, history>>

HiveStep(h) == \/ hive_creates(h) \/ hive_checks(h) \/ hive_unlocks(h)
               \/ hive_deletes_parent(h) \/ hive_ends(h) \/ hive_dies(h)

(* UNLOCK TABLE and its like delete lock nodes of any client and objects   *)
(* that are empty, in any order. Where the scenario says `sweep`, one step      *)
(* deletes all of an object.                                               *)
unlock_table ==
  /\ left.unlocks > 0
  /\ left' = [left EXCEPT !.unlocks = @ - 1]
  /\ \/ \E l \in locks :
          /\ l.on \in Scenario.unlock
          /\ locks' = locks \ {l}
          /\ history' = IF l.by \in Hives THEN [history EXCEPT !.cleared[l.by] = @ \cup {l.on}]
                        ELSE [history EXCEPT !.taken[l.by] = @ \cup {l.on}]
          /\ UNCHANGED objects
     \/ \E o \in Scenario.unlock :
          /\ Exists(o) /\ Empty(o)
          /\ objects' = [objects EXCEPT ![o] = Absent]
          /\ UNCHANGED <<locks, history>>
     \/ \E o \in Scenario.sweep :
          LET gone == {l \in locks : l.on \in {o} \cup Below[o]}
          IN  /\ Exists(o)
              /\ locks' = locks \ gone
              /\ objects' = [k \in Objects |-> IF k \in {o} \cup Below[o] THEN Absent ELSE objects[k]]
              /\ history' = [history EXCEPT
                   !.cleared = [h \in Hives |-> @[h] \cup {l.on : l \in {l \in gone : l.by = h}}],
                   !.taken = [x \in Owners |-> @[x] \cup {l.on : l \in {l \in gone : l.by = x}}]]
  /\ UNCHANGED <<pr, keeper, fresh, hives, tickets, alive, records, permits>>
=============================================================================
