"""A lock task without an unlock task is reported where users look; an unlock task without a lock task fails."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import task

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator, release_locks
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY
from tests.airflow.tasks import dag as dag_named
from tests.support.airflow_names import DagBag

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines, Run

dag = partial(dag_named, "forgets")

WARNING = "No task of forgets releases the locks of lock"


def told(context: Any) -> None:
    release_locks(context)


@pytest.mark.parametrize("waiting", ["trigger", "defer", "reschedule", "poke"])
def test_a_lock_that_nobody_releases_says_so_in_its_own_log(
    waiting: Any, manager: LockManager, run: Run, lines: Lines
) -> None:
    with dag() as forgets:
        HiveLockOperator(task_id="lock", writes=["dw.t"], waiting=waiting) >> EmptyOperator(task_id="work")
    assert run(forgets, logical_date=DAY).state == "success"
    assert lines().count(WARNING) == 1
    assert "HiveUnlockOperator(task_id=…).as_teardown(setups=lock)" in lines()


@pytest.mark.parametrize("rule", ["all_success", "one_failed"])
def test_an_unlock_that_may_not_run_is_reported(rule: str, manager: LockManager, run: Run, lines: Lines) -> None:
    with dag() as forgets:
        unlock = HiveUnlockOperator(task_id="unlock", trigger_rule=rule)
        HiveLockOperator(task_id="lock", writes=["dw.t"]) >> EmptyOperator(task_id="work") >> unlock
    run(forgets, logical_date=DAY)
    assert lines().count("no task of forgets releases the locks of lock") == 1
    assert "Make it a teardown: unlock.as_teardown(setups=lock)" in lines()


@pytest.mark.parametrize("how", ["unlock", "all done", "teardown", "callback", "behind", "wrapped", "partial"])
def test_a_lock_that_somebody_releases_says_nothing(how: str, manager: LockManager, run: Run, lines: Lines) -> None:
    callback: Any = {"wrapped": told, "partial": partial(release_locks)}.get(how, release_locks)
    with dag(on_success_callback=callback if how in ("wrapped", "partial") else None) as forgets:
        lock = HiveLockOperator(
            task_id="lock", writes=["dw.t"], on_failure_callback=callback if how == "callback" else None
        )
        work = EmptyOperator(task_id="work", on_success_callback=callback if how == "behind" else None)
        lock >> work
        if how == "unlock":
            work >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
        if how == "all done":
            work >> HiveUnlockOperator(task_id="unlock", trigger_rule="all_done")
        if how == "teardown":

            @task
            def frees() -> None:
                """By means of the user's own."""

            work >> frees().as_teardown(setups=lock)
    assert run(forgets, logical_date=DAY).state == "success"
    assert "releases the locks of lock" not in lines()


def test_a_lock_without_work_before_its_unlock_is_reported(manager: LockManager, run: Run, lines: Lines) -> None:
    with dag() as forgets:
        lock, unlock = HiveLockOperator(task_id="lock", writes=["dw.t"]), HiveUnlockOperator(task_id="unlock")
        lock >> unlock.as_teardown(setups=lock) >> EmptyOperator(task_id="work")
    run(forgets, logical_date=DAY)
    assert lines().count("No task runs between lock and unlock, so no work of forgets is under these locks") == 1
    assert "lock >> work >> unlock" in lines()


def test_the_unlock_of_another_lock_does_not_count(manager: LockManager, run: Run, lines: Lines) -> None:
    with dag() as forgets:
        lock, other = (HiveLockOperator(task_id=name, writes=[f"dw.{name}"]) for name in ("lock", "other"))
        unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=other)
        [lock, other] >> EmptyOperator(task_id="work") >> unlock
    assert run(forgets, logical_date=DAY).state == "success"
    assert lines().count(WARNING) == 1
    assert "releases the locks of other" not in lines()


def test_an_unlock_without_a_lock_upstream_breaks_its_dag(manager: LockManager) -> None:
    with dag() as forgets:
        [HiveLockOperator(task_id="lock", writes=["dw.t"]), HiveUnlockOperator(task_id="unlock")]
    with pytest.raises(InvalidRequest, match=r"unlock: no HiveLockOperator is upstream.*lock >> work >> unlock\.as_te"):
        DagBag(dag_folder="/dev/null", bundle_name="none").bag_dag(forgets)


def test_an_unlock_that_airflow_did_not_look_at_fails_when_it_runs(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HiveUnlockOperator, "resolve_template_files", lambda self: None)
    said: list[str] = []
    with dag() as forgets:
        HiveUnlockOperator(task_id="unlock", on_failure_callback=lambda context: said.append(str(context["exception"])))
    assert run(forgets, logical_date=DAY).tasks == {"unlock": "failed"}
    assert "no HiveLockOperator is upstream" in said[0]


def test_an_unlock_that_is_given_a_lease_needs_no_lock_upstream(manager: LockManager, run: Run) -> None:
    lease = manager.acquire(owner="here/other/run/lock/-1", writes=["dw.t"])
    with dag() as forgets:
        HiveUnlockOperator(task_id="unlock", lease=lease.to_json(), lease_dag_id="other")
    assert run(forgets, logical_date=DAY).state == "success"
    assert not manager.show()
