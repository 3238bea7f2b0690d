"""The order of requests, said as plainly as can be.

A request that waits stands in one queue at a time: in that for a lease of its group, while there is none for it; else in
that for its locks. Where it waits for a lease it is in no lock's way. So at its turn there it asks for its locks as a new
arrival, behind those that wait for them by then. Its place among those of its group it keeps.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.model import Blocker, Lease, LockRequest, WaitsFor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class QueuePlace(NamedTuple):
    """A place in a queue: of two, the smaller is the earlier.

    :param turn: a number of its own; or, claimed, the turn of the first request that was passed.
    :param rank: the larger the priority, the smaller.
    :param number: its owner's, unique.
    :param since: how old the turn is: one that is claimed was there before.
    """

    turn: int
    rank: int
    number: int
    since: datetime

    @property
    def priority(self) -> int:
        return -self.rank


@dataclass
class Entry:
    """An owner's request, for as long as it waits or holds.

    :param place: among requests for locks, while it waits for its own or holds them.
    :param in_group: among requests for a lease of its group, from the first time that it waits for one.
    :param left: its process has handed it over, and no other has taken it up.
    """

    request: LockRequest
    number: int
    since: datetime
    epoch: int
    wake: Callable[[], None]
    waits_for: WaitsFor = WaitsFor.LOCK
    place: QueuePlace | None = None
    in_group: QueuePlace | None = None
    lease: Lease | None = None
    renewed: datetime | None = None
    losses: list[Callable[[], None]] = field(default_factory=list)
    left: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """Where it stands by now."""
        place = self.in_group if self.waits_for is WaitsFor.LEASE else self.place
        return place[:3] if place else (self.number,)

    def waiting(self, what: WaitsFor) -> bool:
        """Whether it waits for just that."""
        return self.lease is None and self.waits_for is what


class MemoryQueues:
    """All requests, by owner. Used by one thread at a time.

    :param passing_s: how long a request that waits is passed by more urgent ones, in seconds; 0: never.
    """

    def __init__(self, passing_s: float) -> None:
        self.passing_s = passing_s
        self.entries: dict[str, Entry] = {}
        self.count = itertools.count(1)

    def now(self) -> datetime:
        return datetime.now(UTC)  # the store is this process, so this is the store's clock

    def advance(self, entry: Entry) -> bool:
        """Put *entry*, which holds nothing, into the queue for what it lacks; whether it was in the way of others before."""
        was = entry.waits_for, entry.place
        entry.waits_for = WaitsFor.LOCK
        if _unless_left(self._before_lease(entry)):
            entry.waits_for, entry.in_group, entry.place = WaitsFor.LEASE, self._place_in_group(entry), None
            return was[1] is not None
        entry.place = entry.place or self._place_for_locks(entry)
        return was[0] is WaitsFor.LEASE

    def in_the_way(self, entry: Entry) -> list[Entry]:
        """Whose turn comes before that of *entry*, of those that want or hold what it waits for; nearest first.

        Nobody's, if all of them have been left.
        """
        match entry.waits_for:
            case WaitsFor.LOCK:
                return _unless_left(self._before_locks(entry))
            case WaitsFor.LEASE:
                return _unless_left(self._before_lease(entry))
            case WaitsFor.SLOT:
                return []

    def left_before(self, entry: Entry) -> list[Entry]:
        """Those that have been left, and keep nobody waiting but by their places."""
        return [other for other in (*self._before_locks(entry), *self._before_lease(entry)) if other.left]

    def blockers(self, entry: Entry) -> tuple[Blocker, ...]:
        """:meth:`in_the_way`, and where."""
        limit, locks = entry.request.limit, entry.request.locks
        group = limit.group if limit and entry.waits_for is WaitsFor.LEASE else ""
        return tuple(
            Blocker(other.request.owner, met.object, met.mode, waiting=other.lease is None, group=group)
            for other in self.in_the_way(entry)
            for met in (other.request.locks[-1:] if group else rules.conflicts(locks, other.request.locks)[:1])
        )

    def _before_locks(self, entry: Entry) -> list[Entry]:
        """Whoever holds conflicting locks, and whoever waits for them before it."""
        found = [
            other
            for other in self._conflicting(entry)
            if other.lease or (other.place and entry.place and other.place < entry.place)
        ]
        return sorted(found, key=lambda other: other.order, reverse=True)

    def _conflicting(self, entry: Entry) -> list[Entry]:
        return [
            other
            for other in self.entries.values()
            if other is not entry
            and (other.lease or other.waits_for is WaitsFor.LOCK)
            and rules.conflicts(entry.request.locks, other.request.locks)
        ]

    def _before_lease(self, entry: Entry) -> list[Entry]:
        """Whoever holds a lease of its group, if no more may be out; and whoever waits for one before it."""
        if (limit := entry.request.limit) is None:
            return []
        group = self._group(entry)
        holding = [other for other in group if other.lease]
        mine = self._place_in_group(entry)
        waiting = [
            other for other in group if other.waiting(WaitsFor.LEASE) and other.in_group and other.in_group < mine
        ]
        waiting.sort(key=lambda other: other.order, reverse=True)
        return [*(holding if len(holding) >= limit.most else ()), *waiting]

    def _group(self, entry: Entry) -> list[Entry]:
        """All others of its group."""
        name = entry.request.limit.group if entry.request.limit else None
        others = [(other, other.request.limit) for other in self.entries.values() if other is not entry]
        return [other for other, limit in others if limit and limit.group == name]

    def _place_in_group(self, entry: Entry) -> QueuePlace:
        waiting = [other for other in self._group(entry) if other.waiting(WaitsFor.LEASE)]
        return entry.in_group or self._place(entry, entry.number, entry.since, waiting)

    def _place_for_locks(self, entry: Entry) -> QueuePlace:
        waiting = [other for other in self._conflicting(entry) if not other.lease]
        return self._place(entry, next(self.count), self.now(), waiting)

    def _place(self, entry: Entry, turn: int, since: datetime, waiting: Iterable[Entry]) -> QueuePlace:
        """A place by its own turn; or, claimed, before the first of those that it passes."""
        own = QueuePlace(turn, -entry.request.priority, entry.number, since)
        places = (
            other.in_group if other.waits_for is WaitsFor.LEASE else other.place for other in waiting if not other.left
        )
        earlier = sorted(place for place in places if place and place < own)
        oldest = self.now() - timedelta(seconds=self.passing_s)
        passed = rules.passed(earlier, own.priority, lambda place: place.since > oldest)
        return own._replace(turn=passed.turn, since=passed.since) if passed else own


def _unless_left(found: list[Entry]) -> list[Entry]:
    return [] if all(other.left for other in found) else found
