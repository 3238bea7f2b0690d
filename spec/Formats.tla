------------------------------- MODULE Formats -------------------------------
(***************************************************************************)
(* Processes of two versions on one lock store, and the store's stamp: its *)
(* format and its lowest reader. A later version raises the stamp while an *)
(* earlier one is anywhere between its reads and its grant.                *)
(*                                                                         *)
(* All want one table EXCLUSIVE. Locks.tla shows that two processes of one *)
(* version never both hold it. So a transaction looks and writes here. A   *)
(* process below the lowest reader of a request misreads it in the worst   *)
(* way: it sees nothing of that request.                                   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS Scenario,  \* the processes and their versions, the kind of store, and which faults can happen
          LeftOut    \* names of rules that are left out

Rule(name) == name \notin LeftOut

Processes == DOMAIN Scenario.processes  \* 1, 2, …: of one owner, the later process is the later try
Format(p) == Scenario.processes[p].format
Lowest(p) == Scenario.processes[p].lowest  \* the lowest reader of what it writes
OwnerOf(p) == Scenario.processes[p].owner
Frees(p) == OwnerOf(p) = "keeper"  \* it frees by force what ended processes hold
Owners == {OwnerOf(p) : p \in Processes} \ {"keeper"}

VARIABLES
  stamp,    \* of the store: format, lowest reader, version of its node (0: there is none)
  shape,    \* the lowest reader of the tables as they are; ZooKeeper has none
  leases,   \* owner -> its lease: held, by (process), lowest reader, whether it has a field that only format 2 knows
  queue,    \* process -> its queue position (0: it does not wait)
  pr,       \* process -> the step that follows, and the version of the stamp that it knows
  history,  \* not stored: each transaction that asked for locks or freed some, with the lowest readers at that moment
  left      \* how many faults of each kind can still happen

vars == <<stamp, shape, leases, queue, pr, history, left>>

NoStamp == [format |-> 0, lowest |-> 0, version |-> 0]
NoLease == [held |-> FALSE, by |-> 0, lowest |-> 0, field |-> FALSE]
Ended == {"done", "refused", "dead"}
Max(a, b) == IF a > b THEN a ELSE b

Init ==
  /\ stamp = NoStamp
  /\ shape = 0
  /\ leases = [x \in Owners |-> NoLease]
  /\ queue = [p \in Processes |-> 0]
  /\ pr = [p \in Processes |-> [step |-> "start", known |-> 0]]
  /\ history = {}
  /\ left = Scenario.faults

Go(p, step) == pr' = [pr EXCEPT ![p].step = step]
Only(p, step) == Go(p, step) /\ UNCHANGED <<stamp, shape, leases, queue, history, left>>
(* UpgradeNeeded. A refused waiter still has its ticket.                   *)
Refuse(p) == Only(p, IF queue[p] > 0 THEN "leave" ELSE "refused")

-----------------------------------------------------------------------------
(* The stamp. The first process of a later version raises it.              *)

(* A retry begins when Airflow takes the earlier try for over.             *)
start(p) ==
  /\ pr[p].step = "start"
  /\ \A q \in Processes : q < p /\ OwnerOf(q) = OwnerOf(p) /\ ~Frees(q) => pr[q].step \in Ended
  /\ Only(p, "read")

TooOld(p) == IF Rule("LowestReaderDecides") THEN stamp.lowest > Format(p) ELSE stamp.format > Format(p)
read(p) ==
  /\ pr[p].step = "read"
  /\ IF TooOld(p) THEN Refuse(p)
     ELSE /\ pr' = [pr EXCEPT ![p] = [step |-> IF stamp.format >= Format(p) THEN "ask" ELSE "raise",
                                      known |-> stamp.version]]
          /\ UNCHANGED <<stamp, shape, leases, queue, history, left>>

(* In ZooKeeper: one compare-and-set. Versions grow with formats, so that  *)
(* no process knows a node by the version of an earlier one in its place.  *)
raise(p) ==
  LET version == stamp.version + 1
  IN  /\ pr[p].step = "raise" /\ ~Scenario.database
      /\ IF stamp.version # pr[p].known THEN Only(p, "read")
         ELSE /\ stamp' = [format |-> Format(p), lowest |-> Max(stamp.lowest, Lowest(p)),
                           version |-> IF Rule("VersionIsTheFormat") THEN Max(version, Format(p)) ELSE version]
              /\ Go(p, "read")
              /\ UNCHANGED <<shape, leases, queue, history, left>>

