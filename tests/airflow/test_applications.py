"""Work that a dead task has left running: it is found, and ended before a later try starts. A release waits for it."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import BaseOperator, task

from airflow_hivelock import HiveLockedSparkSubmitOperator, HiveLockMixin, HiveLockOperator, HiveUnlockOperator
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.model import Work
from airflow_hivelock.operators import lock as lock_operator
from airflow_hivelock.ui.works import how
from airflow_hivelock.work import applications, processes
from airflow_hivelock.work.processes import MARK, Processes
from airflow_hivelock.work.spark_job import SparkJob
from tests.airflow.tasks import DAY, NAMES, Defers, LockedWork, dag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

DEADLINE_S = 30.0


@contextmanager
def left_behind(*command: str) -> Iterator[tuple[Processes, subprocess.Popen[bytes]]]:
    """A job that goes on although the task that started it is dead."""
    died = Processes(pid=0)
    with subprocess.Popen(command or ("sleep", "300"), env={MARK: died.mark}) as child:
        try:
            yield died, child
        finally:
            child.kill()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestProcesses:
    def test_what_was_started_is_found_although_its_parents_are_gone(self) -> None:
        started = Processes()
        assert not started.running()
        subprocess.run(["bash", "-c", "sleep 300 & disown"], env=os.environ | {MARK: started.mark}, check=True)
        eventually(started.running)
        started.stop()
        assert not started.running()

    def test_the_task_itself_counts_for_everybody_else(self) -> None:
        with subprocess.Popen(["sleep", "300"]) as other:
            task = Processes(pid=other.pid, started=processes._started(other.pid))
            assert task.running()
            assert not replace(task, started=task.started - 1).running(), "a later process of the same id"
            task.stop()
            assert not psutil.pid_exists(other.pid)

    def test_what_has_the_id_of_an_earlier_process_is_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "STOP_S", 2.0)
        with left_behind() as (died, child):
            assert died.running()  # psutil now knows all processes
            earlier = psutil.Process(child.pid)
            monkeypatch.setattr(earlier, "_ident", (child.pid, 1.0))  # it started at another time
            monkeypatch.setitem(psutil._pmap, child.pid, earlier)
            died.stop()
            assert not died.running()

    def test_what_ends_by_itself_is_not_killed(self, tmp_path: Path) -> None:
        said = tmp_path / "said"
        ends = f'trap "sleep 0.1; echo in peace > {said}; exit" TERM; touch {said}; while :; do sleep 0.01; done'
        with left_behind("/bin/bash", "-c", ends) as (died, child):
            eventually(said.exists)
            child.terminate()
            died.stop(patience_s=DEADLINE_S)
            assert said.read_text() == "in peace\n"

    def test_it_ended_with_its_hosts_boot(self) -> None:
        with left_behind() as (died, _):
            assert not replace(died, boot="an earlier one").running()

    def test_it_cannot_be_told_from_another_host(self) -> None:
        elsewhere = Processes(host="worker-7")
        for ask in (elsewhere.running, elsewhere.stop):
            with pytest.raises(CannotTell, match="on worker-7"):
                ask()

    @pytest.mark.parametrize("application", [Processes(), SparkJob("spark_default", "driver-1", "cluster")])
    def test_another_process_reads_what_the_lease_records(self, application: Any) -> None:
        assert applications.decode(applications.encode(application)) == application

    @pytest.mark.parametrize("text", ["", "{}", '{"kind": "submarine"}', '{"kind": "spark"}', "driver-1"])
    def test_what_it_does_not_know_it_does_not_take_for_ended(self, text: str) -> None:
        with pytest.raises(CannotTell):
            applications.decode(text)


@pytest.fixture
def crashed(manager: LockManager) -> Callable[[Any], Any]:
    """A task after which it looks as if a try of the task ``job`` had been killed while *application* ran."""

    def make(application: Any) -> Any:
        @task
        def crash(given: Any) -> None:
            lease = manager.find(given["id"])
            assert lease
            manager.start_work(lease, "job", applications.encode(application))

        return crash

    return make


def test_a_later_try_starts_once_the_earlier_ones_work_has_ended(
    manager: LockManager, run: Run, crashed: Callable[[Any], Any]
) -> None:
    alive: list[bool] = []
    with left_behind() as (died, child):
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            job = LockedWork(task_id="job", lease=lock.output, act=lambda _: alive.append(child.poll() is None))
            crashed(died)(lock.output) >> job >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
        assert run(works, logical_date=DAY).state == "success"
    assert alive == [False], "two writers at once"


def test_a_later_try_does_not_start_where_it_cannot_tell(
    manager: LockManager, run: Run, crashed: Callable[[Any], Any]
) -> None:
    worked: list[Any] = []
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", **NAMES)
        job = LockedWork(task_id="job", lease=lock.output, act=worked.append)
        unlock = HiveUnlockOperator(task_id="unlock", work_timeout=timedelta(0))
        crashed(Processes(host="worker-7"))(lock.output) >> job >> unlock.as_teardown(setups=lock)
    ran = run(works, logical_date=DAY)
    assert ran.tasks == {"lock": "success", "crash": "success", "job": "failed", "unlock": "failed"}
    assert worked == []
    assert manager.show(), "its earlier try may write on"


def test_the_unlock_task_waits_for_what_a_dead_task_has_left_running(
    manager: LockManager, run: Run, crashed: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_operator, "WORK_POLL_S", 0.1)
    asked: list[bool] = []
    with left_behind() as (died, child):

        def running(works: Any) -> list[str]:
            alive = applications.running(works)
            asked.append(bool(alive))
            child.kill()
            return alive

        monkeypatch.setattr(lock_operator, "running", running)
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            crashed(died)(lock.output) >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
        assert run(works, logical_date=DAY).state == "success"
    assert asked[0]
    assert not asked[-1]
    assert not manager.show()


def test_the_unlock_task_waits_for_what_a_plain_operator_has_left_running(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_operator, "WORK_POLL_S", 0.1)
    found: list[list[str]] = []
    original = processes.started

    def started(*asked: Any) -> list[str]:
        found.append(original(*asked))
        assert manager.show(), "freed under the hands of a writer"
        for name in found[-1]:
            psutil.Process(int(name.split()[1])).kill()
        return found[-1]

    monkeypatch.setattr(processes, "started", started)
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", **NAMES)
        besides = BashOperator(task_id="besides", bash_command="sleep 300 > /dev/null 2>&1 &")
        job = BashOperator(task_id="job", bash_command="sleep 300 > /dev/null 2>&1 &")
        lock >> job >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    ran = run(works, logical_date=DAY)
    assert ran.state == "success"
    assert [len(names) for names in found][:: len(found) - 1] == [1, 0]
    assert "of job on this host" in found[0][0]
    assert not manager.show()
    (other,) = original(besides.dag_id, ran.run_id)
    psutil.Process(int(other.split()[1])).kill()


class LockedBash(HiveLockMixin, BashOperator):
    pass


def test_a_failed_tasks_children_are_ended_before_its_locks_go(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the provider fails to read the output of a spark-submit that goes on."""
    released: list[bool] = []
    started: list[Processes] = []
    original = manager.release

    def release(lease: Any) -> bool:
        started.extend(application for work in lease.works if (application := applications.decode(work.application)))  # type: ignore[misc]
        released.append(bool(applications.running(lease.works)))
        return original(lease)

    monkeypatch.setattr(manager, "release", release)
    with dag() as works:
        LockedBash(task_id="job", bash_command="sleep 300 > /dev/null 2>&1 & exit 1", **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert released == [False]
    assert isinstance(started[0], Processes)
    assert not manager.show()


def test_a_child_that_is_about_to_run_another_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux shows neither its environment nor its arguments then."""
    mine = Processes()
    child = subprocess.Popen(["sleep", "300"], env={**os.environ, MARK: mine.mark})
    try:
        looks = 0
        original = psutil.Process.environ

        def environ(process: psutil.Process) -> dict[str, str]:
            nonlocal looks
            looks += process.pid == child.pid
            return {} if process.pid == child.pid and looks < 3 else original(process)

        monkeypatch.setattr(psutil.Process, "environ", environ)
        monkeypatch.setattr(psutil.Process, "cmdline", lambda process: [])
        assert list(mine.living()) == [child.pid]
    finally:
        child.kill()
        child.wait(30)


class TestRunAsUser:
    """The work of a task with ``run_as_user``. Linux does not show its environment to the keeper's user."""

    @pytest.fixture
    def child(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
        child = subprocess.Popen(["sleep", "300"])
        original = processes._environment

        def environment(process: psutil.Process) -> dict[str, str]:
            if process.pid == child.pid:
                raise psutil.AccessDenied(process.pid)
            return original(process)

        monkeypatch.setattr(processes, "_environment", environment)
        yield child
        child.kill()
        child.wait(30)

    def test_a_process_of_its_user_that_cannot_be_read_may_be_its_work(
        self, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = Processes(pid=0)
        monkeypatch.setattr(os, "geteuid", lambda: work.user_id + 1)
        with pytest.raises(CannotTell, match=f"process {child.pid} of that user"):
            work.running()
        shown = how(Work("load", applications.encode(work), 1))
        assert (shown.code, "host-gone" in shown.next) == ("untold", False), "this host is up"
        assert not replace(work, started=work.started + 10**9).running(), "it ran before the work"
        assert not replace(work, user_id=work.user_id + 2).running(), "it is a third user's"

    def test_an_unreadable_process_of_the_same_user_does_not_count(self, child: subprocess.Popen[bytes]) -> None:
        assert not Processes(pid=0).running()


def test_a_deferred_task_runs_nowhere_and_keeps_its_token(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may resume on another worker, which cannot check the process that deferred."""
    tokens: list[int] = []
    recorded: list[bool] = []
    original = manager.record_work

    def record_work(lease: Any, name: str, application: str | None) -> Any:
        recorded.append(bool(application))
        return original(lease, name, application)

    monkeypatch.setattr(manager, "record_work", record_work)

    class Twice(BaseOperator):
        def execute(self, context: Any) -> None:
            tokens.extend(lease.token for lease in manager.leases())
            self.defer(trigger=Defers(), method_name="again")  # type: ignore[no-untyped-call]

        def again(self, context: Any, event: Any) -> None:
            tokens.extend(lease.token for lease in manager.leases())

    class LockedTwice(HiveLockMixin, Twice):
        pass

    with dag() as works:
        LockedTwice(task_id="job", **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert recorded == [False, True]
    assert len(tokens) == 2
    assert tokens[0] == tokens[1]
    assert not manager.show()


def test_a_durable_spark_job_is_taken_up_with_the_token_that_it_has(
    manager: LockManager, run: Run, crashed: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparkJob("spark_default", "driver-1", None)
    seen: list[Any] = []

    def execute(self: Any, context: Any) -> None:
        seen.extend(work for lease in manager.leases() for work in lease.works)

    monkeypatch.setattr(HiveLockedSparkSubmitOperator, "reconnects", lambda self, context, earlier: job)
    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", **NAMES)
        work = HiveLockedSparkSubmitOperator(task_id="job", application="job.py", lease=lock.output)
        crash = crashed(Processes(host="worker-7"))(lock.output)
        crash >> work >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    starts: list[int] = []
    original = manager.start_work

    def start_work(*given: Any) -> Any:
        started = original(*given)
        starts.append(started.token)
        return started

    monkeypatch.setattr(manager, "start_work", start_work)
    assert run(works, logical_date=DAY).state == "success"
    assert [(found.application, found.token) for found in seen] == [(applications.encode(job), starts[0])]
    assert len(starts) == 1, "its token would have shut the running job out"
