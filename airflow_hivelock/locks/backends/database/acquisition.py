"""One owner's way to its lease: its place in the queue is a row, and each attempt at the grant a transaction.

:meth:`.store.Store.grant` is the only way to a grant. It first keeps out all requests that may conflict. Then it looks for
those that came before and do conflict; and writes either the grant, or the place in the queue with word on the row of the
nearest in the way. So there is no moment at which a request has looked but not yet written. It writes nothing where there is
more to it. Then a step comes before, in a transaction of its own: the owner's earlier request is taken over, or what keeps
others waiting for nothing is taken away; and the grant is tried again.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.database import record as records
from airflow_hivelock.locks.backends.database.notifier import WaitsBehind
from airflow_hivelock.locks.backends.database.order import Outcome
from airflow_hivelock.locks.backends.database.record import EVERYBODY, State
from airflow_hivelock.locks.backends.database.request import group_key
from airflow_hivelock.locks.errors import StoreUnavailable, Superseded
from airflow_hivelock.locks.model import owner_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.notifier import Notifier
    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.model import Lease, LockRequest

MAX_TRIES = 100
"""Bound of every loop that looks again because another was quicker."""

_numbers = itertools.count(1)


class _TakenForDead(Exception):
    """It queues again, after those of its process that stood before it."""

    def __init__(self, waited: WaitsBehind) -> None:
        self.waited = waited


class DatabaseAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`.

    :ivar process: its name, unique for ever; begins with its client's.
    :ivar waits: what it waits for; None while it does not wait.
    """

    def __init__(self, store: Store, notifier: Notifier, request: LockRequest, wake: Callable[[], None]) -> None:
        self._store = store
        self._notifier = notifier
        self._request = request
        self._group_key = group_key(request.limit)
        self._locks = store.requested(owner_key(request.owner), request.locks, self._group_key)
        self._owner = store.requested(self._locks.owner_key)
        self._asked = self._locks.locks
        self._began: int | None = None
        self._waited_s: float | None = None
        self._untold = False
        self._telling = threading.Lock()
        self.process = f"{notifier.client}{next(_numbers):016x}"
        self.wake = wake
        self.waits: WaitsBehind | None = None
        self._mine = self._start(None, 0, 0)
        notifier.know(self)

    def step(self) -> Lease | Free | Blocked:
        self._untold = True
        outcome = self._in_order()
        mine = outcome.record
        self._mine = mine.again() if mine.state is State.FREE else mine
        with self._telling:
            self._untold = False
            self.waits = WaitsBehind(mine.order, mine.place, mine.epoch, outcome.behind) if mine.queued else None
        if mine.state is State.GRANTED:
            return mine.lease_of(self._locks.locked)
        if self._waited_s is None:
            self._waited_s = _seconds(mine.asked_us, outcome.now_us)
        if mine.state is State.AWAY:
            return Free(self._waited_s)
        if self.waits:
            self._notifier.begin()
        return self._blocked(outcome)

    def withdraw(self) -> None:
        self.waits = None
        self._store.transact(self._withdraw)

    def hand_over(self) -> None:
        self.waits = None
        self._store.declare_dead(self._owner.owner_key, self.process)

    def come_back(self) -> None:
        """Queue again, if it was taken for dead; its own next step finds what has become of it."""
        with self._telling:
            self._untold = self._untold or self.waits is not None
        with suppress(Superseded):  # that step learns of it, too
            self._advance(self._mine, comes_back=True)
        if self.waits is None:
            self.withdraw()  # it left meanwhile, and did not see this
        self.wake()

    def _in_order(self) -> Outcome:
        """What has become of the request; if it was taken for dead, after what stood before it in this process."""
        try:
            return self._advance(self._mine, comes_back=False)
        except _TakenForDead as dead:
            for earlier in self._notifier.waiting_before(dead.waited):
                earlier.come_back()
        return self._advance(self._mine, comes_back=True)

    def _advance(self, mine: Record, *, comes_back: bool) -> Outcome:
        """The grant, or the place in the queue, of the request, of which *mine* was the last that was known."""
        store = self._store
        for _ in range(MAX_TRIES):
            if (mine.locks, mine.group_key) != (self._locks.locks, self._locks.group_key):  # the owner's request stands
                self._locks = store.requested(self._owner.owner_key, mine.locked, mine.group_key)
            waits = self._request.wait or mine.place > 0
            outcome = store.grant(mine, self._locks, waits=waits, late=self._request.late)
            if outcome is None:
                now_us, mine = store.transact(partial(self._prepare, comes_back=comes_back))
                if mine.state in (State.GRANTED, State.AWAY):
                    return Outcome(mine, now_us)
            elif outcome.void:
                store.take_away(outcome.void)
            else:
                self._began = self._began or outcome.record.began
                return outcome
        raise StoreUnavailable(f"{self._request.owner}: others were quicker {MAX_TRIES} times; try again")

    def _prepare(self, connection: Connection, *, comes_back: bool) -> tuple[int, Record]:
        """The time, and the owner's request as it is to be granted, or has been: taken over from what acted for it."""
        store = self._store
        now_us, number, existing = store.enter(connection, self._owner)
        self._began = self._began or number
        acts = existing is not None and existing.process == self.process
        if existing and acts and (existing.queued or existing.state in (State.GRANTED, State.AWAY)):
            return now_us, existing
        if existing and acts and self.waits and not comes_back:
            raise _TakenForDead(self.waits)
        mine = self._start(existing, number, now_us)
        if existing and mine.place:
            self._untold = mine.queued
            store.put(connection, mine, existing)
            store.dialect.call(connection, existing.process)
            if existing.audience == EVERYBODY:  # every process that verifies the lease for an earlier one
                store.dialect.tell(connection, existing.place, EVERYBODY)
        elif existing:
            store.end(connection, State.ENDED, "held", of_place=existing.place)  # expired, and for other locks
        return now_us, mine

    def _start(self, existing: Record | None, number: int, now_us: int) -> Record:
        began, frees = self._began or number, self._store.frees
        given = (self._request, self._asked, self.process, number, began, now_us, frees, self._group_key)
        return records.start(existing, *given)

    def _withdraw(self, connection: Connection) -> None:
        _, _, mine = self._store.enter(connection, self._owner)
        if mine is None or mine.process != self.process:
            return
        if mine.queued or mine.state is State.AWAY:
            self._store.end(connection, State.FREE, "queued" if mine.queued else "aside", of_place=mine.place)
        elif mine.state is State.GRANTED and self._untold:  # granted after all, but nobody was told
            self._store.end(connection, State.ENDED, "held", of_place=mine.place)

    def _blocked(self, outcome: Outcome) -> Blocked:
        ends_us = outcome.ahead[0].end_us if self._store.frees else None
        recheck_s = None if ends_us is None else max(0.0, _seconds(outcome.now_us, ends_us)) + 0.001
        return Blocked(tuple(one.blocker for one in outcome.ahead), self._waited_s or 0.0, recheck_s=recheck_s)


def _seconds(since_us: int, until_us: int) -> float:
    return (until_us - since_us) / 1_000_000
