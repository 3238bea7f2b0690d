------------------------------- MODULE Writes --------------------------------
(***************************************************************************)
(* The transactions of our processes, and what can happen to them.         *)
(* Each transaction is all or nothing. Each one compares and sets the      *)
(* record that it changes.                                                 *)
(***************************************************************************)
EXTENDS Reads

(* All nodes of these paths are there. A transaction that deletes a        *)
(* missing node fails as a whole.                                          *)
AllThere(paths) == Cardinality(OursAt(paths)) = Cardinality(paths)
Delete(gone) == locks' = locks \ gone /\ objects' = ObjectsWithout(gone)
Forget(x) == history' = [history EXCEPT !.taken[x] = {}, !.released[x] = {}, !.returned[x] = FALSE]
(* Notes which nodes of others a request deletes: by a path.               *)
Deleted(x, gone) == [y \in Owners |-> IF y = x THEN {} ELSE history.released[y] \cup {l.on : l \in {l \in gone : l.by = y}}]
(* The permits that the look found free. They are refused if another       *)
(* request took one since, or has such a number, or if the limit changed.  *)
GroupKnown(p) == \/ pr[p].number = Own(p).permit
                 \/ /\ Knows(p, "group") \/ ~Rule("PermitsAreCounted")
                    /\ \A q \in permits : q.number \notin pr[p].number
TakesPermit(p) == permits' = IF pr[p].number = Own(p).permit THEN permits ELSE Permitted(OwnerOf(p), pr[p].number)
WroteWithPermit(p, x) ==
  fresh' = [y \in DOMAIN fresh |-> IF y = x THEN {p}
                                    ELSE IF y = "group" /\ pr[p].number # Own(p).permit THEN {} ELSE fresh[y]]

Over(p) == LET s == At(p, IF pr[p].round + 1 < Len(Scenario.requests[OwnerOf(p)]) THEN "start" ELSE "done")
           IN  [s EXCEPT !.adopted = FALSE, !.slot = FALSE, !.rounds = 0,
                         !.round = IF s.step = "start" THEN @ + 1 ELSE @]

(* Transaction 1: all at once, when the look showed no request in the way. *)
(* Transaction 3: the same for a request that waits, at its turn.          *)
(* Both fail if an object came or went since the look.                     *)
SameObjects(p) == \A o \in DOMAIN Want(p) : Exists(o) = (o \in pr[p].exists)
Grant(p, since, places) ==
  LET x == OwnerOf(p) w == Want(p) on == DOMAIN w \ {q.on : q \in places}
      new == NewLocks(on, DOMAIN w, w, x, since)
  IN  /\ objects' = ObjectsWith(DOMAIN w, on, since)
      /\ locks' = locks \cup new
      /\ records' = [records EXCEPT ![x] = [FreeRecord(pr[p].round) EXCEPT
                       !.state = "GRANTED", !.process = p, !.since = since, !.places = places,
                       !.parked = records[x].parked, !.permit = pr[p].number, !.changed = records[x].changed]]
      /\ alive' = [alive EXCEPT ![x] = 0]
      /\ TakesPermit(p)
      /\ WroteWithPermit(p, x)
      /\ Reply(p, [Verify(p, pr[p].paths \cup {Path(l) : l \in new}) EXCEPT !.adopted = FALSE], "start")

enter(p) ==
  LET x == OwnerOf(p) z == Zxid
  IN  /\ pr[p].step = "enter"
      /\ IF ~Knows(p, x) \/ ~SameObjects(p) \/ ~GroupKnown(p) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE /\ Grant(p, z, {})
              /\ tickets' = [tickets EXCEPT ![x] = [made |-> z, place |-> z]]
              /\ Forget(x)

grant(p) ==
  LET x == OwnerOf(p)
      placed == {l.on : l \in OursAt(pr[p].paths)} = {q.on : q \in Own(p).places}
  IN  /\ pr[p].step = "try"
      /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE IF ~SameObjects(p) \/ ~placed \/ ~GroupKnown(p) THEN Only(p, At(p, "turn")) /\ UNCHANGED fresh
         ELSE Grant(p, Zxid, Own(p).places) /\ UNCHANGED <<tickets, history>>

