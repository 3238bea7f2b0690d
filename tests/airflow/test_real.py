"""A real Airflow and a real ZooKeeper: what dies, what waits without a slot, and what is left of the locks."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psutil
import pytest

from airflow_hivelock.locks import LockManager, connect, rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.model import WaitsFor
from tests.airflow import first_example
from tests.support.airflow_server import AirflowServer
from tests.system.deaths import chained, waiting, working
from tests.system.deaths.play import Stage
from tests.system.deaths.stage import play_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(240)]

RUN_TIMEOUT_S = 60
DAGS = (
    "chain",
    "single",
    "shell",
    "shell_again",
    "called_back",
    "senses",
    "unrelated",
    "force",
    "kept",
    "frees",
    first_example.DAG_ID,
)
DEATHS_DAGS = ("own", "own_again", "chained")
QUICK = ("marked_success", "killed_again", "chain_marked_failed", "waiter_cleared")
"""Rows of ``make test-airflow`` that take seconds."""


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file here, named for a run, opens that run's gate."""
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def manager(zookeeper: ZooKeeperServer) -> Iterator[LockManager]:
    """The test's own session with the lock store that Airflow uses."""
    with connect(f"zookeeper://{zookeeper.hosts}/hive-real?root=/hivelock-real") as manager:
        yield manager


