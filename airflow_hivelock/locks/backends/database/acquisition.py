"""One owner's way to its lease: every step is one transaction, and its place in the queue a row."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import and_

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.database import record as records
from airflow_hivelock.locks.backends.database.keys import owner_key, units
from airflow_hivelock.locks.backends.database.record import Record, State, later
from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.attendant import Attendant
    from airflow_hivelock.locks.backends.database.store import InTheWay, Store
    from airflow_hivelock.locks.model import Lease, Lock, LockRequest

MAX_TURNS = 100
"""Bound of every loop that looks again because another was quicker."""


@dataclass(frozen=True)
class Turn:
    """How one transaction has left the request.

    :param ahead: who is in the way; nobody of a lease.
    """

    record: Record
    now_us: int
    ahead: Sequence[InTheWay] = ()


class _OtherLocks(Exception):
    """The owner's request, which stands, is for these locks, and they have to be kept apart from others' instead."""

    def __init__(self, locks: Sequence[Lock]) -> None:
        self.locks = locks


class DatabaseAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(self, store: Store, attendant: Attendant, request: LockRequest, wake: Callable[[], None]) -> None:
        self._store = store
        self._attendant = attendant
        self._request = request
        self.wake = wake
        self._locks: Sequence[Lock] = request.locks
        self._key = owner_key(request.owner)
        self._process = uuid.uuid4().hex
        self._began: int | None = None
        self._waited_s: float | None = None
        self._granting: int | None = None
        self.place = 0
        self.epoch = 0

    def step(self) -> Lease | Blocked:
        for _ in range(MAX_TURNS):
            try:
                turn = self._store.transact(self._turn)
            except _OtherLocks as other:
                self._locks = other.locks
                continue
            if not turn.ahead:
                self._granting = None
                self._attendant.leave(self)
                return turn.record.lease
            self.place, self.epoch = turn.record.place, turn.record.epoch
            self._waited_s = (
                self._waited_s if self._waited_s is not None else _seconds(turn.record.asked_us, turn.now_us)
            )
            if turn.record.state is State.FREE or self._attendant.attend(self, turn.ahead[0].place):
                return self._blocked(turn)
        raise StoreUnavailable(f"{self._request.owner}: others were quicker {MAX_TURNS} times; try again")

    def withdraw(self) -> None:
        self._attendant.leave(self)
        self._store.transact(self._withdraw)

    def _turn(self, connection: Connection) -> Turn:
        store, request = self._store, self._request
        now_us, number, existing = store.enter(connection, self._key, self._locks)
        self._began = self._began or number
        if existing and existing.process == self._process and existing.state in (State.WAITING, State.GRANTED):
            mine = existing
        else:
            mine = records.start(existing, request, self._process, number, self._began, now_us, store.frees)
        fresh = existing is None or mine.place != existing.place
        if not fresh and mine.locks != records.encode(self._locks):
            raise _OtherLocks(mine.locked)
        if existing and not fresh and mine.epoch != existing.epoch:
            store.dialect.tell(connection, store.tables, mine.place, ())
        if existing and fresh and existing.state is State.GRANTED:  # expired, and for other locks
            store.end(connection, existing.place, units(existing.locked), State.ENDED)
        ahead: list[InTheWay] = []
        if mine.state is State.WAITING:
            ahead = self._look(connection, mine.place)
            if not ahead:
                end_us = later(now_us, mine.lease_s)
                mine = replace(mine, state=State.GRANTED, token=number, granted_us=now_us, end_us=end_us)
                self._granting = mine.place
            elif fresh and not request.wait:
                mine = replace(mine, state=State.FREE)
        store.put(connection, mine, existing)
        if fresh and mine.state is not State.FREE:
            store.add_locks(connection, mine, self._locks)
        return Turn(mine, now_us, ahead)

    def _look(self, connection: Connection, place: int) -> list[InTheWay]:
        """Who is in the way, nearest first; what is there for nothing is taken away when nobody else is."""
        for _ in range(MAX_TURNS):
            found = self._store.in_the_way(connection, self._locks, place)
            ahead = [one for one in found if not one.void]
            if ahead or not found:
                return ahead
            places = self._store.tables.request.c.place.in_([one.place for one in found])
            self._store.clear(connection, and_(places, self._store.void))
        raise StoreUnavailable(f"{self._request.owner}: others were quicker {MAX_TURNS} times; try again")

    def _withdraw(self, connection: Connection) -> None:
        _, _, mine = self._store.enter(connection, self._key, self._locks)
        if mine is None or mine.process != self._process:
            return
        touched = units(self._locks)
        if mine.state is State.WAITING:
            self._store.end(connection, mine.place, touched, State.FREE)
        elif mine.state is State.GRANTED and mine.place == self._granting:  # granted after all, but nobody was told
            self._store.end(connection, mine.place, touched, State.ENDED)

    def _blocked(self, turn: Turn) -> Blocked:
        ends_us = turn.ahead[0].end_us if self._store.frees else None
        recheck_s = None if ends_us is None else max(0.0, _seconds(turn.now_us, ends_us)) + 0.001
        return Blocked(tuple(one.blocker for one in turn.ahead), self._waited_s or 0.0, recheck_s=recheck_s)


def _seconds(since_us: int, until_us: int) -> float:
    return (until_us - since_us) / 1_000_000
