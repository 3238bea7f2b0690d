"""The keeper frees only leases whose task is over in Airflow and whose work has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    DagRunStateResult,
    DRCount,
    ErrorResponse,
    GetDagRunState,
    GetDRCount,
    TaskStatesResult,
)

from airflow_hivelock.locks import reservations, rules
from airflow_hivelock.locks.model import DeferredGrant
from airflow_hivelock.spec import Owner
from airflow_hivelock.triggers import keeper as module
from airflow_hivelock.triggers import work_checks
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.work import stale
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import MARK, Processes
from airflow_hivelock.work.spark_job import SparkJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines


class Airflow:
    """Knows runs of one DAG: by run id, their state, and their tasks' states."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        self.tasks: dict[str, dict[str, str | None]] = {}
        self.asked: list[type] = []

    def knows(self, run: str, state: str, **tasks: str | None) -> None:
        self.runs[run], self.tasks[run] = state, tasks

    async def asend(self, message: Any) -> Any:
        return self.send(message)

    def send(self, message: Any) -> Any:
        self.asked.append(type(message))
        if isinstance(message, GetDRCount):
            return DRCount(count=sum(self.runs.get(run) in (message.states or ()) for run in message.run_ids or ()))
        if isinstance(message, GetDagRunState):
            if message.run_id not in self.runs:
                raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404}))
            return DagRunStateResult(state=self.runs[message.run_id])  # type: ignore[arg-type]
        if not hasattr(message, "run_ids"):
            return None
        wanted = message.task_ids
        states = {
            run: {task: state for task, state in self.tasks[run].items() if wanted is None or task in wanted}
            for run in message.run_ids
            if run in self.tasks
        }
        return TaskStatesResult(task_states={run: tasks for run, tasks in states.items() if tasks})


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    played = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", played, raising=False)
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    return played


@pytest.fixture
def writer() -> Iterator[subprocess.Popen[bytes]]:
    """A process of a task's, which writes until it is killed."""
    mark = uuid.uuid4().hex
    with subprocess.Popen(["sleep", "300"], env={MARK: mark}) as process:
        process.mark = mark  # type: ignore[attr-defined]
        yield process
        process.kill()


def gone() -> Processes:
    """Processes of this host that have ended."""
    return Processes(pid=2**30, started=1)


def acquire(manager: LockManager, task: str = "load", run: str = "run", **options: Any) -> Lease:
    return manager.acquire(owner=str(Owner("here", "dag", run, task)), writes=[f"dw.{task}_{run}"], **options)


def works(manager: LockManager, what: Processes | SparkJob | None, **options: Any) -> Lease:
    """The lease of a HiveLockMixin task at work."""
    lease = acquire(manager, **options)
    return manager.start_work(lease, "load", "" if what is None else encode(what))


def keep(rounds: int = 1, keeper: HiveLockKeeper | None = None) -> dict[str, str]:
    """The suspect leases after that many rounds."""

    async def body() -> dict[str, str]:
        kept = keeper or HiveLockKeeper()
        for _ in range(rounds):
            suspects = await kept._keep()
        return suspects

    return asyncio.run(body())


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "upstream_failed", "removed"])
def test_the_lease_of_a_task_that_is_over_goes_though_its_run_goes_on(
    state: str, airflow: Airflow, manager: LockManager
) -> None:
    lease = works(manager, gone())
    airflow.knows("run", "running", load=state, report="running")
    assert not keep()
    assert not manager.show()
    (audit,) = manager.audit()
    assert (audit.lease_id, audit.user) == (lease.id, "keeper of here")
    assert audit.reason == f"task load of run run of dag is {state}"


def test_where_no_work_is_recorded_a_lease_of_a_run_that_is_over_lapses_and_is_not_freed(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager.backend, "capabilities", replace(manager.capabilities, remembers=False))
    lease = acquire(manager)
    airflow.knows("run", "failed", load="failed")
    assert "does not record the work" in keep(2)[lease.id]
    assert manager.show()


