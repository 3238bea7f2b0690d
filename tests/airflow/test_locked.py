"""Any operator class under locks in one line: ``locked(BashOperator)``."""

from __future__ import annotations

import copy
import inspect
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunLink, TriggerDagRunOperator
from airflow.providers.standard.sensors.external_task import ExternalDagLink, ExternalTaskSensor
from airflow.sdk import BaseOperator

from airflow_hivelock import HiveLockedSparkSubmitOperator, HiveLockMixin, HiveLockOperator, locked
from airflow_hivelock.links import HiveLocksLink
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY, NAMES, OBJECT, Acts, context
from tests.airflow.tasks import dag as dag_named
from tests.support.airflow_names import DagSerialization

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

dag = partial(dag_named, "locked")

Bound = locked(BashOperator)
"""Under another name than its own: pickle finds it all the same."""


class Noting(BaseOperator):
    """Notes who holds the lock while it works."""

    template_fields = ("noted",)
    ui_color = "#abcdef"

    def __init__(self, *, manager: Any, seen: list[Any], noted: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.manager = manager
        self.seen = seen
        self.noted = noted

    def execute(self, context: Any) -> None:
        self.seen.append((self.noted, [holder.owner.split("/")[3] for holder in self.manager.show(OBJECT)]))


class Derived(locked(EmptyOperator)):  # type: ignore[misc]
    """Found under its name, as any class is."""


def test_its_work_runs_under_locks(manager: LockManager, run: Run) -> None:
    seen: list[Any] = []
    with dag() as works:
        locked(Noting)(task_id="work", manager=manager, seen=seen, noted="{{ ds }}", **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert seen == [("2013-01-15", ["work"])]
    assert not manager.show()


def test_a_mapped_task_has_locks_of_its_own(manager: LockManager, run: Run) -> None:
    with dag() as works:
        locked(BashOperator).partial(task_id="work", **NAMES).expand(bash_command=["true", "exit 0"])
        locked(BashOperator).partial(task_id="many", bash_command="true").expand(writes=[["dw.a"], ["dw.b"]])
    ran = run(works, logical_date=DAY)
    assert ran.tasks == {f"{task}[{index}]": "success" for task in ("work", "many") for index in (0, 1)}
    assert not manager.show()


def test_a_mapped_task_that_names_no_object_is_refused_when_it_is_written() -> None:
    with dag(), pytest.raises(InvalidRequest, match="work: "):
        locked(BashOperator).partial(task_id="work", bash_command="true").expand(writes=[["dw/"]])


def test_it_looks_like_its_operator() -> None:
    made: Any = locked(Noting)
    assert made.__name__ == made.__qualname__ == "LockedNoting"
    assert made.__module__ == Noting.__module__
    assert made.ui_color == Noting.ui_color
    assert made.template_fields == ("noted", "lease", "reads", "writes", "lock_sql", "lock_database")
    assert issubclass(made, HiveLockMixin)
    assert inspect.getdoc(made) == "Noting under locks, as airflow_hivelock.locked makes it."


def test_links_of_its_operator_stay() -> None:
    links = [type(link) for link in locked(ExternalTaskSensor).operator_extra_links]
    assert links == [ExternalDagLink, HiveLocksLink]


def test_links_that_an_operator_counts_up_itself_stay() -> None:
    """As those of operators for EMR and Athena do."""

    class Counts(BaseOperator):
        @property
        def operator_extra_links(self) -> tuple[Any, ...]:  # type: ignore[override]
            return (TriggerDagRunLink(),)

    class Again(locked(Counts)):  # type: ignore[misc]
        pass

    task = Again(task_id="work", **NAMES)
    assert [type(link) for link in task.operator_extra_links] == [TriggerDagRunLink, HiveLocksLink]


def test_there_is_one_class_of_an_operator() -> None:
    assert locked(BashOperator) is Bound
    assert locked(BashOperator, work_ends_with_process=False) is not Bound


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_said_of_its_work_is_on_the_class(ends: bool) -> None:
    made: Any = locked(BashOperator, work_ends_with_process=ends)
    assert made.work_ends_with_process is ends
    assert pickle.loads(pickle.dumps(made)) is made


@pytest.mark.parametrize("kind", [Bound, locked(BashOperator, work_ends_with_process=True), Derived])
def test_a_class_is_copied_and_pickled_as_itself(kind: type) -> None:
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert copy.deepcopy(kind) is kind


def test_a_task_is_copied_and_pickled() -> None:
    task: Any = locked(EmptyOperator)(task_id="work", **NAMES)
    for again in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert type(again) is type(task)
        assert (again.task_id, again.writes) == ("work", NAMES["writes"])


def test_a_dag_is_serialized() -> None:
    with dag() as works:
        Bound(task_id="work", bash_command="true", **NAMES)
    (task,) = DagSerialization.to_dict(works)["dag"]["tasks"]
    assert task["__var"]["task_type"] == "LockedBashOperator"
    assert task["__var"]["_task_module"] == BashOperator.__module__
    assert task["__var"]["writes"] == NAMES["writes"]


def test_spark_submit_is_locked_by_its_own_class() -> None:
    """Which follows the job in the cluster."""

    class Own(SparkSubmitOperator):
        pass

    assert locked(SparkSubmitOperator) is HiveLockedSparkSubmitOperator
    assert issubclass(locked(Own), HiveLockedSparkSubmitOperator)


@pytest.mark.parametrize("kind", [HiveLockOperator, HiveLockedSparkSubmitOperator, Bound])
def test_what_takes_locks_by_itself_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"locked\({kind.__name__}\) is not needed"):
        locked(kind)


def test_an_operator_that_lets_airflow_trigger_a_run_is_refused() -> None:
    """Airflow triggers it after ``execute()``, so the locks would be free before the other run starts."""

    class Own(TriggerDagRunOperator):
        pass

    for kind in (TriggerDagRunOperator, Own):
        with pytest.raises(InvalidRequest, match=rf"Locked{kind.__name__}: .* into a block, with hive_lock"):
            locked(kind)


@pytest.mark.parametrize("wait", [True, False])
def test_no_other_operator_lets_airflow_trigger_a_run(wait: bool, manager: LockManager) -> None:
    def trigger() -> None:
        trigger = TriggerDagRunOperator(task_id="other", trigger_dag_id="other", wait_for_completion=wait)
        trigger.openlineage_inject_parent_info = False
        trigger.execute(context("work"))

    with dag():
        works = Acts(task_id="work", act=trigger, waiting="poke", writes=[OBJECT])
    with pytest.raises(InvalidRequest, match="work: Airflow triggers the run after execute"):
        works.execute(context("work"))
    assert not manager.show()


@pytest.mark.parametrize("kind", [str, "BashOperator", lambda: None])
def test_what_is_no_operator_class_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="needs the class of an operator"):
        locked(kind)


def test_the_operator_before_its_locked_self_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"Write class Job\(LockedEmptyOperator, BashOperator\)"):
        type("Job", (BashOperator, locked(EmptyOperator)), {})


def test_an_editor_knows_the_operator_s_own_arguments() -> None:
    """Mypy looks at this function, and fails where an "ignore" is not needed."""
    assert_type(Bound, type[BashOperator])
    task = Bound(task_id="work", bash_command="true", env={"A": "b"}, writes=["dw.t"])
    assert_type(task, BashOperator)
    Bound(task_id="other", bash_command="true", append_env="yes", writes=["dw.t"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bash_command"):
        Bound(task_id="none", writes=["dw.t"])  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest, match="operator"):
        locked(str)  # type: ignore[type-var]
