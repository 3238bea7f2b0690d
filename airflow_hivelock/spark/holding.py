"""One statement under its locks: planned before it has them, and again under them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases

MOST_PLANS = 10
"""How often a statement is planned again because the tables have changed while it waited."""


class NotPlanned(InvalidRequest):
    """What a statement locks is not known. It runs only under a lease that names its data."""


@dataclass(frozen=True)
class Planned:
    """A statement and its locks.

    :param again: plans the statement under its locks, because tables and views may have changed since. It returns the same
        plan if they have not, and None if the statement touches no data any more.
    :param analysed: Spark's analysed plan, which can be run in place of the statement; None: the statement is to be run.
    """

    plan: Plan
    again: Callable[[], Planned | None]
    analysed: Any = None


@contextmanager
def hold(leases: DriverLeases, plan: Callable[[], Planned | None], query: str) -> Iterator[Planned | None]:
    """Hold the locks of a statement for the time of the body. The body gets the plan that the locks cover.

    :param plan: plans the statement; None: it touches no data.
    :param query: the statement, as listings show it.
    """
    found = planned(leases, plan)
    for _ in range(MOST_PLANS):
        if found is None or not (found.plan.reads or found.plan.writes):
            yield found
            return
        with leases.locked(found.plan, query):
            again = found.again()
            if again is None or again.plan is found.plan or leases.covered(again.plan):
                yield again
                return
        found = again
    raise InvalidRequest(f"the tables of {query[:80]!r} changed {MOST_PLANS} times while it was planned; try again")


def planned(leases: DriverLeases, plan: Callable[[], Planned | None]) -> Planned | None:
    """What *plan* returns. Return None for a statement that it cannot plan under a lease that names its data.

    :raises NotPlanned: this thread has no such lease.
    """
    try:
        return plan()
    except NotPlanned:
        if leases.name_data:
            return None
        raise