def test_a_reservation_ends_at_its_time(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = manager.now() + timedelta(hours=1)
    lease = reservations.reserve(manager, "dw.sales", until, reason="compaction", user="ann")
    keep()
    assert manager.find(lease.id)
    monkeypatch.setattr(manager.backend, "now", lambda: until)
    keep()
    assert not manager.leases()


@pytest.mark.parametrize("state", [None, "scheduled", "queued", "running", "deferred", "up_for_retry", "restarting"])
def test_the_lease_of_a_task_that_goes_on_stays(state: str | None, airflow: Airflow, manager: LockManager) -> None:
    works(manager, gone())
    airflow.knows("run", "running", load=state)
    keep(3)
    assert manager.show()


def test_a_lease_stays_while_a_process_of_its_killed_task_writes_on(
    airflow: Airflow, manager: LockManager, writer: subprocess.Popen[bytes]
) -> None:
    works(manager, replace(gone(), mark=writer.mark))  # type: ignore[attr-defined]
    airflow.knows("run", "failed", load="failed")
    assert not keep(3)
    assert manager.show()
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    keep()
    assert not manager.show()


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (replace(gone(), host="another"), "can only be checked there"),
        (replace(gone(), submits=True), "may have submitted work to a cluster"),
        (SparkJob("no_such_connection", "driver-1"), "cannot be checked through connection"),
        (None, "was deferred"),
    ],
    ids=["on another host", "in a cluster, perhaps", "in a cluster that does not answer", "deferred"],
)
def test_a_lease_under_which_somebody_may_work_stays_and_is_told_of(
    work: Any, why: str, airflow: Airflow, manager: LockManager
) -> None:
    lease = works(manager, work)
    airflow.knows("run", "failed", load="failed")
    assert why in keep(3)[lease.id]
    assert manager.show()


