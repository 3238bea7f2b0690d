"""A class that would work without its locks cannot be made."""

from __future__ import annotations

from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator

from airflow_hivelock import HiveLockedSparkSubmitOperator, HiveLockMixin
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run


class Helps:
    """A mixin of the user's that has nothing to do with locks."""

    def helped(self) -> bool:
        return True


class Notes:
    """One that does something as the task runs."""

    def execute(self, context: Any) -> Any:
        return super().execute(context)  # type: ignore[misc]


def test_the_operator_before_the_mixin_is_refused_and_the_right_order_shown() -> None:
    with pytest.raises(InvalidRequest, match=r"Write class Locked\(HiveLockMixin, BashOperator\)"):

        class Locked(BashOperator, HiveLockMixin):
            pass


@pytest.mark.parametrize(
    "method", ["execute", "resume_execution", "on_kill", "render_template", "resolve_template_files"]
)
def test_no_method_of_another_base_goes_before_the_mixin_s(method: str) -> None:
    early = type("Early", (), {method: lambda self, *given: None})
    with pytest.raises(
        InvalidRequest, match=rf"Early\.{method} comes before .*class Locked\(HiveLockMixin, Early, Bash"
    ):
        type("Locked", (early, HiveLockMixin, BashOperator), {})


def test_nor_in_a_class_that_comes_from_a_locked_one() -> None:
    with pytest.raises(InvalidRequest, match=r"Write class Job\(HiveLockedSparkSubmitOperator, Notes\)"):

        class Job(Notes, HiveLockedSparkSubmitOperator):
            pass


def test_what_does_not_touch_the_work_may_come_first() -> None:
    class Locked(Helps, HiveLockMixin, Notes, BashOperator):
        pass

    assert Locked(task_id="t", bash_command="true", writes=["dw.t"]).helped()


def test_work_written_into_the_locked_class_itself_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"Locked\.execute never calls super\(\)\.execute\(\)"):

        class Locked(HiveLockMixin, BaseOperator):
            def execute(self, context: Any) -> None:
                context["cursor"].execute("INSERT INTO dw.t SELECT 1")


@pytest.mark.parametrize("waiting", ["trigger", "defer", "poke"])
def test_an_execute_of_its_own_runs_however_the_task_waits(waiting: str, manager: LockManager, run: Run) -> None:
    ran = []

    class Publishes(HiveLockMixin, EmptyOperator):
        def execute(self, context: Any) -> None:
            ran.append("before")
            super().execute(context)
            ran.append("published")

    held = manager.acquire(owner="another", writes=["dw.t"])
    freed = Timer(1.0, manager.release, [held])
    with DAG("own", schedule=None, start_date=DAY) as works:
        Publishes(task_id="work", writes=["dw.t"], waiting=waiting)
    freed.start()
    assert run(works, logical_date=DAY).tasks == {"work": "success"}
    assert (ran[0], ran.count("published"), ran[-1]) == ("before", 1, "published")
    assert manager.leases() == []


def test_a_method_that_calls_on_may_do_more() -> None:
    class Asked(HiveLockMixin, BashOperator):
        def execute(self, context: Any) -> Any:
            self.log.info("begins")
            return self.retried(lambda: super(Asked, self).execute(context))

        def retried(self, work: Callable[[], Any]) -> Any:
            return work()

        def on_kill(self) -> None:
            HiveLockMixin.on_kill(self)

    assert Asked(task_id="t", bash_command="true", writes=["dw.t"]).task_id == "t"
