-------------------------------- MODULE Reads --------------------------------
(***************************************************************************)
(* Create, then look. A request creates all its lock nodes in one          *)
(* transaction. Then it reads the queues and the objects. It is returned   *)
(* to the caller only if no read found a conflict. Of two conflicting      *)
(* requests the later one always sees the earlier one.                     *)
(*                                                                         *)
(* An action is one transaction or one read. README.md names the function  *)
(* that implements it. A process can stop between any two.                 *)
(***************************************************************************)
EXTENDS Store

VARIABLES pr,     \* what each of our processes remembers
          keeper  \* the keeper, or a person: the owner, the paths of its lock nodes, its new place

NoWay == [kind |-> "none", who |-> 0, made |-> 0, on |-> ""]
Blank == [step |-> "start", round |-> 0,
          exists |-> {},      \* look: the objects that exist
          claim |-> 0,        \* look: the place in the queue that the request will claim
          way |-> NoWay,      \* what is in the way, and what a waiter watches
          paths |-> {},       \* the paths of the own lock nodes, from the reply or just found
          then |-> "",        \* what follows when the own nodes are found
          place |-> FALSE,    \* it verifies a placeholder, not a grant
          todo |-> {},        \* verification: the queues or objects that are still to be read
          seen |-> {},        \* verification: the tickets that were read
          born |-> {},        \* verification: the objects that were read, and when each was born
          older |-> {},       \* verification: tickets that are older than an object of theirs
          again |-> FALSE,    \* verification: the own nodes are read once more
          number |-> {},      \* look: the numbers of the permits that were free
          slot |-> FALSE,     \* it has a worker slot
          rounds |-> 0,       \* its invitations that did not end in a grant
          known |-> [o \in Objects |-> 0],  \* the object nodes for which all older requests have been marked
          adopted |-> FALSE]  \* the grant was taken over: a caller of an earlier process may have the lease
At(p, step) == [Blank EXCEPT !.step = step, !.round = pr[p].round, !.known = pr[p].known, !.adopted = pr[p].adopted,
                             !.slot = pr[p].slot, !.rounds = pr[p].rounds]
Own(p) == records[OwnerOf(p)]
Want(p) == Scenario.requests[OwnerOf(p)][pr[p].round + 1]
Mine(p) == Own(p).process = p /\ Own(p).round = pr[p].round
NowaitOf(p) == OwnerOf(p) \in Scenario.nowait

(* Late(p): the grant is deferred, because the task that locks also works. *)
(* Invitations.tla has its steps. After its rounds it takes its locks as   *)
(* other requests do.                                                      *)
Late(p) == OwnerOf(p) \in Scenario.late /\ ~pr[p].slot /\ (pr[p].rounds < Scenario.rounds \/ ~Rule("RoundsAreBounded"))
WithSlot(p) == OwnerOf(p) \in Scenario.late /\ pr[p].slot
(* A worker does not wait: it gives its slot back, and its trigger waits.  *)
SlotBack(p, step) == [At(p, step) EXCEPT !.slot = FALSE, !.rounds = IF @ < Scenario.rounds THEN @ + 1 ELSE @]
Watching(p) == IF Limit(OwnerOf(p)) > 0 THEN Read(p, "group") ELSE UNCHANGED fresh

Memory(s) == {s.known[o] : o \in Objects} \cup {s.claim, s.way.made} \cup {b.at : b \in s.born} \cup {t.made : t \in s.seen}
Zxid == NextZxid({keeper.claim} \cup UNION {Memory(pr[p]) : p \in Processes})

Go(p, s) == pr' = [pr EXCEPT ![p] = s]
(* The reply of a transaction. It can get lost: then the process looks at  *)
(* its record. It still knows whether it tried to take a grant over.       *)
Lost(p, s, step) == [At(p, step) EXCEPT !.adopted = s.adopted /\ Rule("TakeOverIsRemembered")]
Reply(p, s, step) == \/ Go(p, s) /\ UNCHANGED left
                     \/ /\ left.losses > 0
                        /\ left' = [left EXCEPT !.losses = @ - 1]
                        /\ Go(p, Lost(p, s, step))
(* A read, or a transaction that fails: only the process changes.          *)
Only(p, s) == Go(p, s) /\ UNCHANGED <<store, history, left>>

-----------------------------------------------------------------------------
(* Looking before a request enters. This is only advice and may be old.    *)