(* Transaction 2: a request is in the way, or this one claims a place.     *)
queue(p) ==
  LET x == OwnerOf(p) z == Zxid claim == pr[p].claim
  IN  /\ pr[p].step = "queue"
      /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE /\ tickets' = [tickets EXCEPT ![x] = [made |-> z, place |-> IF claim > 0 THEN claim ELSE z]]
              /\ alive' = [alive EXCEPT ![x] = p]
              /\ records' = [records EXCEPT ![x] = [FreeRecord(pr[p].round) EXCEPT !.state = "WAITING", !.process = p,
                                                                                     !.parked = records[x].parked,
                                                                                     !.changed = records[x].changed]]
              /\ Forget(x)
              /\ Wrote(p, x)
              /\ Reply(p, [At(p, "turn") EXCEPT !.adopted = FALSE], "start")
              /\ UNCHANGED <<objects, locks, permits>>

(* The own nodes are found by their zxid. Only paths that were just found, *)
(* or come from the reply to their creation, are ever deleted.             *)
find_nodes(p) ==
  LET s == pr[p] paths == {Path(l) : l \in NodesOf(OwnerOf(p))}
  IN  /\ s.step = "find"
      /\ Only(p, CASE s.then = "verify" -> Verify(p, paths)
                   [] OTHER -> [At(p, s.then) EXCEPT !.paths = paths])
      /\ UNCHANGED fresh

(* Transaction 4: the verification found a conflict. The request waits     *)
(* again, at its old place. A request that does not wait is over.          *)
give_back(p) ==
  LET x == OwnerOf(p) s == pr[p] gone == OursAt(s.paths)
      waits == [Own(p) EXCEPT !.state = IF WithSlot(p) THEN "INVITED" ELSE "WAITING", !.since = 0, !.places = {},
                              !.lost = {}, !.permit = IF WithSlot(p) THEN @ ELSE {}]
  IN  /\ s.step = "give back"
      /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE IF ~AllThere(s.paths) /\ Rule("MissingNodesAreFoundAgain") THEN
           Only(p, [At(p, "find") EXCEPT !.then = "give back"]) /\ UNCHANGED fresh
         ELSE /\ Delete(gone)
              /\ records' = [records EXCEPT ![x] = IF NowaitOf(p) THEN FreeRecord(@.round + 1) ELSE waits]
              /\ tickets' = IF NowaitOf(p) THEN [tickets EXCEPT ![x] = NoTicket] ELSE tickets
              /\ alive' = [alive EXCEPT ![x] = IF NowaitOf(p) \/ WithSlot(p) THEN 0 ELSE p]
              /\ permits' = IF WithSlot(p) THEN permits ELSE Without(x)
              /\ history' = [history EXCEPT !.taken[x] = {}, !.released = Deleted(x, gone)]
              /\ Wrote(p, x)
              /\ Reply(p, IF NowaitOf(p) THEN Over(p)
                          ELSE IF WithSlot(p) THEN SlotBack(p, "take up") ELSE At(p, "turn"), "start")

(* Transaction 5: a lease is released, or a request that waits gives up.   *)
(* It gives up, too, if its group got a limit below its weight.            *)
(* The paths are those of the reply: no read comes before a release. If    *)
(* the record has changed, the process reads it and finds its nodes.       *)
Free(x, by, gone) ==
  /\ Delete(gone)
  /\ records' = [records EXCEPT ![x] = FreeRecord(@.round + 1)]
  /\ tickets' = [tickets EXCEPT ![x] = NoTicket]
  /\ alive' = [alive EXCEPT ![x] = 0]
  /\ permits' = Without(x)
  /\ history' = [history EXCEPT !.taken[x] = {}, !.returned[x] = FALSE, !.released = Deleted(x, gone)]
  /\ Wrote(by, x)
release(p) ==
  LET x == OwnerOf(p) s == pr[p]
  IN  \/ /\ s.step = "hold"
         /\ IF ~Knows(p, x) \/ ~AllThere(s.paths)
              THEN Only(p, [At(p, "reread") EXCEPT !.paths = s.paths]) /\ UNCHANGED fresh
              ELSE Free(x, p, OursAt(s.paths)) /\ Reply(p, Over(p), "reread")
      \/ /\ s.step = "reread"
         /\ Read(p, x)
         /\ Only(p, IF ~Mine(p) \/ Own(p).state = "WAITING" THEN Over(p)
                    ELSE IF Rule("RereadForgetsPaths") THEN [At(p, "find") EXCEPT !.then = "hold"]
                    ELSE [At(p, "hold") EXCEPT !.paths = {Path(l) : l \in OursAt(s.paths)}])
      \/ /\ s.step = "parked" /\ ParkedBefore(x) = {} /\ TooHeavy(x)  \* it blocks no other of its group
         /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
            ELSE Free(x, p, {}) /\ Reply(p, [Over(p) EXCEPT !.step = "done"], "start")
      \/ /\ s.step = "wait"
         /\ left.giveups > 0
         /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
            ELSE IF ~AllThere(s.paths) THEN Only(p, At(p, "turn")) /\ UNCHANGED fresh
            ELSE Free(x, p, OursAt(s.paths)) /\ Go(p, Over(p)) /\ left' = [left EXCEPT !.giveups = @ - 1]

