"""The acquisition of one owner's lease: its queue position is a row, and each attempt at the grant is a transaction.

A transaction first keeps out all requests that may conflict. Then it reads the owner's record, and the requests that
conflict or are in the same group. :func:`.queueing.decide` decides. Last the transaction writes the decision. So no
other request acts between the look and the write. Requests that block without a claim are removed in a transaction of
its own; then the next attempt follows.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import invitations, queueing
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.database import values
from airflow_hivelock.locks.backends.database.notifier import Waits
from airflow_hivelock.locks.backends.database.record import HAS_LOCKS, State
from airflow_hivelock.locks.backends.database.request import RequestedLocks, group_key, start
from airflow_hivelock.locks.errors import InvalidRequest, StoreCorrupted, StoreUnavailable, Superseded, Withdrawn
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.locks.queueing import OvertakingLimit, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.database.candidate import Candidate, Entered
    from airflow_hivelock.locks.backends.database.notifier import Notifier
    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import Answer, StoreTransaction
    from airflow_hivelock.locks.model import Lease, LockRequest
    from airflow_hivelock.locks.queueing import Other, TimedPosition

MAX_TRIES = 100
"""Bound of every loop that tries again because another client was quicker."""

_numbers = itertools.count(1)


class _TakenForDead(Exception):
    """The request was removed as dead. It joins the queue again, after the earlier requests of its process."""

    def __init__(self, waited: Waits) -> None:
        self.waited = waited


class Outcome(NamedTuple):
    """The result of one attempt.

    :param ahead: the nearest and the first blocker; among the holders of its group's leases, the one that ends first.
    :param watch: the places of the requests that it waits for, each with its :func:`.candidate.phase`.
    :param remove: the places of requests without a claim, if only such requests block it.
    :param written: counts no row if the owner's record has changed meanwhile.
    :param marked: counts the requests of *watch* that have not ended meanwhile.
    :param recheck_us: when to try again, by the database's clock: an invitation or a lease of a blocker ends then.
    """

    record: Record
    now_us: int
    ahead: Sequence[Candidate] = ()
    watch: Mapping[int, str] = {}
    remove: Sequence[int] = ()
    written: Answer | None = None
    marked: Answer | None = None
    recheck_us: int | None = None

    @property
    def outrun(self) -> bool:
        """Whether another transaction was quicker: it has changed the owner's record, or has ended a request that this
        one waits for."""
        if self.written is not None and not self.written.count:
            return True
        return self.marked is not None and self.marked.count < len(self.watch)


class DatabaseAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`.

    :ivar process: its name, unique forever; begins with its client's.
    :ivar waits: its wait; None while it does not wait.
    """

    def __init__(self, store: Store, notifier: Notifier, request: LockRequest, wake: Callable[[], None]) -> None:
        self._store = store
        self._notifier = notifier
        self._request = request
        key = group_key(request.limit)
        self._asked = RequestedLocks(store.tables.name, owner_key(request.owner), request.locks, key)
        self._locks = self._asked
        self._began: int | None = None
        self._waited_s: float | None = None
        self.asked: datetime | None = None
        self._may_hold = False
        self._inherited = False  # whether its owner held the lease before
        self._found: int | None = None
        self._delivering = threading.Lock()
        self.process = f"{notifier.client}{next(_numbers):016x}"
        self.wake = wake
        self.waits: Waits | None = None
        notifier.know(self)

    def step(self) -> Lease | NeedsSlot | Blocked:
        # withdraw() must end a grant that the caller did not receive: its answer was lost, or the caller was interrupted.
        self._may_hold = True
        outcome = self._in_order()
        mine = outcome.record
        with self._delivering:
            self._may_hold = mine.state is State.GRANTED
            self.waits = Waits(mine.position, mine.place, mine.epoch, outcome.watch) if mine.queued else None
        if mine.state is State.GRANTED:
            return mine.lease  # with the record's locks: a new plan may name others
        if self._waited_s is None:
            self._waited_s = _seconds(mine.asked_us, outcome.now_us)
            self.asked = values.instant(mine.asked_us)
        if mine.state is State.AWAY or mine.invited:
            return NeedsSlot(self._waited_s, mine.until)
        if self.waits:
            self._notifier.begin()
        return self._blocked(outcome)

    def withdraw(self) -> None:
        # First: come_back() in another thread then sees that the request has left.
        self.waits = None
        self._store.transact(self._withdraw)

    def hand_over(self) -> None:
        # First: the notifier then gives no further sign of life for it.
        self.waits = None
        self._store.declare_dead(self._asked.owner_key, self.process)

    def come_back(self) -> None:
        """Join the queue again if it was removed as dead; its own next step finds the result."""
        with self._delivering:
            self._may_hold = self._may_hold or self.waits is not None
        with suppress(Superseded, Withdrawn, InvalidRequest, StoreCorrupted):  # that step raises it as well
            self._advance(comes_back=True, only_if_removed=True)
        if self.waits is None:
            self.withdraw()  # it was withdrawn meanwhile, and withdraw() did not see this new row
        self.wake()

    def _in_order(self) -> Outcome:
        """Advance; if the request was removed as dead, first let the earlier requests of this process join the queue
        again."""
        try:
            return self._advance(comes_back=False)
        except _TakenForDead as dead:
            for earlier in self._notifier.waiting_before(dead.waited):
                earlier.come_back()
        return self._advance(comes_back=True)

    def _advance(self, *, comes_back: bool, only_if_removed: bool = False) -> Outcome:
        """Try until the request is granted or has its queue position.

        No pause is between the tries: each failed one shows that another client has made progress.
        """
        attempt = partial(self._attempt, comes_back=comes_back, only_if_removed=only_if_removed)
        for _ in range(MAX_TRIES):
            outcome = self._store.transact(attempt)
            if isinstance(outcome, _TakenForDead):
                raise outcome
            if outcome is None or outcome.outrun:
                continue
            if not outcome.remove:
                return outcome
            # In a transaction of its own: the next attempt decides with the queue as it is after the removal.
            self._store.take_away(outcome.remove)
        raise StoreUnavailable(
            f"{self._request.owner}: other clients changed the queue first, {MAX_TRIES} times in a row. Try again"
        )

    def _attempt(
        self, transaction: StoreTransaction, *, comes_back: bool, only_if_removed: bool = False
    ) -> Outcome | _TakenForDead | None:
        """Try once; None: try again."""
        store = self._store
        entered = store.enter(transaction, self._locks, decides=True)
        existing = entered.record
        self._began = self._began or entered.number
        acts = existing is not None and existing.process == self.process
        if existing and acts and (existing.active or existing.state is State.AWAY):
            if only_if_removed:  # only its own step decides it, because only that records the blockers
                return Outcome(existing, entered.now_us)
            mine = existing
        elif existing and acts and self.waits and not (comes_back or existing.withdrawn):
            # It waits, but its row has ended: a later waiter has removed it as dead. Earlier waiters of this process may
            # have lost their rows too, and must join again before this one.
            return _TakenForDead(self.waits)
        else:
            mine = start(entered, self._request, self._asked, self.process, self._began, frees=store.frees)
            self._inherited = False
        if mine.priority != self._request.priority:  # by a person: it stays if this process has to join again
            self._request = replace(self._request, priority=mine.priority)
        waits = mine.queued or (mine.invited and self._request.has_slot)
        if waits and (mine.locks, mine.group_key) != (self._locks.locks, self._locks.group_key):
            self._locks = RequestedLocks(store.tables.name, mine.owner_key, mine.locked, mine.group_key)
            return None  # it takes over a request for other locks, or starts a new one after that
        if existing and mine.place == existing.place and mine.epoch != existing.epoch:
            self._inherited = not mine.queued
            # The earlier process looks again, and finds that it is superseded.
            store.dialect.notify_process(transaction, existing.process)
            if not waits:
                written = store.put(transaction, mine, existing)
                # for processes that verify the lease for an earlier process of the owner
                store.dialect.notify(transaction, existing.place)
                return Outcome(mine, entered.now_us, written=written)
        if not waits:
            return Outcome(mine, entered.now_us)
        return self._decide(transaction, entered, mine)

    def _decide(self, transaction: StoreTransaction, entered: Entered, mine: Record) -> Outcome:
        """Decide the request, and write the decision."""
        store, now_us, existing = self._store, entered.now_us, entered.record
        waits = self._request.wait or (existing is not None and existing.place == mine.place)
        conflicting, group = (
            [one.other(now_us, frees=store.frees) for one in found] for found in (entered.conflicting, entered.group)
        )
        limit, deferred = OvertakingLimit(now_us, store.passing_us), self._request.deferred
        joins = mine.joining(entered.number, now_us)
        joins = self._back(transaction, mine, joins, conflicting, limit) or joins
        asking = mine.undecided(joins, now_us, deferred, entered.stored)
        decision = queueing.decide(asking, conflicting, group, limit)
        if decision.ruling is Ruling.CLEAR:
            return Outcome(mine, now_us, remove=[int(other.key) for other in decision.remove])
        for other in decision.away:
            store.end(transaction, State.AWAY, "over", of_place=int(other.key))
        candidates = entered.group if decision.among_locks is None else entered.conflicting
        by_place = {one.place: one for one in candidates}
        ahead, watch = ([by_place[int(one.key)] for one in some] for some in (decision.ahead, decision.watch))
        recheck_us = self._recheck_us(ahead, now_us)
        if decision.ruling is Ruling.GIVE_SLOT_BACK:
            self._found = existing.epoch if existing else None
            return Outcome(mine._replace(state=State.FREE), now_us, _shown(ahead), recheck_us=recheck_us)
        waited_for, marked = {one.place: one.phase for one in watch}, None
        if decision.ruling in (Ruling.PARK, Ruling.WAIT) and not waits:
            record = mine._replace(state=State.FREE)
        else:
            record = mine.decided(decision, entered.number, now_us, deferred, asking.weight)
            # If one of them has just ended, it waits for nothing, and tries again at once.
            marked = store.wait_for(transaction, waited_for) if waited_for else None
        written = self._write(transaction, record, entered)
        return Outcome(record, now_us, _shown(ahead), waited_for, (), written, marked, recheck_us)

    def _back(
        self,
        transaction: StoreTransaction,
        mine: Record,
        joins: TimedPosition,
        conflicting: Sequence[Other],
        limit: OvertakingLimit,
    ) -> TimedPosition | None:
        """The position of a request that comes back after its invitation. Only then are the locks of the others read."""
        if mine.old is None:
            return None
        waiting = {int(one.key): one.timed for one in conflicting if not (one.holds or one.gone or one.over)}
        passed = [
            invitations.passed(waiting[other.place], other.leaves, mine.locked, other.locked)
            for other in (self._store.at_places(transaction, waiting) if waiting else ())
        ]
        return invitations.come_back(joins, mine.old, mine.leaves, passed, limit)

    def _recheck_us(self, ahead: Sequence[Candidate], now_us: int) -> int | None:
        """When to try again. A request before this one ends an invitation that is over and still blocks."""
        ends = [one.until_us for one in ahead if one.until_us is not None and one.until_us > now_us]
        if self._store.frees and ahead and ahead[0].end_us is not None:
            ends.append(ahead[0].end_us)
        return invitations.next_end(ends)

    def _write(self, transaction: StoreTransaction, record: Record, entered: Entered) -> Answer:
        """Write the record, and its rows of locks if it has joined their queue. Notify its waiters if it has left a
        queue."""
        store, existing = self._store, entered.record
        kept = existing is not None and existing.place == record.place
        was = existing.state if existing and kept else State.FREE
        if existing and not kept and (existing.holds or existing.invited):  # expired or invited, and for other locks
            ended, which = (State.ENDED, "held") if existing.holds else (State.FREE, "away")
            store.end(transaction, ended, which, of_place=existing.place)
            # end() has given it a time, so the write below sets it again
            existing = existing._replace(state=ended, ended_us=-1)
        gains = record.state in HAS_LOCKS and was not in HAS_LOCKS
        written = store.put(transaction, record, existing, self._locks if gains else None)
        if was in HAS_LOCKS and record.state not in HAS_LOCKS:
            transaction.ask(store.without_locks, of_place=record.place)
        stays = record.state is State.GRANTED and was in HAS_LOCKS
        if kept and was is not record.state and not stays:
            store.dialect.notify(transaction, record.place)
        return written

    def _withdraw(self, transaction: StoreTransaction) -> None:
        mine = self._store.enter(transaction, RequestedLocks(self._store.tables.name, self._asked.owner_key, ())).record
        if mine is None or (mine.process != self.process and mine.epoch != self._found):
            return
        if mine.queued or mine.invited or mine.state is State.AWAY:
            self._store.end(transaction, State.FREE, "queued" if mine.queued else "away", of_place=mine.place)
        elif mine.state is State.GRANTED and self._may_hold and not self._inherited:
            self._store.end(transaction, State.ENDED, "held", of_place=mine.place)

    def _blocked(self, outcome: Outcome) -> Blocked:
        ends_us = outcome.recheck_us
        recheck_s = None if ends_us is None else max(0.0, _seconds(outcome.now_us, ends_us)) + 0.001
        return Blocked(tuple(one.blocker for one in outcome.ahead), self._waited_s or 0.0, recheck_s=recheck_s)


def _shown(ahead: Sequence[Candidate]) -> Sequence[Candidate]:
    """The blockers to list: the nearest and the first.

    For a lease of a group, the holder with the lease that ends first, and the nearest waiter.
    """
    if not ahead or not ahead[0].group:
        return ahead if len(ahead) < 2 else queueing.watched(ahead)
    waiting = [one for one in ahead if one.parked]
    return [*(() if ahead[0].parked else ahead[:1]), *waiting[:1]]


def _seconds(since_us: int, until_us: int) -> float:
    return (until_us - since_us) / 1_000_000
