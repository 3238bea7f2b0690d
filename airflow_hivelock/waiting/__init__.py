"""Waits for locks in Airflow: the core's pending requests, with logs and metrics.

All waiters use it: a worker that pokes, a worker that reschedules itself, and a trigger. Each waiter polls. Between two
polls it waits for the wake-up in its own way, for ``wait_s()`` at most. The core has the deadline and the patience.

A lock store can be unavailable at the first connection. So a waiter connects at its first poll, and one patience covers
the connection and the request. Only this module has that rule. A task that waits in place uses :func:`patiently`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_hivelock import metrics
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.durations import span
from airflow_hivelock.locks.errors import HiveLockError, LockTimeout, StoreUnavailable, Superseded
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import Blocker, Holder, Lease
from airflow_hivelock.locks.pending import OUTAGE_S, Patience, Silent
from airflow_hivelock.locks.rules import few
from airflow_hivelock.waiting.outlook import expected_text
from airflow_hivelock.waiting.rounds import FIRST, MOST_SHOWN, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockRequest
    from airflow_hivelock.locks.pending import PendingLease, PendingLook

    Ask = Callable[[], tuple[LockManager, LockRequest]]

STILL_S = (60.0, 300.0)
"""The times at which a waiter logs that it still waits, in seconds after its start."""

THEN_EVERY_S = 900.0
"""The time between two such log lines after the last of these, in seconds."""

Outcome = TypeVar("Outcome")
Answer = TypeVar("Answer")


def patiently(
    ask: Callable[[], Answer],
    log: Any,
    check: Callable[[], None] = lambda: None,
    *,
    patience: Patience | None = None,
    prefix: str = "",
) -> Answer:
    """Return the result of *ask* when the lock store answers. It blocks, for a task that can only wait in place.

    :param check: called before each new try. An error from it ends the wait.
    :param patience: the longest silence of the store. The default is ten minutes.
    :param prefix: the start of the log line about the outage.
    :raises StoreUnavailable: the patience is over.
    """
    patience = patience or Patience(None, OUTAGE_S, time.monotonic)
    while True:
        try:
            return ask()
        except StoreUnavailable as error:
            metrics.store_failed()
            silent = patience.bear(error)
        if silent.first:
            log.warning("%s%s", prefix, silent)
        time.sleep(silent.recheck_s)
        check()


def next_still_s(waited_s: float) -> float:
    """The time of the next "still waiting" line after *waited_s*, in seconds of waiting."""
    last_s = STILL_S[-1]
    later_s = last_s + THEN_EVERY_S * (1 + max(0.0, waited_s - last_s) // THEN_EVERY_S)
    return next((at_s for at_s in STILL_S if at_s > waited_s), later_s)


@dataclass(frozen=True)
class MarkedBlocker:
    """A present or past blocker of a waiter.

    :param holds: whether it holds the locks now. Otherwise it waits, or is gone.
    :param held_since: the time of the grant of a blocker that is gone, by the store's clock. None if unknown.
    """

    owner: str
    holds: bool
    held_since: datetime | None = None


class SeenBlockers:
    """The present and past blockers of a waiter, for its log.

    The waiter marks some blockers. A trigger then asks Airflow about the runs of these.

    :param before: the owners from earlier rounds.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        self.now: dict[str, Blocker | Holder] = {}
        self._ever = dict.fromkeys(before)
        self._marked: dict[str, MarkedBlocker] = {}
        self._since: dict[str, datetime] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The owners of the first MOST_SHOWN blockers so far."""
        return tuple(self._ever)[:MOST_SHOWN]

    def replace(self, in_the_way: Sequence[Blocker | Holder]) -> list[Blocker | Holder]:
        """Replace the present blockers by *in_the_way*.

        :return: the blockers that have gone.
        """
        now = {one.owner: one for one in in_the_way[::-1]}
        gone = [one for owner, one in self.now.items() if owner not in now]
        self.now = now
        if len(self._ever) < MOST_SHOWN:
            self._ever |= dict.fromkeys(one.owner for one in in_the_way)
        self.mark(gone, gone=True)
        return gone

    def remember_grant(self, holder: Blocker | Holder) -> None:
        """Remember the time of *holder*'s grant, if it is known."""
        if isinstance(holder, Holder):
            self._since[holder.owner] = holder.since

    def mark(self, those: Iterable[Blocker | Holder], *, gone: bool = False) -> None:
        for one in list(those)[:MOST_SHOWN]:
            since = self._since.pop(one.owner, None) if gone else None
            self._marked[one.owner] = MarkedBlocker(one.owner, not gone and not _waits(one), since)

    def take_marked(self) -> list[MarkedBlocker]:
        """Return the marked blockers, and remove their marks."""
        marked, self._marked = list(self._marked.values()), {}
        return marked


