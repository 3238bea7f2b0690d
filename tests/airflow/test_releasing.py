"""Unlock tasks and callbacks: they free what is done with, and nothing that is still needed."""

from __future__ import annotations

import subprocess
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from airflow.api_fastapi.execution_api.datamodels import taskinstance as datamodels
from airflow.callbacks.callback_requests import DagCallbackRequest, TaskCallbackRequest
from airflow.dag_processing import processor
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
from airflow.utils.state import TaskInstanceState

from airflow_hivelock import (
    HiveLockedSparkSubmitOperator,
    HiveLockMixin,
    HiveLockOperator,
    HiveUnlockOperator,
    release_locks,
)
from airflow_hivelock.locks import StoreUnavailable, pending
from airflow_hivelock.operators import lock as lock_operator
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import MARK, Processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Ran

DAY = datetime(2013, 1, 15, tzinfo=UTC)
NAMES = {"writes": ["dw.delays/dt={{ ds }}"]}


def dag(name: str = "releases", **options: Any) -> DAG:
    return DAG(name, schedule=None, start_date=DAY, **options)


def _held(manager: LockManager) -> list[str]:
    return sorted({str(holder.object) for holder in manager.show() if holder.object.partition})


class TestUnlock:
    def test_it_frees_its_setups_when_the_work_failed(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task
            def job() -> None:
                raise RuntimeError("no such table")

            lock >> job() >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
        ran = run(releases, logical_date=DAY)
        assert ran.tasks == {"lock": "success", "job": "failed", "unlock": "success"}
        assert ran.state == "failed"
        assert not manager.show()

    def test_it_frees_every_map_index(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            lock = HiveLockOperator.partial(task_id="lock").expand(writes=[["dw.a"], ["dw.b"]])
            unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)  # type: ignore[arg-type]
            lock >> EmptyOperator(task_id="job") >> unlock
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_it_frees_the_lease_that_it_is_given(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            one = HiveLockOperator(task_id="one", writes=["dw.a"])
            two = HiveLockOperator(task_id="two", writes=["dw.b"])
            [one, two] >> HiveUnlockOperator(task_id="unlock", lease=two.output)
        assert run(releases, logical_date=DAY).state == "success"
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.a"]

    def test_it_frees_leases_that_another_dag_acquired(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        given = [manager.acquire(owner=f"here/other/run/{n}/-1", writes=[f"dw.{n}"]).to_json() for n in ("a", "b")]
        with dag() as releases:
            HiveUnlockOperator(task_id="unlock", lease=given, lease_dag_id="other")
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_it_leaves_an_outer_lock_alone(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            outer = HiveLockOperator(task_id="outer", writes=["dw.a"])
            inner = HiveLockOperator(task_id="inner", writes=["dw.b"])
            outer >> inner >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=inner)
        assert run(releases, logical_date=DAY).state == "success"
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.a"]

    def test_it_frees_the_days_that_are_done_and_leaves_the_others(
        self, manager: LockManager, run: Callable[..., Ran]
    ) -> None:
        seen: list[list[str]] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", writes=["dw.delays/dt=2013-01-{{ ds[8:] }}..2013-01-17"])

            @task
            def day(number: int) -> None:
                seen.append(_held(manager))

            first, last = day(1), day(2)
            done = HiveUnlockOperator(task_id="done", objects=["dw.delays/dt={{ ds }}..2013-01-16"])
            again = HiveUnlockOperator(task_id="again", lease=lock.output, objects=["dw.delays/dt={{ ds }}"])
            unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
            lock >> first >> done >> again >> last >> unlock
        ran = run(releases, logical_date=DAY)
        assert ran.state == "success"
        assert seen == [
            ["dw.delays/dt=2013-01-15", "dw.delays/dt=2013-01-16", "dw.delays/dt=2013-01-17"],
            ["dw.delays/dt=2013-01-17"],
        ]
        assert not manager.show()

    def test_work_on_other_days_does_not_keep_it_waiting(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", writes=["dw.delays/dt=2013-01-15..2013-01-16"])
            done = HiveUnlockOperator(
                task_id="done", objects=["dw.delays/dt=2013-01-15"], work_timeout=timedelta(seconds=2)
            )

            @task
            def late() -> None:
                assert _held(manager) == ["dw.delays/dt=2013-01-16"]

            lock >> EmptyOperator(task_id="early") >> done
            lock >> late() << done
        assert run(releases, logical_date=DAY).state == "success"
        assert _held(manager) == ["dw.delays/dt=2013-01-16"], "a part is not the whole"

    def test_what_the_lease_never_held_fails_and_frees_nothing(
        self, manager: LockManager, run: Callable[..., Ran]
    ) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock", objects=["dw.delays/dt=2013-02-01"])
        assert run(releases, logical_date=DAY).tasks["unlock"] == "failed"
        assert _held(manager) == ["dw.delays/dt=2013-01-15"]

    def test_what_is_free_already_is_success(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock") >> HiveUnlockOperator(task_id="again", lease=lock.output)
        assert run(releases, logical_date=DAY).state == "success"

    def test_as_a_plain_task_it_frees_the_locks_upstream(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> EmptyOperator(task_id="job") >> HiveUnlockOperator(task_id="unlock")
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_it_waits_for_work_and_then_says_for_which(
        self, manager: LockManager, run: Callable[..., Ran], lines: Callable[[], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        monkeypatch.setattr(lock_operator, "WORK_POLL_S", 0.1)
        states = {("job", -1): "running"}
        monkeypatch.setattr("airflow_hivelock.comms.task_states", lambda *_: states)
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            unlock = HiveUnlockOperator(
                task_id="unlock",
                work_timeout=timedelta(milliseconds=300),
                on_failure_callback=lambda context: said.append(str(context["exception"])),
            )
            lock >> EmptyOperator(task_id="job") >> unlock.as_teardown(setups=lock)
        assert run(releases, logical_date=DAY).tasks["unlock"] == "failed"
        assert "Waiting for job" in lines()
        assert "there is still work under the locks: job." in said[0]
        assert manager.show()

    def test_a_store_that_does_not_answer_fails_it(
        self, manager: LockManager, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def down(_: Any) -> bool:
            raise StoreUnavailable("zk1 is down")

        monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.05)
        monkeypatch.setattr(manager, "release", down)
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock", work_timeout=timedelta(milliseconds=200))
        assert run(releases, logical_date=DAY).tasks["unlock"] == "failed"

    def test_it_bears_an_outage_of_the_lock_store(
        self, manager: LockManager, run: Callable[..., Ran], lines: Callable[[], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release, outages = manager.release, [StoreUnavailable("zk1 is down")] * 3

        def flaky(lease: Lease) -> bool:
            if outages:
                raise outages.pop()
            return release(lease)

        failures: list[None] = []
        monkeypatch.setattr("airflow_hivelock.metrics.store_failed", lambda: failures.append(None))
        monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.05)
        monkeypatch.setattr(manager, "release", flaky)
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            lock >> HiveUnlockOperator(task_id="unlock")
        assert run(releases, logical_date=DAY).state == "success"
        assert not manager.show()
        assert lines().count("Not released yet. The lock store does not answer; asking again") == 1
        assert len(failures) == 3, "the metric counts each"


class TestCallbackInTheTask:
    """Run by the task's own process, in runs that are real but for their processes."""

    def test_the_last_job_frees_the_locks_and_no_one_before(
        self, manager: LockManager, run: Callable[..., Ran]
    ) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task(on_success_callback=[release_locks, lambda _: held.append(len(manager.show()))])
            def job() -> None: ...

            first, second = job.override(task_id="first")(), job.override(task_id="second")()
            lock >> first >> second
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [3, 0]

    def test_a_job_frees_them_before_the_unlock_task(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task(on_success_callback=[release_locks, lambda _: held.append(len(manager.show()))])
            def job() -> None: ...

            work = job()
            lock >> work >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
            work >> EmptyOperator(task_id="not_under_the_lock")
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [0]

    def test_a_failure_frees_them_and_a_retry_does_not(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        held: list[tuple[str, int]] = []

        def note(what: str) -> Callable[[Any], None]:
            return lambda _: held.append((what, len(manager.show())))

        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task(
                retries=1,
                retry_delay=timedelta(0),
                on_retry_callback=[release_locks, note("retry")],
                on_failure_callback=[release_locks, note("failure")],
            )
            def job() -> None:
                raise RuntimeError("no such table")

            lock >> job()
        run(releases, logical_date=DAY)
        assert held == [("retry", 3), ("failure", 0)]

    def test_one_map_index_leaves_the_others_their_locks(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task(on_success_callback=[release_locks, lambda _: held.append(len(manager.show()))])
            def job(number: int) -> int:
                return number

            lock >> job.expand(number=[1, 2, 3])
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [3, 3, 0]

    def test_the_lock_task_itself_does_not_free_what_its_jobs_need(
        self, manager: LockManager, run: Callable[..., Ran]
    ) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", on_success_callback=release_locks, **NAMES)

            @task
            def job() -> None:
                held.append(len(manager.show()))

            lock >> job()
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [3]


class Alone(HiveLockMixin, EmptyOperator):
    pass


class Line:
    """The DAG processor's line to its supervisor, which knows fewer questions than a task's."""

    def __init__(self, **states: str | None) -> None:
        self.states = states

    def send(self, message: Any) -> Any:
        assert isinstance(message, GetTaskStates), f"the DAG processor cannot ask {message}"
        wanted = message.task_ids or []
        found = {
            name: state
            for name, state in self.states.items()
            if name in wanted or (message.map_index is None and name.rpartition("_")[0] in wanted)
        }
        return TaskStatesResult(task_states={"run": found} if found else {})


class TestCallbackInTheDagProcessor:
    """Run by Airflow's own code for deaths that were noticed from outside, and for DAGs."""

    @pytest.fixture
    def airflow_has(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        def have(**states: str | None) -> None:
            monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Line(**states), raising=False)

        return have

    @pytest.fixture
    def releases(self) -> DAG:
        callbacks: dict[str, Any] = {"on_failure_callback": release_locks, "on_success_callback": release_locks}
        with dag(**callbacks) as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            callbacks["on_retry_callback"] = release_locks
            job = EmptyOperator(task_id="job", **callbacks)
            alone = Alone(task_id="alone", writes=["dw.a"], **callbacks)
            spark = HiveLockedSparkSubmitOperator(task_id="spark", writes=["dw.s"], application="job.py", **callbacks)
            lock >> job >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
            job >> alone >> spark
        return releases

    def acquire(self, manager: LockManager, task_id: str, attempt: int = 1) -> Lease:
        return manager.acquire(owner=f"here/releases/run/{task_id}/-1", writes=[f"dw.{task_id}"], attempt=attempt)

    def call_task(self, releases: DAG, task_id: str, kind: TaskInstanceState, try_number: int = 1) -> None:
        ti = datamodels.TaskInstance(
            id=uuid.uuid4(),
            task_id=task_id,
            dag_id="releases",
            run_id="run",
            try_number=try_number,
            map_index=-1,
            dag_version_id=uuid.uuid4(),
        )
        request = TaskCallbackRequest(
            filepath="releases.py", bundle_name="dags", bundle_version=None, ti=ti, task_callback_type=kind
        )
        processor._execute_task_callbacks(self.bag(releases), request, structlog.get_logger())

    def call_dag(self, releases: DAG, failed: bool) -> None:
        request = DagCallbackRequest(
            filepath="releases.py",
            bundle_name="dags",
            bundle_version=None,
            dag_id="releases",
            run_id="run",
            is_failure_callback=failed,
            msg="task_failure",
        )
        processor._execute_dag_callbacks(self.bag(releases), request, structlog.get_logger())

    def bag(self, releases: DAG) -> Any:
        return SimpleNamespace(dags={"releases": releases})

    def test_a_task_that_died_frees_what_it_worked_under(
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None]
    ) -> None:
        self.acquire(manager, "lock")
        airflow_has(lock="success", job="failed")
        self.call_task(releases, "job", TaskInstanceState.FAILED)
        assert not manager.show()
        self.call_task(releases, "job", TaskInstanceState.FAILED)  # Airflow may run it twice

    def test_a_task_that_died_frees_its_own_locks(
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None]
    ) -> None:
        self.acquire(manager, "alone")
        airflow_has(alone="failed")
        self.call_task(releases, "alone", TaskInstanceState.FAILED)
        assert not manager.show()

    @pytest.mark.parametrize(("owner", "died"), [("lock", "job"), ("spark", "spark")])
    def test_a_task_that_died_keeps_the_locks_that_what_it_started_needs(
        self,
        owner: str,
        died: str,
        manager: LockManager,
        releases: DAG,
        airflow_has: Callable[..., None],
        lines: Callable[[], str],
    ) -> None:
        """A SIGKILLed task leaves its spark-submit behind, which writes on."""
        task = Processes(pid=0)
        with subprocess.Popen(["sleep", "60"], env={MARK: task.mark}) as child:
            manager.start_work(self.acquire(manager, owner), died, applications.encode(task))
            airflow_has(**({owner: "success"} | {died: "failed"}))
            self.call_task(releases, died, TaskInstanceState.FAILED)
            self.call_dag(releases, True)
            assert manager.show()
            assert f"of {died} not over yet" in lines()
            child.kill()
        self.call_task(releases, died, TaskInstanceState.FAILED)
        assert not manager.show()

    def test_a_task_that_died_on_another_host_keeps_its_locks(
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None], lines: Callable[[], str]
    ) -> None:
        lease = self.acquire(manager, "spark")
        manager.start_work(lease, "spark", applications.encode(Processes(host="worker-7")))
        airflow_has(spark="failed")
        self.call_task(releases, "spark", TaskInstanceState.FAILED)
        assert manager.show()
        assert "on worker-7" in lines()

    @pytest.mark.parametrize("state", ["up_for_retry", "running", "deferred", "queued", None])
    def test_another_try_keeps_them(
        self, state: str | None, manager: LockManager, releases: DAG, airflow_has: Callable[..., None]
    ) -> None:
        self.acquire(manager, "lock")
        self.acquire(manager, "alone")
        airflow_has(lock="success", job=state, alone=state)
        self.call_task(releases, "job", TaskInstanceState.UP_FOR_RETRY)
        self.call_task(releases, "alone", TaskInstanceState.UP_FOR_RETRY)
        assert len({holder.lease_id for holder in manager.show()}) == 2

    def test_a_late_one_leaves_a_later_tries_lease_alone(
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None]
    ) -> None:
        self.acquire(manager, "alone", attempt=2)
        airflow_has(alone="failed")
        self.call_task(releases, "alone", TaskInstanceState.FAILED, try_number=1)
        assert manager.show()

    @pytest.mark.parametrize("failed", [True, False])
    def test_a_dag_frees_all_of_its_run(
        self, failed: bool, manager: LockManager, releases: DAG, airflow_has: Callable[..., None]
    ) -> None:
        self.acquire(manager, "lock")
        self.acquire(manager, "alone")
        manager.acquire(owner="here/releases/other_run/lock/-1", writes=["dw.other"])
        airflow_has(lock="success", job="success", alone="failed", unlock="failed")
        self.call_dag(releases, failed)
        assert {holder.owner for holder in manager.show()} == {"here/releases/other_run/lock/-1"}

    def test_a_dag_keeps_what_a_task_still_works_under(
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None], lines: Callable[[], str]
    ) -> None:
        self.acquire(manager, "lock")
        self.acquire(manager, "alone")
        airflow_has(lock="success", job="running", alone="failed")
        self.call_dag(releases, True)
        assert {holder.owner for holder in manager.show()} == {"here/releases/run/lock/-1"}
        assert "job not over yet" in lines()

    def test_a_store_that_does_not_answer_is_told(
        self,
        manager: LockManager,
        releases: DAG,
        airflow_has: Callable[..., None],
        lines: Callable[[], str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def down(_: Any) -> Any:
            raise StoreUnavailable("zk1 is down")

        monkeypatch.setattr(manager, "lease_of", down)
        airflow_has(lock="success", job="failed")
        self.call_task(releases, "job", TaskInstanceState.FAILED)
        assert "error: Error in callback" in lines()

    def test_an_airflow_that_does_not_answer_frees_nothing(
        self, manager: LockManager, releases: DAG, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str]
    ) -> None:
        self.acquire(manager, "lock")
        monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS", raising=False)
        self.call_task(releases, "job", TaskInstanceState.FAILED)
        assert manager.show()
        assert "error: Error in callback" in lines()

    def test_a_mapped_task_named_like_another_hides_nothing(
        self, manager: LockManager, airflow_has: Callable[..., None]
    ) -> None:
        """Airflow calls both the second instance of ``job`` and the task ``job_1`` ``job_1``."""
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task
            def job(number: int) -> int:
                return number

            lock >> job.expand(number=[1, 2]) >> EmptyOperator(task_id="end", on_failure_callback=release_locks)
            lock >> EmptyOperator(task_id="job_1")
        self.acquire(manager, "lock")
        airflow_has(lock="success", job_0="success", job_1="running", end="failed")
        self.call_task(releases, "end", TaskInstanceState.FAILED)
        assert manager.show()