(* In a database: numbered steps, one process at a time. A migration keeps *)
(* transactions out, and waits for those that have begun. MySQL commits    *)
(* each step. So the lowest reader is raised first, the format last, and a *)
(* process that follows takes all steps again.                             *)
Alone(p) == \A q \in Processes : /\ pr[q].step = "commit" => ~Rule("MigrationWaits")
                                 /\ q # p => pr[q].step \notin {"migrate", "finish"}
RaiseLowest(p) == stamp' = [stamp EXCEPT !.lowest = Max(@, Lowest(p)), !.version = @ + 1] /\ UNCHANGED shape
Alter(p) == shape' = Max(shape, Lowest(p)) /\ UNCHANGED stamp
migrate(p) ==
  /\ Scenario.database
  /\ \/ /\ pr[p].step = "raise" /\ Alone(p)
        /\ IF stamp.format >= Format(p) THEN Go(p, "read") /\ UNCHANGED <<stamp, shape>>
           ELSE /\ Go(p, "migrate")
                /\ IF Rule("LowestReaderIsRaisedFirst") THEN RaiseLowest(p) ELSE Alter(p)
     \/ /\ pr[p].step = "migrate"
        /\ Go(p, "finish")
        /\ IF Rule("LowestReaderIsRaisedFirst") THEN Alter(p) ELSE RaiseLowest(p)
     \/ /\ pr[p].step = "finish"
        /\ Go(p, "read")
        /\ stamp' = [stamp EXCEPT !.format = Format(p)]
        /\ UNCHANGED shape
  /\ UNCHANGED <<leases, queue, history, left>>

-----------------------------------------------------------------------------
(* A transaction that asks for locks, gets them, or frees some by force.   *)
Sees(p, lowest) == Format(p) >= lowest
Blocked(p) ==
  \/ \E x \in Owners \ {OwnerOf(p)} : leases[x].held /\ Sees(p, leases[x].lowest)
  \/ \E q \in Processes \ {p} : /\ queue[q] > 0 /\ (queue[p] = 0 \/ queue[q] < queue[p])
                                /\ Sees(p, Lowest(q))
Last == CHOOSE n \in {queue[q] : q \in Processes} : \A q \in Processes : queue[q] <= n

(* A retry takes the lease of its owner over, and writes back fields that  *)
(* it does not know. Without a lease it is granted or waits.               *)
Lock(p) ==
  LET x == OwnerOf(p) lease == leases[x]
      field == IF lease.held /\ Rule("UnknownFieldsAreKept") THEN lease.field ELSE Format(p) > 1
  IN  IF Blocked(p) /\ ~lease.held
      THEN /\ queue' = [queue EXCEPT ![p] = IF @ > 0 THEN @ ELSE Last + 1]
           /\ Go(p, "wait")
           /\ UNCHANGED leases
      ELSE /\ leases' = [leases EXCEPT ![x] = [held |-> TRUE, by |-> p, lowest |-> Max(lease.lowest, Lowest(p)),
                                               field |-> field]]
           /\ queue' = [queue EXCEPT ![p] = 0]
           /\ Go(p, "hold")

Over(x) == leases[x].held /\ \A p \in Processes : OwnerOf(p) = x => pr[p].step \in Ended
CheckRule(p) == IF Frees(p) THEN "ForceChecksTheStamp" ELSE "GrantChecksTheStamp"
(* Without the rule, the check is a read before the transaction.           *)
Again(p) == IF Rule(CheckRule(p)) THEN "ask" ELSE "read"
Force(p) ==
  /\ \E x \in Owners : Over(x) /\ leases' = [leases EXCEPT ![x] = NoLease]
  /\ Go(p, Again(p))
  /\ UNCHANGED queue

Writes(p) == /\ IF Frees(p) THEN Force(p) ELSE Lock(p)
             /\ history' = history \cup {[by |-> p, lowest |-> stamp.lowest, shape |-> shape]}
             /\ UNCHANGED <<stamp, shape, left>>
Ready(p) == pr[p].step = "ask" /\ (Frees(p) => \E x \in Owners : Over(x))