class Polled(Generic[Outcome]):
    """A wait for an outcome. Only one thread at a time may use it.

    :param ask: returns the lock manager and the request. Called at each poll until the lock store answers. It can also
        ask a metastore.
    :ivar silent: whether the store did not answer at the last poll.
    """

    def __init__(
        self,
        ask: Ask,
        patience: Patience,
        log: Any,
        before: Sequence[str] = (),
    ) -> None:
        self.seen = SeenBlockers(before)
        self.silent = False
        self._ask = ask
        self._patience = patience
        self._pending: PendingLease | PendingLook | None = None
        self._log = log
        self._logged: frozenset[str] = frozenset()
        self._still_s: float | None = None
        self._recheck_s = 0.0
        self._manager: LockManager

    @property
    def wanted(self) -> str:
        """The locks as text for the log."""
        return few(self._pending.request.locks, MOST_SHOWN) if self._pending else "the locks"

    @property
    def manager(self) -> LockManager:
        """The lock manager, after the first connection."""
        return self._manager

    def waited_s(self) -> float:
        """The time since the task first asked, in seconds."""
        return self._patience.waited_s()

    def wait_s(self) -> float | None:
        """The longest wait for a wake-up, in seconds. None means no limit, 0 means no wait."""
        wait_s = self._pending.wait_s() if self._pending else self._recheck_s
        if self._still_s is None:
            return wait_s
        until_s = max(0.0, self._still_s - self.waited_s())
        return until_s if wait_s is None else min(wait_s, until_s)

    def poll(self) -> Outcome | None:
        """Return the outcome, or None if there is none yet.

        :raises LockTimeout: the deadline is over, and the request has left the queue.
        :raises StoreUnavailable: the store has not answered for too long.
        """
        try:
            outcome = self._connect() or self._poll()
        except StoreUnavailable:
            metrics.store_failed()
            raise
        self.silent = isinstance(outcome, Silent)
        if outcome is None or isinstance(outcome, Silent):
            self._log_still_waiting()
        elif self._logged:
            self.seen.mark(self.seen.now.values(), gone=True)
        if not isinstance(outcome, Silent):
            return outcome
        metrics.store_failed()
        if outcome.first:
            self._log.warning("%s", outcome)
        return None

    def _connect(self) -> Silent | None:
        """Begin the request, if it has not begun. Return Silent if the store does not answer, else None."""
        if self._pending is None:
            try:
                # Keep a reference: a manager without references is closed when its connection changes.
                self._manager, request = self._ask()
                self._pending = self._begin(request)
            except StoreUnavailable as error:
                silent = self._patience.bear(error)
                self._recheck_s = silent.recheck_s
                return silent
        return None

    def _begin(self, request: LockRequest) -> PendingLease | PendingLook:
        raise NotImplementedError

    def _poll(self) -> Outcome | Silent | None:
        raise NotImplementedError

    def _log_blockers(self, in_the_way: Sequence[Blocker | Holder], wanted: str = "") -> None:
        """Log the blockers if they have changed. *wanted* is what the request waits for, by default its locks."""
        who = frozenset(map(str, in_the_way))
        if who == self._logged:
            return
        waited_s = self.waited_s()
        if self._still_s is None:
            self._still_s = next_still_s(waited_s)
        for one in self.seen.replace(in_the_way)[:MOST_SHOWN]:
            self._log.info(
                "No longer in the way: %s, which %s", printable(one.owner), "waited" if _waits(one) else "held it"
            )
        self._logged = who
        self._log.info("Waiting for %s%s", wanted or self.wanted, f", {span(waited_s)} by now" if waited_s >= 1 else "")
        for one in in_the_way[:MOST_SHOWN]:
            shown = self._with_time(one)
            self.seen.remember_grant(shown)
            self._log.info("In the way: %s", shown)

    def _log_still_waiting(self) -> None:
        """Log at growing intervals that the request still waits."""
        waited_s = self.waited_s()
        if self._still_s is None or waited_s < self._still_s:
            return
        self._still_s = next_still_s(waited_s)
        now = list(self.seen.now.values())[::-1]
        expected = expected_text(self._manager, self._pending)
        self._log.info("Still waiting for %s after %s: %s%s", self.wanted, span(waited_s), few(now, 1), expected)
        self.seen.mark(now)

    def _with_time(self, one: Blocker | Holder) -> Blocker | Holder:
        return one


