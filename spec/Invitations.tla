----------------------------- MODULE Invitations -----------------------------
(***************************************************************************)
(* Invitations: a deferred request, whose task locks and works, gets a     *)
(* worker slot before it gets its locks. At its turn it keeps its queue    *)
(* position while Airflow finds the slot.                                  *)
(*                                                                         *)
(* One process plays both parts of a task. In the triggerer it waits, and  *)
(* invites its request at its turn (`slot` is FALSE). Then Airflow starts  *)
(* it on a worker, at any later moment (`slot` is TRUE). A worker does not *)
(* wait: it gives its slot back, and is in the triggerer again.            *)
(*                                                                         *)
(* Time is not modelled: each invitation can be over at any moment.        *)
(***************************************************************************)
EXTENDS Writes

(* The request's turn has come. The record becomes INVITED. The tickets    *)
(* and the permits stay, and the liveness node goes: an invited request    *)
(* needs no process. No verification follows. So a deferred request takes  *)
(* its tickets first, and sees at its turn each request that came before   *)
(* it.                                                                     *)
invite(p) ==
  LET x == OwnerOf(p) z == Zxid
      queued == Own(p).state = "WAITING"
      number == IF Rule("PermitIsTakenWithTheInvitation") THEN pr[p].number ELSE {}
  IN  /\ pr[p].step = "invite"
      /\ IF ~Knows(p, x) \/ ~GroupKnown(p) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE /\ tickets' = IF queued THEN tickets ELSE [tickets EXCEPT ![x] = [made |-> z, place |-> z]]
              /\ records' = [records EXCEPT ![x] = [FreeRecord(pr[p].round) EXCEPT !.state = "INVITED", !.process = p,
                                                    !.parked = records[x].parked, !.permit = pr[p].number,
                                                    !.changed = records[x].changed]]
              /\ alive' = [alive EXCEPT ![x] = 0]
              /\ permits' = IF number = Own(p).permit THEN permits ELSE Permitted(x, number)
              /\ WroteWithPermit(p, x)
              /\ IF queued THEN UNCHANGED history ELSE Forget(x)
              /\ Reply(p, [At(p, "slot") EXCEPT !.adopted = FALSE], "start")
              /\ UNCHANGED <<objects, locks>>

(* Airflow starts the task on a worker. It reads its record, and looks:    *)
(* look, look_again, grant and enter are those of any other request.       *)
execute_locked(p) ==
  /\ pr[p].step = "slot"
  /\ Only(p, [At(p, "start") EXCEPT !.slot = TRUE])
  /\ UNCHANGED fresh

(* A worker found a request in its way, and gave its slot back. Its        *)
(* trigger waits at the old position, with a liveness node. The permits    *)
(* go back: a request that waits has none. A next process of the owner,  *)
(* after a death, does the same.                                           *)
take_up(p) ==
  LET x == OwnerOf(p)
  IN  /\ pr[p].step = "take up"
      /\ IF ~Knows(p, x) \/ Own(p).state # "INVITED" THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE /\ records' = [records EXCEPT ![x].state = "WAITING", ![x].process = p, ![x].permit = {}]
              /\ alive' = [alive EXCEPT ![x] = p]
              /\ permits' = Without(x)
              /\ Wrote(p, x)
              /\ Reply(p, At(p, "turn"), "start")
              /\ UNCHANGED <<objects, locks, tickets, history>>

(* An invitation is over. The request that waits behind it writes AWAY:    *)
(* tickets and permit go, and the record keeps the position. The first     *)
(* step reads the record. The first in the group's queue ends invitations  *)
(* that have a permit.                                                     *)
Invited(p) ==
  IF pr[p].step = "wait" /\ pr[p].way.kind = "ahead" THEN {y \in {pr[p].way.who} : records[y].state = "INVITED"}
  ELSE IF pr[p].step = "parked" /\ ParkedBefore(OwnerOf(p)) = {} /\ Rule("GroupEndsInvitations")
       THEN {y \in Owners : records[y].state = "INVITED" /\ records[y].permit # {}}
  ELSE {}
WentAway(y) == [FreeRecord(records[y].round) EXCEPT !.state = "AWAY", !.process = records[y].process,
                                                    !.kept = tickets[y].place, !.parked = records[y].parked,
                                                    !.changed = records[y].changed]
end_invitation(p) ==
  LET s == pr[p]
  IN  \/ \E y \in Invited(p) :
           /\ Rule("InvitationsEnd")
           /\ Read(p, y)
           /\ Only(p, [At(p, "end") EXCEPT !.way = Request(y, "invited"),
                                            !.then = IF s.step = "wait" THEN "turn" ELSE "parked"])
      \/ LET y == s.way.who
         IN  /\ s.step = "end"
             /\ IF ~Knows(p, y) /\ Rule("EndComparesTheRecord") THEN Only(p, At(p, s.then)) /\ UNCHANGED fresh
                ELSE /\ records' = [records EXCEPT ![y] = WentAway(y)]
                     /\ tickets' = IF Rule("EndDeletesTickets") THEN [tickets EXCEPT ![y] = NoTicket] ELSE tickets
                     /\ permits' = IF Rule("EndGivesThePermitBack") THEN Without(y) ELSE permits
                     /\ Wrote(p, y)
                     /\ Reply(p, At(p, s.then), "start")
                     /\ UNCHANGED <<objects, locks, alive, history>>

(* A request without a permit waits in the queue of its group. It has no   *)
(* ticket there, and keeps its place however often it comes.               *)
park(p) ==
  LET x == OwnerOf(p)
  IN  /\ pr[p].step = "park"
      /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE /\ records' = [records EXCEPT ![x] = [FreeRecord(pr[p].round) EXCEPT
                               !.state = "PARKED", !.process = p, !.changed = records[x].changed,
                               !.parked = IF records[x].parked > 0 THEN records[x].parked ELSE Zxid]]
              /\ tickets' = [tickets EXCEPT ![x] = NoTicket]
              /\ alive' = [alive EXCEPT ![x] = p]
              /\ Wrote(p, x)
              /\ Forget(x)
              /\ Reply(p, [At(p, "parked") EXCEPT !.adopted = FALSE], "start")
              /\ UNCHANGED <<objects, locks, permits>>
PermitWaits(p) == pr[p].step = "parked" /\ ~PermitFree(OwnerOf(p)) /\ ~Changed(p)
wait_for_permit(p) ==
  /\ pr[p].step = "parked"
  /\ PermitFree(OwnerOf(p)) \/ Changed(p)
  /\ IF ~Knows(p, OwnerOf(p)) THEN Only(p, At(p, "start")) ELSE Only(p, FirstLook(p))
  /\ Watching(p)

InvitationStep(p) ==
  invite(p) \/ execute_locked(p) \/ take_up(p) \/ end_invitation(p) \/ park(p) \/ wait_for_permit(p)
=============================================================================
