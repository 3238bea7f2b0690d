-------------------------------- MODULE Locks --------------------------------
(***************************************************************************)
(* The specification as a whole, and the promises: the rows of             *)
(* docs/promises.md. Scenarios.tla has the cases.                          *)
(***************************************************************************)
EXTENDS Hive, Scenarios

vars == <<objects, locks, tickets, alive, records, permits, fresh, history, left, pr, keeper, hives>>

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
  /\ permits = {}
  /\ fresh = [x \in Owners \cup {"group"} |-> IF x # "group" /\ Holding(x) THEN {Holder(x)} ELSE {}]
  /\ history = [taken |-> [x \in Owners |-> {}], released |-> [x \in Owners |-> {}],
                returned |-> [x \in Owners |-> Holding(x)], cleared |-> [h \in Hives |-> {}]]
  /\ left = Scenario.faults
  /\ pr = [p \in Processes |-> [Blank EXCEPT !.known = [o \in Objects |-> objects[o].born],
                                             !.step = IF p \in Scenario.holding THEN "hold" ELSE "start",
                                             !.paths = IF p \in Scenario.holding
                                                       THEN {Path(l) : l \in HeldBy(p)} ELSE {}]]
  /\ keeper = Idle
  /\ hives = [h \in Hives |-> HiveBlank]

AllDone == /\ \A p \in Processes : pr[p].step \in Ended
           /\ \A h \in Hives : hives[h].step = "done"
           /\ \A x \in Owners : records[x].state = "FREE"
(* A person stores another limit of the group, or deletes it, while        *)
(* requests hold and wait.                                                 *)
set_limit ==
  /\ left.limits > 0
  /\ left' = [left EXCEPT !.limits = @ - 1]
  /\ permits' = IF Rule("HoldersKeepTheirPermits") THEN permits
                ELSE {q \in permits : q.number <= Scenario.limits[Len(Scenario.limits) - left.limits + 1]}
  /\ fresh' = IF Rule("LimitRaisesTheVersion") THEN [fresh EXCEPT !["group"] = {}] ELSE fresh
  /\ UNCHANGED <<objects, locks, tickets, alive, records, history, pr, keeper, hives>>

Next == \/ \E p \in Processes : (Step(p) \/ InvitationStep(p)) /\ UNCHANGED <<keeper, hives>>
        \/ \E x \in Owners : (keeper_finds(x) \/ withdraw_by_force(x) \/ keeper_frees(x) \/ change_priority(x)) /\ UNCHANGED hives
        \/ \E h \in Hives : HiveStep(h)
        \/ unlock_table
        \/ set_limit
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

(* "Protection from UNLOCK TABLE" is not promised. Only it makes LOST. It  *)
(* can also do so by way of a release or give-back: if an object was made  *)
(* again, a new node can have the path of one that UNLOCK took. The new    *)
(* one is deleted. That grant is not verified yet, so its caller does not  *)
(* have it.                                                                *)
LostOnlyAfterUnlock ==
  \A x \in Owners : LET gone == history.taken[x] \cup history.released[x] IN
    records[x].lost \subseteq gone /\ (records[x].state = "LOST" => gone # {})

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
                          /\ PermitWaits(p) => \/ Invited(p) # {}
                                               \/ TooHeavy(OwnerOf(p)) /\ ParkedBefore(OwnerOf(p)) = {}
  \/ \E x \in Owners : DeadOwner(x)

(* "A dead process's waiter at the head of the line blocks nobody."        *)
DeadWaitersBlockNoOther ==
  \A p \in Processes :
    pr[p].step = "wait" /\ pr[p].way.kind = "ahead" /\ Dead(pr[p].way.who) => ENABLED free(p)

-----------------------------------------------------------------------------
(* Invitations. "A task that locks and works in one holds nothing while it *)
(* waits for a worker slot": an invited request has no lock node and no    *)
(* process, and one that is AWAY has no ticket either.                     *)
InvitedHoldsNothing ==
  \A x \in Owners : records[x].state \in {"INVITED", "AWAY"} =>
    /\ (\A l \in locks : l.by # x) /\ alive[x] = 0 /\ ~history.returned[x]
    /\ (records[x].state = "AWAY" <=> tickets[x].made = 0)

(* "A place in the queue outlives the process that waits": as long as its  *)
(* invitation is not ended, a request keeps its position, also if a worker *)
(* gives its slot back and if a process dies.                              *)
InvitedKeepsItsPlace ==
  [][\A x \in Owners : records[x].state = "INVITED" /\ records'[x].state \notin {"AWAY", "FREE"} =>
       tickets'[x] = tickets[x]]_<<records, tickets>>

(* A request is invited at its turn: no request before it in the queue has *)
(* an older ticket. So of two that arrive at once, one is invited.         *)
InvitedAtItsTurn ==
  [][\A x, y \in Owners : /\ x # y /\ records[x].state \notin {"INVITED", "GRANTED"}
                          /\ records'[x].state = "INVITED" /\ tickets'[y].made > 0 /\ Conflict(Wanted(x), Wanted(y))
       => ~(Before(y, x)' /\ tickets'[y].made < tickets'[x].made)]_<<records, tickets>>

(* No request is blocked by an invitation that is over: who waits for it,  *)
(* for locks or for a permit, can end it. So each invitation has an end.   *)
BehindInvited(p) ==
  \/ pr[p].step = "wait" /\ pr[p].way.kind = "ahead" /\ records[pr[p].way.who].state = "INVITED"
  \/ /\ PermitWaits(p) /\ ParkedBefore(OwnerOf(p)) = {}
     /\ \E y \in Owners : records[y].state = "INVITED" /\ records[y].permit # {}
InvitationsHaveAnEnd == \A p \in Processes : BehindInvited(p) => ENABLED end_invitation(p)

(* A request that comes back to its old place passes no request that is    *)
(* more urgent, or that wants something else, if it sees it: a partition's *)
(* writer does not pass a table's, whose turn would then never come.       *)
OldPlacesAreFair ==
  [][\A p \in Processes, y \in Owners : LET x == OwnerOf(p) claim == pr'[p].claim IN
       /\ pr[p].step = "start" /\ pr'[p].step = "queue" /\ claim > 0 /\ records[x].state = "AWAY"
       /\ x # y /\ records[y].state \in {"WAITING", "INVITED"} /\ ~HasNodes(records[y])
       /\ Conflict(Wanted(x), Wanted(y)) /\ ~FirstOf(tickets[y], Priority(y), KeptTicket(x), Priority(x))
       => /\ Priority(y) <= Priority(x)
          /\ Meet(Wanted(x), Wanted(y)) # {} \/ Priority(y) < Priority(x)]_pr

(* "No more leases of a group are out than its limit". Limits can differ,  *)
(* and can change: a request takes no permit beyond its limit at that      *)
(* time.                                                                   *)
LimitIsKept ==
  [][\A x \in Owners : (\E q \in permits' \ permits : q.by = x) => Cardinality(permits') <= Allowed(x)]_permits

(* A change of the limit takes no permit from a request that has one.      *)
LimitTakesNoLease == [][left'.limits # left.limits => permits' = permits]_<<left, permits>>

(* "First come, first served" in a group: at its look no request finds its *)
(* permits free while another one waits before it. So light ones do not    *)
(* starve a heavy one.                                                     *)
HeavyIsNotStarved ==
  [][\A p \in Processes, y \in Owners : LET x == OwnerOf(p) IN
       /\ pr[p].step \in {"start", "parked"} /\ pr'[p].step \in {"enter", "invite", "queue"} /\ Limit(x) > 0
       /\ x # y /\ records[y].state = "PARKED" /\ Limit(y) > 0
       => records[x].parked > 0 /\ records[x].parked <= records[y].parked]_pr

(* A permit is never lost or doubled: the requests that hold or are        *)
(* invited have those by the numbers in their record, and no other has any. *)
PermitsMatchRecords ==
  /\ \A x \in Owners : LET mine == {q.number : q \in {q \in permits : q.by = x}}
                        IN  mine = IF Limit(x) > 0 /\ records[x].state \in {"GRANTED", "LOST", "INVITED"}
                                   THEN records[x].permit ELSE {}
  /\ \A q, r \in permits : q.number = r.number => q = r

(* What a killed worker or triggerer has left needs no person: the keeper  *)
(* can free it.                                                            *)
NothingIsLeftForAPerson ==
  \A x \in Owners : DeadOwner(x) /\ keeper = Idle => ENABLED keeper_finds(x)

(* A request that a person has withdrawn does not come back: no process    *)
(* asks again for what its owner has ended.                                *)
WithdrawnStaysOut == [][\A x \in Owners : records'[x].round >= records[x].round]_records

(* A person changes a priority. By the queues that were read, the request  *)
(* passes no other that is as urgent, and a raised one loses no place.     *)
ChangesAreFair ==
  [][\A x, y \in Owners : LET new == keeper'.claim IN
       /\ keeper = Idle /\ keeper'.who = x /\ keeper'.changes
       /\ x # y /\ tickets[y].made > 0 /\ ~HasNodes(records[y]) /\ Conflict(Wanted(x), Wanted(y))
       => LET ticket == [place |-> IF new > 0 THEN new ELSE NoTicket.place, made |-> tickets[y].made + 1]
              before == IF new > 0 \/ Background(Scenario.change[x]) # Background(Priority(y))
                        THEN FirstOf(ticket, Scenario.change[x], tickets[y], Priority(y)) ELSE FALSE
          IN  /\ before /\ (Before(y, x) \/ ~Raises(x)) => Priority(y) < Scenario.change[x]
              /\ Before(x, y) /\ Raises(x) => before]_keeper

-----------------------------------------------------------------------------
(* A process never mistakes another request's node for its own.            *)
NoNodeIsMistaken ==
  [][\A p \in Processes :
       Mine(p) /\ pr[p].step = "objects" /\ pr[p]'.step \in {"objects", "waiters", "records", "all queues", "return"} =>
         \A o \in (pr[p].todo \ pr[p]'.todo) \cap DOMAIN Want(p) : \E l \in NodesOf(OwnerOf(p)) : l.on = o]_pr

(* "No deadlock": every run ends, also one in which requests could undo    *)
(* each other's work for ever.                                             *)
Asked == UNION {{<<x, number>> : number \in DOMAIN Scenario.requests[x]} : x \in Owners}
NoEndlessRound == \A o \in Objects : objects[o].next <= 12 + 3 * Cardinality(Asked)
EveryRunEnds == <>AllDone
=============================================================================
