"""The callback release_locks in the task: it frees what is done with, and nothing that is still needed."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import task

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator, hive_lock, release_locks
from tests.airflow.tasks import DAY, NAMES
from tests.airflow.tasks import dag as dag_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

dag = partial(dag_named, "releases")


class TestCallbackInTheTask:
    """The callback in the task's own process. The runs are real except for their processes."""

    def test_the_last_job_frees_the_locks_and_no_one_before(self, manager: LockManager, run: Run) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task(on_success_callback=[release_locks, lambda _: held.append(len(manager.show()))])
            def job() -> None: ...

            first, second = job.override(task_id="first")(), job.override(task_id="second")()
            lock >> first >> second
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [3, 0]

    def test_a_job_frees_them_before_the_unlock_task(self, manager: LockManager, run: Run) -> None:
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

    def test_a_job_keeps_them_for_a_teardown_inside_the_block(self, manager: LockManager, run: Run) -> None:
        """A cleanup in the locked table had no lock."""
        held: list[tuple[str, int]] = []

        def note(what: str) -> Callable[[Any], None]:
            return lambda _: held.append((what, len(manager.show())))

        with dag() as releases, hive_lock(**NAMES):

            @task(on_success_callback=[release_locks, note("work")])
            def work() -> None: ...

            @task(on_success_callback=[note("cleanup"), release_locks, note("after it")])
            def cleanup() -> None: ...

            made = EmptyOperator(task_id="make").as_setup()  # type: ignore[no-untyped-call]
            made >> work() >> cleanup().as_teardown(setups=made)
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [("work", 3), ("cleanup", 3), ("after it", 0)]

    def test_a_failure_frees_them_and_a_retry_does_not(self, manager: LockManager, run: Run) -> None:
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

    def test_one_map_index_leaves_the_others_their_locks(self, manager: LockManager, run: Run) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task(on_success_callback=[release_locks, lambda _: held.append(len(manager.show()))])
            def job(number: int) -> int:
                return number

            lock >> job.expand(number=[1, 2, 3])
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [3, 3, 0]

    def test_the_lock_task_itself_does_not_free_what_its_jobs_need(self, manager: LockManager, run: Run) -> None:
        held: list[int] = []
        with dag() as releases:
            lock = HiveLockOperator(task_id="lock", on_success_callback=release_locks, **NAMES)

            @task
            def job() -> None:
                held.append(len(manager.show()))

            lock >> job()
        assert run(releases, logical_date=DAY).state == "success"
        assert held == [3]


@pytest.mark.parametrize("command", ["true", "false"])
def test_a_callback_of_the_dag_releases_in_dag_test_too(command: str, manager: LockManager, run: Run) -> None:
    """dag.test() passes the serialized DAG: "'HiveLockOperator' object has no attribute 'operator_class'"."""
    other = manager.acquire(owner="here/releases/another_run/lock/-1", writes=["dw.other"])
    with dag(on_success_callback=release_locks, on_failure_callback=release_locks) as releases:
        lock = HiveLockOperator(task_id="lock", **NAMES)
        lock >> BashOperator(task_id="work", bash_command=command)
        HiveLockOperator.partial(task_id="mapped").expand(writes=[["dw.a"], ["dw.b"]])
    run(releases, logical_date=DAY)
    assert [lease.id for lease in manager.leases()] == [other.id]
