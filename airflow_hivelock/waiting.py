"""Waiting for locks in Airflow: the core's pending requests, with logs and metrics.

The same for all waiters: a worker that pokes, one that reschedules itself, a trigger. Each of them polls, and between two
polls waits in its own fashion for the wake-up, for ``wait_s()`` at most. Deadline and patience are the core's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from airflow_hivelock import metrics
from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockTimeout, StoreUnavailable, Superseded
from airflow_hivelock.locks.model import Holder, Lease
from airflow_hivelock.locks.pending import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Blocker, LockRequest
    from airflow_hivelock.locks.pending import PendingLease, PendingLook

MOST_SHOWN = 5
"""How many locks and how many blockers the log names."""

ROUNDS = 3
"""How often a task steps aside once it could have its locks, and asks anew with its worker slot in hand. If it has been
outrun each time, its trigger takes the locks and keeps them until the slot comes."""

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Round:
    """How often a task has waited in the triggerer until it could have its locks, and for how long.

    :param number: from 1 on; in the first ROUNDS its trigger steps aside. 0 for a task that never does.
    :param waited_s: how long it has waited for its locks in the rounds before, in seconds.
    """

    number: int = 0
    waited_s: float = 0.0

    def __post_init__(self) -> None:
        """:raises InvalidRequest: what another version's trigger was given."""
        if not isinstance(self.number, int) or not isinstance(self.waited_s, int | float) or self.waited_s < 0:
            raise InvalidRequest(f"round {self.number!r} after {self.waited_s!r} s: give a number, and seconds")

    @property
    def late(self) -> bool:
        """Whether the trigger steps aside, and the worker asks anew."""
        return 1 <= self.number <= ROUNDS

    def next(self) -> Round:
        """The one that a task waits in that was outrun in this one."""
        return Round(self.number + 1, self.waited_s)

    def to_event(self) -> dict[str, Any]:
        """What the trigger tells the worker once it has stepped aside."""
        return {"free": self.number, "waited_s": self.waited_s}

    @classmethod
    def of(cls, event: Any) -> Self | None:
        """The inverse of :meth:`to_event`; None for an event that tells of a lease, or of none."""
        return cls(event["free"], event["waited_s"]) if isinstance(event, dict) and "free" in event else None

    def __str__(self) -> str:
        return f"round {self.number} of {ROUNDS}"


class Polled(Generic[Outcome]):
    """What is waited for. Used by one thread at a time."""

    def __init__(self, pending: PendingLease | PendingLook, log: Any) -> None:
        self.wait_s = pending.wait_s
        self._log = log
        self.wanted = _some(pending.request.locks)
        self._told: frozenset[str] = frozenset()

    def poll(self) -> Outcome | None:
        """The outcome, or None where there is none yet.

        :raises LockTimeout: the deadline has passed; a place in the queue is given up.
        :raises StoreUnavailable: the store has not answered for too long.
        """
        try:
            outcome = self._poll()
        except StoreUnavailable:
            metrics.store_failed()
            raise
        if not isinstance(outcome, Silent):
            return outcome
        metrics.store_failed()
        if outcome.first:
            self._log.warning("%s", outcome)
        return None

    def _poll(self) -> Outcome | Silent | None:
        raise NotImplementedError

    def _tell(self, in_the_way: Sequence[Blocker | Holder], wanted: str = "") -> None:
        """Say who is in the way of the locks, or of what else is *wanted*, once and again when that changes."""
        who = frozenset(map(str, in_the_way))
        if who != self._told:
            self._told = who
            self._log.info("Waiting for %s", wanted or self.wanted)
            for one in in_the_way[:MOST_SHOWN]:
                self._log.info("In the way: %s", self._with_time(one))

    def _with_time(self, one: Blocker | Holder) -> Blocker | Holder:
        return one


class Wait(Polled[Lease | Free]):
    """One request for locks under way, which keeps its place in the queue. A late one ends Free, and has none any more.

    :param wake: called from any thread when another :meth:`poll` is worthwhile; must not block.
    :param before_s: how long of the time-out has been used up before, in seconds.
    :ivar aside: what the rounds up to now have waited in all, in seconds, once it has stepped aside.
    :ivar blockers: who was in its way at the last poll.

    ``counts`` is False for one that is begun only to be given up: no metric tells of it.
    """

    def __init__(
        self,
        manager: LockManager,
        request: LockRequest,
        timeout_s: float | None,
        wake: Callable[[], None],
        log: Any,
        before_s: float = 0.0,
    ) -> None:
        self._pending = manager.begin(request, wake, timeout_s, before_s=before_s)
        super().__init__(self._pending, log)
        self.lease: Lease | None = None
        self.aside: float | None = None
        self.blockers: tuple[Blocker, ...] = ()
        self.counts = True
        self._manager = manager

    def _poll(self) -> Lease | Free | Silent | None:
        try:
            outcome = self._pending.poll()
        except LockTimeout:
            metrics.timed_out(self.counts)
            raise
        if isinstance(outcome, Silent):
            return outcome
        if isinstance(outcome, Blocked):
            self.blockers = outcome.by
            self._tell(outcome.by, str(self._pending.request.limit) if outcome.by[0].group else "")
            return None
        if isinstance(outcome, Free):
            self.aside = self._pending.waited_s()
            metrics.stepped_aside()
            return outcome
        self.lease = outcome
        metrics.acquired(self._pending.elapsed_s(), self.counts)
        self._log.info("Acquired lease %s (token %s): %s", outcome.id, outcome.token, _some(outcome.locks))
        return outcome

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

    def _with_time(self, one: Blocker | Holder) -> Blocker | Holder:
        """The blocker with since when it holds the lock, where that can be had."""
        if isinstance(one, Holder) or one.waiting or one.group:
            return one
        try:
            holders = self._manager.show(one.object)
        except HiveLockError as error:
            self._log.warning("Cannot look who holds %s: %s", one.object, error)
            return one
        same = (h for h in holders if (h.owner, h.object, h.mode) == (one.owner, one.object, one.mode))
        return next(same, one)


class Look(Polled[bool]):
    """Whether locks could be had now, without taking any: True, or not yet.

    :param wake: called from any thread when another :meth:`poll` is worthwhile; must not block. None does not watch.
    """

    def __init__(
        self,
        manager: LockManager,
        request: LockRequest,
        timeout_s: float | None,
        wake: Callable[[], None] | None,
        log: Any,
    ) -> None:
        self._pending = manager.look(request, wake, timeout_s)
        super().__init__(self._pending, log)

    def _poll(self) -> bool | Silent | None:
        holders = self._pending.poll()
        if isinstance(holders, Silent):
            return holders
        if holders:
            self._tell(holders)
            return None
        self._log.info("Free: %s", self.wanted)
        return True


def _some(items: Sequence[Any]) -> str:
    more = f" and {len(items) - MOST_SHOWN} more" if len(items) > MOST_SHOWN else ""
    return ", ".join(map(str, items[:MOST_SHOWN])) + more
