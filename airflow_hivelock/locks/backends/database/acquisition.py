"""One owner's way to its lease: every step is one transaction, and its place in the queue a row.

The transaction first keeps out all whose requests may conflict. Then it reads the owner's record, who came before and
conflicts, and the time; and writes either the grant, or the place in the queue with word on the row of the nearest in
the way. So there is no moment at which a request has looked but not yet written. In the common cases the dialect does
all of it at once (:mod:`.turn`, :mod:`.sqlite_turn`).
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.database import record as records
from airflow_hivelock.locks.backends.database.dialect import EVERYBODY
from airflow_hivelock.locks.backends.database.keys import owner_key
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.errors import StoreUnavailable, Superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.attendant import Attendant
    from airflow_hivelock.locks.backends.database.store import InTheWay, Store
    from airflow_hivelock.locks.backends.database.wanted import Wanted
    from airflow_hivelock.locks.model import Lease, Lock, LockRequest

MAX_TURNS = 100
"""Bound of every loop that looks again because another was quicker."""

_numbers = itertools.count(1)


class Turn(NamedTuple):
    """How one transaction has left the request.

    :param ahead: who is in the way; nobody of a lease.
    """

    record: Record
    now_us: int
    ahead: Sequence[InTheWay] = ()


class _OtherLocks(Exception):
    """The owner's request, which stands, is for these locks; so it is those that others are kept apart from."""

    def __init__(self, locks: tuple[Lock, ...]) -> None:
        self.locks = locks


class _TakenForDead(Exception):
    """It queues again, after those of its process that stood before it."""

    def __init__(self, place: int) -> None:
        self.place = place


class DatabaseAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`.

    :ivar process: its name, unique for ever; begins with its client's.
    :ivar waits: its place and epoch, and the place that it waits for; None while it does not wait.
    """

    def __init__(self, store: Store, attendant: Attendant, request: LockRequest, wake: Callable[[], None]) -> None:
        self._store = store
        self._attendant = attendant
        self._request = request
        self._wanted = store.wanted(owner_key(request.owner), request.locks)
        self._locks = self._wanted.locks
        self._began: int | None = None
        self._waited_s: float | None = None
        self._untold = False
        self._queued: Record | None = None
        self.process = f"{attendant.client}{next(_numbers):016x}"
        self.wake = wake
        self.waits: tuple[int, int, int] | None = None
        attendant.know(self)

    def step(self) -> Lease | Blocked:
        comes_back = False
        for _ in range(MAX_TURNS):
            try:
                turn = self._take_turn() or self._store.transact(partial(self._turn, comes_back=comes_back))
            except _OtherLocks as other:
                self._wanted = self._store.wanted(self._wanted.owner_key, other.locks)
                continue
            except _TakenForDead as dead:
                for earlier in self._attendant.waiting_before(dead.place):
                    earlier._come_back()
                comes_back = True
                continue
            mine = turn.record
            self._untold, self._queued = False, mine if mine.state is State.WAITING else None
            if not turn.ahead:
                self.waits = None
                return mine.lease_of(self._wanted.locked)
            if self._waited_s is None:
                self._waited_s = _seconds(mine.asked_us, turn.now_us)
            if mine.state is State.WAITING:
                self.waits = mine.place, mine.epoch, turn.ahead[0].place
                self._attendant.begin()
            return self._blocked(turn)
        raise _overtaken(self._request)

    def withdraw(self) -> None:
        self.waits = None
        alone = self._store.wanted(self._wanted.owner_key)
        self._store.transact(lambda connection: self._withdraw(connection, alone))

    def hand_over(self) -> None:
        self.waits = None
        self._store.declare_dead(self._wanted.owner_key, self.process)

    def _take_turn(self) -> Turn | None:
        """The turn, at once, of a request that is the owner's first, or that waits; None if there is more to it."""
        mine = self._queued
        if mine is None and self._began is not None:
            return None
        self._untold = True
        asked = mine or self._start(None, 0, 0)
        taken = self._store.take_turn(asked, self._wanted, mine is not None or self._request.wait)
        if taken is None:
            return None
        now_us, number, ahead = taken
        placed: dict[str, Any] = {}
        if mine is None:
            self._began = number
            placed = {"place": number, "epoch": number, "began": number, "asked_us": now_us, "seen_us": now_us}
        return Turn(asked._replace(**placed) if ahead else asked.granted(number, now_us, **placed), now_us, ahead)

    def _start(self, existing: Record | None, number: int, now_us: int) -> Record:
        began = self._began or number
        return records.start(
            existing, self._request, self._locks, self.process, number, began, now_us, self._store.frees
        )

    def _turn(self, connection: Connection, *, comes_back: bool = False) -> Turn:
        store, request, wanted = self._store, self._request, self._wanted
        now_us, number, existing, found = store.enter(connection, wanted)
        self._began = self._began or number
        acts = existing is not None and existing.process == self.process
        if existing and acts and existing.state in (State.WAITING, State.GRANTED):
            mine = existing
        elif existing and acts and self.waits and not comes_back:
            raise _TakenForDead(existing.place)
        else:
            mine, self._untold = self._start(existing, number, now_us), False
        fresh = existing is None or mine.place != existing.place
        if not fresh and mine.locks != wanted.locks:
            raise _OtherLocks(mine.locked)
        if existing and fresh and store.end(connection, State.ENDED, "held", of_place=existing.place):
            existing = existing._replace(state=State.ENDED, ended_us=now_us)  # it was expired, and for other locks
            found = store.in_the_way(connection, wanted, mine.place)
        elif existing and not fresh and mine is not existing:
            self._tell_superseded(connection, existing)
        ahead: Sequence[InTheWay] = ()
        if mine.state is State.WAITING:
            waits = request.wait or not fresh
            ahead = self._look(connection, mine.place, found, waits)
            if ahead:
                mine = mine._replace(ahead=ahead[0].place) if waits else mine._replace(state=State.FREE)
            else:
                mine, self._untold = mine.granted(number, now_us), True
        store.put(connection, mine, existing, wanted.rows if fresh and mine.state is not State.FREE else ())
        return Turn(mine, now_us, ahead)

    def _come_back(self) -> None:
        """Queue again, if it was taken for dead; its own next step finds what has become of it."""
        with suppress(Superseded, _OtherLocks):  # that step learns of these, too
            self._store.transact(partial(self._turn, comes_back=True))
        if self.waits is None:
            self.withdraw()  # it left meanwhile, and did not see this
        self.wake()

    def _look(self, connection: Connection, place: int, found: Sequence[InTheWay], waits: bool) -> Sequence[InTheWay]:
        """Who is in the way, nearest first; what is there for nothing is taken away when nobody else is.

        :param found: by a look that has just been taken.
        :param waits: leave word on the row of the nearest.
        """
        store, place_of = self._store, self._store.tables.request.c.place
        for _ in range(MAX_TURNS):
            ahead = [one for one in found if not one.void]
            if not found or (ahead and not waits):
                return ahead
            if ahead:
                if store.queue_behind(connection, ahead[0].place):
                    return ahead
            else:
                store.clear(connection, place_of.in_([one.place for one in found]))
            found = store.in_the_way(connection, self._wanted, place)
        raise _overtaken(self._request)

    def _tell_superseded(self, connection: Connection, existing: Record) -> None:
        self._store.dialect.call(connection, existing.process)
        if existing.audience == EVERYBODY:  # whoever verifies the lease for an earlier process
            self._store.dialect.tell(connection, existing.place, EVERYBODY)

    def _withdraw(self, connection: Connection, alone: Wanted) -> None:
        _, _, mine, _ = self._store.enter(connection, alone)
        if mine is None or mine.process != self.process:
            return
        if mine.state is State.WAITING:
            self._store.end(connection, State.FREE, "queued", of_place=mine.place)
        elif mine.state is State.GRANTED and self._untold:  # granted after all, but nobody was told
            self._store.end(connection, State.ENDED, "held", of_place=mine.place)

    def _blocked(self, turn: Turn) -> Blocked:
        ends_us = turn.ahead[0].end_us if self._store.frees else None
        recheck_s = None if ends_us is None else max(0.0, _seconds(turn.now_us, ends_us)) + 0.001
        return Blocked(tuple(one.blocker for one in turn.ahead), self._waited_s or 0.0, recheck_s=recheck_s)


def _seconds(since_us: int, until_us: int) -> float:
    return (until_us - since_us) / 1_000_000


def _overtaken(request: LockRequest) -> StoreUnavailable:
    return StoreUnavailable(f"{request.owner}: others were quicker {MAX_TURNS} times; try again")
