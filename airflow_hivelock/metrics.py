"""The lock events and gauges for Airflow's own metrics (StatsD or OpenTelemetry, as Airflow is configured).

===============================  =======  ============================================================================
``hivelock.acquired``            counter  leases granted
``hivelock.acquired.wait``       timing   from the task's first request to the grant, ms, over all rounds, as the
                                          process that got it knows
``hivelock.invited``             counter  tasks that could have had their locks, and asked for a worker slot first
``hivelock.invited.wait``        timing   from then until the worker asked, ms
``hivelock.invited.lapsed``      counter  tasks that had to wait again, because their invitation ended before
                                          their worker came
``hivelock.slots_given_back``    counter  workers that found a blocker, and gave their slot back
``hivelock.released``            counter  leases released
``hivelock.held``                timing   from the grant to the release, ms; exact if this machine's clock is right
``hivelock.idle_hold``           timing   of tasks that acquire and work in one: from the grant to the work, and from the end
                                          of the work to the release, ms
``hivelock.timeout``             counter  requests given up after their time-out
``hivelock.lost``                counter  leases lost: force-released, taken over, or unlocked in Hive, while work ran
``hivelock.force_released``      counter  force releases
``hivelock.store_error``         counter  requests of waiters, the keeper and unlock that the store did not answer
``hivelock.leases``              gauge    this Airflow's leases, from the keeper
``hivelock.leases.oldest_s``     gauge    how long the oldest of them is held, s; 0 for none
``hivelock.waiting``             gauge    this Airflow's requests in the queue for a lock, from the keeper
``hivelock.waiting.longest_s``   gauge    how long the first of them has waited, s; 0 for none: build an alert on this
``hivelock.waiting.lease``       gauge    parked requests: they wait for a permit of their group, and hold nothing
``hivelock.waiting.slot``        gauge    requests that could have their locks, hold none, and wait for a worker slot
``hivelock.suspect``             gauge    suspect leases: the keeper cannot check their work
===============================  =======  ============================================================================
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import structlog

from airflow_hivelock.compat import initialize_stats, stats
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.model import Lease, Waiter

log = structlog.get_logger(__name__)


def acquired(wait_s: float, counts: bool = True) -> None:
    """Count a lease that was granted *wait_s* after the task first asked for it."""
    if not counts:
        return
    _emit(stats.incr, "hivelock.acquired")
    _emit(stats.timing, "hivelock.acquired.wait", wait_s * 1000)


def released(since: datetime) -> None:
    """Count a release of a lease that was granted at *since*, by the store's clock."""
    _emit(stats.incr, "hivelock.released")
    _emit(stats.timing, "hivelock.held", age_s(since) * 1000)


def age_s(since: datetime) -> float:
    """How long ago *since* was, by the store's clock, in seconds; exact if this machine's clock is right."""
    return max(0.0, (datetime.now(UTC) - since).total_seconds())


def invited() -> None:
    """Count a task that could have had its locks, and took none before it has a worker slot."""
    _emit(stats.incr, "hivelock.invited")


def arrived(slot_s: float) -> None:
    """Record that its worker asks, *slot_s* later."""
    _emit(stats.timing, "hivelock.invited.wait", slot_s * 1000)


def slot_given_back(*, lapsed: bool) -> None:
    """Count a worker that found a blocker.

    :param lapsed: its invitation was over.
    """
    _emit(stats.incr, "hivelock.slots_given_back")
    if lapsed:
        _emit(stats.incr, "hivelock.invited.lapsed")


def idle(idle_s: float) -> None:
    """Record that a lease was held for *idle_s* while no work ran under it."""
    _emit(stats.timing, "hivelock.idle_hold", idle_s * 1000)


def timed_out(counts: bool = True) -> None:
    """Count a request that was given up after its time-out."""
    if counts:
        _emit(stats.incr, "hivelock.timeout")


def lost() -> None:
    """Count a lease that was lost while work ran under it."""
    _emit(stats.incr, "hivelock.lost")


def force_released() -> None:
    """Count a force release."""
    _emit(stats.incr, "hivelock.force_released")


def store_failed() -> None:
    """Count a request that the lock store did not answer."""
    _emit(stats.incr, "hivelock.store_error")


def standing(
    leases: Sequence[Lease], waiters: Sequence[Waiter], now: datetime, installation: str, suspect: int
) -> None:
    """Set the gauges of *installation*'s leases and waiting requests: how many, since when, and how many are *suspect*.

    :param now: the store's clock.
    """

    def ours(item: Lease | Waiter) -> bool:
        return (owner := Owner.parse(item.owner)) is not None and owner.installation == installation

    waiting = {what: [one for one in waiters if one.waits_for is what and ours(one)] for what in WaitsFor}
    held = list(filter(ours, leases))
    for name, extreme, found in (("leases", "oldest_s", held), ("waiting", "longest_s", waiting[WaitsFor.LOCK])):
        ages_s = [(now - item.since).total_seconds() for item in found]
        _emit(stats.gauge, f"hivelock.{name}", len(found))
        _emit(stats.gauge, f"hivelock.{name}.{extreme}", max(ages_s, default=0.0))
    for what in (WaitsFor.LEASE, WaitsFor.SLOT):
        _emit(stats.gauge, f"hivelock.waiting.{what.value}", len(waiting[what]))
    _emit(stats.gauge, "hivelock.suspect", suspect)


def _emit(send: Any, *what: Any) -> None:
    try:
        _initialize()
        send(*what)
    except Exception as error:  # noqa: BLE001 - a metric that cannot be sent must not cost a lock
        log.warning("Metric %s was not sent: %r", what[0], error)


@cache
def _initialize() -> None:
    """Initialise the metrics. Airflow does so for its tasks; its triggerer and its API server initialise another copy
    of the module."""
    initialize_stats()
