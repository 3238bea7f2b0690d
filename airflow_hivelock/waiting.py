"""Waiting for locks, the same for all who do: a worker that pokes, one that reschedules itself, a trigger.

Each of them polls, and between two polls waits in its own fashion for the wake-up, for ``wait_s()`` at most.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_hivelock import metrics
from airflow_hivelock.locks.errors import (
    AccessDenied,
    HiveLockError,
    LockTimeout,
    StoreUnavailable,
    Superseded,
)
from airflow_hivelock.locks.model import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Blocker, Holder, LockRequest


MOST_SHOWN = 5


"""How many locks and how many blockers the log names."""


RETRY_S = 5.0


"""How long after the store did not answer it is asked again."""


OUTAGE_S = 600.0


"""For how long a waiter puts up with a store that does not answer."""


Outcome_co = TypeVar("Outcome_co", covariant=True)


class Polled(Protocol[Outcome_co]):
    """What is waited for. Used by one thread at a time."""

    def poll(self) -> Outcome_co | None:
        """The outcome, or None where there is none yet."""
        ...

    def wait_s(self) -> float | None:
        """How long to wait for a wake-up at most, in seconds; None: as long as it takes."""
        ...


class _Patience:
    """Bears an outage of the store: a waiter keeps its place, and another poll settles what happened."""

    def __init__(self, timeout_s: float | None, log: Any, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._deadline = None if timeout_s is None else clock() + timeout_s
        self._silent_since: float | None = None

    def answered(self) -> None:
        self._silent_since = None

    def bear(self, error: StoreUnavailable) -> None:
        """Raise *error* once it is too late or has lasted too long, or if time does not heal it."""
        metrics.store_failed()
        if isinstance(error, AccessDenied):
            raise error
        if self._silent_since is None:
            self._silent_since = self._clock()
            self._log.warning("The lock store does not answer; asking again every %g s: %s", RETRY_S, error)
        if self.left_s() == 0 or self._clock() - self._silent_since > OUTAGE_S:
            raise error

    def left_s(self) -> float | None:
        """Until the deadline, in seconds; None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - self._clock())

    def shorten(self, wait_s: float | None) -> float | None:
        """*wait_s*, or less while the store is silent."""
        if self._silent_since is None:
            return wait_s
        return RETRY_S if wait_s is None else min(RETRY_S, wait_s)


class Wait:
    """One request for locks under way, which keeps its place in the queue; a :class:`Polled`.

    :param wake: called from any thread when another :meth:`poll` is worthwhile; must not block.

    ``counts`` is False for one that is begun only to be given up: no metric tells of it.
    """

    def __init__(
        self,
        manager: LockManager,
        request: LockRequest,
        timeout_s: float | None,
        wake: Callable[[], None],
        log: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease: Lease | None = None
        self.counts = True
        self._manager = manager
        self._log = log
        self._told: frozenset[str] = frozenset()
        self._clock = clock
        self._begun = clock()
        self._patience = _Patience(timeout_s, log, clock)
        self._pending = manager.begin(request, wake, timeout_s)

    def poll(self) -> Lease | None:
        """The lease, once it is granted.

        :raises LockTimeout: the deadline has passed; the place in the queue is given up.
        :raises StoreUnavailable: the store has not answered for too long.
        """
        try:
            outcome = self._pending.poll()
        except StoreUnavailable as error:
            self._patience.bear(error)
            return None
        except LockTimeout:
            metrics.timed_out(self.counts)
            raise
        self._patience.answered()
        if not isinstance(outcome, Lease):
            self._tell(outcome.by)
            return None
        self.lease = outcome
        metrics.acquired(self._clock() - self._begun, self.counts)
        self._log.info("Acquired lease %s (token %s): %s", outcome.id, outcome.token, _some(outcome.locks))
        return outcome

    def wait_s(self) -> float | None:
        return self._patience.shorten(self._pending.wait_s())

    def give_up(self) -> bool:
        """Leave the queue, or release the lease that came out; False: another process has taken it over, and it stays."""
        if self.lease is not None:
            return self._manager.release(self.lease)
        try:
            self._pending.withdraw()
        except Superseded:
            return False
        return True

    def hand_over(self) -> None:
        """Leave the place in the queue to the owner's next process, and let those behind pass until there is one."""
        self._pending.hand_over()

    def _tell(self, blockers: Sequence[Blocker]) -> None:
        """Say who is in the way, once and again when that changes."""
        who = frozenset(map(str, blockers))
        if who != self._told:
            self._told = who
            self._log.info("Waiting for %s", _some(self._pending.request.locks))
            for blocker in blockers[:MOST_SHOWN]:
                self._log.info("In the way: %s", self._with_time(blocker))

    def _with_time(self, blocker: Blocker) -> Holder | Blocker:
        """The blocker with since when it holds the lock, where that can be had."""
        if blocker.waiting:
            return blocker
        try:
            holders = self._manager.show(blocker.object)
        except HiveLockError as error:
            self._log.warning("Cannot look who holds %s: %s", blocker.object, error)
            return blocker
        same = (h for h in holders if (h.owner, h.object, h.mode) == (blocker.owner, blocker.object, blocker.mode))
        return next(same, blocker)


class Look:
    """Whether locks could be had now, without taking any; a :class:`Polled`.

    :param wake: called from any thread when another :meth:`poll` is worthwhile; must not block. None does not watch.
    """

    def __init__(
        self,
        manager: LockManager,
        request: LockRequest,
        timeout_s: float | None,
        wake: Callable[[], None] | None,
        log: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager = manager
        self._request = request
        self._wake = wake
        self._log = log
        self._recheck_s: float | None = None
        self._told: frozenset[str] = frozenset()
        self._patience = _Patience(timeout_s, log, clock)

    def poll(self) -> bool | None:
        """True once nobody holds what would conflict.

        :raises LockTimeout: the deadline has passed.
        :raises StoreUnavailable: the store has not answered for too long.
        """
        try:
            if self._wake is not None:  # before the look, so that nothing is missed in between
                self._recheck_s = self._manager.watch(self._request, self._wake)
            holders = self._manager.conflicts(self._request)
        except StoreUnavailable as error:
            self._patience.bear(error)
            return None
        self._patience.answered()
        if not holders:
            self._log.info("Free: %s", _some(self._request.locks))
            return True
        who = frozenset(map(str, holders))
        if who != self._told:
            self._told = who
            for holder in holders[:MOST_SHOWN]:
                self._log.info("In the way: %s", holder)
        if self._patience.left_s() == 0:
            raise LockTimeout(f"{_some(self._request.locks)} did not become free in time: {_some(holders)}")
        return None

    def wait_s(self) -> float | None:
        waits = [wait_s for wait_s in (self._recheck_s, self._patience.left_s()) if wait_s is not None]
        return self._patience.shorten(min(waits, default=None))


def _some(items: Sequence[Any]) -> str:
    more = f" and {len(items) - MOST_SHOWN} more" if len(items) > MOST_SHOWN else ""
    return ", ".join(map(str, items[:MOST_SHOWN])) + more