(* In ZooKeeper: the first operation checks the version of the stamp's     *)
(* node. If it fails, the process reads the stamp again.                   *)
transact(p) ==
  /\ Ready(p) /\ ~Scenario.database
  /\ IF stamp.version = pr[p].known \/ ~Rule(CheckRule(p)) THEN Writes(p) ELSE Only(p, "read")

(* In a database: the transaction keeps out the others that may conflict.  *)
(* It reads the stamp and the requests with its first statements, decides, *)
(* and writes with its last ones.                                          *)
enter(p) ==
  /\ Ready(p) /\ Scenario.database
  /\ \A q \in Processes : pr[q].step \notin {"commit", "migrate"}
  /\ IF TooOld(p) /\ Rule(CheckRule(p)) THEN Refuse(p) ELSE Only(p, "commit")
commit(p) ==
  /\ pr[p].step = "commit"
  /\ IF Frees(p) /\ ~\E x \in Owners : Over(x) THEN Only(p, "ask") ELSE Writes(p)

(* A waiter is woken when its turn has come, as far as it sees.            *)
look_again(p) == pr[p].step = "wait" /\ ~Blocked(p) /\ Only(p, Again(p))

(* A refused waiter leaves the queue. Nothing is checked for that.         *)
leave(p) ==
  /\ pr[p].step = "leave"
  /\ Go(p, "refused")
  /\ queue' = IF Rule("RefusedWaitersLeave") THEN [queue EXCEPT ![p] = 0] ELSE queue
  /\ UNCHANGED <<stamp, shape, leases, history, left>>

(* A process ends its own lease, also when it is too old by now.           *)
release(p) ==
  /\ pr[p].step = "hold"
  /\ IF stamp.lowest > Format(p) /\ ~Rule("OwnLeasesNeedNoStamp") THEN Only(p, "refused")
     ELSE /\ leases' = IF leases[OwnerOf(p)].by = p THEN [leases EXCEPT ![OwnerOf(p)] = NoLease] ELSE leases
          /\ Go(p, "done")
          /\ UNCHANGED <<stamp, shape, queue, history, left>>

-----------------------------------------------------------------------------
(* What can happen. Locks.tla has dead waiters: here, one leaves at once.  *)
crash(p) ==
  /\ left.crashes > 0 /\ ~Frees(p) /\ pr[p].step \notin Ended
  /\ left' = [left EXCEPT !.crashes = @ - 1]
  /\ Go(p, "dead")
  /\ queue' = [queue EXCEPT ![p] = 0]
  /\ UNCHANGED <<stamp, shape, leases, history>>

(* A person deletes the stamp. Who deletes that of a later version takes   *)
(* its protection away, so this is an earlier one.                         *)
delete_stamp ==
  /\ left.deletions > 0 /\ stamp.version > 0 /\ stamp.lowest = 1
  /\ left' = [left EXCEPT !.deletions = @ - 1]
  /\ stamp' = NoStamp
  /\ UNCHANGED <<shape, leases, queue, pr, history>>

keeper_ends(p) ==
  /\ Frees(p) /\ pr[p].step = "ask"
  /\ \A q \in Processes : Frees(q) \/ pr[q].step \in Ended
  /\ \A x \in Owners : ~leases[x].held
  /\ Only(p, "done")

AllDone == \A p \in Processes : pr[p].step \in Ended
Next == \/ \E p \in Processes : \/ start(p) \/ read(p) \/ raise(p) \/ migrate(p) \/ transact(p) \/ enter(p) \/ commit(p)
                                \/ look_again(p) \/ leave(p) \/ release(p) \/ crash(p) \/ keeper_ends(p)
        \/ delete_stamp
        \/ AllDone /\ UNCHANGED vars
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

-----------------------------------------------------------------------------
(* The promises: docs/upgrade.md.                                          *)

(* Two leases never hold conflicting locks, also of two versions.          *)
NoTwoLeases == Cardinality({x \in Owners : leases[x].held}) <= 1

(* A process below the lowest reader asks for nothing, gets nothing and    *)
(* frees nothing: it is refused inside the transaction.                    *)
TooOldGetsNothing == \A h \in history : Format(h.by) >= h.lowest /\ Format(h.by) >= h.shape

(* It ends its own lease, and blocks no other request.                     *)
RefusedHoldsNothing ==
  \A p \in Processes \ {p \in Processes : Frees(p)} :
    pr[p].step = "refused" => queue[p] = 0 /\ ~(leases[OwnerOf(p)].held /\ leases[OwnerOf(p)].by = p)

(* Versions run side by side as long as the lowest reader stays.           *)
OnlyTooOldIsRefused == \A p \in Processes : pr[p].step \in {"leave", "refused"} => Format(p) < stamp.lowest

(* A field of a later version stays until its request ends.                *)
FieldsAreKept == [][\A x \in Owners : leases[x].field /\ leases'[x].held => leases'[x].field]_leases

NothingLeft == AllDone => (\A x \in Owners : ~leases[x].held) /\ (\A p \in Processes : queue[p] = 0)
EveryRunEnds == <>AllDone
=============================================================================
