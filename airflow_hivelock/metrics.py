"""The metrics of locks. Airflow sends them to StatsD or OpenTelemetry with its own.

===============================  =======  ============================================================================
``hivelock.acquired``            counter  leases granted
``hivelock.acquired.wait``       timing   the wait from a task's first request to its grant, over all rounds, in ms
``hivelock.invited``             counter  tasks that had their turn, and ask for a worker slot before they take locks
``hivelock.invited.wait``        timing   the wait from a task's turn until its worker asks for the locks, in ms
``hivelock.invited.lapsed``      counter  tasks that had to wait again, because their invitation ended before
                                          their worker came
``hivelock.slots_given_back``    counter  workers that found a blocker, and gave their slot back
``hivelock.released``            counter  leases released
``hivelock.held``                timing   the time from the grant to the release, in ms. An error of this machine's
                                          clock changes it
``hivelock.idle_hold``           timing   how long a task that locks and works in one held its locks without work, in
                                          ms: once before the work, and once after it
``hivelock.timeout``             counter  requests that reached their time-out
``hivelock.lost``                counter  leases lost while work ran: force-released, taken over, or unlocked in Hive
``hivelock.force_released``      counter  force releases
``hivelock.store_error``         counter  calls that the lock store did not answer, of waiters, the keeper and unlock
                                          tasks
``hivelock.leases``              gauge    this Airflow's leases
``hivelock.leases.oldest_s``     gauge    the age of the oldest of these leases, in s; 0 without a lease
``hivelock.waiting``             gauge    this Airflow's requests that wait for locks
``hivelock.waiting.longest_s``   gauge    the longest wait of these requests, in s; 0 without one. Build an alert on it
``hivelock.waiting.lease``       gauge    parked requests. They wait for a permit of their group, and hold nothing
``hivelock.waiting.slot``        gauge    requests that had their turn, and wait for a worker slot without locks
``hivelock.suspect``             gauge    suspect leases: the keeper cannot check their work
===============================  =======  ============================================================================

The keeper sends the gauges. It also adds 0 to each counter: Prometheus sees only the rise of a counter that it already
knows, so an alert would miss the first event.
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

COUNTERS = (
    "acquired",
    "invited",
    "invited.lapsed",
    "slots_given_back",
    "released",
    "timeout",
    "lost",
    "force_released",
    "store_error",
)


def acquired(wait_s: float) -> None:
    """Count a lease that was granted *wait_s* after the task first asked for it."""
    _emit(stats.incr, "hivelock.acquired")
    _emit(stats.timing, "hivelock.acquired.wait", wait_s * 1000)


def released(since: datetime) -> None:
    """Count a release of a lease that was granted at *since*, by the store's clock."""
    _emit(stats.incr, "hivelock.released")
    _emit(stats.timing, "hivelock.held", age_s(since) * 1000)


def age_s(since: datetime) -> float:
    """The seconds since *since*, a time of the store's clock. This machine's clock gives the present time."""
    return max(0.0, (datetime.now(UTC) - since).total_seconds())


def invited() -> None:
    """Count a task that had its turn, and asks for a worker slot before it takes locks."""
    _emit(stats.incr, "hivelock.invited")


def arrived(slot_s: float) -> None:
    """Record that a worker asked for the locks *slot_s* after its task's turn."""
    _emit(stats.timing, "hivelock.invited.wait", slot_s * 1000)


def slot_given_back(*, lapsed: bool) -> None:
    """Count a worker that found a blocker.

    :param lapsed: the invitation had ended before the worker asked.
    """
    _emit(stats.incr, "hivelock.slots_given_back")
    if lapsed:
        _emit(stats.incr, "hivelock.invited.lapsed")


def idle(idle_s: float) -> None:
    """Record that a lease was held for *idle_s* while no work ran under it."""
    _emit(stats.timing, "hivelock.idle_hold", idle_s * 1000)


def timed_out() -> None:
    """Count a request that reached its time-out."""
    _emit(stats.incr, "hivelock.timeout")


def lost() -> None:
    """Count a lease that was lost while work ran under it."""
    _emit(stats.incr, "hivelock.lost")


def force_released() -> None:
    """Count a force release."""
    _emit(stats.incr, "hivelock.force_released")


def store_failed() -> None:
    """Count a call that the lock store did not answer."""
    _emit(stats.incr, "hivelock.store_error")


def set_gauges(
    leases: Sequence[Lease], waiters: Sequence[Waiter], now: datetime, installation: str, suspect: int
) -> None:
    """Set the gauges of one Airflow from all leases and waiters of the lock store, and add 0 to its counters.

    :param now: the time by the store's clock.
    :param installation: the id of the Airflow. Leases and waiters of others are left out.
    :param suspect: the number of its suspect leases.
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
    for name in COUNTERS:
        _emit(stats.incr, f"hivelock.{name}", 0)


def _emit(send: Any, *what: Any) -> None:
    try:
        _initialize()
        send(*what)
    except Exception as error:  # noqa: BLE001 - a metric that cannot be sent must not cost a lock
        log.warning("Metric %s was not sent: %r", what[0], error)


@cache
def _initialize() -> None:
    """Initialise the metrics in this process. Airflow initialises them for tasks, but the triggerer and the API server
    initialise another copy of the module."""
    initialize_stats()
