"""The end of an interrupted statement of a driver: it is known, or it is not, and the wait for it has an end."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_hivelock.spark import driver_side
from airflow_hivelock.spark.driver_side import DriverSide


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


def interrupt(spark: Any) -> bool:
    side = DriverSide.__new__(DriverSide)
    side._spark = spark
    return side.interrupt()


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
