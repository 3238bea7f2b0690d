-------------------------------- MODULE Leases --------------------------------
(***************************************************************************)
(* What happens under a lease: take-over, the start of work, the keeper,   *)
(* and fencing.                                                            *)
(*                                                                         *)
(* Two tasks want the same table EXCLUSIVE. Locks.tla shows that two such  *)
(* leases are never out. So a grant is one step here.                      *)
(*                                                                         *)
(* A try of a task is a process on a worker. It submits one job to a       *)
(* cluster, and waits for it. The job outlives the process. Airflow can    *)
(* take a process for dead that still runs, and then start the next try.   *)
(* A process and a job can stop between any two steps.                     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS Scenario,  \* who tries, and which faults can happen
          LeftOut    \* names of rules that are left out

Rule(name) == name \notin LeftOut

Tries == DOMAIN Scenario.tries  \* 1, 2, …: of one task, the later try has the larger number
TaskOf(p) == Scenario.tries[p]
Tasks == {TaskOf(p) : p \in Tries}
TriesOf(x) == {p \in Tries : TaskOf(p) = x}

VARIABLES
  leases,     \* task -> its record: whether it is held, id, epoch, token, the process that acts, and its work
  processes,  \* try -> the step that follows, what it knows of the lease, whether Airflow takes it for over
  jobs,       \* try -> its job: step, lease, token, what it read of the table
  table,      \* the location in the metastore (token of a generation), its version, the generations that are marked
  keeper,     \* the task whose lease the keeper frees, and the record that it judged
  zxid,       \* the last transaction that gave an id, epoch or token
  history,    \* not stored: leases that a person freed, and the order in which jobs switched the table
  left        \* how many faults of each kind can still happen

vars == <<leases, processes, jobs, table, keeper, zxid, history, left>>
store == <<leases, zxid>>

(* `app`: what runs as the work. "processes": the operator's processes on  *)
(* its host, which may submit a job. "job": the job, by its id.            *)
NoWork == [token |-> 0, app |-> "none", try |-> 0]
NoLease == [held |-> FALSE, id |-> 0, epoch |-> 0, token |-> 0, try |-> 0, work |-> NoWork]
NoJob == [step |-> "none", id |-> 0, token |-> 0, version |-> 0, cut |-> FALSE]
Idle == [task |-> "", seen |-> NoLease]

Init ==
  /\ leases = [x \in Tasks |-> NoLease]
  /\ processes = [p \in Tries |-> [step |-> "queued", id |-> 0, epoch |-> 0, token |-> 0, over |-> FALSE]]
  /\ jobs = [p \in Tries |-> NoJob]
  /\ table = [location |-> 0, version |-> 0, marked |-> {}]
  /\ keeper = Idle
  /\ zxid = 0
  /\ history = [forced |-> {}, switched |-> <<>>, told |-> {}]
  /\ left = Scenario.faults

Lease(p) == leases[TaskOf(p)]
Go(p, step) == processes' = [processes EXCEPT ![p].step = step]
RunsProcess(p) == processes[p].step \notin {"queued", "dead", "done", "refused"}
RunsJob(p) == jobs[p].step \notin {"none", "ended", "refused"}

(* The lease is as this process knows it. Each take-over raises the epoch. *)
Mine(p) == /\ Lease(p).held /\ Lease(p).id = processes[p].id
           /\ Lease(p).epoch = processes[p].epoch \/ ~Rule("EpochIsCompared")

-----------------------------------------------------------------------------
(* A try of a task.                                                        *)

(* Airflow starts a try once it takes all earlier ones for over.           *)
execute(p) ==
  /\ processes[p].step = "queued"
  /\ \A q \in TriesOf(TaskOf(p)) : q < p => processes[q].over
  /\ Go(p, "begin")
  /\ UNCHANGED <<store, jobs, table, keeper, history, left>>

Knows(p, lease) == processes' = [processes EXCEPT ![p].step = "held", ![p].id = lease.id, ![p].epoch = lease.epoch,
                                                 ![p].token = lease.token]
acquire(p) ==
  LET x == TaskOf(p)
      lease == [NoLease EXCEPT !.held = TRUE, !.id = zxid + 1, !.epoch = zxid + 1, !.try = p,
                               !.token = IF Rule("GrantHasNewToken") THEN zxid + 1 ELSE 1]
  IN  /\ processes[p].step = "begin" /\ ~leases[x].held
      /\ \A y \in Tasks \ {x} : ~leases[y].held \/ ~Rule("TimeFreesNothing")
      /\ leases' = [y \in Tasks |-> IF y = x THEN lease ELSE NoLease]
      /\ zxid' = zxid + 1
      /\ Knows(p, lease)
      /\ UNCHANGED <<jobs, table, keeper, history, left>>

(* A later try takes the lease over, with what is recorded under it. In a  *)
(* database the lease keeps its token. ZooKeeper gives it a new one.       *)
take_over(p) ==
  LET x == TaskOf(p) lease == [leases[x] EXCEPT !.epoch = zxid + 1, !.try = p]
  IN  /\ processes[p].step = "begin" /\ leases[x].held
      /\ IF leases[x].try > p THEN Go(p, "refused") /\ UNCHANGED store  \* Superseded
         ELSE /\ leases' = [leases EXCEPT ![x] = lease]
              /\ zxid' = zxid + 1
              /\ Knows(p, lease)
      /\ UNCHANGED <<jobs, table, keeper, history, left>>

(* An earlier try may have left something running. It is ended first. It   *)
(* cannot be told whether the processes of an operator that has died have  *)
(* submitted a job. Then the task fails, and its locks stay.               *)
end_earlier(p) ==
  LET work == Lease(p).work
      q == work.try
      unknown == work.app = "processes" /\ Rule("UnknownSubmissionsKeepLocks")
      stops == work.app = "job" /\ RunsJob(q) /\ Rule("EarlierWorkEndsFirst")
  IN  /\ processes[p].step = "held"
      /\ Go(p, IF ~Mine(p) \/ unknown THEN "refused" ELSE "start")
      /\ IF Mine(p) /\ stops
         THEN \/ jobs' = [jobs EXCEPT ![q].step = "ended"] /\ UNCHANGED left
              \/ /\ left.cuts > 0  \* the cluster says that it has ended, and it goes on
                 /\ left' = [left EXCEPT !.cuts = @ - 1]
                 /\ jobs' = [jobs EXCEPT ![q].cut = TRUE]
         ELSE UNCHANGED <<jobs, left>>
      /\ UNCHANGED <<store, table, keeper, history>>

(* The work is recorded before it starts, with a token of its own.         *)
start_work(p) ==
  LET x == TaskOf(p) token == IF Rule("StartedWorkHasNewToken") THEN zxid + 1 ELSE Lease(p).token
  IN  /\ processes[p].step = "start"
      /\ IF ~Mine(p) THEN Go(p, "refused") /\ UNCHANGED store
         ELSE /\ zxid' = IF token > zxid THEN token ELSE zxid
              /\ leases' = IF Rule("WorkIsRecordedFirst")
                           THEN [leases EXCEPT ![x].token = token,
                                               ![x].work = [token |-> token, app |-> "processes", try |-> p]]
                           ELSE [leases EXCEPT ![x].token = token]
              /\ processes' = [processes EXCEPT ![p].step = "submit", ![p].token = token]
      /\ UNCHANGED <<jobs, table, keeper, history, left>>

submit(p) ==
  /\ processes[p].step = "submit"
  /\ jobs' = [jobs EXCEPT ![p] = [NoJob EXCEPT !.step = "run", !.id = processes[p].id, !.token = processes[p].token]]
  /\ Go(p, "record")
  /\ UNCHANGED <<store, table, keeper, history, left>>

(* The cluster has given the job an id.                                    *)
record_work(p) ==
  LET x == TaskOf(p)
  IN  /\ processes[p].step = "record"
      /\ Go(p, "wait")
      /\ leases' = IF Mine(p) /\ Rule("JobIsRecorded")
                   THEN [leases EXCEPT ![x].work = [token |-> processes[p].token, app |-> "job", try |-> p]] ELSE leases
      /\ history' = [history EXCEPT !.told = IF Mine(p) THEN @ \cup {p} ELSE @]
      /\ UNCHANGED <<zxid, jobs, table, keeper, left>>

(* The work is over: the lease ends. A process that is not the lease's any *)
(* more releases nothing.                                                  *)
release(p) ==
  /\ processes[p].step = "wait" /\ ~RunsJob(p)
  /\ Go(p, "done")
  /\ leases' = IF Mine(p) THEN [leases EXCEPT ![TaskOf(p)] = NoLease] ELSE leases
  /\ UNCHANGED <<zxid, jobs, table, keeper, history, left>>

(* A process is killed. Airflow notices it, or takes one for dead that     *)
(* has lost its connection and still runs.                                 *)
crash(p) ==
  /\ left.crashes > 0 /\ RunsProcess(p)
  /\ left' = [left EXCEPT !.crashes = @ - 1]
  /\ Go(p, "dead")
  /\ UNCHANGED <<store, jobs, table, keeper, history>>
airflow_takes_for_over(p) ==
  /\ ~processes[p].over /\ processes[p].step # "queued"
  /\ \/ ~RunsProcess(p) /\ UNCHANGED left
     \/ RunsProcess(p) /\ left.zombies > 0 /\ left' = [left EXCEPT !.zombies = @ - 1]
  /\ processes' = [processes EXCEPT ![p].over = TRUE]
  /\ UNCHANGED <<store, jobs, table, keeper, history>>

-----------------------------------------------------------------------------
(* The keeper, and a person. The keeper frees a lease once Airflow takes   *)
(* its task for over, and nothing that is recorded under it runs. It       *)
(* compares the record with what it judged.                                *)
Over(x) == \A p \in TriesOf(x) : processes[p].step # "queued" => processes[p].over
Ended(work) ==
  \/ work.app = "none"
  \/ work.app = "job" /\ (~RunsJob(work.try) \/ jobs[work.try].cut \/ ~Rule("KeeperAsksForTheWork"))
  \/ work.app = "processes" /\ ~RunsProcess(work.try) /\ ~Rule("UnknownSubmissionsKeepLocks")
keeper_judges(x) ==
  /\ keeper = Idle /\ leases[x].held /\ Over(x) /\ Ended(leases[x].work)
  /\ keeper' = [task |-> x, seen |-> leases[x]]
  /\ UNCHANGED <<store, processes, jobs, table, history, left>>
keeper_frees ==
  LET x == keeper.task
  IN  /\ keeper # Idle
      /\ keeper' = Idle
      /\ leases' = IF leases[x] = keeper.seen \/ (leases[x].id = keeper.seen.id /\ ~Rule("KeeperComparesTheLease"))
                   THEN [leases EXCEPT ![x] = NoLease] ELSE leases
      /\ UNCHANGED <<zxid, processes, jobs, table, history, left>>
force_release(x) ==
  /\ left.forces > 0 /\ leases[x].held
  /\ left' = [left EXCEPT !.forces = @ - 1]
  /\ leases' = [leases EXCEPT ![x] = NoLease]
  /\ history' = [history EXCEPT !.forced = @ \cup {leases[x].id}]
  /\ UNCHANGED <<zxid, processes, jobs, table, keeper>>

-----------------------------------------------------------------------------
(* A job publishes through the guard: it reads the table's entry in the    *)
(* metastore, looks whether its token is the newest, and sets the location *)
(* if the entry is as it was. Then it marks its generation.                *)
Job(p, step) == jobs' = [jobs EXCEPT ![p].step = step]
read_change(p) ==
  /\ jobs[p].step = "run"
  /\ jobs' = [jobs EXCEPT ![p].version = table.version,
                          ![p].step = IF \E t \in table.marked : t > jobs[p].token THEN "refused" ELSE "check"]
  /\ UNCHANGED <<store, processes, table, keeper, history, left>>
check_token(p) ==
  /\ jobs[p].step = "check"
  /\ Job(p, IF (Lease(p).held /\ Lease(p).id = jobs[p].id /\ Lease(p).work.token = jobs[p].token)
               \/ ~Rule("TokenIsChecked") THEN "switch" ELSE "refused")
  /\ UNCHANGED <<store, processes, table, keeper, history, left>>
switch(p) ==
  /\ jobs[p].step = "switch"
  /\ IF table.version # jobs[p].version /\ Rule("ChangeIsComparedAndSet")
       THEN Job(p, "run") /\ UNCHANGED <<table, history>>
       ELSE /\ table' = [table EXCEPT !.location = jobs[p].token, !.version = @ + 1]
            /\ history' = [history EXCEPT !.switched = Append(@, p)]
            /\ Job(p, "mark")
  /\ UNCHANGED <<store, processes, keeper, left>>
mark(p) ==
  /\ jobs[p].step = "mark"
  /\ table' = [table EXCEPT !.marked = @ \cup {jobs[p].token}]
  /\ Job(p, "ended")
  /\ UNCHANGED <<store, processes, keeper, history, left>>

Next == \/ \E p \in Tries : \/ execute(p) \/ acquire(p) \/ take_over(p) \/ end_earlier(p) \/ start_work(p) \/ submit(p)
                            \/ record_work(p) \/ release(p) \/ crash(p) \/ airflow_takes_for_over(p)
                            \/ read_change(p) \/ check_token(p) \/ switch(p) \/ mark(p)
        \/ \E x \in Tasks : keeper_judges(x) \/ force_release(x)
        \/ keeper_frees
        \/ UNCHANGED vars
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The promises: the rows of docs/promises.md.                             *)

(* "A lock outlives its worker, triggerer and session." As long as a job   *)
(* runs, its lease is held, unless a person freed it, or the cluster said  *)
(* that the job had ended.                                                 *)
LockOutlivesItsWorker ==
  \A p \in Tries : RunsJob(p) /\ ~jobs[p].cut /\ jobs[p].id \notin history.forced =>
    Lease(p).held /\ Lease(p).id = jobs[p].id

(* "… and is freed once its job is known to have ended": no person has to. *)
FreedOnceItsJobHasEnded ==
  \A x \in Tasks : LET work == leases[x].work IN
    /\ leases[x].held /\ Over(x) /\ keeper = Idle
    /\ work.try \in history.told /\ leases[x].try = work.try /\ ~RunsJob(work.try)
    => ENABLED keeper_judges(x)

(* What an earlier try has left running ends before work starts.           *)
OneJobOfALease ==
  \A p, q \in Tries : p # q /\ RunsJob(p) /\ RunsJob(q) /\ jobs[p].id = jobs[q].id => jobs[p].cut \/ jobs[q].cut

(* "A token only grows", within a lease and from one to the next.          *)
TokenOnlyGrows ==
  [][\A x \in Tasks : leases'[x].held /\ leases'[x].token # leases[x].token => leases'[x].token > zxid]_leases

(* "A job that lost its lease can find out before it publishes": no job    *)
(* replaces what a job has published that started after it.                *)
NoLateUpdate ==
  \A i, j \in 1..Len(history.switched) : i < j => jobs[history.switched[i]].token < jobs[history.switched[j]].token
=============================================================================
