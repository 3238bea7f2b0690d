"""One owner's way to its lease: its place in the queue is a row, and each attempt at the grant a transaction.

A transaction first keeps out all requests that may conflict. Then it reads the owner's record, and the requests that conflict
or are in the same group, and has :func:`.queueing.decide` decide. Last it writes the decision. So there is no moment at which a
request has looked but not yet written. Requests that keep others waiting without a claim are removed in a transaction of its
own; then the next attempt follows.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.database import record as records
from airflow_hivelock.locks.backends.database.notifier import Waits
from airflow_hivelock.locks.backends.database.record import State
from airflow_hivelock.locks.backends.database.request import RequestedLocks, group_key
from airflow_hivelock.locks.errors import StoreUnavailable, Superseded
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.locks.queueing import Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.database.candidate import Candidate
    from airflow_hivelock.locks.backends.database.notifier import Notifier
    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.store import Entered, Store
    from airflow_hivelock.locks.backends.database.transaction import Answer, StoreTransaction
    from airflow_hivelock.locks.model import Lease, LockRequest

MAX_TRIES = 100
"""Bound of every loop that looks again because another was quicker."""

_numbers = itertools.count(1)


class _TakenForDead(Exception):
    """It queues again, after the requests of its process that were before it."""

    def __init__(self, waited: Waits) -> None:
        self.waited = waited


class Outcome(NamedTuple):
    """How an attempt has left the request.

    :param ahead: of the requests in the way, the nearest and the first; of holders of its group's leases, the first to end.
    :param watch: the places of the requests it waits for, each with whether that waits for a lease of its group.
    :param remove: the places of requests without a claim, which alone are in the way.
    :param written: counts no row if the owner's record has changed meanwhile.
    :param marked: counts the requests of *watch* that have not ended meanwhile.
    """

    record: Record
    now_us: int
    ahead: Sequence[Candidate] = ()
    watch: Mapping[int, bool] = {}
    remove: Sequence[int] = ()
    written: Answer | None = None
    marked: Answer | None = None

    @property
    def outrun(self) -> bool:
        """Whether another transaction was quicker: it has changed the owner's record, or has ended what is waited for."""
        if self.written is not None and not self.written.count:
            return True
        return self.marked is not None and self.marked.count < len(self.watch)


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
        self._asked = RequestedLocks(store.tables.name, owner_key(request.owner), request.locks, self._group_key)
        self._locks = self._asked
        self._began: int | None = None
        self._waited_s: float | None = None
        self.asked: datetime | None = None
        self._untold = False
        self._telling = threading.Lock()
        self.process = f"{notifier.client}{next(_numbers):016x}"
        self.wake = wake
        self.waits: Waits | None = None
        notifier.know(self)

    def step(self) -> Lease | Free | Blocked:
        self._untold = True
        outcome = self._in_order()
        mine = outcome.record
        with self._telling:
            self._untold = False
            self.waits = Waits(mine.position, mine.place, mine.epoch, outcome.watch) if mine.queued else None
        if mine.state is State.GRANTED:
            return mine.lease_of(self._locks.locked)
        if self._waited_s is None:
            self._waited_s = _seconds(mine.asked_us, outcome.now_us)
            self.asked = records.instant(mine.asked_us)
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
        self._store.declare_dead(self._asked.owner_key, self.process)

    def come_back(self) -> None:
        """Queue again, if it was taken for dead; its own next step finds what has become of it."""
        with self._telling:
            self._untold = self._untold or self.waits is not None
        with suppress(Superseded):  # that step learns of it, too
            self._advance(comes_back=True)
        if self.waits is None:
            self.withdraw()  # it left meanwhile, and did not see this
        self.wake()

    def _in_order(self) -> Outcome:
        """What has become of the request; if it was taken for dead, after those that were before it in this process."""
        try:
            return self._advance(comes_back=False)
        except _TakenForDead as dead:
            for earlier in self._notifier.waiting_before(dead.waited):
                earlier.come_back()
        return self._advance(comes_back=True)

    def _advance(self, *, comes_back: bool) -> Outcome:
        """The grant, or the place in the queue, of the request."""
        for _ in range(MAX_TRIES):
            outcome = self._store.transact(partial(self._attempt, comes_back=comes_back))
            if isinstance(outcome, _TakenForDead):
                raise outcome
            if outcome is None or outcome.outrun:
                continue
            if not outcome.remove:
                return outcome
            self._store.take_away(outcome.remove)
        raise StoreUnavailable(f"{self._request.owner}: others were quicker {MAX_TRIES} times; try again")

    def _attempt(self, transaction: StoreTransaction, *, comes_back: bool) -> Outcome | _TakenForDead | None:
        """None: look again."""
        store = self._store
        entered = store.enter(transaction, self._locks, decides=True)
        existing = entered.record
        self._began = self._began or entered.number
        acts = existing is not None and existing.process == self.process
        if existing and acts and (existing.active or existing.state is State.AWAY):
            mine = existing
        elif acts and self.waits and not comes_back:
            return _TakenForDead(self.waits)
        else:
            mine = self._start(existing, entered)
        if mine.queued and (mine.locks, mine.group_key) != (self._locks.locks, self._locks.group_key):
            self._locks = RequestedLocks(store.tables.name, mine.owner_key, mine.locked, mine.group_key)
            return None  # it takes over a request for other locks, or starts afresh after one
        if existing and mine.place == existing.place and mine.epoch != existing.epoch:
            self._untold = mine.queued
            store.dialect.call(transaction, existing.process)
            if not mine.queued:
                written = store.put(transaction, mine, existing)
                store.dialect.tell(transaction, existing.place)  # processes that verify the lease for an earlier one
                return Outcome(mine, entered.now_us, written=written)
        if not mine.queued:
            return Outcome(mine, entered.now_us)
        return self._decide(transaction, entered, mine)

    def _start(self, existing: Record | None, entered: Entered) -> Record:
        began, frees = self._began or entered.number, self._store.frees
        wanted, key = self._asked.locks, self._group_key
        given = (self._request, wanted, self.process, entered.number, began, entered.now_us, frees, key)
        return records.start(existing, *given)

    def _decide(self, transaction: StoreTransaction, entered: Entered, mine: Record) -> Outcome:
        """Have it be decided, and write the decision."""
        store, now_us, existing = self._store, entered.now_us, entered.record
        waits = self._request.wait or (existing is not None and existing.place == mine.place)
        conflicting, group = (
            [one.other(now_us, frees=store.frees) for one in found] for found in (entered.conflicting, entered.group)
        )
        asking = mine.undecided(entered.number, now_us, self._request.late)
        decision = queueing.decide(asking, conflicting, group, now_us - store.passing_us)
        if decision.ruling is Ruling.CLEAR:
            return Outcome(mine, now_us, remove=[int(other.key) for other in decision.remove])
        candidates = entered.group if decision.ruling is Ruling.PARK else entered.conflicting
        by_place = {one.place: one for one in candidates}
        ahead, watch = ([by_place[int(one.key)] for one in some] for some in (decision.ahead, decision.watch))
        waited_for, marked = {one.place: one.parked for one in watch}, None
        if decision.ruling in (Ruling.PARK, Ruling.WAIT) and not waits:
            record = mine._replace(state=State.FREE)
        else:
            record = mine.decided(decision, entered.number, now_us)
            # If one of them has just ended, it waits for nothing, and looks again at once.
            marked = store.wait_for(transaction, waited_for) if waited_for else None
        written = self._write(transaction, record, entered)
        return Outcome(record, now_us, _shown(ahead), waited_for, written=written, marked=marked)

    def _write(self, transaction: StoreTransaction, record: Record, entered: Entered) -> Answer:
        """Write the record, with its rows of locks where it has come into their queue, and tell its waiters where it has left
        a queue."""
        store, existing = self._store, entered.record
        kept = existing is not None and existing.place == record.place
        was = existing.state if existing and kept else State.FREE
        if existing and not kept and existing.state is State.GRANTED:
            store.end(transaction, State.ENDED, "held", of_place=existing.place)  # expired, and for other locks
            existing = existing._replace(state=State.ENDED, ended_us=-1)  # by now it has a time there
        has_locks = (State.WAITING, State.GRANTED)
        gains = record.state in has_locks and was not in has_locks
        written = store.put(transaction, record, existing, self._locks if gains else None)
        if was in has_locks and record.state not in has_locks:
            transaction.ask(store.without_locks, of_place=record.place)
        if kept and was is not record.state and (was, record.state) != (State.WAITING, State.GRANTED):
            store.dialect.tell(transaction, record.place)
        return written

    def _withdraw(self, transaction: StoreTransaction) -> None:
        mine = self._store.enter(transaction, RequestedLocks(self._store.tables.name, self._asked.owner_key, ())).record
        if mine is None or mine.process != self.process:
            return
        if mine.queued or mine.state is State.AWAY:
            self._store.end(transaction, State.FREE, "queued" if mine.queued else "aside", of_place=mine.place)
        elif mine.state is State.GRANTED and self._untold:  # granted after all, but the caller was not told
            self._store.end(transaction, State.ENDED, "held", of_place=mine.place)

    def _blocked(self, outcome: Outcome) -> Blocked:
        ends_us = outcome.ahead[0].end_us if self._store.frees else None
        recheck_s = None if ends_us is None else max(0.0, _seconds(outcome.now_us, ends_us)) + 0.001
        return Blocked(tuple(one.blocker for one in outcome.ahead), self._waited_s or 0.0, recheck_s=recheck_s)


def _shown(ahead: Sequence[Candidate]) -> Sequence[Candidate]:
    """Of the requests in the way, nearest first: the nearest and the first; for a lease of a group, the holder whose lease ends
    first, and the nearest that waits."""
    if not ahead or not ahead[0].group:
        return ahead if len(ahead) < 2 else queueing.watched(ahead)
    waiting = [one for one in ahead if one.parked]
    return [*(() if ahead[0].parked else ahead[:1]), *waiting[:1]]


def _seconds(since_us: int, until_us: int) -> float:
    return (until_us - since_us) / 1_000_000
