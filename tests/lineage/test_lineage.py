"""The events that the official OpenLineage provider emits for tasks with locks."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from airflow.providers.common.compat.openlineage.facet import Dataset
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseOperator, task

from airflow_hivelock import HiveLockHook, HiveLockOperator, hold, locked
from airflow_hivelock.lineage import KEY
from tests.backends.databases import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Ran

    Events = Callable[[str], list[dict[str, Any]]]
    Run = Callable[..., Ran]

DAY = datetime(2013, 1, 15, tzinfo=UTC)
TABLE = "dw.delays"


class Loads(BaseOperator):
    """An operator with lineage of its own.

    :cvar token: the fencing token of the last work.
    """

    token: ClassVar[int]

    def execute(self, context: Any) -> None:
        for lease in HiveLockHook().manager().leases():
            if work := lease.work(self.task_id):
                Loads.token = work.token

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        return OperatorLineage(inputs=[Dataset("hive", "dw.flights")], outputs=[Dataset("hive", TABLE)])


def work() -> None:
    """The function of a PythonOperator."""


def dag_of(make: Callable[[], Any]) -> DAG:
    with DAG("lineage", schedule=None, start_date=DAY) as dag:
        make()
    return dag


def complete(events: Events, task_id: str) -> dict[str, Any]:
    (event,) = [event for event in events(f"lineage.{task_id}") if event["eventType"] == "COMPLETE"]
    return event


def leases(event: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = event["run"]["facets"][KEY]["leases"]
    return found


@pytest.fixture
def behind_somebody(manager: LockManager, lines: Callable[[], str]) -> Iterator[None]:
    """Another lease on the table. It is released once a task waits for it."""
    held = manager.acquire(owner="somebody", writes=[TABLE])

    def release() -> None:
        wait_until(lambda: "In the way: somebody" in lines())
        manager.release(held)

    releasing = threading.Thread(target=release)
    releasing.start()
    yield
    releasing.join()


@pytest.mark.usefixtures("behind_somebody")
@pytest.mark.parametrize("waiting", ["poke", "defer"])
def test_a_task_that_waited_names_its_wait_its_blockers_and_its_token(
    waiting: str, manager: LockManager, run: Run, events: Events
) -> None:
    ran = run(dag_of(lambda: locked(Loads)(task_id="load", writes=[TABLE], waiting=waiting)), logical_date=DAY)
    assert ran.tasks == {"load": "success"}
    (lease,) = leases(complete(events, "load"))
    (tenure,) = [each for each in manager.history() if each.owner.endswith("/load/-1")]
    assert lease["leaseId"] == tenure.lease_id
    assert lease["fencingToken"] == Loads.token, "that of its work"
    assert lease["waitSeconds"] > 0
    assert lease["blockers"] == ["somebody"]


@pytest.mark.usefixtures("behind_somebody", "manager")
def test_a_lock_task_whose_trigger_acquired_the_lease_names_its_wait(run: Run, events: Events) -> None:
    run(dag_of(lambda: HiveLockOperator(task_id="lock", writes=[TABLE], waiting="defer")), logical_date=DAY)
    (lease,) = leases(complete(events, "lock"))
    assert lease["waitSeconds"] > 0
    assert lease["blockers"] == ["somebody"]


def test_locked_keeps_the_operators_own_lineage(run: Run, events: Events, manager: LockManager) -> None:
    def tasks() -> None:
        Loads(task_id="plain")
        locked(Loads)(task_id="locked", writes=[TABLE])

    run(dag_of(tasks), logical_date=DAY)
    plain, under_locks = (complete(events, task_id) for task_id in ("plain", "locked"))
    assert [each["name"] for each in under_locks["inputs"]] == ["dw.flights"]
    assert [each["name"] for each in under_locks["outputs"]] == [TABLE]
    assert (under_locks["inputs"], under_locks["outputs"]) == (plain["inputs"], plain["outputs"])
    assert KEY in under_locks["run"]["facets"]
    assert KEY not in plain["run"]["facets"]
    assert under_locks["run"]["facets"].keys() - {KEY} == plain["run"]["facets"].keys()
    assert under_locks["job"]["facets"].keys() == plain["job"]["facets"].keys()


def test_locked_keeps_the_lineage_that_the_provider_finds_by_the_name_of_the_class(
    run: Run, events: Events, manager: LockManager
) -> None:
    def tasks() -> None:
        locked(BashOperator)(task_id="bash", bash_command="echo 1", writes=[TABLE])
        locked(PythonOperator)(task_id="python", python_callable=work, writes=["dw.other"])

    run(dag_of(tasks), logical_date=DAY)
    assert complete(events, "bash")["job"]["facets"]["sourceCode"]["sourceCode"] == "echo 1"
    assert "def work" in complete(events, "python")["job"]["facets"]["sourceCode"]["sourceCode"]


def test_a_task_under_a_passed_lease_names_its_token_and_no_wait(
    run: Run, events: Events, manager: LockManager
) -> None:
    def tasks() -> None:
        lock = HiveLockOperator(task_id="lock", writes=[TABLE], waiting="poke")
        locked(Loads)(task_id="load", lease=lock.output)

    run(dag_of(tasks), logical_date=DAY)
    (taken,) = leases(complete(events, "lock"))
    (used,) = leases(complete(events, "load"))
    assert used["leaseId"] == taken["leaseId"]
    assert used["fencingToken"] > taken["fencingToken"], "the work has a token of its own"
    assert (taken["waitSeconds"], "waitSeconds" in used) == (pytest.approx(0, abs=5), False)


def test_a_task_with_several_holds_names_all_of_them(run: Run, events: Events, manager: LockManager) -> None:
    def tasks() -> None:
        @task
        def publish() -> None:
            for table in ("dw.a", "dw.b"):
                with hold(writes=[table]):
                    pass

        publish()

    run(dag_of(tasks), logical_date=DAY)
    assert [each["waitSeconds"] for each in leases(complete(events, "publish"))] == [pytest.approx(0, abs=5)] * 2


def test_a_task_that_failed_names_its_lease(run: Run, events: Events, manager: LockManager) -> None:
    run(dag_of(lambda: locked(BashOperator)(task_id="bash", bash_command="exit 1", writes=[TABLE])), logical_date=DAY)
    (event,) = [event for event in events("lineage.bash") if event["eventType"] == "FAIL"]
    assert len(leases(event)) == 1