class Wait(Polled[Lease | NeedsSlot]):
    """One request for locks, which keeps its queue position. A deferred request ends with NeedsSlot, without locks.

    :param wake: called from any thread when another :meth:`poll` is useful. It must not block.
    :param before: the round before this request.
    :param clock: monotonic seconds.
    :ivar outcome: the lease or NeedsSlot. None while the request waits.
    :ivar blockers: the blockers at the last poll.
    :ivar counts: whether metrics count it. Set it to False for a wait that is begun only to be given up.
    """

    def __init__(
        self,
        ask: Ask,
        timeout_s: float | None,
        wake: Callable[[], None],
        log: Any,
        before: Round = FIRST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        patience = Patience(timeout_s, OUTAGE_S, clock, before.waited_s, before.slot_s)
        super().__init__(ask, patience, log, before.waited_for)
        self._pending: PendingLease | None = None
        self.outcome: Lease | NeedsSlot | None = None
        self.blockers: tuple[Blocker, ...] = ()
        self.counts = True
        self._wake = wake
        self._before = before

    def _begin(self, request: LockRequest) -> PendingLease:
        return self._manager.begin(request, self._wake, patience=self._patience)

    def _poll(self) -> Lease | NeedsSlot | Silent | None:
        assert self._pending is not None
        try:
            outcome = self._pending.poll()
        except LockTimeout:
            if self.counts:
                metrics.timed_out()
            raise
        if isinstance(outcome, Silent):
            return outcome
        if isinstance(outcome, Blocked):
            self.blockers = outcome.by
            self._log_blockers(outcome.by, str(self._pending.request.limit) if outcome.by[0].group else "")
            return None
        self.outcome = outcome
        if isinstance(outcome, NeedsSlot):
            metrics.invited()
            return outcome
        if self.counts:
            metrics.acquired(self.waited_s())
        after = f" after waiting {self.round().past}" if self._logged or self.seen.names else ""
        self._log.info(
            "Acquired lease %s (token %s)%s: %s", outcome.id, outcome.token, after, few(outcome.locks, MOST_SHOWN)
        )
        return outcome

    def round(self) -> Round:
        """The round of this request, with the wait up to now."""
        asked = self._pending.asked if self._pending else None
        return self._before.with_wait(self.waited_s(), self.seen.names, asked)

    def give_up(self) -> bool:
        """Leave the queue, or release the acquired lease. Return False if another process has taken over."""
        if isinstance(self.outcome, Lease):
            return self._manager.release(self.outcome)
        try:
            if self._pending is not None:
                self._pending.withdraw()
        except Superseded:
            return False
        return True

    def hand_over(self) -> None:
        """Leave the queue position to the owner's next process. Later requests can go first until that process asks."""
        if self._pending is not None:
            self._pending.hand_over()

    def _with_time(self, one: Blocker | Holder) -> Blocker | Holder:
        """The blocker with the time of its grant, if the store can be asked for it."""
        if isinstance(one, Holder) or one.waiting or one.group:
            return one
        try:
            holders = self._manager.show(one.object)
        except HiveLockError as error:
            self._log.warning("Cannot read who holds %s: %s", one.object, error)
            return one
        same = (h for h in holders if (h.owner, h.object, h.mode) == (one.owner, one.object, one.mode))
        return next(same, one)


class Look(Polled[bool]):
    """Waits until the locks are free, without acquiring any. The outcome is True.

    :param wake: as in :class:`Wait`. None means that the locks are not watched.
    """

    def __init__(
        self,
        ask: Ask,
        timeout_s: float | None,
        wake: Callable[[], None] | None,
        log: Any,
    ) -> None:
        super().__init__(ask, Patience(timeout_s, OUTAGE_S, time.monotonic), log)
        self._pending: PendingLook | None = None
        self._wake = wake

    def _begin(self, request: LockRequest) -> PendingLook:
        return self._manager.look(request, self._wake, patience=self._patience)

    def _poll(self) -> bool | Silent | None:
        assert self._pending is not None
        holders = self._pending.poll()
        if isinstance(holders, Silent):
            return holders
        if holders:
            self._log_blockers(holders)
            return None
        self._log.info("Free: %s", self.wanted)
        return True


def _waits(one: Blocker | Holder) -> bool:
    return isinstance(one, Blocker) and one.waiting
