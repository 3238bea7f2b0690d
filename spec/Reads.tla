-------------------------------- MODULE Reads --------------------------------
(***************************************************************************)
(* Create, then look. A request creates all its lock nodes in one          *)
(* transaction. Then it reads the queues and the objects. It is returned   *)
(* to the caller only if no read found a conflict. Of two conflicting      *)
(* requests the later one always sees the earlier one.                     *)
(*                                                                         *)
(* An action is one transaction or one read. It has the name of the        *)
(* function that implements it. A process can stop between any two.        *)
(***************************************************************************)
EXTENDS Store

VARIABLES pr  \* what each of our processes remembers

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
          known |-> 0,        \* the database node for which all queues have been read
          adopted |-> FALSE]  \* the grant was taken over: a caller of an earlier process may have the lease
At(p, step) == [Blank EXCEPT !.step = step, !.round = pr[p].round, !.known = pr[p].known, !.adopted = pr[p].adopted]
Own(p) == records[OwnerOf(p)]
Want(p) == Scenario.requests[OwnerOf(p)][pr[p].round + 1]
Mine(p) == Own(p).process = p /\ Own(p).round = pr[p].round
NowaitOf(p) == OwnerOf(p) \in Scenario.nowait

Memory(s) == {s.known, s.claim, s.way.made} \cup {b.at : b \in s.born} \cup {t.made : t \in s.seen}
Zxid == NextZxid(UNION {Memory(pr[p]) : p \in Processes})

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

(* A request takes the place of the requests that it overtakes. It         *)
(* overtakes those of lower priority that wait, up to the first that waits *)
(* with the same or a higher priority.                                     *)
Claim(x, rivals) ==
  LET waiting == {y \in rivals : ~HasNodes(records[y])}
      passed == {y \in waiting : \A z \in waiting :
                   (z = y \/ Before(y, z)) => Scenario.priority[z] < Scenario.priority[x]}
  IN  IF passed = {} THEN 0 ELSE Min({tickets[y].place : y \in passed})

FirstLook(p) ==
  LET x == OwnerOf(p) w == Want(p) rivals == Rivals(x, w, QueuesFor(w))
  IN  IF ~Scenario.looks \/ (rivals = {} /\ HiveInTheWay(x, w) = {})
      THEN [At(p, "enter") EXCEPT !.exists = {o \in DOMAIN w : Exists(o)}]
      ELSE IF NowaitOf(p) THEN At(p, "done") ELSE [At(p, "queue") EXCEPT !.claim = Claim(x, rivals)]

