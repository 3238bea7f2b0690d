"""Whom each request waits for, as listings tell it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.model import Blocker, Lock, LockMode, LockObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_hivelock.locks.backends.zookeeper.queue import Place, Ticket

MOST_NAMED = 1_000
"""How many requests ahead of another a listing names: all of them for each would grow with the square of the queue."""


@dataclass(frozen=True)
class _Lane:
    """The requests that lock one object, earliest first; *waiting*: how many of them wait, up to and with each."""

    places: list[Place] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def add(self, ticket: Ticket, blocker: Blocker) -> None:
        self.places.append(ticket.place)
        self.keys.append(ticket.key)
        self.blockers.append(blocker)
        self.waiting.append(blocker.waiting + (self.waiting[-1] if self.waiting else 0))


class Line:
    """Tickets by what they lock, so that the requests ahead of another are found without a look at everybody."""

    def __init__(
        self, tickets: Iterable[Ticket], waiting: Callable[[Ticket], bool], wanted: Mapping[LockObject, LockMode]
    ) -> None:
        """:param tickets: in the order of their places.
        :param wanted: what will be asked for; nothing else is looked at.
        """
        self._all: defaultdict[LockObject, _Lane] = defaultdict(_Lane)
        self._exclusive: defaultdict[LockObject, _Lane] = defaultdict(_Lane)
        for ticket in tickets:
            for lock in ticket.locks:
                mode = wanted.get(lock.object)
                if mode is None or not rules.conflict(mode, lock.mode):
                    continue
                blocker = Blocker(ticket.owner, lock.object, lock.mode, waiting(ticket))
                self._all[lock.object].add(ticket, blocker)
                if lock.mode is LockMode.EXCLUSIVE:
                    self._exclusive[lock.object].add(ticket, blocker)

    def ahead(self, locks: Iterable[Lock], place: Place) -> tuple[tuple[Blocker, ...], int]:
        """The requests that conflict with *locks* and stand before *place*, each once, the nearest :data:`MOST_NAMED` first;
        and how many of them all wait themselves."""
        lanes = []
        for lock in locks:
            lane = (self._all if lock.mode is LockMode.EXCLUSIVE else self._exclusive).get(lock.object)
            if lane and (earlier := bisect_left(lane.places, place)):
                lanes.append((lane, earlier))
        if len(lanes) == 1 and lanes[0][0].blockers[0].object.table:  # a table's queue has nobody twice
            lane, earlier = lanes[0]
            return tuple(lane.blockers[max(0, earlier - MOST_NAMED) : earlier][::-1]), lane.waiting[earlier - 1]
        found: dict[str, tuple[Place, Blocker]] = {}
        for lane, earlier in lanes:
            for at in range(earlier):
                found.setdefault(lane.keys[at], (lane.places[at], lane.blockers[at]))
        nearest = [blocker for _, blocker in sorted(found.values(), key=itemgetter(0), reverse=True)]
        return tuple(nearest[:MOST_NAMED]), sum(blocker.waiting for blocker in nearest)
