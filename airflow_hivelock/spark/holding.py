"""Runs one statement under its locks. The statement is planned before it takes its locks, and checked under them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases
    from airflow_hivelock.spark.renewal import OpenRows

MOST_PLANS = 10
"""How often a statement is planned again because a table or view has changed while it waited."""


class NotPlanned(InvalidRequest):
    """The locks of a statement cannot be worked out. The statement runs only under a lease that names its data."""


@dataclass(frozen=True)
class Planned:
    """A statement and its locks.

    :param again: plans the statement again under its locks, because tables and views may have changed meanwhile. It
        returns the same plan if they have not changed. It returns None if the statement no longer touches data.
    :param analysed: Spark's analysed plan, which Spark runs in place of the statement. None: Spark runs the statement.
    :param moves: the statement may create, move or drop a table.
    """

    plan: Plan
    again: Callable[[], Planned | None]
    analysed: Any = None
    moves: bool = False


@contextmanager
def hold(leases: DriverLeases, plan: Callable[[], Planned | None], query: str) -> Iterator[Planned | None]:
    """Hold the locks of a statement for the time of the body. Yield the plan that the locks cover.

    :param plan: plans the statement. It returns None if the statement does not touch data.
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
    raise InvalidRequest(f"the tables of {query[:80]!r} changed {MOST_PLANS} times while it was planned; run it again")


def planned(leases: DriverLeases, plan: Callable[[], Planned | None]) -> Planned | None:
    """Plan a statement with *plan*. Return None if it cannot be planned and runs under a lease that names its data.

    :raises NotPlanned: it cannot be planned, and this thread has no such lease.
    :raises LockLost: that lease is lost.
    """
    try:
        return plan()
    except NotPlanned:
        if leases.has_named_lease:
            leases.check()  # it may write
            return None
        raise


class LockedRows:
    """Rows that are read one by one. The locks are held until the last row, or until the iterator is closed."""

    def __init__(self, rows: Iterator[Any], held: OpenRows) -> None:
        self._rows = rows
        self._held = held

    def __iter__(self) -> LockedRows:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the locks."""
        self._held.close()

    def __del__(self) -> None:
        self._held.abandon()
