"""``@task.hivelock``: TaskFlow tasks under locks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import setup, task, task_group

from airflow_hivelock import HiveLockMixin, HiveLockOperator, HiveUnlockOperator, compat, locked
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY, NAMES
from tests.airflow.tasks import dag as dag_named
from tests.support.airflow_names import DagSerialization

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

dag = partial(dag_named, "taskflow")


def held(manager: LockManager) -> list[str]:
    """The held locks, as ``task object``."""
    return sorted(
        f"{holder.owner.split('/')[3]} {holder.object}" for holder in manager.show() if holder.mode.value == "EXCLUSIVE"
    )


@pytest.mark.parametrize("waiting", ["trigger", "defer", "poke"])
def test_a_function_runs_under_locks(waiting: str, manager: LockManager, run: Run) -> None:
    """Its arguments come from another task, which the triggerer cannot ask: the worker renders them."""
    seen: list[Any] = []
    with dag() as works:

        @task
        def count() -> int:
            return 3

        @task.hivelock(waiting=waiting, **NAMES)
        def load(rows: int, day: str, ds: str | None = None) -> None:
            seen.append((rows, day, ds, held(manager)))

        rows: Any = count()
        made: Any = load(rows, day="{{ ds }}")
    assert made.operator.start_from_trigger is (compat.TRIGGERS_RENDER and waiting == "trigger")
    assert run(works, logical_date=DAY).state == "success"
    assert seen == [(3, "2013-01-15", "2013-01-15", ["load dw.delays/dt=2013-01-15"])]
    assert not manager.show()


@pytest.mark.parametrize("outer", [True, False])
def test_a_function_can_have_multiple_outputs(outer: bool, manager: LockManager, run: Run) -> None:
    """The DAG could not be imported: got multiple values for keyword argument 'multiple_outputs'."""
    seen: list[int] = []
    with dag() as works:
        if outer:

            @task.hivelock(multiple_outputs=True, writes=["dw.t"])
            def count():  # type: ignore[no-untyped-def]
                return {"rows": 3}

        else:

            @task.hivelock(writes=["dw.t"])
            @task(multiple_outputs=True)
            def count():  # type: ignore[no-untyped-def]
                return {"rows": 3}

        @task
        def look(rows: int) -> None:
            seen.append(rows)

        counted: Any = count()
        look(counted["rows"])
    assert run(works, logical_date=DAY).state == "success"
    assert seen == [3]


def test_what_another_decorator_makes_of_it_runs_under_locks(manager: LockManager, run: Run, tmp_path: Any) -> None:
    seen: list[Any] = []

    with dag() as works:

        @task.hivelock(writes=["dw.shell"])
        @task.bash(cwd=str(tmp_path))
        def shell(name: str) -> str:
            seen.append(held(manager))
            return f"echo {name} > written"

        @task.hivelock(writes=["dw.choice"])
        @task.branch
        def choose() -> str:
            seen.append(held(manager))
            return "chosen"

        @task
        def chosen() -> None: ...

        @task
        def other() -> None: ...

        shell("a") >> choose() >> [chosen(), other()]
    ran = run(works, logical_date=DAY)
    assert ran.tasks == {"shell": "success", "choose": "success", "chosen": "success", "other": "skipped"}
    assert seen == [["shell dw.shell"], ["choose dw.choice"]]
    assert (tmp_path / "written").read_text() == "a\n"
    assert works.get_task("shell").operator_name == "@task.bash"


def test_a_function_for_another_python_is_handed_over_without_the_decorator(manager: LockManager, run: Run) -> None:
    import sys

    with dag() as works:

        @task.hivelock(  # type: ignore[untyped-decorator]
            **NAMES,
        )
        @task.external_python(python=sys.executable, expect_airflow=False)
        def count(many: int) -> int:
            return many + 1

        count(2)
    ran = run(works, logical_date=DAY)
    assert ran.state == "success"
    made: Any = works.get_task("count")
    assert "hivelock" not in made.get_python_source()


def test_mapped_tasks_have_locks_of_their_own(manager: LockManager, run: Run) -> None:
    seen: list[Any] = []
    with dag() as works:

        @task
        def days() -> list[str]:
            return ["2013-01-01", "2013-01-02"]

        @task.hivelock(writes=["dw.delays/dt={{ task.op_kwargs['day'] }}"])
        def load(day: str, again: bool) -> None:
            seen.append((day, again, held(manager)))

        load.partial(again=False).expand(day=days())
        load.override(task_id="once", writes=["dw.once"])(day="never", again=True)
    ran = run(works, logical_date=DAY)
    assert ran.tasks == {"days": "success", "once": "success", "load[0]": "success", "load[1]": "success"}
    assert sorted(seen) == [
        ("2013-01-01", False, ["load dw.delays/dt=2013-01-01"]),
        ("2013-01-02", False, ["load dw.delays/dt=2013-01-02"]),
        ("never", True, ["once dw.once"]),
    ]
    assert not manager.show()


def test_arguments_of_the_function_name_its_locks(manager: LockManager, run: Run) -> None:
    seen: list[Any] = []
    with dag() as works:

        @task.hivelock(writes=["dw.delays/dt={{ task.op_kwargs['day'] }}"])
        def load(day: str) -> None:
            seen.append((day, held(manager)))

        made: Any = load(day="{{ ds }}")
    assert not made.operator.start_from_trigger, "there its arguments are not rendered"
    assert run(works, logical_date=DAY).state == "success"
    assert seen == [("2013-01-15", ["load dw.delays/dt=2013-01-15"])]


def test_what_renders_to_a_template_is_not_locked(manager: LockManager, run: Run) -> None:
    """No partition has such a name."""
    seen: list[Any] = []
    with dag(params={"day": "{{ ds }}"}) as works:

        @task.hivelock(writes=["dw.delays/dt={{ params.day }}"])
        def load() -> None:
            seen.append(held(manager))

        load()
    assert run(works, logical_date=DAY).tasks == {"load": "failed"}
    assert not seen


def test_a_function_works_under_a_lease_that_stands(manager: LockManager, run: Run) -> None:
    seen: list[Any] = []
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", **NAMES)

        @task.hivelock(lease=lock.output)
        def load(part: int) -> None:
            seen.append(held(manager))

        lock.as_setup() >> load.expand(part=[1, 2]) >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)  # type: ignore[no-untyped-call]
    assert run(works, logical_date=DAY).state == "success"
    assert seen == [["lock dw.delays/dt=2013-01-15"]] * 2
    assert not manager.show()


def test_a_setup_stays_one_and_the_dag_is_serialized() -> None:
    with dag() as works:

        @task.hivelock(**NAMES)  # type: ignore[untyped-decorator]
        @setup
        @task
        def stage() -> None:
            """Stages."""

        stage()
    made = works.get_task("stage")
    assert isinstance(made, HiveLockMixin)
    assert made.is_setup
    assert made.doc_md == "Stages."
    (data,) = DagSerialization.to_dict(works)["dag"]["tasks"]
    assert data["__var"]["_operator_name"] == "@task"
    assert data["__var"].get("start_from_trigger", False) is compat.TRIGGERS_RENDER


def test_what_is_said_of_its_work_is_on_its_class() -> None:
    @task.hivelock(work_ends_with_process=False, **NAMES)
    def load() -> None: ...

    inner: Any = task(lambda: None)
    made: Any = load
    assert made.operator_class is locked(inner.operator_class, work_ends_with_process=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"writes": ["dw/"]}, "load: .*dw/"),
        ({"writes": ["dw.t"], "waiting": "sleep"}, "load: waiting='sleep'"),
        ({"writes": ["dw.t"], "retries": 2}, "load: retries has a value in both decorators"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):

        @task.hivelock(**given)  # type: ignore[untyped-decorator]
        @task(retries=1)
        def load() -> None: ...


def test_a_task_group_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"needs a function below it, .* write with hive_lock"):

        @task.hivelock(writes=["dw.t"])
        @task_group
        def loads() -> None: ...


def test_two_locks_around_one_function_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="takes locks by itself"):

        @task.hivelock(writes=["dw.t"])
        @task.hivelock(reads=["dw.u"])
        def load() -> None: ...