(* A process begins, or begins again after a failure: it reads its record. *)
(* Only a later call takes over. LOST is never taken over.                 *)
look(p) ==
  LET x == OwnerOf(p) r == records[x] s == pr[p]
  IN  /\ s.step = "start"
      /\ Read(p, x)
      /\ Only(p, CASE r.round # s.round \/ r.process > p -> At(p, "stopped")
                   [] r.state = "FREE" -> FirstLook(p)
                   [] r.state = "LOST" /\ r.process # p -> At(p, "stopped")
                   [] r.process # p \/ (r.state = "WAITING" /\ alive[x] # p) ->
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
      found == [At(p, "try") EXCEPT !.paths = {Path(l) : l \in NodesOf(x)}]
  IN  IF ~Knows(p, x) THEN At(p, "start")
      ELSE IF \E q \in r.places : \A l \in NodesOf(x) : l.on # q.on THEN At(p, "strike")
      ELSE IF ahead # {} THEN
        [At(p, "wait") EXCEPT !.way = Request(CHOOSE y \in ahead : \A z \in ahead : z = y \/ Before(z, y), "ahead")]
      ELSE IF overtaken # {} /\ Rule("OvertakenRecordsAreRead") THEN
        [At(p, "wait") EXCEPT !.way = Request(CHOOSE y \in overtaken : TRUE, "overtaken")]
      ELSE IF hive # {} THEN LET l == CHOOSE l \in hive : TRUE IN
        [found EXCEPT !.step = "wait", !.way = [kind |-> "hive", who |-> l.by, made |-> l.made, on |-> l.on]]
      ELSE [found EXCEPT !.exists = {o \in DOMAIN w : Exists(o)}]

(* What a waiter watches: the ticket in its way, or the record of a        *)
(* request that it overtook, or Hive's node. The ticket is known by its    *)
(* path: the same owner can come again, behind the waiter.                 *)
Woken(p) ==
  LET s == pr[p] y == s.way.who
      gone == IF Rule("TicketsAreKnownByPath") THEN tickets[y].made # s.way.made ELSE tickets[y].made = 0
  IN  CASE s.way.kind = "hive" -> \A l \in locks : l.by # y \/ l.made # s.way.made
        [] s.way.kind = "ahead" -> gone
        [] OTHER -> gone \/ (Rule("OvertakenRecordsAreWatched") /\ ~HasNodes(records[y]))
Dead(y) == records[y].state = "WAITING" /\ alive[y] = 0

look_again(p) ==
  /\ pr[p].step = "turn" \/ (pr[p].step = "wait" /\ Woken(p))
  /\ Only(p, LookAtTurn(p))
  /\ UNCHANGED fresh

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
  IN  IF ~Rule("GrantsAreVerified") THEN s ELSE IF QueuesFirst THEN ReadQueues(p, s) ELSE ReadObjects(p, s)

GiveBack(p, s) == [At(p, "give back") EXCEPT !.paths = s.paths]
(* Nodes are found by zxid before they are deleted, once one is missing.   *)
FindAndGiveBack(p, s) == IF Rule("MissingNodesAreFoundAgain") THEN [At(p, "find") EXCEPT !.then = "give back"]
                         ELSE GiveBack(p, s)

(* Queues and objects are read. Tickets that are older than an object of   *)
(* theirs: UNLOCK TABLE took what their requests had there.                *)
Older(p, s) ==
  {[who |-> e[1].who, object |-> e[2]] :
     e \in {e \in s.seen \X s.born : /\ e[1].made < e[2].at
                                     /\ e[1].who # OwnerOf(p)
                                     /\ e[2].on \in DOMAIN Wanted(e[1].who) \cap DOMAIN Want(p)}}
Listed(u) == {[who |-> y, made |-> tickets[y].made] : y \in {y \in Owners : InQueue(y, u)}}
NewDatabase(s) == Rule("NewDatabaseReadsAllQueues") /\ \E b \in s.born : b.on = "db" /\ b.at > s.known
ReadAgain(p, s) == IF Rule("OwnNodesAreReadAgain")
                   THEN [s EXCEPT !.step = "objects", !.todo = DOMAIN Want(p), !.again = TRUE]
                   ELSE [s EXCEPT !.step = "return"]
Younger(p, s, again) ==
  LET older == IF Rule("OlderTicketsAreMarked") THEN Older(p, s) ELSE {}
      rest == [s EXCEPT !.todo = {}, !.seen = {}, !.older = older]
  IN  IF older # {} THEN [rest EXCEPT !.step = "records"]
      ELSE IF again THEN ReadAgain(p, rest) ELSE [rest EXCEPT !.step = "return"]
AfterReads(p, s) ==
  LET rest == Units \ QueuesFor(Want(p))
  IN  IF NewDatabase(s) /\ rest # {}
      THEN [s EXCEPT !.step = "all queues", !.todo = rest,
                     !.known = IF Rule("DatabasesAreRememberedAtTheEnd") THEN @ ELSE objects["db"].born]
      ELSE Younger(p, s, FALSE)

(* Step 1 and 2: a ticket is in the way if it conflicts, comes before this *)
(* request, and was made before t. A ticket that was made later, by a      *)
(* claim, sees this request's nodes.                                       *)
Heeded(y, x) == /\ tickets[y].made < First(records[x]) \/ ~Rule("LaterClaimsAreIgnored")
                /\ tickets[y].made < tickets[x].made \/ Rule("EarlierClaimsAreHeeded")
verify_queues(p) ==
  LET s == pr[p] x == OwnerOf(p)
  IN  /\ s.step = "queues"
      /\ \E u \in s.todo :
           LET rest == [s EXCEPT !.todo = @ \ {u}, !.seen = @ \cup Listed(u)]
           IN  Only(p, IF \E y \in Rivals(x, Want(p), {u}) : Before(y, x) /\ Heeded(y, x) THEN GiveBack(p, s)
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
verify_objects(p) ==
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
Gone(y, e) == LET made == MadeOn(records[y], e.object.on) lost == records[y].lost
              IN  /\ made > 0 /\ made < e.object.at
                  /\ IF Rule("LostRecordsAreMarkedAgain") THEN e.object.on \notin lost ELSE lost = {}
Checked(p, s, y) == LET rest == [s EXCEPT !.older = {e \in @ : e.who # y}, !.way = NoWay, !.step = "records"]
                    IN  IF rest.older = {} THEN ReadAgain(p, rest) ELSE rest
verify_younger_objects(p) ==
  LET s == pr[p] x == OwnerOf(p)
  IN  \/ /\ s.step = "all queues"
         /\ \E u \in s.todo :
              LET rest == [s EXCEPT !.todo = @ \ {u}, !.seen = @ \cup Listed(u)]
              IN  Only(p, IF rest.todo # {} THEN rest ELSE Younger(p, rest, Rule("OwnNodesAreReadAfterAllQueues")))
         /\ UNCHANGED fresh
      \/ /\ s.step = "records"
         /\ \E y \in {e.who : e \in s.older} :
              LET gone == {e \in s.older : e.who = y /\ Gone(y, e)}
              IN  /\ Only(p, IF gone = {} THEN Checked(p, s, y)
                             ELSE [s EXCEPT !.step = "mark", !.way = Request(y, "older")])
                  /\ IF gone = {} THEN UNCHANGED fresh ELSE Read(p, y)

(* No read found a conflict: the caller has the lease. No write is needed, *)
(* and the record is not read again.                                       *)
return_lease(p) ==
  LET s == pr[p] x == OwnerOf(p)
  IN  /\ s.step = "return"
      /\ Go(p, [At(p, "hold") EXCEPT !.paths = s.paths,
                                     !.known = IF NewDatabase(s) THEN (CHOOSE b \in s.born : b.on = "db").at ELSE @])
      /\ history' = IF Mine(p) THEN [history EXCEPT !.returned[x] = TRUE] ELSE history
      /\ UNCHANGED <<store, fresh, left>>
=============================================================================
