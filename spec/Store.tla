-------------------------------- MODULE Store --------------------------------
(***************************************************************************)
(* What ZooKeeper stores, as far as the lock protocol uses it.             *)
(* Reads.tla, Writes.tla and Invitations.tla have the steps of our         *)
(* processes, Hive.tla those of Hive, Locks.tla the promises,              *)
(* Scenarios.tla the cases that are checked.                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS Scenario,  \* who wants which locks, and which faults can happen
          LeftOut    \* names of rules that are left out: a mutation of the specification

Rule(name) == name \notin LeftOut

-----------------------------------------------------------------------------
(* The objects of Hive's namespace: a database, its tables t and u, a      *)
(* partition p of t. Hive locks them in this order.                        *)
Order == <<"db", "t", "p", "u">>
Objects == {"db", "t", "p", "u"}
Rank == [o \in Objects |-> CHOOSE i \in 1..4 : Order[i] = o]
Parent == [db |-> "", t |-> "db", p |-> "t", u |-> "db"]
Below == [db |-> {"t", "p", "u"}, t |-> {"p"}, p |-> {}, u |-> {}]

(* An owner is what Airflow calls a task instance. It makes one request at *)
(* a time. A request maps objects to modes, "S" or "X".                    *)
Owners == DOMAIN Scenario.requests
Hives == DOMAIN Scenario.hive
Processes == DOMAIN Scenario.processes  \* 1, 2, …: a later call of an owner has the larger number
OwnerOf(p) == Scenario.processes[p]
Clash(m, n) == "X" \in {m, n}

(* A unit has a queue of tickets: each table has one. The database has one *)
(* for requests that name no table or want the database EXCLUSIVE.         *)
Units == {"db", "t", "u"}
ObjectsOf == [db |-> {"db"}, t |-> {"db", "t", "p"}, u |-> {"db", "u"}]
UnitsOf(w) == LET tables == {"t", "u"} \cap DOMAIN w
              IN  IF tables = {} \/ w["db"] = "X" THEN tables \cup {"db"} ELSE tables
(* The queues that a request has to read.                                  *)
QueuesFor(w) == IF w["db"] = "X" THEN Units
                ELSE IF Rule("DatabaseQueueIsRead") THEN UnitsOf(w) \cup {"db"} ELSE UnitsOf(w)

-----------------------------------------------------------------------------
VARIABLES
  objects,  \* object -> when it was born (0: it does not exist), next sequence number
  locks,    \* the lock nodes: on (object), mode, seq, by (owner or Hive's client), made (czxid)
  tickets,  \* owner -> its tickets, which are made and deleted together: made (czxid; 0: none), place
  alive,    \* owner -> the process with a liveness node beside the tickets (0: none)
  records,  \* owner -> its record
  permits,  \* the permits of the group of leases: number, by (owner)
  fresh,    \* owner -> the processes that know the present version of its record; "group": that of the permits
  history,  \* not stored: what UNLOCK and the releases of others have taken; which leases a caller has
  left      \* how many faults of each kind can still happen, and how many changes of the group's limit

store == <<objects, locks, tickets, alive, records, permits>>

NoTicket == [made |-> 0, place |-> 0]
Absent == [born |-> 0, next |-> 0]
Exists(o) == objects[o].born > 0

(* A record: its state; the process that acts; how many requests of the    *)
(* owner are over; when its lock nodes were made (t); the placeholders     *)
(* among Hive's clients; the objects marked as lost. A FREE record stands  *)
(* for none and for a TOMBSTONE, too.                                      *)
(* A transaction cannot write its own zxid. So t is the record's mzxid,    *)
(* and each later write of the record copies t into it.                    *)
(* `kept`: the queue position that an AWAY request had. `parked`: the place *)
(* in the group's queue, once it has one. `permit`: its permits' numbers.  *)
(* `changed`: a person has given the request its other priority.           *)
FreeRecord(round) == [state |-> "FREE", process |-> 0, round |-> round, since |-> 0, places |-> {}, lost |-> {},
                      kept |-> 0, parked |-> 0, permit |-> {}, changed |-> FALSE]
Priority(x) == IF records[x].changed THEN Scenario.change[x] ELSE Scenario.priority[x]

Wanted(x) == Scenario.requests[x][IF records[x].round < Len(Scenario.requests[x]) THEN records[x].round + 1
                                  ELSE Len(Scenario.requests[x])]

(* When the record's lock node on an object was made; 0: it has none.      *)
MadeOn(r, o) == IF \E q \in r.places : q.on = o THEN (CHOOSE q \in r.places : q.on = o).made ELSE r.since
HasNodes(r) == r.since > 0 \/ r.places # {}
Min(S) == CHOOSE z \in S : \A y \in S : z <= y
Max(S) == CHOOSE z \in S : \A y \in S : z >= y
(* t of a request: its first placeholder counts.                           *)
First(r) == LET made == {q.made : q \in r.places} \cup (IF r.since > 0 THEN {r.since} ELSE {})
            IN  IF made = {} THEN 0 ELSE Min(made)

(* The nodes of an owner, found by their zxid.                             *)
NodesOf(x) == {l \in locks : l.by = x /\ l.made = MadeOn(records[x], l.on)}

(* A path is a node's name: object, mode and number. Ours have 11 digits,  *)
(* Hive's 10, so ours and Hive's never have the same path.                 *)
Path(l) == [on |-> l.on, mode |-> l.mode, seq |-> l.seq]
OursAt(paths) == {l \in locks : l.by \in Owners /\ Path(l) \in paths}
HivesAt(paths) == {l \in locks : l.by \in Hives /\ Path(l) \in paths}

-----------------------------------------------------------------------------
(* The zxid of the next transaction. Zxids are only compared. So the       *)
(* smallest number that is larger than all in use is as good as a counter, *)
(* and there are fewer states. `memory` is what processes remember.        *)
NextZxid(memory) ==
  1 + Max({objects[o].born : o \in Objects} \cup {l.made : l \in locks} \cup {0} \cup memory
          \cup UNION {{tickets[x].made, tickets[x].place, records[x].since, records[x].kept, records[x].parked}
                      \cup {q.made : q \in records[x].places}
                      : x \in Owners})

(* Objects and lock nodes after a transaction that creates those of `os`   *)
(* that do not exist, and a lock node on each of `on`. ZooKeeper numbers   *)
(* children by a counter in the parent. The counter begins again at 0      *)
(* when the parent was deleted and made again.                             *)
NewChildren(o, os) == Cardinality({k \in os : Parent[k] = o /\ ~Exists(k)})
ObjectsWith(os, on, z) ==
  [o \in Objects |->
     LET next == objects[o].next + NewChildren(o, os) + (IF o \in on THEN 1 ELSE 0)
     IN  [born |-> IF o \in os /\ ~Exists(o) THEN z ELSE objects[o].born, next |-> next]]
NewLocks(on, os, w, by, z) ==
  {[on |-> o, mode |-> w[o], seq |-> objects[o].next + NewChildren(o, os), by |-> by, made |-> z] : o \in on}

(* Objects after a transaction that deletes these lock nodes. It deletes   *)
(* a partition node with its last lock node, and no other object.          *)
ObjectsWithout(gone) ==
  IF (\E l \in gone : l.on = "p") /\ (\A l \in locks : l.on = "p" => l \in gone)
  THEN [objects EXCEPT !["p"] = Absent] ELSE objects
Empty(o) == (\A l \in locks : l.on # o) /\ (\A k \in Objects : Parent[k] = o => ~Exists(k))

-----------------------------------------------------------------------------
(* Compare-and-set: a process writes a record only if it knows the         *)
(* record's present version.                                               *)
Knows(p, x) == p \in fresh[x] \/ ~Rule("RecordsAreComparedAndSet")
Read(p, x) == fresh' = [fresh EXCEPT ![x] = @ \cup {p}]
Wrote(p, x) == fresh' = [fresh EXCEPT ![x] = {p}]

-----------------------------------------------------------------------------
(* The queue.                                                              *)
(* The order in a queue: the background last, then the claimed place or    *)
(* else the ticket's own zxid, then the higher priority, then that zxid.   *)
(* So requests that overtake the background claim no place there.          *)
Background(priority) == priority = 0
FirstOf(a, i, b, j) == IF Background(i) # Background(j) THEN Background(j)
                       ELSE a.place < b.place \/ (a.place = b.place /\ (i > j \/ (i = j /\ a.made < b.made)))
Before(y, x) == FirstOf(tickets[y], Priority(y), tickets[x], Priority(x))

(* A request takes the place of the requests that it overtakes, if they    *)
(* are in the background only together with it. It overtakes those of      *)
(* lower priority that wait, up to the first that waits with the same or a *)
(* higher priority.                                                        *)
WithoutNodes(rivals) == {y \in rivals : ~HasNodes(records[y])}
Passed(priority, waiting) == {y \in waiting : \A z \in waiting : (z = y \/ Before(y, z)) => Priority(z) < priority}
FirstPlace(priority, passed, otherwise) ==
  LET beside == {y \in passed : Background(Priority(y)) = Background(priority)}
  IN  IF beside = {} THEN otherwise ELSE Min({tickets[y].place : y \in beside})

InQueue(x, u) == tickets[x].made > 0 /\ u \in UnitsOf(Wanted(x))
Conflict(w, v) == \E o \in DOMAIN w \cap DOMAIN v : Clash(w[o], v[o])
ConflictIn(u, w, v) == \E o \in DOMAIN w \cap DOMAIN v \cap ObjectsOf[u] : Clash(w[o], v[o])

(* A request is behind another if it conflicts, has a younger ticket, and  *)
(* comes later in the queue. It sees the other's ticket at each look, so   *)
(* it never gets a placeholder.                                            *)
Behind(y, x) == /\ Conflict(Wanted(x), Wanted(y)) \/ ~Rule("OnlyRivalsAreBehind")
                /\ tickets[x].made < tickets[y].made \/ ~Rule("OvertakenAreNotBehind")
                /\ Before(x, y)

(* The other owners with a conflicting ticket in one of these queues.      *)
Rivals(x, w, queues) ==
  {y \in Owners \ {x} : /\ \E u \in queues : InQueue(y, u) /\ ConflictIn(u, w, Wanted(y))
                        /\ records[y].state # "INVITED" \/ Rule("InvitedRequestsBlock")}

(* Locks of Hive's that keep this request out. A request with a            *)
(* placeholder on an object only minds the smaller numbers there.          *)
HiveInTheWay(x, w) ==
  {l \in locks : l.by \in Hives /\
     \/ /\ l.on \in DOMAIN w
        /\ Clash(l.mode, w[l.on])
        /\ \A q \in records[x].places : q.on = l.on => \A m \in NodesOf(x) : m.on = l.on => l.seq < m.seq
     \/ \E o \in DOMAIN w : w[o] = "X" /\ l.on \in Below[o] \ DOMAIN w}

-----------------------------------------------------------------------------
(* A group of leases. A request takes its permits with the transaction     *)
(* that grants or invites it, as many as it weighs. That transaction       *)
(* compares and raises the version above the permits, since limits can     *)
(* differ, and can change: `Knows(p, "group")`.                            *)
(* The limit in the store wins over a request's own. A person changes it:  *)
(* each change stores the next one of Scenario.limits, or deletes it (0).  *)
Changes == Len(Scenario.limits) - left.limits
Stored == IF Changes = 0 THEN 0 ELSE Scenario.limits[Changes]
Allowed(x) == IF Scenario.most[x] > 0 /\ Stored > 0 THEN Stored ELSE Scenario.most[x]
Limit(x) == IF Rule("StoredLimitWins") THEN Allowed(x) ELSE Scenario.most[x]
Weight(x) == Scenario.weight[x]
FreeNumbers(x) ==
  LET free == {n \in 1..(Cardinality(permits) + Weight(x)) : \A q \in permits : q.number # n}
  IN  CHOOSE S \in SUBSET free : Cardinality(S) = Weight(x) /\ \A n \in S, m \in free \ S : n < m
Permitted(x, numbers) == permits \cup {[number |-> n, by |-> x] : n \in numbers}
Without(x) == {q \in permits : q.by # x}
ParkedBefore(x) == {y \in Owners \ {x} : records[y].state = "PARKED" /\ Limit(y) > 0
                      /\ (records[x].parked = 0 \/ records[y].parked < records[x].parked)}
(* A request without a limit needs no permit. A light one does not pass a  *)
(* heavy one that waits before it, although there is room for it.          *)
PermitFree(x) ==
  Limit(x) = 0 \/ (/\ Cardinality(permits) + Weight(x) <= Limit(x)
                   /\ ParkedBefore(x) = {} \/ ~Rule("HeavyIsNotPassed"))
(* It can never have its permits.                                          *)
TooHeavy(x) == Limit(x) > 0 /\ Weight(x) > Limit(x) /\ Rule("TooHeavyIsRefused")
=============================================================================