@pytest.fixture(scope="module")
def af(gates: Path, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    connection = {
        "conn_type": "hivelock",
        "host": zookeeper.hosts,
        "schema": "hive-real",
        "extra": {"installation": "here", "root": "/hivelock-real"},
    }
    home = tmp_path_factory.mktemp("airflow")
    dags = shutil.copytree(Path(__file__).parent / "dags", home.with_name(f"{home.name}-dags"))
    shutil.copy(Path(__file__).parents[1] / "system" / "deaths" / "dags" / "writers.py", dags)
    with AirflowServer(
        home,
        dags,
        connections={"hivelock_default": connection, **first_example.CONNECTIONS},
        connections_in="db",
        variables={"gates": str(gates)},
        env=first_example.ENV,
        # For that time Airflow takes a dead task for alive if its child keeps its output open.
        config={("core", "parallelism"): "2", ("workers", "socket_cleanup_timeout"): "2"},
    ) as server:
        assert server.api.call("GET", "connections/hivelock_default")["conn_type"] == "hivelock"
        for dag_id in (*DAGS, *DEATHS_DAGS):
            server.unpause(dag_id)
        yield server


class Run:
    """A run of one of the DAGs on a table of its own."""

    def __init__(self, af: AirflowServer, gates: Path, dag_id: str, table: str) -> None:
        self.af = af
        self.dag_id = dag_id
        self.run_id = af.trigger(dag_id, conf={"table": table}, run_id=f"{dag_id}-{table}-{len(af.runs(dag_id))}")
        self._gate = gates / self.run_id

    def open_gate(self) -> None:
        self._gate.touch()

    def state(self, task_id: str) -> str | None:
        return self.af.task(self.dag_id, self.run_id, task_id).state

    def reach(self, task_id: str, state: str) -> None:
        self.af.wait(lambda: self.state(task_id) == state, RUN_TIMEOUT_S, f"{self.run_id} {task_id} to be {state}")

    def end(self) -> str:
        self.open_gate()
        self.af.wait(self._ended, RUN_TIMEOUT_S, f"{self.run_id} to end")
        return self.af.run(self.dag_id, self.run_id).state

    def _ended(self) -> bool:
        return self.af.run(self.dag_id, self.run_id).state in ("success", "failed")

    def owner(self, task_id: str) -> str:
        return f"here/{self.dag_id}/{self.run_id}/{task_id}/-1"

    def pids(self) -> list[int]:
        """The processes that the run's tasks have started, of each try."""
        noted = self._gate.with_name(f"{self.run_id}.pids")
        return [int(line) for line in noted.read_text().split()] if noted.exists() else []

    def log(self, task_id: str) -> str:
        return self.af.task_log(self.dag_id, self.run_id, task_id)


class Start(Protocol):
    def __call__(self, dag_id: str, table: str) -> Run: ...


@pytest.fixture
def start(af: AirflowServer, gates: Path) -> Iterator[Start]:
    """Start a run; what a failed test leaves goes on to its end."""
    runs: list[Run] = []

    def run(dag_id: str, table: str) -> Run:
        runs.append(Run(af, gates, dag_id, table))
        return runs[-1]

    yield run
    for left in runs:
        left.open_gate()


def owners(manager: LockManager, table: str) -> list[str]:
    return [holder.owner for holder in manager.show(f"{table}/dt=2013-01-15")]


def works(af: AirflowServer, manager: LockManager, run: Run, table: str) -> None:
    """Wait until the run's task works under its locks: it takes them once it runs."""
    af.wait(lambda: owners(manager, table) == [run.owner("work")], RUN_TIMEOUT_S, f"{run.run_id} to have its locks")


def test_the_first_example_of_the_readme_on_postgresql(af: AirflowServer, manager: LockManager) -> None:
    assert af.postgres
    first_example.play(af, manager)


def test_runs_that_wait_use_no_slot_and_come_one_after_the_other(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    first = start("chain", "dw.a")
    first.reach("job", "running")
    assert owners(manager, "dw.a") == [first.owner("lock")]
    (holder,) = manager.show("dw.a/dt=2013-01-15")
    assert holder.query == f"dag chain run {first.run_id} task lock"

    waiting = [start("chain", "dw.a"), start("single", "dw.a"), start("senses", "dw.a")]
    tasks = ["lock", "work", "free"]
    af.wait(lambda: len(manager.waiters("dw.a")) == 2, RUN_TIMEOUT_S, "two waiters in the queue")
    assert start("unrelated", "dw.a").end() == "success"
    assert [run.state(task) for run, task in zip(waiting, tasks, strict=True)] == ["deferred"] * 3
    assert [(task.dag_id, task.task_id) for task in af.task_instances() if task.state == "running"] == [
        ("chain", "job")
    ]

    assert first.end() == "success"
    for run in waiting:  # whichever came first to the queue works first
        run.open_gate()
    assert [run.end() for run in waiting] == ["success"] * 3
    tenures = manager.history("dw.a")
    assert len(tenures) == 3
    assert all(one.ended and one.ended <= other.granted for one, other in itertools.pairwise(tenures)), "two at once"
    af.wait(lambda: not manager.show("dw.a"), RUN_TIMEOUT_S, "all locks to be free")
    for run, task in zip(waiting, tasks, strict=True):
        log = run.log(task)  # of one that gave its slot back Airflow keeps the log of its last wait
        assert f"In the way: {first.owner('lock')} (lease " in log or "Found free in round 2" in log
    lease = af.api.call("GET", f"dags/chain/dagRuns/{first.run_id}/taskInstances/lock/xcomEntries/return_value")
    assert "'token': " in str(lease["value"]) or '"token": ' in str(lease["value"])


def test_a_task_that_waits_for_its_slot_keeps_its_position_for_as_long_as_it_is_invited(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    busy = [start("single", f"dw.busy_{n}") for n in range(2)]
    for run in busy:
        run.reach("work", "running")
    run = start("single", "dw.late")
    # The request waits for its locks for a moment before its turn.
    af.wait(lambda: WaitsFor.SLOT in {each.waits_for for each in manager.waiters("dw.late")}, RUN_TIMEOUT_S, "its turn")
    (invited,) = manager.waiters("dw.late")
    assert (invited.owner, invited.waits_for) == (run.owner("work"), WaitsFor.SLOT)
    assert invited.until is not None
    assert not manager.show("dw.late")
    logged = f"waiting for a worker slot, with its position until {invited.until:%H:%M:%S}Z (round 1 of 3)"
    af.wait(lambda: logged in run.log("work"), RUN_TIMEOUT_S, "its log to contain that")
    altering = manager.acquire(owner="alter", writes=["dw.late"], timeout_s=RUN_TIMEOUT_S)
    assert altering.since >= invited.until, "no slot came, and the next request waited for the end of the invitation"
    assert busy[0].end() == "success"
    gave_back = "after the invitation, which has ended: alter holds dw.late"
    af.wait(lambda: gave_back in run.log("work"), RUN_TIMEOUT_S, "it to find its table taken")
    af.wait(
        lambda: [each.waits_for for each in manager.waiters("dw.late")] == [WaitsFor.LOCK], RUN_TIMEOUT_S, "it to wait"
    )
    manager.release(altering)
    works(af, manager, run, "dw.late")
    assert [run.end(), busy[1].end()] == ["success", "success"]
    log = run.log("work")
    assert re.search(r"Found free in round 1 of 3, after waiting .*\. Taking the locks now", log)
    assert "This worker gives its slot back, and the triggerer waits (round 2 of 3)" in log
    assert not manager.requests()[1]
    assert not manager.show("dw.late")


def test_a_task_goes_before_a_later_one_although_its_slot_comes_later(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    busy = [start("single", f"dw.full_{n}") for n in range(2)]
    for run in busy:
        run.reach("work", "running")
    first = start("single", "dw.order")
    af.wait(lambda: manager.waiters("dw.order"), RUN_TIMEOUT_S, "its turn")
    behind = manager.begin(rules.request(owner="later", writes=["dw.order"]), lambda: None)
    try:
        assert isinstance(behind.poll(), Blocked)
        assert busy[0].end() == "success"
        works(af, manager, first, "dw.order")
    finally:
        behind.withdraw()
    assert [first.end(), busy[1].end()] == ["success", "success"]
    assert not manager.show("dw.order")


@pytest.mark.parametrize(("dag_id", "task_id"), [("chain", "lock"), ("single", "work")])
def test_a_waiter_that_is_marked_failed_leaves_the_queue(
    dag_id: str, task_id: str, af: AirflowServer, manager: LockManager, start: Start
) -> None:
    table = f"dw.marked_{dag_id}"
    held = manager.acquire(owner=table, writes=[f"{table}/dt=2013-01-15"])
    run = start(dag_id, table)
    af.wait(lambda: manager.waiters(table), RUN_TIMEOUT_S, "a waiter in the queue")
    af.set_task_state(dag_id, run.run_id, task_id, "failed")
    af.wait(lambda: not manager.waiters(table), RUN_TIMEOUT_S, "the waiter to leave the queue")
    assert run.end() == "failed"
    manager.release(held)
    assert not manager.show(table)


def test_a_cleared_waiter_keeps_its_place(af: AirflowServer, manager: LockManager, start: Start) -> None:
    held = manager.acquire(owner="cleared", writes=["dw.cleared/dt=2013-01-15"])
    first = start("chain", "dw.cleared")
    af.wait(lambda: len(manager.waiters("dw.cleared")) == 1, RUN_TIMEOUT_S, "the first waiter")
    second = start("chain", "dw.cleared")
    af.wait(lambda: len(manager.waiters("dw.cleared")) == 2, RUN_TIMEOUT_S, "the second waiter")
    af.clear("chain", first.run_id)
    af.wait(
        lambda: (task := af.task("chain", first.run_id, "lock")).try_number == 2 and task.trigger_id,
        RUN_TIMEOUT_S,
        "the second try to wait",
    )
    manager.release(held)
    first.reach("job", "running")
    assert owners(manager, "dw.cleared") == [first.owner("lock")]
    assert [waiter.owner for waiter in manager.waiters("dw.cleared")] == [second.owner("lock")]
    assert [first.end(), second.end()] == ["success", "success"]
    assert not manager.show("dw.cleared")


def test_a_killed_tasks_lock_stands_until_its_run_is_over(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    run = start("single", "dw.killed")
    works(af, manager, run, "dw.killed")
    assert start("force", "dw.killed").end() == "success"
    assert owners(manager, "dw.killed") == [run.owner("work")], "the run is not over"
    os.kill(af.task_process("single", run.run_id, "work").pid, signal.SIGKILL)
    assert run.end() == "failed"

    manager.acquire(owner="here/single/no_such_run/work/-1", writes=["dw.killed/dt=1"])
    manager.acquire(owner="there/single/no_such_run/work/-1", writes=["dw.killed/dt=2"])
    forced = start("force", "dw.killed")
    assert forced.end() == "success"
    assert [str(holder.object) for holder in manager.show("dw.killed")] == ["dw.killed", "dw.killed/dt=2"]
    assert "run no_such_run of single is unknown to Airflow" in forced.log("force")
    (freed,) = [entry for entry in manager.audit("dw.killed") if entry.owner == run.owner("work")]
    assert f"run {run.run_id} of single is failed" in freed.reason, "by the keeper, or by the DAG where that is quicker"


def test_what_a_killed_task_has_left_running_keeps_its_lock(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    run = start("shell", "dw.orphan")
    af.wait(run.pids, RUN_TIMEOUT_S, "the shell to run")
    os.kill(af.task_process("shell", run.run_id, "work").pid, signal.SIGKILL)
    af.wait(lambda: af.run("shell", run.run_id).state == "failed", RUN_TIMEOUT_S, "Airflow to notice")
    behind = start("single", "dw.orphan")
    behind.reach("work", "deferred")
    forced = start("force", "dw.orphan")
    assert forced.end() == "success"
    assert psutil.pid_exists(run.pids()[0])
    assert owners(manager, "dw.orphan") == [run.owner("work")], "it writes on, and somebody else would write too"
    assert "still runs" in forced.log("force")
    run.open_gate()
    af.wait(lambda: not psutil.pid_exists(run.pids()[0]), RUN_TIMEOUT_S, "the shell to end")
    assert start("force", "dw.orphan").end() == "success"
    assert behind.end() == "success"


def test_a_retry_starts_after_what_the_killed_try_has_left_running_was_ended(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    run = start("shell_again", "dw.again")
    af.wait(run.pids, RUN_TIMEOUT_S, "the first try's shell to run")
    first = manager.show("dw.again/dt=2013-01-15")[0]
    os.kill(af.task_process("shell_again", run.run_id, "work").pid, signal.SIGKILL)
    af.wait(lambda: len(run.pids()) == 2, RUN_TIMEOUT_S, "the second try's shell to run")
    assert not psutil.pid_exists(run.pids()[0]), "two writers at once"
    second = manager.show("dw.again/dt=2013-01-15")[0]
    assert second.lease_id == first.lease_id, "somebody else could have come in between"
    assert second.token > first.token  # type: ignore[operator]
    assert run.end() == "success"
    assert not manager.show("dw.again")


def test_a_callback_in_the_dag_processor_frees_the_lock_of_a_killed_task(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    run = start("called_back", "dw.called_back")
    works(af, manager, run, "dw.called_back")
    os.kill(af.task_process("called_back", run.run_id, "work").pid, signal.SIGKILL)
    assert run.end() == "failed"
    af.wait(lambda: not manager.show("dw.called_back"), RUN_TIMEOUT_S, "the callback to free the lock")


def test_a_task_marked_failed_while_it_runs_frees_its_locks(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    run = start("single", "dw.stopped")
    works(af, manager, run, "dw.stopped")
    af.set_task_state("single", run.run_id, "work", "failed")
    af.wait(lambda: not manager.show("dw.stopped"), RUN_TIMEOUT_S, "on_kill to free the lock")


def test_the_keeper_renews_what_is_needed_and_has_the_rest_freed(
    af: AirflowServer, manager: LockManager, start: Start
) -> None:
    run = start("kept", "dw.kept")
    run.reach("job", "running")

    def renewed() -> bool:
        lease = manager.lease_of(run.owner("lock"))
        assert lease is not None
        assert lease.expires is not None
        return lease.expires > lease.since + timedelta(seconds=9)

    af.wait(renewed, RUN_TIMEOUT_S, "a lease of 3 s to live for longer: none of the run's tasks renews it")
    assert run.end() == "success"
    af.wait(
        lambda: not manager.show("dw.kept"), RUN_TIMEOUT_S, "the DAG that the keeper's event starts to free the lock"
    )
    entry = manager.audit("dw.kept")[-1]
    assert (entry.owner, f"run {run.run_id} of kept is success" in entry.reason) == (run.owner("lock"), True)


def test_waiters_outlive_their_triggerer(af: AirflowServer, manager: LockManager, start: Start) -> None:
    held = manager.acquire(owner="outlive", writes=["dw.outlive/dt=2013-01-15"])
    run = start("chain", "dw.outlive")
    af.wait(lambda: manager.waiters("dw.outlive"), RUN_TIMEOUT_S, "a waiter in the queue")
    af.process("triggerer").kill()
    manager.release(held)
    af.process("triggerer").restart()
    run.reach("job", "running")
    assert owners(manager, "dw.outlive") == [run.owner("lock")]
    assert run.end() == "success"
    assert not manager.show("dw.outlive")


def test_the_lock_is_held_for_exactly_as_long_as_the_job_lives(
    af: AirflowServer, manager: LockManager, gates: Path, zookeeper: ZooKeeperServer
) -> None:
    rows = {row.name: row for row in (*working.ROWS, *chained.ROWS, *waiting.ROWS)}
    verdicts = play_all(Stage(af, manager, gates, [zookeeper]), [rows[name] for name in QUICK])
    for name, verdict in verdicts.items():
        assert not isinstance(verdict, BaseException), f"{name}: {verdict!r}"
        assert verdict.wrong == (), name
        assert set(verdict.freed_by) <= set(rows[name].by), name
