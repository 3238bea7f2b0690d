-------------------------------- MODULE Locks --------------------------------
(***************************************************************************)
(* The specification as a whole, and the promises: the rows of             *)
(* docs/promises.md. Scenarios.tla has the cases.                          *)
(***************************************************************************)
EXTENDS Hive, Scenarios

vars == <<objects, locks, tickets, alive, records, fresh, history, left, pr, keeper, hives>>

(* At the start, objects may exist and processes may hold leases.          *)
Holders(o) == {p \in Scenario.holding : o \in DOMAIN Scenario.requests[OwnerOf(p)][1]}
Children(o) == Cardinality({k \in Scenario.made : Parent[k] = o})
HeldBy(p) == LET w == Scenario.requests[OwnerOf(p)][1]
             IN  {[on |-> o, mode |-> w[o], seq |-> Children(o) + Cardinality({q \in Holders(o) : q < p}),
                   by |-> OwnerOf(p), made |-> 1 + p] : o \in DOMAIN w}
Holding(x) == \E p \in Scenario.holding : OwnerOf(p) = x
Holder(x) == CHOOSE p \in Scenario.holding : OwnerOf(p) = x
Init ==
  /\ objects = [o \in Objects |-> IF o \in Scenario.made
                                  THEN [born |-> 1, next |-> Children(o) + Cardinality(Holders(o))] ELSE Absent]
  /\ locks = UNION {HeldBy(p) : p \in Scenario.holding}
  /\ tickets = [x \in Owners |-> IF Holding(x) THEN [made |-> 1 + Holder(x), place |-> 1 + Holder(x)] ELSE NoTicket]
  /\ alive = [x \in Owners |-> 0]
  /\ records = [x \in Owners |-> IF Holding(x) THEN [FreeRecord(0) EXCEPT !.state = "GRANTED", !.process = Holder(x),
                                                                         !.since = 1 + Holder(x)]
                                 ELSE FreeRecord(0)]
  /\ fresh = [x \in Owners |-> IF Holding(x) THEN {Holder(x)} ELSE {}]
  /\ history = [taken |-> [x \in Owners |-> {}], returned |-> [x \in Owners |-> Holding(x)],
                cleared |-> [h \in Hives |-> {}]]
  /\ left = Scenario.faults
  /\ pr = [p \in Processes |-> [Blank EXCEPT !.known = objects["db"].born,
                                             !.step = IF p \in Scenario.holding THEN "hold" ELSE "start",
                                             !.paths = IF p \in Scenario.holding
                                                       THEN {Path(l) : l \in HeldBy(p)} ELSE {}]]
  /\ keeper = Idle
  /\ hives = [h \in Hives |-> HiveBlank]

AllDone == /\ \A p \in Processes : pr[p].step \in Ended
           /\ \A h \in Hives : hives[h].step = "done"
           /\ \A x \in Owners : records[x].state = "FREE"
Next == \/ \E p \in Processes : Step(p) /\ UNCHANGED <<keeper, hives>>
        \/ \E x \in Owners : (keeper_finds(x) \/ keeper_frees(x)) /\ UNCHANGED hives
        \/ \E h \in Hives : HiveStep(h)
        \/ unlock_table
        \/ AllDone /\ UNCHANGED vars
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

-----------------------------------------------------------------------------
(* "Two leases never hold conflicting locks on one object."                *)
NoTwoConflictingLeases ==
  \A x, y \in Owners : x # y /\ history.returned[x] /\ history.returned[y] => ~Conflict(Wanted(x), Wanted(y))

(* "A request is granted whole or not at all": a lease has its ticket and  *)
(* its nodes, unless UNLOCK took them.                                     *)
LeaseHasItsNodes ==
  \A x \in Owners : history.returned[x] =>
    /\ tickets[x].made > 0
    /\ \A o \in DOMAIN Wanted(x) \ history.taken[x] : \E l \in NodesOf(x) : l.on = o

(* "Hive honours every lock, and Hive's locks are honoured."               *)
OursAndHiveNeverBothHold ==
  \A x \in Owners, h \in Hives : history.returned[x] /\ hives[h].step = "holds" =>
    LET w == Wanted(x) v == HiveWant(h) IN
    /\ \A o \in (DOMAIN w \cap DOMAIN v) \ (history.taken[x] \cup history.cleared[h]) : ~Clash(w[o], v[o])
    /\ \A o \in DOMAIN w \ history.taken[x] : w[o] = "X" =>
         \A l \in locks : l.by = h /\ l.on \in Below[o] \ DOMAIN w => l.made > First(records[x])

(* "A lease is freed once its job is known to have ended": a lease that    *)
(* was returned is not taken back.                                         *)
ReturnedLeaseIsNotTakenBack == \A x \in Owners : history.returned[x] => records[x].state \in {"GRANTED", "LOST"}

(* "Protection from UNLOCK TABLE" is not promised. Only it makes LOST.     *)
LostOnlyAfterUnlock == \A x \in Owners : /\ records[x].lost \subseteq history.taken[x]
                                         /\ records[x].state = "LOST" => history.taken[x] # {}

(* "The larger priority goes first, then the earlier": no lease while a    *)
(* conflicting request before it in the queue has waited since before t.   *)
EarlierGoesFirst ==
  \A x, y \in Owners : x # y /\ history.returned[x] /\ tickets[y].made > 0 /\ Conflict(Wanted(x), Wanted(y)) =>
    ~(Before(y, x) /\ tickets[y].made < First(records[x]))

(* Nothing is left at the end: no record, ticket, node, liveness node.     *)
NothingLeft == AllDone => /\ \A x \in Owners : records[x].state = "FREE" /\ tickets[x].made = 0 /\ alive[x] = 0
                          /\ locks = {}

(* "No deadlock": as long as not all is done, a process can go on that     *)
(* does not wait. No fault, UNLOCK or giving up is needed for that.        *)
NoDeadlock ==
  \/ AllDone
  \/ \E h \in Hives : hives[h].step # "done"
  \/ \E p \in Processes : /\ pr[p].step \notin Ended
                          /\ pr[p].step = "wait" => Woken(p) \/ (pr[p].way.kind = "ahead" /\ Dead(pr[p].way.who))
  \/ \E x \in Owners : DeadOwner(x)

(* "A dead process's waiter at the head of the line blocks nobody."        *)
DeadWaitersBlockNoOther ==
  \A p \in Processes :
    pr[p].step = "wait" /\ pr[p].way.kind = "ahead" /\ Dead(pr[p].way.who) => ENABLED break_request(p)

(* A process never mistakes another request's node for its own.            *)
NoNodeIsMistaken ==
  [][\A p \in Processes :
       Mine(p) /\ pr[p].step = "objects" /\ pr[p]'.step \in {"objects", "records", "all queues", "return"} =>
         \A o \in (pr[p].todo \ pr[p]'.todo) \cap DOMAIN Want(p) : \E l \in NodesOf(OwnerOf(p)) : l.on = o]_pr

(* "No deadlock": every run ends, also one in which requests could undo    *)
(* each other's work for ever.                                             *)
NoEndlessRound == \A o \in Objects : objects[o].next <= 14
EveryRunEnds == <>AllDone
=============================================================================
