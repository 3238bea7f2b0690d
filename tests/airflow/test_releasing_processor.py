"""The callback release_locks in the DAG processor, for tasks that died and for DAGs."""

from __future__ import annotations

import re
import subprocess
import uuid
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

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
from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import MARK, Processes
from tests.airflow.tasks import NAMES
from tests.airflow.tasks import dag as dag_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines

dag = partial(dag_named, "releases")


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
            if name in wanted or (message.map_index != -1 and name.rpartition("_")[0] in wanted)
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

    def call_task(
        self, releases: DAG, task_id: str, kind: TaskInstanceState, try_number: int = 1, map_index: int = -1
    ) -> None:
        ti = datamodels.TaskInstance(
            id=uuid.uuid4(),
            task_id=task_id,
            dag_id="releases",
            run_id="run",
            try_number=try_number,
            map_index=map_index,
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

    @pytest.mark.parametrize("host", ["", "worker-7"])
    def test_a_mapped_task_that_died_frees_its_own_locks_and_those_upstream(
        self, host: str, manager: LockManager, airflow_has: Callable[..., None], lines: Lines
    ) -> None:
        """Airflow gives the callback the mapped operator, which has no method of its class."""
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", writes=["dw.lock"])
            kinds = Alone.partial(task_id="alone", on_failure_callback=release_locks)
            lock >> kinds.expand(writes=[["dw.a"], ["dw.b"]])
        self.acquire(manager, "lock")
        lease = manager.acquire(owner="here/releases/run/alone/0", writes=["dw.a"])
        manager.acquire(owner="here/releases/run/alone/1", writes=["dw.b"])
        if host:
            manager.start_work(lease, "alone[0]", applications.encode(Processes(host=host)))
        airflow_has(lock="success", alone_0="failed", alone_1="success")
        self.call_task(releases, "alone", TaskInstanceState.FAILED, map_index=0)
        kept = {"here/releases/run/alone/0"} if host else set()
        assert {holder.owner for holder in manager.show()} == kept | {"here/releases/run/alone/1"}
        assert ("on worker-7" in lines()) is bool(host)

    @pytest.mark.parametrize(("owner", "died"), [("lock", "job"), ("spark", "spark")])
    def test_a_task_that_died_keeps_the_locks_that_what_it_started_needs(
        self, owner: str, died: str, manager: LockManager, releases: DAG, airflow_has: Callable[..., None], lines: Lines
    ) -> None:
        """A SIGKILLed task leaves its spark-submit behind, which writes on."""
        task = Processes(pid=0)
        with subprocess.Popen(["sleep", "60"], env={MARK: task.mark}) as child:
            manager.start_work(self.acquire(manager, owner), died, applications.encode(task))
            airflow_has(**({owner: "success"} | {died: "failed"}))
            self.call_task(releases, died, TaskInstanceState.FAILED)
            self.call_dag(releases, True)
            assert manager.show()
            assert re.search(rf"its work may still run: .* of {died}", lines())
            child.kill()
        self.call_task(releases, died, TaskInstanceState.FAILED)
        assert not manager.show()

    def test_a_task_that_died_on_another_host_keeps_its_locks(
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None], lines: Lines
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
        self, manager: LockManager, releases: DAG, airflow_has: Callable[..., None], lines: Lines
    ) -> None:
        self.acquire(manager, "lock")
        self.acquire(manager, "alone")
        airflow_has(lock="success", job="running", alone="failed")
        self.call_dag(releases, True)
        assert {holder.owner for holder in manager.show()} == {"here/releases/run/lock/-1"}
        assert "these tasks have not ended: job" in lines()

    def test_a_store_that_does_not_answer_is_told(
        self,
        manager: LockManager,
        releases: DAG,
        airflow_has: Callable[..., None],
        lines: Lines,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(manager, "lease_of", Mock(side_effect=StoreUnavailable("zk1 is down")))
        airflow_has(lock="success", job="failed")
        self.call_task(releases, "job", TaskInstanceState.FAILED)
        assert "error: Error in callback" in lines()

    def test_an_airflow_that_does_not_answer_frees_nothing(
        self, manager: LockManager, releases: DAG, monkeypatch: pytest.MonkeyPatch, lines: Lines
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