(* Transaction 6: another request's nodes are gone. Its record becomes     *)
(* LOST, or loses its placeholder. Then its process can no longer delete   *)
(* by a path that it remembers. A process that took a grant over and       *)
(* misses a node marks its own record: a caller may have the lease.        *)
Struck(r, on) == IF r.state = "WAITING" THEN [r EXCEPT !.places = {q \in @ : q.on \notin on}]
                 ELSE [r EXCEPT !.state = "LOST", !.lost = @ \cup on]
mark(p) ==
  LET s == pr[p]
  IN  \/ /\ s.step = "mark"
         /\ LET y == s.way.who on == {e.object.on : e \in {e \in s.older : e.who = y /\ Gone(y, e)}}
            IN  IF ~Knows(p, y) THEN Only(p, [s EXCEPT !.step = "records"]) /\ UNCHANGED fresh
                ELSE /\ records' = [records EXCEPT ![y] = Struck(@, on)]
                     /\ Wrote(p, y)
                     /\ Reply(p, Checked(p, s, y), "start")
                     /\ UNCHANGED <<objects, locks, tickets, alive, permits, history>>
      \/ /\ s.step = "lost"
         /\ LET x == OwnerOf(p)
            IN  IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
                ELSE /\ records' = [records EXCEPT ![x] = Struck(@, {s.way.on})]
                     /\ Wrote(p, x)
                     /\ Reply(p, [At(p, "find") EXCEPT !.then = "hold"], "start")
                     /\ UNCHANGED <<objects, locks, tickets, alive, permits, history>>

(* Transaction 7: patience with Hive's clients is over. The request takes  *)
(* a place among them, in Hive's order of objects: it gives up its places  *)
(* on later objects. A placeholder that UNLOCK took is struck.             *)
place(p) ==
  LET x == OwnerOf(p) s == pr[p] w == Want(p) o == s.way.on z == Zxid
      later == {l \in OursAt(s.paths) : Rank[l.on] > Rank[o]}
      kept == {q \in Own(p).places : Rank[q.on] < Rank[o]}
      new == NewLocks({o}, {}, w, x, z)
  IN  \/ /\ s.step = "wait" /\ s.way.kind = "hive" /\ Scenario.patience /\ ~NowaitOf(p) /\ ~Late(p)
         /\ o \in DOMAIN w /\ \A q \in Own(p).places : q.on # o
         /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
            ELSE IF ~Exists(o) \/ ~AllThere(s.paths) THEN Only(p, At(p, "turn")) /\ UNCHANGED fresh
            ELSE /\ locks' = (locks \ later) \cup new
                 /\ objects' = [ObjectsWithout(later) EXCEPT ![o].next = @ + 1]
                 /\ records' = [records EXCEPT ![x].places = kept \cup {[on |-> o, made |-> z]}]
                 /\ Wrote(p, x)
                 /\ Reply(p, IF kept # {} THEN At(p, "turn")
                             ELSE [ReadQueues(p, At(p, "")) EXCEPT !.place = TRUE, !.paths = {Path(l) : l \in new}],
                           "start")
                 /\ UNCHANGED <<tickets, alive, permits, history>>
      \/ /\ s.step = "strike"
         /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
            ELSE /\ records' = [records EXCEPT ![x].places = {q \in @ : \E l \in NodesOf(x) : l.on = q.on}]
                 /\ Wrote(p, x)
                 /\ Reply(p, At(p, "turn"), "start")
                 /\ UNCHANGED <<objects, locks, tickets, alive, permits, history>>

(* Transaction 8: the next process of the owner. A grant is verified,      *)
(* because its first process can have died before it looked.               *)
take_over(p) ==
  LET x == OwnerOf(p) s == pr[p]
  IN  /\ s.step = "take over"
      /\ IF ~Knows(p, x) THEN Only(p, At(p, "start")) /\ UNCHANGED fresh
         ELSE /\ records' = [records EXCEPT ![x].process = p]
              /\ alive' = [alive EXCEPT ![x] = IF Own(p).state \in {"WAITING", "PARKED"} THEN p ELSE 0]
              /\ Wrote(p, x)
              /\ Reply(p, IF Own(p).state \in {"WAITING", "PARKED"} THEN At(p, IF Own(p).state = "WAITING" THEN "turn"
                                                                              ELSE "parked")
                          ELSE IF Rule("TakenOverGrantsAreVerified") THEN [At(p, "find") EXCEPT !.then = "verify"]
                          ELSE [At(p, "return") EXCEPT !.paths = {Path(l) : l \in NodesOf(x)}], "start")
              /\ UNCHANGED <<objects, locks, tickets, permits, history>>

(* Transaction 9: a request that waits in the way and has no liveness      *)
(* node. The first step reads its record and finds its placeholders.       *)
free(p) ==
  LET s == pr[p] y == s.way.who
  IN  \/ /\ s.step = "wait" /\ s.way.kind = "ahead" /\ Dead(y)
         /\ Rule("DeadRequestsAreBroken")
         /\ Read(p, y)
         /\ Only(p, [s EXCEPT !.step = "break", !.paths = {Path(l) : l \in NodesOf(y)}])
      \/ /\ s.step = "break"
         /\ IF ~Knows(p, y) \/ ~AllThere(s.paths) THEN Only(p, At(p, "turn")) /\ UNCHANGED fresh
            ELSE /\ Delete(OursAt(s.paths))
                 /\ records' = [records EXCEPT ![y] = FreeRecord(@.round)]
                 /\ tickets' = [tickets EXCEPT ![y] = NoTicket]
                 /\ Forget(y)
                 /\ Wrote(p, y)
                 /\ Reply(p, At(p, "turn"), "start")
                 /\ UNCHANGED <<alive, permits>>

-----------------------------------------------------------------------------
(* What can happen to a process.                                           *)
Writing == {"enter", "queue", "try", "give back", "hold", "mark", "lost", "strike", "take over", "break", "invite",
            "take up", "end", "park"}
Ended == {"done", "stopped", "dead"}

(* The connection is lost before ZooKeeper received the transaction.       *)
connection_lost(p) ==
  /\ left.losses > 0 /\ pr[p].step \in Writing
  /\ left' = [left EXCEPT !.losses = @ - 1]
  /\ Go(p, Lost(p, pr[p], IF pr[p].step = "hold" THEN "reread" ELSE "start"))
  /\ UNCHANGED <<store, fresh, history>>

crash(p) ==
  /\ left.crashes > 0 /\ pr[p].step \notin Ended \cup {"crashed"}
  /\ pr[p].step = "start" => Own(p).state # "FREE"
  /\ left' = [left EXCEPT !.crashes = @ - 1]
  /\ Go(p, [Blank EXCEPT !.step = "crashed", !.round = pr[p].round])
  /\ fresh' = [x \in DOMAIN fresh |-> fresh[x] \ {p}]
  /\ UNCHANGED <<store, history>>

(* The session of a process ends: after a crash, or while it runs.         *)
session_ends(p) ==
  LET x == OwnerOf(p)
  IN  /\ \/ pr[p].step = "crashed" /\ Go(p, [pr[p] EXCEPT !.step = "dead"]) /\ UNCHANGED left
         \/ /\ left.expiries > 0 /\ alive[x] = p /\ pr[p].step \notin Ended \cup {"crashed"}
            /\ left' = [left EXCEPT !.expiries = @ - 1]
            /\ Go(p, At(p, "start"))
      /\ alive' = [alive EXCEPT ![x] = IF @ = p THEN 0 ELSE @]
      /\ UNCHANGED <<objects, locks, tickets, records, permits, fresh, history>>

Step(p) == \/ look(p) \/ look_again(p) \/ enter(p) \/ queue(p) \/ grant(p) \/ find_nodes(p) \/ give_back(p)
           \/ verify(p) \/ return_lease(p)
           \/ release(p) \/ mark(p) \/ place(p) \/ take_over(p) \/ free(p)
           \/ connection_lost(p) \/ crash(p) \/ session_ends(p)
=============================================================================
