"""``with hive_lock(…)``: what is made inside runs under the lock."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup, task

from airflow_hivelock import hive_lock, locked
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY
from tests.airflow.tasks import dag as dag_named
from tests.support.airflow_names import DagBag

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

dag = partial(dag_named, "block")

DELAYS = ["dw.delays/dt={{ ds }}"]


def edges(works: DAG) -> set[str]:
    return {f"{each.task_id} > {after}" for each in works.tasks for after in each.downstream_task_ids}


def held(manager: LockManager) -> list[str]:
    return [holder.owner.split("/")[3] for holder in manager.show("dw.delays/dt=2013-01-15")]


@pytest.fixture
def notes(manager: LockManager) -> tuple[Any, dict[str, list[str]]]:
    """A task that notes who holds the lock while it runs, and what has been noted."""
    seen: dict[str, list[str]] = {}

    @task
    def note(name: str) -> None:
        seen[name] = held(manager)

    return note, seen


def test_what_is_made_inside_runs_under_the_lock_and_nothing_else(
    notes: tuple[Any, dict[str, list[str]]], manager: LockManager, run: Run
) -> None:
    note, seen = notes
    with dag() as works:
        first = note.override(task_id="first")("first")
        with hive_lock(writes=DELAYS) as lease:
            one, two = note.override(task_id="one")("one"), note.override(task_id="two")("two")
            one >> two
        first >> lease
        two >> note.override(task_id="last")("last")
    ran = run(works, logical_date=DAY)
    assert ran.tasks == dict.fromkeys(("first", "lock", "one", "two", "unlock", "last"), "success")
    assert (seen["one"], seen["two"]) == (["lock"], ["lock"])
    assert seen["first"] == []
    assert not manager.show()


def test_tasks_that_wait_for_others_outside_also_wait_for_the_lock() -> None:
    """The block also has tasks that other tasks wait for: they end before the release. It has tasks without either."""
    with dag() as works:
        before, after = EmptyOperator(task_id="before"), EmptyOperator(task_id="after")
        with hive_lock(writes=DELAYS):
            EmptyOperator(task_id="alone")
            before >> EmptyOperator(task_id="bound") >> after
    assert {"lock > alone", "lock > bound", "alone > unlock", "bound > unlock"} <= edges(works)


def test_it_is_freed_after_work_that_failed(manager: LockManager, run: Run) -> None:
    with dag() as works, hive_lock(writes=DELAYS):

        @task
        def fail() -> None:
            raise RuntimeError("no such table")

        fail()
    ran = run(works, logical_date=DAY)
    assert (ran.state, ran.tasks) == ("failed", {"lock": "success", "fail": "failed", "unlock": "success"})
    assert not manager.show()


def test_its_lease_is_given_to_tasks(manager: LockManager, run: Run) -> None:
    with dag() as works, hive_lock(writes=DELAYS, waiting="poke") as lease:
        locked(EmptyOperator)(task_id="work", lease=lease)
        locked(EmptyOperator).partial(task_id="mapped", lease=lease).expand(doc=["a", "b"])
    assert edges(works) == {"lock > work", "work > unlock", "lock > mapped", "mapped > unlock", "lock > unlock"}
    assert run(works, logical_date=DAY).state == "success"
    assert not manager.show()


def test_blocks_stand_beside_and_within_one_another(
    notes: tuple[Any, dict[str, list[str]]], manager: LockManager, run: Run
) -> None:
    note, seen = notes
    with dag() as works:
        with hive_lock(writes=["dw.other"]):
            with hive_lock(writes=DELAYS):
                note.override(task_id="inner")("inner")
            with TaskGroup("group"), hive_lock(reads=["dw.read/dt=1"]):
                EmptyOperator(task_id="grouped")
        with hive_lock(writes=["dw.third"], task_id="third", work_timeout=timedelta(minutes=1)):
            EmptyOperator(task_id="work")
    assert edges(works) == {
        "lock > lock__1", "lock__1 > inner", "inner > unlock__1", "unlock__1 > unlock", "lock__1 > unlock__1",
        "lock > group.lock", "group.lock > group.grouped", "group.grouped > group.unlock", "group.unlock > unlock",
        "group.lock > group.unlock", "lock > unlock",
        "third > work", "work > unlock_third", "third > unlock_third",
    }  # fmt: skip
    assert works.get_task("unlock_third").work_timeout == timedelta(minutes=1)  # type: ignore[union-attr]
    assert run(works, logical_date=DAY).state == "success"
    assert seen["inner"] == ["lock__1"]
    assert not manager.show()


def test_an_empty_block_is_refused() -> None:
    with dag(), pytest.raises(InvalidRequest, match="lock: the block has no task"), hive_lock(writes=DELAYS):
        pass


def test_a_block_in_the_function_of_a_task_is_refused(run: Run) -> None:
    errors: list[str] = []

    @task(on_failure_callback=lambda context: errors.append(str(context["exception"])))
    def work() -> None:
        with hive_lock(writes=DELAYS):
            pass

    with dag() as works:
        work()
    assert run(works, logical_date=DAY).state == "failed"
    assert "hive_lock(…) is outside a DAG" in errors[0]
    assert "In the function of a task, write with hold(…):" in errors[0]


def test_an_error_inside_is_the_one_that_is_told() -> None:
    with dag(), pytest.raises(ZeroDivisionError), hive_lock(writes=DELAYS):
        1 / 0  # noqa: B018


@pytest.mark.parametrize(
    "use",
    [
        lambda lock, _: DagBag(dag_folder="/dev/null", bundle_name="none").bag_dag(lock.dag),
        lambda _, block: block >> EmptyOperator(task_id="work"),
        lambda _, block: EmptyOperator(task_id="work") >> block,
        lambda _, block: block(lambda: None),
    ],
    ids=["alone", "hive_lock >> task", "task >> hive_lock", "@hive_lock"],
)
def test_a_lock_without_a_with_is_refused_when_the_dag_is_parsed(use: Callable[[Any, Any], Any]) -> None:
    with dag() as works:
        block = hive_lock(writes=DELAYS)
        with pytest.raises(InvalidRequest, match=r"lock: hive_lock\(…\) opens a block of tasks\. Write with"):
            use(works.get_task("lock"), block)