Claim(x, rivals) == FirstPlace(Priority(x), Passed(Priority(x), WithoutNodes(rivals)), 0)

(* A request that comes back after AWAY takes its old place, if each       *)
(* request that it would pass is not more urgent and waits for little      *)
(* else: they meet in a quarter of the objects that it names, or more.     *)
Named(w) == {o \in DOMAIN w : w[o] = "X" \/ Below[o] \cap DOMAIN w = {}}
Meet(w, v) == {o \in Named(w) \cap DOMAIN v : Clash(w[o], v[o])}
MayPass(x, y) == /\ Priority(y) <= Priority(x) \/ ~Rule("MoreUrgentIsNotPassed")
                 /\ 4 * Cardinality(Meet(Wanted(x), Wanted(y))) >= Cardinality(Named(Wanted(y)))
                    \/ ~Rule("WideIsNotPassed")
KeptTicket(x) == [place |-> records[x].kept, made |-> 0]
ComesBack(p, x, rivals) == /\ records[x].state = "AWAY" /\ records[x].process = p
                           /\ \A y \in rivals : \/ HasNodes(records[y]) \/ MayPass(x, y)
                                               \/ FirstOf(tickets[y], Priority(y), KeptTicket(x), Priority(x))

FirstLook(p) ==
  LET x == OwnerOf(p) w == Want(p) rivals == Rivals(x, w, QueuesFor(w))
      free == ~Scenario.looks \/ (rivals = {} /\ HiveInTheWay(x, w) = {})
      place == IF ComesBack(p, x, rivals) THEN records[x].kept ELSE Claim(x, rivals)
  IN  IF TooHeavy(x) THEN At(p, "done")
      ELSE IF WithSlot(p) /\ (~free \/ ~PermitFree(x)) THEN SlotBack(p, "start")
      ELSE IF ~PermitFree(x) THEN At(p, "park")
      ELSE IF free /\ (~Late(p) \/ ~Rule("LateRequestsQueueFirst"))
           THEN [At(p, IF Late(p) THEN "invite" ELSE "enter") EXCEPT
                           !.exists = {o \in DOMAIN w : Exists(o)},
                           !.number = IF Limit(x) > 0 THEN FreeNumbers(x) ELSE {}]
      ELSE IF NowaitOf(p) /\ ~free THEN At(p, "done") ELSE [At(p, "queue") EXCEPT !.claim = place]

