"""Locks in mapped task groups: each index frees its own, when its own work is over."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, get_current_context, task, task_group
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import TaskStatesResult

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator, hive_lock, release_locks
from tests.airflow.tasks import DAY, orphan
from tests.airflow.tasks import dag as dag_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

dag = partial(dag_named, "dag")

States = dict[tuple[str, int], str | None]


@pytest.fixture
def airflow_has(monkeypatch: pytest.MonkeyPatch) -> Callable[[States], None]:
    """What Airflow answers about the tasks of the run, under the names that it gives to mapped ones."""

    def have(states: States) -> None:
        def send(asked: Any) -> Any:
            found = {
                name if index < 0 else f"{name}_{index}": state
                for (name, index), state in states.items()
                if name in asked.task_ids and asked.map_index in (None, index)
            }
            return TaskStatesResult(task_states={"run": found} if found else {})

        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)

    return have


def in_group(nested: bool = False) -> DAG:
    """Lock, work and unlock in a mapped group; *nested*: the work in a mapped group of its own."""
    with dag() as works:

        @task_group
        def day(name: str) -> None:
            with hive_lock(writes=["dw.t"], work_timeout=timedelta(0)):
                if nested:

                    @task_group
                    def hour(number: int) -> None:
                        EmptyOperator(task_id="work")

                    hour.expand(number=[1, 2])
                else:
                    EmptyOperator(task_id="work")

        day.expand(name=["a", "b"])
    return works


def acquire(manager: LockManager, *owners: str) -> None:
    for number, owner in enumerate(owners):
        manager.acquire(owner=f"here/dag/run/{owner}", writes=[f"dw.t{number}"])


def held(manager: LockManager) -> list[str]:
    return sorted(lease.owner.removeprefix("here/dag/run/") for lease in manager.leases())


def unlock(works: DAG, task_id: str, map_index: int) -> None:
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id=task_id, map_index=map_index, try_number=1)
    operator: Any = works.get_task(task_id)
    operator.execute({"ti": ti})


def test_an_index_frees_its_lock_while_another_waits_for_it(
    manager: LockManager, airflow_has: Callable[[States], None]
) -> None:
    acquire(manager, "day.lock/0")
    airflow_has(
        {
            ("day.lock", 0): "success", ("day.work", 0): "success", ("day.unlock", 0): "running",
            ("day.lock", 1): "deferred", ("day.work", 1): None, ("day.unlock", 1): None,
        }
    )  # fmt: skip
    unlock(in_group(), "day.unlock", 0)
    assert held(manager) == []


def test_an_index_leaves_the_lock_of_another_alone(manager: LockManager, airflow_has: Callable[[States], None]) -> None:
    acquire(manager, "day.lock/0", "day.lock/1")
    airflow_has({(f"day.{name}", index): "success" for name in ("lock", "work", "unlock") for index in (0, 1)})
    unlock(in_group(), "day.unlock", 1)
    assert held(manager) == ["day.lock/0"]


@pytest.mark.parametrize(("running", "index", "waits"), [(1, 0, True), (2, 0, False), (2, 1, True), (0, 1, False)])
def test_an_index_waits_for_its_work_in_a_mapped_group_inside(
    running: int, index: int, waits: bool, manager: LockManager, airflow_has: Callable[[States], None]
) -> None:
    acquire(manager, "day.lock/0", "day.lock/1")
    states: States = {(f"day.{name}", each): "success" for name in ("lock", "unlock") for each in (0, 1)}
    states |= {("day.hour.work", each): "running" if each == running else "success" for each in range(4)}
    airflow_has(states)
    if waits:
        with pytest.raises(AirflowException, match=rf"day\.hour\.work\[{running}\]"):
            unlock(in_group(nested=True), "day.unlock", index)
    else:
        unlock(in_group(nested=True), "day.unlock", index)
    assert (f"day.lock/{index}" in held(manager)) is waits
    assert f"day.lock/{1 - index}" in held(manager)


def test_each_index_of_a_real_run_frees_its_own_lock(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow itself numbers the instances of a mapped group in another."""
    freed: list[tuple[int, str]] = []
    noted: dict[int, list[str]] = {}
    release = manager.release

    def note(lease: Any) -> Any:
        freed.append((get_current_context()["ti"].map_index or 0, lease.owner[-1]))
        return release(lease)

    monkeypatch.setattr(manager, "release", note)
    with dag() as works:

        @task
        def work() -> None:
            noted[get_current_context()["ti"].map_index or 0] = [lease.owner[-1] for lease in manager.leases()]

        @task_group
        def hour(number: int) -> None:
            work()

        @task_group
        def day(name: str) -> None:
            with hive_lock(writes=[name]):
                hour.expand(number=[1, 2])

        day.expand(name=["dw.a", "dw.b"])
    assert run(works, logical_date=DAY).state == "success"
    assert sorted(freed) == [(0, "0"), (1, "1")]
    assert all(str(index // 2) in owners for index, owners in noted.items())
    assert len(noted) == 4


@pytest.mark.parametrize("running", [0, 1])
def test_a_lock_outside_stays_until_every_index_has_worked(
    running: int, manager: LockManager, airflow_has: Callable[[States], None]
) -> None:
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", writes=["dw.t"])

        @task_group
        def day(name: str) -> None:
            EmptyOperator(task_id="work") >> HiveUnlockOperator(task_id="unlock", work_timeout=timedelta(0))

        lock >> day.expand(name=["a", "b"])
    acquire(manager, "lock/-1")
    states: States = {("day.work", 0): "success", ("day.work", 1): "success", ("lock", -1): "success"}
    states |= {("day.unlock", 0): "running", ("day.unlock", 1): "running"}
    airflow_has(states | {("day.work", running): "running"})
    with pytest.raises(AirflowException, match=rf"day\.work\[{running}\]"):
        unlock(works, "day.unlock", 0)
    assert held(manager) == ["lock/-1"]
    airflow_has(states)
    unlock(works, "day.unlock", 0)
    assert held(manager) == []


def test_an_unlock_after_all_frees_every_index_of_an_expanded_lock(
    manager: LockManager, airflow_has: Callable[[States], None]
) -> None:
    with dag() as works:
        lock = HiveLockOperator.partial(task_id="lock").expand(writes=[["dw.a"], ["dw.b"]])
        work = task(lambda name: name, task_id="work").expand(name=["a", "b"])  # type: ignore[call-overload]
        lock >> work >> HiveUnlockOperator(task_id="unlock", work_timeout=timedelta(0))
    acquire(manager, "lock/0", "lock/1")
    states: States = {(name, index): "success" for name in ("lock", "work") for index in (0, 1)}
    states |= {("unlock", -1): "running"}
    airflow_has(states | {("work", 1): "running"})
    with pytest.raises(AirflowException, match=r"work\[1\]"):
        unlock(works, "unlock", -1)
    assert held(manager) == ["lock/0", "lock/1"]
    airflow_has(states)
    unlock(works, "unlock", -1)
    assert held(manager) == []


@pytest.mark.parametrize(("ended", "waits"), [("success", False), ("failed", True)])
def test_a_process_that_can_be_of_another_index_counts_after_a_failure(
    ended: str, waits: bool, manager: LockManager, airflow_has: Callable[[States], None]
) -> None:
    """The marks of Airflow in a process name the task without its map index."""
    acquire(manager, "day.lock/0")
    states: States = {(f"day.{name}", index): "success" for name in ("lock", "unlock") for index in (0, 1)}
    airflow_has(states | {("day.work", 0): ended, ("day.work", 1): "running"})
    with orphan("run", "day.work"):
        if waits:
            with pytest.raises(AirflowException, match=r"of day\.work on this host"):
                unlock(in_group(), "day.unlock", 0)
        else:
            unlock(in_group(), "day.unlock", 0)
        assert bool(held(manager)) is waits


def test_a_callback_frees_the_lock_of_its_index(manager: LockManager, airflow_has: Callable[[States], None]) -> None:
    works = in_group()
    acquire(manager, "day.lock/0", "day.lock/1")
    states: States = {("day.lock", index): "success" for index in (0, 1)}
    airflow_has(states | {("day.work", 0): "running", ("day.work", 1): "running"})
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="day.work", map_index=0, try_number=1, state="success")
    release_locks({"task": works.get_task("day.work"), "ti": ti})
    assert held(manager) == ["day.lock/1"]


def test_a_dags_callback_frees_the_locks_of_the_indexes_that_are_over(
    manager: LockManager, airflow_has: Callable[[States], None]
) -> None:
    acquire(manager, "day.lock/0", "day.lock/1")
    states: States = {("day.lock", index): "success" for index in (0, 1)}
    airflow_has(states | {("day.work", 0): "failed", ("day.work", 1): "running"})
    release_locks({"dag": in_group(), "run_id": "run", "reason": "task_failure"})
    assert held(manager) == ["day.lock/1"]
