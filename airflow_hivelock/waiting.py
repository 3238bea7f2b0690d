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
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import Blocker, Holder, Lease
from airflow_hivelock.locks.pending import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockRequest
    from airflow_hivelock.locks.pending import PendingLease, PendingLook

MOST_SHOWN = 5
"""How many locks and how many blockers the log names."""

ROUNDS = 3
"""How often a task steps aside once it could have its locks, and asks anew with its worker slot in hand. If it has been
outrun each time, its trigger takes the locks and keeps them until the slot comes."""

STILL_S = (60.0, 300.0)
"""After how long a waiter logs that it still waits, in seconds."""

THEN_EVERY_S = 900.0
"""How often it does so after that."""

Outcome = TypeVar("Outcome")


def span(waited_s: float) -> str:
    """How long something took, as people write it: ``12 min 3 s``."""
    minutes, seconds = divmod(int(waited_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((at for at, (count, _) in enumerate(parts) if count), 3)
    shown = parts[first : first + 2] if parts[-1][0] or first < 2 else parts[first : first + 1]
    return " ".join(f"{count} {unit}" for count, unit in shown)


def next_still_s(waited_s: float) -> float:
    """When the next line is due for one that has waited for *waited_s*."""
    last_s = STILL_S[-1]
    later_s = last_s + THEN_EVERY_S * (1 + max(0.0, waited_s - last_s) // THEN_EVERY_S)
    return next((at_s for at_s in STILL_S if at_s > waited_s), later_s)


@dataclass(frozen=True)
class Round:
    """How often a task has waited in the triggerer until it could have its locks, and for how long.

    :param number: from 1 on; in the first ROUNDS its trigger steps aside. 0 for a task that never does.
    :param waited_s: how long it has waited for its locks in the rounds before, in seconds.
    :param waited_for: who was in its way in those.
    """

    number: int = 0
    waited_s: float = 0.0
    waited_for: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """:raises InvalidRequest: what another version's trigger was given."""
        if not isinstance(self.number, int) or not isinstance(self.waited_s, int | float) or self.waited_s < 0:
            raise InvalidRequest(f"round {self.number!r} after {self.waited_s!r} s: give a number, and seconds")
        names = self.waited_for
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidRequest(f"waited_for={names!r:.80}: give a list of names")
        object.__setattr__(self, "waited_for", tuple(names[:MOST_SHOWN]))

    @property
    def late(self) -> bool:
        """Whether the trigger steps aside, and the worker asks anew."""
        return 1 <= self.number <= ROUNDS

    def next(self) -> Round:
        """The one that a task waits in that was outrun in this one."""
        return Round(self.number + 1, self.waited_s, self.waited_for)

    @property
    def past(self) -> str:
        """How long it has waited in all, and for which owners."""
        return f"{span(self.waited_s)}{_for(self.waited_for)}"

    def to_event(self) -> dict[str, Any]:
        """What the trigger tells the worker once it has stepped aside."""
        return {"free": self.number, "waited_s": self.waited_s, "waited_for": list(self.waited_for)}

    @classmethod
    def of(cls, event: Any) -> Self | None:
        """The inverse of :meth:`to_event`; None for an event that tells of a lease, or of none."""
        if not isinstance(event, dict) or "free" not in event:
            return None
        return cls(event["free"], event["waited_s"], event.get("waited_for", ()))

    @classmethod
    def told_with(cls, lease: Any) -> str:
        """How long the trigger waited for *lease*, and for which owners; empty if it did not wait."""
        if not isinstance(lease, dict) or not lease.get("waited_for"):
            return ""
        return cls(0, lease.get("waited_s", 0.0), lease["waited_for"]).past

    def __str__(self) -> str:
        return f"round {self.number} of {ROUNDS}"


@dataclass(frozen=True)
class InTheWay:
    """Who is, or was, in a waiter's way.

    :param holds: it still holds the locks; otherwise it waits, or has gone.
    :param held_since: since when one that has gone held them, by the store's clock; None where the waiter does not know.
    """

    owner: str
    holds: bool
    held_since: datetime | None = None


class Blockers:
    """Who has been in the way of a waiter, for its log.

    :param before: those of earlier rounds.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        self.now: dict[str, Blocker | Holder] = {}
        self._ever = dict.fromkeys(before)
        self._ask: dict[str, InTheWay] = {}
        self._since: dict[str, datetime] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Those who have been in the way: the first MOST_SHOWN of them."""
        return tuple(self._ever)[:MOST_SHOWN]

    def move(self, in_the_way: Sequence[Blocker | Holder]) -> list[Blocker | Holder]:
        """*in_the_way* are the ones now.

        :return: who has gone.
        """
        now = {one.owner: one for one in in_the_way[::-1]}
        gone = [one for owner, one in self.now.items() if owner not in now]
        self.now = now
        if len(self._ever) < MOST_SHOWN:
            self._ever |= dict.fromkeys(one.owner for one in in_the_way)
        self.ask_about(gone, gone=True)
        return gone

    def saw(self, holder: Blocker | Holder) -> None:
        """Remember since when *holder* holds, if it is known."""
        if isinstance(holder, Holder):
            self._since[holder.owner] = holder.since

    def ask_about(self, those: Iterable[Blocker | Holder], *, gone: bool = False) -> None:
        """Have Airflow asked what became of their runs."""
        for one in list(those)[:MOST_SHOWN]:
            since = self._since.pop(one.owner, None) if gone else None
            self._ask[one.owner] = InTheWay(one.owner, not gone and not _waits(one), since)

    def asked(self) -> list[InTheWay]:
        """Those to ask about; each is given once."""
        asked, self._ask = list(self._ask.values()), {}
        return asked


class Polled(Generic[Outcome]):
    """What is waited for. Used by one thread at a time."""

    def __init__(self, pending: PendingLease | PendingLook, log: Any, before: Sequence[str] = ()) -> None:
        self.ahead = Blockers(before)
        self._pending: PendingLease | PendingLook = pending
        self._log = log
        self.wanted = _some(pending.request.locks)
        self._told: frozenset[str] = frozenset()
        self._still_s: float | None = None

    def wait_s(self) -> float | None:
        """How long to wait for a wake-up at most, in seconds; None: as long as it takes; 0: not at all."""
        wait_s = self._pending.wait_s()
        if self._still_s is None:
            return wait_s
        until_s = max(0.0, self._still_s - self._pending.waited_s())
        return until_s if wait_s is None else min(wait_s, until_s)

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
        if outcome is None or isinstance(outcome, Silent):
            self._say_still()
        elif self._told:
            self.ahead.ask_about(self.ahead.now.values(), gone=True)
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
        if who == self._told:
            return
        waited_s = self._pending.waited_s()
        if self._still_s is None:
            self._still_s = next_still_s(waited_s)
        for one in self.ahead.move(in_the_way)[:MOST_SHOWN]:
            self._log.info(
                "No longer in the way: %s, which %s", printable(one.owner), "waited" if _waits(one) else "held it"
            )
        self._told = who
        self._log.info("Waiting for %s%s", wanted or self.wanted, f", {span(waited_s)} by now" if waited_s >= 1 else "")
        for one in in_the_way[:MOST_SHOWN]:
            shown = self._with_time(one)
            self.ahead.saw(shown)
            self._log.info("In the way: %s", shown)

    def _say_still(self) -> None:
        """Say at growing intervals that it still waits."""
        waited_s = self._pending.waited_s()
        if self._still_s is None or waited_s < self._still_s:
            return
        self._still_s = next_still_s(waited_s)
        now = list(self.ahead.now.values())[::-1]
        more = f" and {len(now) - 1} more" if len(now) > 1 else ""
        self._log.info("Still waiting for %s after %s: %s%s", self.wanted, span(waited_s), now[0], more)
        self.ahead.ask_about(now)

    def _with_time(self, one: Blocker | Holder) -> Blocker | Holder:
        return one


class Wait(Polled[Lease | Free]):
    """One request for locks under way, which keeps its place in the queue. A late one ends Free, and has none any more.

    :param wake: called from any thread when another :meth:`poll` is worthwhile; must not block.
    :param before_s: how long of the time-out has been used up before, in seconds; *before*: who was in the way then.
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
        before: Sequence[str] = (),
    ) -> None:
        pending = manager.begin(request, wake, timeout_s, before_s=before_s)
        super().__init__(pending, log, before)
        self._pending: PendingLease = pending
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
        after = f" after waiting {Round(0, **self.past()).past}" if self._told or self.ahead.names else ""
        self._log.info("Acquired lease %s (token %s)%s: %s", outcome.id, outcome.token, after, _some(outcome.locks))
        return outcome

    def past(self) -> dict[str, Any]:
        """How long it has waited in all, and for which owners: the worker gets it with the lease."""
        return {"waited_s": self._pending.waited_s(), "waited_for": self.ahead.names}

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
        pending = manager.look(request, wake, timeout_s)
        super().__init__(pending, log)
        self._pending: PendingLook = pending
        self._manager = manager  # one that nothing holds is closed once its connection has changed

    def _poll(self) -> bool | Silent | None:
        holders = self._pending.poll()
        if isinstance(holders, Silent):
            return holders
        if holders:
            self._tell(holders)
            return None
        self._log.info("Free: %s", self.wanted)
        return True


def _waits(one: Blocker | Holder) -> bool:
    return isinstance(one, Blocker) and one.waiting


def _for(names: Sequence[str]) -> str:
    return f", for {' and '.join(map(printable, names))}" if names else ""


def _some(items: Sequence[Any]) -> str:
    more = f" and {len(items) - MOST_SHOWN} more" if len(items) > MOST_SHOWN else ""
    return ", ".join(map(str, items[:MOST_SHOWN])) + more