@pytest.mark.parametrize(("run", "renewed"), [("running", True), ("failed", False)])
def test_where_it_cannot_be_told_a_lease_lapses_only_with_its_run(
    run: str, renewed: bool, airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a metastore, say, time frees what is not renewed."""
    lease = works(manager, replace(gone(), host="another"), lease_s=60)
    airflow.knows("run", run, load="failed")
    later = manager.now() + timedelta(seconds=30)
    monkeypatch.setattr(manager.backend, "now", lambda: later)
    assert lease.id in keep(2)
    assert (manager.show()[0].expires == later + timedelta(seconds=60)) is renewed


def test_what_a_killed_task_has_left_is_protected_for_as_long_as_it_runs(
    airflow: Airflow, manager: LockManager, writer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    works(manager, replace(gone(), mark=writer.mark), lease_s=60)  # type: ignore[attr-defined]
    airflow.knows("run", "failed", load="failed")
    later = manager.now() + timedelta(seconds=30)
    monkeypatch.setattr(manager.backend, "now", lambda: later)
    keep(2)
    assert manager.show()[0].expires == later + timedelta(seconds=60)


def test_a_cluster_that_does_not_answer_keeps_no_other_lease_waiting(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(work_checks, "CHECK_S", 0.5)
    monkeypatch.setattr(SparkJob, "running", lambda self: answered.wait(20))
    runs = [f"a{number}" for number in range(6)]
    silent = {works(manager, SparkJob("spark", "driver-1"), run=run).id for run in runs}
    other = works(manager, gone(), run="b")
    for run in (*runs, "b"):
        airflow.knows(run, "failed", load="failed")
    try:
        assert set(keep()) == silent
        assert manager.find(other.id) is None
        later = works(manager, gone(), run="c")
        airflow.knows("c", "failed", load="failed")
        assert set(keep()) == silent
        assert manager.find(later.id) is None
    finally:
        answered.set()


@pytest.mark.parametrize("error", [SystemExit("a program"), AttributeError("a bug")])
def test_a_lease_that_cannot_be_judged_keeps_no_other_from_being_freed_and_renewed(
    error: BaseException, airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """A stranger's record would otherwise end the triggerer, or let every lease of the store lapse."""
    judge = stale.judge_work
    odd, over, working = (works(manager, gone(), run=run, lease_s=60) for run in ("odd", "over", "working"))
    for run, state in (("odd", "failed"), ("over", "failed"), ("working", "running")):
        airflow.knows(run, state, load=state)

    def judges(owner: Owner, lease: Lease, verdict: Any) -> Any:
        if owner.run_id == "odd":
            raise error
        return judge(owner, lease, verdict)

    monkeypatch.setattr(module, "judge_work", judges)
    later = manager.now() + timedelta(seconds=30)
    monkeypatch.setattr(manager.backend, "now", lambda: later)
    assert str(error) in keep()[odd.id]
    assert manager.find(over.id) is None
    assert manager.find(working.id).expires == later + timedelta(seconds=60)  # type: ignore[union-attr]
    assert "is kept, because it cannot be checked" in lines()


def test_a_lock_task_s_lease_is_for_those_behind_it(airflow: Airflow, manager: LockManager) -> None:
    lease = manager.start_work(acquire(manager, "lock"), "job", encode(gone()))
    airflow.knows("run", "running", lock="success", job="success", report="running")
    keep(3)
    assert manager.find(lease.id), "the report works under it"
    airflow.knows("run", "failed", lock="success", job="success", report="failed", unlock="failed")
    keep()
    assert not manager.show()


def test_a_run_has_to_be_over_for_a_while_before_what_is_recorded_nowhere_is(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow takes seconds to stop a task that was marked."""
    monkeypatch.setattr(module, "SETTLE_S", 30.0)
    now = [1000.0]
    monkeypatch.setattr("airflow_hivelock.triggers.keeper.time.monotonic", lambda: now[0])
    acquire(manager, "lock")
    airflow.knows("run", "failed", lock="success", job="failed")
    keeper = HiveLockKeeper()
    keep(2, keeper)
    assert manager.show()
    airflow.knows("run", "running", lock="success", job="running")
    now[0] += 31
    keep(1, keeper)
    airflow.knows("run", "failed", lock="success", job="failed")
    keep(1, keeper)
    assert manager.show(), "it was cleared meanwhile"
    now[0] += 31
    keep(1, keeper)
    assert not manager.show()


def test_the_lease_of_a_lock_task_that_airflow_does_not_know_stays_and_is_told_of(
    airflow: Airflow, manager: LockManager
) -> None:
    """As after its database came out of a backup: plain tasks behind it are recorded nowhere."""
    lease = acquire(manager, "lock")
    assert "unknown to Airflow" in keep(2)[lease.id]
    assert manager.show()


def test_what_another_try_takes_over_meanwhile_stays(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    works(manager, gone())
    airflow.knows("run", "running", load="failed")
    judged = stale.judge_work

    def judge_late(*given: Any) -> Any:
        verdict = judged(*given)
        acquire(manager, attempt=2)
        return verdict

    monkeypatch.setattr(module, "judge_work", judge_late)
    keep()
    assert manager.show()
    assert not manager.audit()


def test_somebody_else_s_leases_stay(airflow: Airflow, manager: LockManager) -> None:
    manager.start_work(manager.acquire(owner="there/dag/run/load/-1", writes=["dw.t"]), "load", encode(gone()))
    manager.acquire(owner="cli:ann:1", writes=["dw.u"])
    keep(2)
    assert len(manager.leases()) == 2


def test_hundreds_of_leases_at_work_cost_a_few_questions(airflow: Airflow, manager: LockManager) -> None:
    for n in range(150):
        works(manager, gone(), run=f"r{n}")
        airflow.knows(f"r{n}", "running", load="running")
    airflow.asked.clear()
    keep()
    assert len(manager.leases()) == 150
    assert len(airflow.asked) < 8


def defers(manager: LockManager, run: str, attempt: int = 1, installation: str = "here") -> str:
    """An owner who waits for a worker slot."""
    owner = str(Owner(installation, "dag", run, "load"))
    manager.begin(rules.request(owner, writes=["dw.t"], attempt=attempt, deferred=DeferredGrant()), lambda: None).poll()
    return owner


def test_who_waits_for_a_slot_is_forgotten_once_its_task_is_over(airflow: Airflow, manager: LockManager) -> None:
    """As after it was marked failed in the queue: no process of its own ever hears of that."""
    waiting = [
        defers(manager, run="queued"),
        defers(manager, run="not begun"),
        defers(manager, run="failed", installation="there"),
    ]
    defers(manager, run="failed")
    defers(manager, run="unknown")
    for run, state in {"queued": "queued", "not begun": None, "failed": "failed"}.items():
        airflow.knows(run, "running", load=state)
    keep()
    assert sorted(waiter.owner for waiter in manager.waiters()) == sorted(waiting)
    assert all(manager.forget_deferred(owner, 1) for owner in waiting)


def test_who_waits_for_a_slot_anew_is_not_forgotten_for_its_last_try(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = defers(manager, run="run", attempt=1)
    airflow.knows("run", "running", load="failed")
    forget = manager.forget_deferred

    def cleared_meanwhile(*given: Any) -> bool:
        defers(manager, run="run", attempt=2)
        return forget(*given)

    monkeypatch.setattr(manager, "forget_deferred", cleared_meanwhile)
    keep()
    assert [(waiter.owner, waiter.attempt) for waiter in manager.waiters()] == [(owner, 2)]
    assert forget(owner, 2)


def test_a_dag_that_airflow_cannot_look_up_keeps_no_lease_of_another_from_being_freed(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, once = airflow.send, iter(["dag"])  # "dag" fails once, when the other one is already among the last

    def send(message: Any) -> Any:
        if (of := getattr(message, "dag_id", "")) == "a dag" or (of == "dag" and next(once, "")):
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500}))
        return answer(message)

    monkeypatch.setattr(airflow, "send", send)
    odd = manager.acquire(owner=str(Owner("here", "a dag", "run", "load")), writes=["dw.odd"])
    works(manager, gone())
    airflow.knows("run", "running", load="failed")
    keep(4)
    assert [lease.id for lease in manager.leases()] == [odd.id]