(* A process begins, or begins again after a failure: it reads its record. *)
(* Only a later call takes over. LOST is never taken over. A request that  *)
(* has ended, by its owner or by force, is not asked again.                *)
look(p) ==
  LET x == OwnerOf(p) r == records[x] s == pr[p]
  IN  /\ s.step = "start"
      /\ fresh' = [y \in DOMAIN fresh |-> IF y \in {x} \cup (IF Limit(x) > 0 THEN {"group"} ELSE {})
                                          THEN fresh[y] \cup {p} ELSE fresh[y]]
      /\ Only(p, CASE (r.round # s.round /\ Rule("EndedCallsStop")) \/ r.process > p -> At(p, "stopped")
                   [] r.state \in {"FREE", "AWAY"} -> FirstLook(p)
                   [] r.state = "INVITED" -> At(p, IF s.slot THEN "turn"
                                                   ELSE IF r.process = p THEN "slot" ELSE "take up")
                   [] r.state = "PARKED" /\ r.process = p /\ alive[x] = p -> At(p, "parked")
                   [] r.state = "LOST" /\ r.process # p -> At(p, "stopped")
                   [] r.process # p \/ (r.state \in {"WAITING", "PARKED"} /\ alive[x] # p) ->
                        [At(p, "take over") EXCEPT !.adopted = r.state = "GRANTED"]
                   [] r.state = "WAITING" -> At(p, "turn")
                   [] r.state = "GRANTED" -> [At(p, "find") EXCEPT !.then = "verify"]
                   [] OTHER -> [At(p, "find") EXCEPT !.then = IF s.adopted THEN "hold" ELSE "give back"])

(* A request asks whether its turn has come, and what it has to wait for   *)
(* if not. A request that overtook others also reads their records: one    *)
(* that has nodes is in the way. A request with a placeholder among Hive's *)
(* clients no longer looks at tickets.                                     *)
Request(y, kind) == [kind |-> kind, who |-> y, made |-> tickets[y].made, on |-> ""]
LookAtTurn(p) ==
  LET x == OwnerOf(p) w == Want(p) r == records[x]
      rivals == IF HasNodes(r) THEN {} ELSE Rivals(x, w, QueuesFor(w))
      ahead == {y \in rivals : Before(y, x)}
      overtaken == {y \in rivals \ ahead : tickets[y].made < tickets[x].made /\ HasNodes(records[y])}
      hive == HiveInTheWay(x, w)
      needs == Limit(x) > 0 /\ r.permit = {}
      found == [At(p, IF Late(p) /\ ~HasNodes(r) THEN "invite" ELSE "try") EXCEPT
                  !.paths = {Path(l) : l \in NodesOf(x)}, !.number = IF needs THEN FreeNumbers(x) ELSE r.permit]
  IN  IF ~Knows(p, x) THEN At(p, "start")
      ELSE IF \E q \in r.places : \A l \in NodesOf(x) : l.on # q.on THEN At(p, "strike")
      ELSE IF WithSlot(p) /\ (ahead # {} \/ hive # {}) THEN SlotBack(p, "take up")
      ELSE IF ahead # {} THEN
        [At(p, "wait") EXCEPT !.way = Request(CHOOSE y \in ahead : \A z \in ahead : z = y \/ Before(z, y), "ahead")]
      ELSE IF overtaken # {} /\ Rule("OvertakenRecordsAreRead") THEN
        IF WithSlot(p) THEN SlotBack(p, "take up") ELSE
        [At(p, "wait") EXCEPT !.way = Request(CHOOSE y \in overtaken : TRUE, "overtaken")]
      ELSE IF hive # {} THEN LET l == CHOOSE l \in hive : TRUE IN
        [found EXCEPT !.step = "wait", !.way = [kind |-> "hive", who |-> l.by, made |-> l.made, on |-> l.on]]
      ELSE IF needs /\ ~PermitFree(x) THEN At(p, "park")
      ELSE [found EXCEPT !.exists = {o \in DOMAIN w : Exists(o)}]

(* What a waiter watches: the ticket in its way, or the record of a        *)
(* request that it overtook, or Hive's node. The ticket is known by its    *)
(* path: the same owner can come again, behind the waiter. It also watches *)
(* its own record: a person may withdraw or change its request.            *)
Changed(p) == p \notin fresh[OwnerOf(p)] /\ Rule("OwnRecordIsWatched")
Woken(p) ==
  LET s == pr[p] y == s.way.who
      gone == IF Rule("TicketsAreKnownByPath") THEN tickets[y].made # s.way.made ELSE tickets[y].made = 0
  IN  CASE Changed(p) -> TRUE
        [] s.way.kind = "hive" -> \A l \in locks : l.by # y \/ l.made # s.way.made
        [] s.way.kind = "ahead" -> gone
        [] OTHER -> gone \/ (Rule("OvertakenRecordsAreWatched") /\ ~HasNodes(records[y]))
Dead(y) == records[y].state = "WAITING" /\ alive[y] = 0

look_again(p) ==
  /\ pr[p].step = "turn" \/ (pr[p].step = "wait" /\ Woken(p))
  /\ Only(p, LookAtTurn(p))
  /\ Watching(p)

-----------------------------------------------------------------------------
(* Verification: reads only, in the session of the write.                  *)
ObjectsRead(p) ==
  LET w == Want(p)
  IN  DOMAIN w \cup (IF Rule("ObjectsBelowAreRead") THEN UNION {Below[o] : o \in {o \in DOMAIN w : w[o] = "X"}}
                     ELSE {})
QueuesFirst == Rule("QueuesAreReadBeforeObjects")
ReadQueues(p, s) == [s EXCEPT !.step = "queues", !.todo = QueuesFor(Want(p))]
ReadObjects(p, s) == [s EXCEPT !.step = "objects", !.todo = ObjectsRead(p)]
Verify(p, paths) ==
  LET s == [At(p, "return") EXCEPT !.paths = paths]
  IN  IF ~Rule("GrantsAreVerified") \/ (WithSlot(p) /\ ~Rule("WorkersGrantIsVerified")) THEN s
      ELSE IF QueuesFirst THEN ReadQueues(p, s) ELSE ReadObjects(p, s)

GiveBack(p, s) == [At(p, "give back") EXCEPT !.paths = s.paths]
(* Nodes are found by zxid before they are deleted, once one is missing.   *)
FindAndGiveBack(p, s) == IF Rule("MissingNodesAreFoundAgain") THEN [At(p, "find") EXCEPT !.then = "give back"]
                         ELSE GiveBack(p, s)

(* Queues and objects are read. Tickets that are older than an object of   *)
(* theirs: UNLOCK TABLE took what their requests had there. A process does *)
(* this once for each object node.                                         *)
Older(p, s) ==
  {[who |-> e[1].who, object |-> e[2], behind |-> e[1].behind] :
     e \in {e \in s.seen \X s.born : /\ e[1].made < e[2].at
                                     /\ e[1].who # OwnerOf(p)
                                     /\ e[2].at # s.known[e[2].on]
                                     /\ e[2].on \in e[1].on}}
Listed(p, u) == {[who |-> y, made |-> tickets[y].made, behind |-> Behind(y, OwnerOf(p)),
                  on |-> DOMAIN Wanted(y) \cap DOMAIN Want(p)] : y \in {y \in Owners : InQueue(y, u)}}
NewDatabase(s) == Rule("NewDatabaseReadsAllQueues") /\ \E b \in s.born : b.on = "db" /\ b.at > s.known["db"]
ReadAgain(p, s) == IF Rule("OwnNodesAreReadAgain")
                   THEN [s EXCEPT !.step = "objects", !.todo = DOMAIN Want(p), !.again = TRUE]
                   ELSE [s EXCEPT !.step = "return"]
Younger(p, s, again) ==
  LET older == IF Rule("OlderTicketsAreMarked") THEN Older(p, s) ELSE {}
      rest == [s EXCEPT !.todo = {}, !.seen = {}, !.older = older]
  IN  IF older # {} THEN [rest EXCEPT !.step = IF \E e \in older : e.behind THEN "waiters" ELSE "records"]
      ELSE IF again THEN ReadAgain(p, rest) ELSE [rest EXCEPT !.step = "return"]
AfterReads(p, s) ==
  LET rest == Units \ QueuesFor(Want(p))
  IN  IF NewDatabase(s) /\ rest # {}
      THEN [s EXCEPT !.step = "all queues", !.todo = rest,
                     !.known = IF Rule("DatabasesAreRememberedAtTheEnd") THEN @
                               ELSE [@ EXCEPT !["db"] = objects["db"].born]]
      ELSE Younger(p, s, FALSE)

(* Step 1 and 2: a ticket is in the way if it conflicts, comes before this *)
(* request, and was made before t. A ticket that was made later, by a      *)
(* claim, sees this request's nodes. A request that is granted at once has *)
(* not looked for the nodes of those that it has overtaken: all older      *)
(* tickets are in its way.                                                 *)
AtOnce(x) == tickets[x].made = First(records[x]) /\ Rule("OvertakenAreHeededAtOnce")
Heeded(y, x) == /\ tickets[y].made < First(records[x]) \/ ~Rule("LaterClaimsAreIgnored")
                /\ tickets[y].made < tickets[x].made \/ Rule("EarlierClaimsAreHeeded")
VerifyQueues(p) ==
  LET s == pr[p] x == OwnerOf(p)
  IN  /\ s.step = "queues"
      /\ \E u \in s.todo :
           LET rest == [s EXCEPT !.todo = @ \ {u}, !.seen = @ \cup Listed(p, u)]
           IN  Only(p, IF \E y \in Rivals(x, Want(p), {u}) : (Before(y, x) \/ AtOnce(x)) /\ Heeded(y, x) THEN GiveBack(p, s)
                       ELSE IF rest.todo # {} THEN rest
                       ELSE IF s.place THEN At(p, "turn")
                       ELSE IF QueuesFirst THEN ReadObjects(p, rest) ELSE AfterReads(p, rest))
      /\ UNCHANGED fresh

(* Step 3, one object: its children, then the object itself. The second    *)
(* read shows that the first one read the right children. So both are one  *)
(* step here.                                                              *)
HiveWasFirst(p, o) ==
  LET w == Want(p)
      mine == CHOOSE l \in OursAt(pr[p].paths) : l.on = o
  IN  \E l \in locks : l.on = o /\ l.by \in Hives /\
        IF o \in DOMAIN w THEN Clash(l.mode, w[o]) /\ l.seq < mine.seq ELSE l.made < First(Own(p))
NodeIsThere(p, o) == (\E l \in OursAt(pr[p].paths) : l.on = o)
                     /\ (objects[o].born <= MadeOn(Own(p), o) \/ ~Rule("AgeOfObjectsIsCompared"))
VerifyObjects(p) ==
  LET s == pr[p] x == OwnerOf(p) w == Want(p)
  IN  /\ s.step = "objects"
      /\ \E o \in s.todo :
           LET rest == [s EXCEPT !.todo = @ \ {o},
                                 !.born = @ \cup (IF s.again THEN {} ELSE {[on |-> o, at |-> objects[o].born]})]
           IN  Only(p, IF o \in DOMAIN w /\ ~NodeIsThere(p, o)
                         THEN IF s.adopted THEN [At(p, "lost") EXCEPT !.way.on = o] ELSE FindAndGiveBack(p, s)
                       ELSE IF ~s.again /\ Rule("HivesNodesAreRead") /\ HiveWasFirst(p, o) THEN GiveBack(p, s)
                       ELSE IF rest.todo # {} THEN rest
                       ELSE IF s.again THEN [s EXCEPT !.step = "return", !.todo = {}]
                       ELSE IF QueuesFirst THEN AfterReads(p, rest) ELSE ReadQueues(p, rest))
      /\ UNCHANGED fresh

(* Step 4: the record of each older ticket. If it has nodes older than the *)
(* object, then they are gone, and one of their paths may now be this      *)
(* request's. It is marked. For a new database, all its queues are read    *)
(* first. At the end the own nodes are read once more.                     *)
(*                                                                         *)
(* The records of most waiters need not be read. One read lists the        *)
(* liveness nodes. A request that has one waits. If it is also behind this *)
(* request, it has no lock nodes, and those that it may have had went      *)
(* before the own nodes are read once more.                                *)
Skipped(e) == e.behind /\ (alive[e.who] > 0 \/ ~Rule("OnlyWaitersAreSkipped"))
Gone(y, e) == LET made == MadeOn(records[y], e.object.on) lost == records[y].lost
              IN  /\ made > 0 /\ made < e.object.at
                  /\ IF Rule("LostRecordsAreMarkedAgain") THEN e.object.on \notin lost ELSE lost = {}
Checked(p, s, y) == LET rest == [s EXCEPT !.older = {e \in @ : e.who # y}, !.way = NoWay, !.step = "records"]
                    IN  IF rest.older = {} THEN ReadAgain(p, rest) ELSE rest
VerifyYounger(p) ==
  LET s == pr[p] x == OwnerOf(p)
  IN  \/ /\ s.step = "all queues"
         /\ \E u \in s.todo :
              LET rest == [s EXCEPT !.todo = @ \ {u}, !.seen = @ \cup Listed(p, u)]
              IN  Only(p, IF rest.todo # {} THEN rest ELSE Younger(p, rest, Rule("OwnNodesAreReadAfterAllQueues")))
         /\ UNCHANGED fresh
      \/ /\ s.step = "waiters"
         /\ LET rest == [s EXCEPT !.older = {e \in @ : ~Skipped(e)}]
            IN  Only(p, IF rest.older # {} THEN [rest EXCEPT !.step = "records"]
                        ELSE IF Rule("OwnNodesAreReadAfterWaiters") THEN ReadAgain(p, rest)
                        ELSE [rest EXCEPT !.step = "return"])
         /\ UNCHANGED fresh
      \/ /\ s.step = "records"
         /\ \E y \in {e.who : e \in s.older} :
              LET gone == {e \in s.older : e.who = y /\ Gone(y, e)}
              IN  /\ Only(p, IF gone = {} THEN Checked(p, s, y)
                             ELSE [s EXCEPT !.step = "mark", !.way = Request(y, "older")])
                  /\ IF gone = {} THEN UNCHANGED fresh ELSE Read(p, y)

verify(p) == VerifyQueues(p) \/ VerifyObjects(p) \/ VerifyYounger(p)

(* No read found a conflict: the caller has the lease. No write is needed, *)
(* and the record is not read again.                                       *)
return_lease(p) ==
  LET s == pr[p] x == OwnerOf(p)
  IN  /\ s.step = "return"
      /\ Go(p, [At(p, "hold") EXCEPT !.paths = s.paths,
                                     !.known = [o \in Objects |-> IF \E b \in s.born : b.on = o /\ o \in DOMAIN Want(p)
                                                                   THEN (CHOOSE b \in s.born : b.on = o).at ELSE @[o]]])
      /\ history' = IF Mine(p) THEN [history EXCEPT !.returned[x] = TRUE] ELSE history
      /\ UNCHANGED <<store, fresh, left>>
=============================================================================
