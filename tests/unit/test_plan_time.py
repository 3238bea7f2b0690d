"""Long SQL takes time in proportion to its length. A statement is planned in a DAG processor or a triggerer."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, LockObject
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.plan import plan_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def calls(action: Callable[[], object]) -> int:
    """The number of calls of functions in *action*. Each step of a generator counts as a call."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def growth(few: Callable[[], object], many: Callable[[], object]) -> float:
    """How many times as many calls *many* makes as *few*."""
    few()  # it fills the caches of imports and patterns
    return calls(many) / calls(few)


class Hourly:
    """A catalog with one table of *days* days of 24 hours."""

    def __init__(self, days: int) -> None:
        first = date(2024, 1, 1)
        self.days = [(first + timedelta(day)).isoformat() for day in range(days)]
        self.hours = [
            LockObject("dw", "p", (("dt", day), ("hr", str(hour)))) for day in self.days for hour in range(24)
        ]

    def table(self, _table: LockObject) -> Table:
        return Table(("dt", "hr"), partition_types=("string", "int"))

    def partitions(self, _below: LockObject) -> Iterator[LockObject]:
        return iter(self.hours)

    def names(self, database: str = "") -> list[str]:
        return ["p"] if database else ["dw"]


def test_a_long_list_of_tuples_is_not_compared_to_each_partition() -> None:
    catalog = Hourly(days=40)

    def planned(tuples: int) -> Callable[[], Any]:
        listed = ", ".join(f"('{catalog.days[at % 40]}', {at // 40})" for at in range(tuples))
        sql = f"select * from dw.p where (dt, hr) in ({listed})"
        reads, _ = plan_statements(sql, catalog)
        assert len(reads) == tuples
        return lambda: plan_statements(f"{sql} ", catalog)

    assert growth(planned(20), planned(160)) < 5


SHAPES: dict[str, Callable[[int], str]] = {
    "targets of INSERT": lambda count: "insert into a select 1 " * count,
    "IDENTIFIER with a parameter": lambda count: "select " + ", ".join(["identifier(?)"] * count),
    "branches of a script": lambda count: "begin case " + "when x then " * count + "select 1; end case; end",
    "PIVOT that does not end": lambda count: "select 1 from a " + "pivot (" * count,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_time_grows_with_the_length(shape: str) -> None:
    def planned(count: int) -> Callable[[], None]:
        def plan() -> None:
            with suppress(InvalidRequest):
                plan_statements(SHAPES[shape](count))

        return plan

    assert growth(planned(150), planned(600)) < 6, "in the square of the length it is 16"
