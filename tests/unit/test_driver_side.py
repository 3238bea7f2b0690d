"""The end of an interrupted statement of a driver: it is known, or it is not, and the wait for it has an end."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("py4j", reason="Spark is an extra")
from py4j.protocol import Py4JError

from airflow_hivelock.spark import driver_side
from airflow_hivelock.spark.driver_side import DriverSide

if TYPE_CHECKING:
    from collections.abc import Callable


class Some:
    """Scala's Option or Seq of these *values*."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def isDefined(self) -> bool:
        return bool(self.values)

    def get(self) -> Any:
        return self.values[0]

    def size(self) -> int:
        return len(self.values)

    def apply(self, place: int) -> Any:
        return self.values[place]


class Execution:
    """A statement in Spark that has ended when it was asked for *looks* times."""

    def __init__(self, number: int, looks: int) -> None:
        self.number = number
        self.looks = looks

    def executionId(self) -> int:
        return self.number

    def description(self) -> str:
        return f"statement {self.number}"

    def completionTime(self) -> Some:
        self.looks -= 1
        return Some("now") if self.looks < 0 else Some()


class Spark:
    """A driver with these statements; what PySpark reaches by several names is one object here."""

    def __init__(self, *executions: Execution) -> None:
        self.executions = {each.number: each for each in executions}
        self.cancelled = 0
        self.listed = 0
        self.sparkContext = self._jsparkSession = self

    def sharedState(self) -> Spark:
        return self

    def statusStore(self) -> Spark:
        return self

    def cancelAllJobs(self) -> None:
        self.cancelled += 1

    def executionsList(self) -> Some:
        self.listed += 1
        return Some(*self.executions.values())

    def execution(self, number: int) -> Some:
        return Some(self.executions[number]) if number in self.executions else Some()


def interrupt(
    spark: Any, call_runs: Callable[[], bool] | None = None, error: type[BaseException] = KeyboardInterrupt
) -> bool:
    """Interrupt a thread, or fail its call.

    :param call_runs: whether its call still runs in the JVM. None: the thread has run no statement.
    """
    side = DriverSide.__new__(DriverSide)
    side._spark = spark
    threads: Any = SimpleNamespace(noted=lambda: call_runs, runs_call=lambda noted: noted())
    side._threads = threads
    return side.ended(error())


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the wait, which pass at once on its clock."""
    paused: list[float] = []

    class Clock:
        sleep = staticmethod(paused.append)

        @staticmethod
        def monotonic() -> float:
            return sum(paused)

    monkeypatch.setattr(driver_side, "time", Clock)
    return paused


def test_it_waits_until_each_statement_has_ended(pauses: list[float]) -> None:
    spark = Spark(Execution(1, looks=0), Execution(2, looks=3))
    assert interrupt(spark)
    assert spark.cancelled == 1
    assert pauses == [0.1, 0.2, 0.4]
    assert spark.listed == 2, "the list of all statements of a session may be long"


def test_one_that_begins_meanwhile_counts() -> None:
    spark = Spark(Execution(1, looks=2))
    later = Execution(2, looks=1)
    spark.execution = lambda number: spark.executions.update({2: later}) or Some(spark.executions[number])  # type: ignore[method-assign]
    assert interrupt(spark)
    assert later.looks < 0


def test_one_that_spark_plans_begins_later_and_counts() -> None:
    planning = Execution(1, looks=2)
    spark = Spark()
    looks = iter([True, True])

    def call_runs() -> bool:
        if next(looks, False):
            return True
        spark.executions[1] = planning
        return False

    assert interrupt(spark, call_runs)
    assert planning.looks < 0
    assert spark.cancelled == 3, "the job that it starts after the first time"


@pytest.mark.parametrize("error", [ValueError, Py4JError])
def test_a_call_that_has_failed_cancels_no_job_of_other_threads(error: type[Exception]) -> None:
    spark = Spark(Execution(1, looks=10_000))
    assert interrupt(spark, lambda: False, error)
    assert not spark.cancelled


def test_a_call_without_an_answer_was_interrupted() -> None:
    """After Ctrl-C, PySpark 3.5 and 4.0 raise a Py4JError."""
    spark = Spark(Execution(1, looks=2))
    looks = iter([True, True])
    assert interrupt(spark, lambda: next(looks, False), Py4JError)
    assert spark.cancelled == 2
    assert spark.executions[1].looks < 0


def test_planning_that_does_not_end_is_named_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert not interrupt(Spark(), lambda: True)
    assert caplog.messages == ["1 statements still run 60 s after they were cancelled: a statement that Spark plans"]


def test_one_that_does_not_end_is_named_after_a_minute(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert not interrupt(Spark(Execution(1, looks=0), Execution(7, looks=10_000)))
    assert caplog.messages == ["1 statements still run 60 s after they were cancelled: statement 7"]
    assert 58 < sum(pauses) <= 60
    assert pauses == sorted(pauses), "each pause is as long as the last, or longer"
    assert max(pauses) == 2


def test_without_an_answer_they_may_still_run(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Spark):
        def cancelAllJobs(self) -> None:
            raise ConnectionRefusedError

    with caplog.at_level(logging.ERROR):
        assert not interrupt(Gone())
    assert "ConnectionRefusedError" in caplog.text
