"""One statement under its locks: planned before it has them, and again under them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases

_Found = TypeVar("_Found")


class NotPlanned(InvalidRequest):
    """What a statement locks is not known. It runs only under a lease that names its data."""


MOST_PLANS = 10
"""How often a statement is planned again because the tables have changed while it waited."""


@contextmanager
def hold(
    leases: DriverLeases, plan: Callable[[], tuple[Plan, Any] | None], refresh: Callable[[Any], None], query: str
) -> Iterator[None]:
    """Hold the locks of the plan for the time of the body. What changed while it waited is planned again.

    :param plan: what a statement locks, and what is to refresh under the locks, or None; None: it touches no data.
    :param refresh: called under the locks.
    :param query: the statement, as listings show it.
    """
    found = planned(leases, plan)
    for _ in range(MOST_PLANS):
        if found is None or not (found[0].reads or found[0].writes):
            yield
            return
        with leases.locked(found[0], query):
            if found[1] is not None:
                refresh(found[1])
                again = plan()
                if again is not None and not leases.covered(again[0]):
                    found = again
                    continue
            yield
            return
    raise InvalidRequest(f"the tables of {query[:80]!r} changed {MOST_PLANS} times while it was planned; try again")


def planned(leases: DriverLeases, plan: Callable[[], _Found | None]) -> _Found | None:
    """What *plan* returns. Return None for a statement that it cannot plan under a lease that names its data.

    :raises NotPlanned: this thread has no such lease.
    """
    try:
        return plan()
    except NotPlanned:
        if leases.name_data:
            return None
        raise
