------------------------------- MODULE Keeper --------------------------------
(***************************************************************************)
(* Others who change requests: the keeper frees what a dead owner has      *)
(* left. A person withdraws a request that waits, or changes its priority. *)
(* Each first reads the record, then sends one transaction.                *)
(***************************************************************************)
EXTENDS Invitations

(* The keeper frees what a dead owner has left, once Airflow knows that no *)
(* process acts for it. It finds the nodes, then it releases them.         *)
Idle == [who |-> "", paths |-> {}, changes |-> FALSE, claim |-> 0]
Finds(x) == [Idle EXCEPT !.who = x, !.paths = {Path(l) : l \in NodesOf(x)}]
DeadOwner(x) == records[x].state # "FREE" /\ \A p \in Processes : OwnerOf(p) = x => pr[p].step \in Ended
keeper_finds(x) ==
  /\ keeper = Idle /\ DeadOwner(x)
  /\ records[x].state \notin {"INVITED", "AWAY"} \/ Rule("KeeperFreesInvited")
  /\ Read(0, x)
  /\ keeper' = Finds(x)
  /\ UNCHANGED <<store, history, left, pr>>
(* A person withdraws a request that waits, and that has a living process. *)
withdraw_by_force(x) ==
  /\ keeper = Idle /\ left.withdrawals > 0 /\ records[x].state \in {"WAITING", "PARKED"}
  /\ left' = [left EXCEPT !.withdrawals = @ - 1]
  /\ Read(0, x)
  /\ keeper' = Finds(x)
  /\ UNCHANGED <<store, history, pr>>
keeper_frees(x) ==
  /\ keeper.who = x /\ ~keeper.changes
  /\ keeper' = Idle
  /\ IF Knows(0, x) /\ AllThere(keeper.paths) THEN Free(x, 0, OursAt(keeper.paths))
     ELSE UNCHANGED <<store, fresh, history>>
  /\ UNCHANGED <<pr, left>>

-----------------------------------------------------------------------------
(* A person changes the priority of a request that waits. Raised, it       *)
(* overtakes from its own turn. Lowered, it is a new arrival.              *)
Raises(x) == Scenario.change[x] > Scenario.priority[x]
NewPlace(x) ==
  LET rivals == WithoutNodes(Rivals(x, Wanted(x), QueuesFor(Wanted(x))))
      keeps == (Raises(x) /\ Rule("RaisedKeepsItsTurn")) \/ ~Rule("LoweredIsANewArrival")
      passed == Passed(Scenario.change[x], IF keeps THEN {y \in rivals : Before(y, x)} ELSE rivals)
      leaves == Background(Scenario.change[x]) # Background(Priority(x))
  IN  FirstPlace(Scenario.change[x], passed, IF keeps /\ ~leaves THEN tickets[x].place ELSE 0)

(* A person changes the priority of a request that waits for its locks.    *)
(* The first step reads the record and the queues. The second one is a     *)
(* transaction: new tickets at the new place, and no placeholders. As the  *)
(* tickets are new, the request sees the nodes of each that it passes.     *)
change_priority(x) ==
  \/ /\ keeper = Idle /\ left.changes > 0 /\ records[x].state = "WAITING" /\ Priority(x) # Scenario.change[x]
     /\ left' = [left EXCEPT !.changes = @ - 1]
     /\ Read(0, x)
     /\ keeper' = [Finds(x) EXCEPT !.changes = TRUE, !.claim = NewPlace(x)]
     /\ UNCHANGED <<store, history, pr>>
  \/ LET gone == OursAt(keeper.paths) z == Zxid
     IN  /\ keeper.who = x /\ keeper.changes
         /\ keeper' = Idle
         /\ IF Knows(0, x) /\ AllThere(keeper.paths)
            THEN /\ Delete(gone)
                 /\ tickets' = [tickets EXCEPT ![x] = [made |-> IF Rule("ChangedTicketsAreNew") THEN z ELSE @.made,
                                                       place |-> IF keeper.claim > 0 THEN keeper.claim ELSE z]]
                 /\ records' = [records EXCEPT ![x].changed = TRUE, ![x].places = {}]
                 /\ history' = [history EXCEPT !.taken[x] = {}, !.released = Deleted(x, gone)]
                 /\ Wrote(0, x)
                 /\ UNCHANGED <<alive, permits>>
            ELSE UNCHANGED <<store, fresh, history>>
         /\ UNCHANGED <<pr, left>>
=============================================================================
