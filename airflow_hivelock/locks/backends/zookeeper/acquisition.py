"""One owner's way to its lease: create, then look. ``docs/architecture.md`` explains the protocol.

A look tells whether any other request is in the way. If not, one transaction creates the tickets and all lock nodes, and writes
the owner's record GRANTED; the reads behind it tell whether the lease can be returned (:mod:`.nodes`). If so, the request
takes its tickets, and waits for its turn (:mod:`.turn`). The look is only advice: what it misses, the verification sees.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import nodes, waiting
from airflow_hivelock.locks.backends.zookeeper import record as records
from airflow_hivelock.locks.backends.zookeeper import store as stores
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Delete, Get, Refused, Sync
from airflow_hivelock.locks.backends.zookeeper.layout import fitting
from airflow_hivelock.locks.backends.zookeeper.queue import position
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.backends.zookeeper.turn import Again, NotAtOnce, Turn, lost
from airflow_hivelock.locks.backends.zookeeper.waiting import GroupLook
from airflow_hivelock.locks.errors import LeaseMismatch, LockLost, StoreUnavailable, Superseded
from airflow_hivelock.locks.model import Blocker, Lease, LockRequest, owner_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.client import Node
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.queueing import Position

STEP_S = 1.0
"""How long one step goes on, though it gets on, before its manager looks at the deadline."""


class ZooKeeperAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(
        self, store: ZooKeeperStore, request: LockRequest, wake: Callable[[], None], patience_s: float, passing_s: float
    ) -> None:
        """:param patience_s: how long Hive's clients may pass, when it is the request's turn, before it holds its place.
        :param passing_s: how old a place is, by the store's clock, before which no request of higher priority goes.
        """
        self._key = owner_key(request.owner)
        self.path = store.layout.record(self._key)
        self._alive = store.layout.alive(self._key)
        self._store = store
        self._request = fitting(request, store.layout, store.acl_bytes)
        self._process = uuid.uuid4().hex
        self._begin = 0
        self._session = 0
        self._turn = Turn(store, self._request, wake, patience_s, passing_s, store.clock())

    @property
    def asked(self) -> datetime | None:
        return records.instant(self._turn.first_ms) if self._turn.first_ms else None

    def step(self) -> Lease | Free | Blocked:
        store, turn = self._store, self._turn
        store.end_abandoned()
        until = store.clock() + STEP_S
        while True:
            try:
                outcome = self._start() if turn.record is None or self._session != store.client.session else None
                self._note_position()
                outcome = outcome or (self._advance(turn.record) if turn.record else None)
                self._note_position()
            except Again:
                turn.record = outcome = None
            except StoreUnavailable:
                turn.record = None  # whatever became of the last transaction, the record tells
                raise
            if outcome is not None:
                turn.vain = 0
                if isinstance(outcome, Lease):
                    turn.granting = 0
                if isinstance(outcome, Lease | Free):
                    store.waiters.leaves(self)
                if isinstance(outcome, Free):
                    turn.record = None  # another process may act for the owner by the next step
                return outcome
            turn.vain += 1
            if pause := stores.pause_s(turn.vain) or (stores.FIRST_S if store.clock() > until else 0.0):
                return Blocked((self._somebody(),), turn.waited_s, passing=True, recheck_s=pause)

    def _note_position(self) -> None:
        record, waiters = self._turn.record, self._store.waiters
        if record and record.queued and self._turn.position:
            waiters.waits_at(self, self._turn.position)
        elif record and record.parked:
            waiters.leaves(self)

    def _somebody(self) -> Blocker:
        """In the way is another request, which was quicker each time."""
        lock = self._request.locks[-1]
        return Blocker("somebody quicker each time", lock.object, lock.mode, waiting=True)

    def withdraw(self) -> None:
        self._end(self._withdraw)

    def hand_over(self) -> None:
        self._end(self._hand_over)

    def _end(self, end: Callable[[], None]) -> None:
        self._store.waiters.leaves(self)
        try:
            end()
        except StoreUnavailable:  # its ticket must not block others for as long as this session lives
            self._store.abandon(partial(self._end, end))
            raise

    def _hand_over(self) -> None:
        mine = self._store.read(self._key, fresh=True)
        if mine is not None and mine.process == self._process and mine.waits:
            # Refused where another process has taken over by now, or where its session has ended.
            self._store.client.submit(Commit((Check(self.path, mine.version), Delete(self._alive))))

    def _withdraw(self) -> None:
        withdrawing = self._store.retry(f"{self._request.owner}: its record changed while it was withdrawn")
        while True:
            mine = self._store.read(self._key, fresh=True)
            if mine is None or mine.process != self._process:
                return
            if mine.holds and mine.ticket_epoch == self._turn.granting:  # granted after all, but returned to no caller
                ended = nodes.entomb(self._store, mine)
            elif mine.waits or mine.aside:
                ended = nodes.free(self._store, mine)
            else:
                return
            if ended:
                return
            withdrawing.again()

    # The first transaction.

    def _start(self) -> Lease | Free | Blocked | None:
        store, client, turn = self._store, self._store.client, self._turn
        self._session, turn.record = client.session, None
        # A verification follows what is granted, so the look may be old; nothing follows a late request that steps aside.
        fresh_look = [Sync()] if turn.steps_aside else []
        reads = store.reads(self._request.locks)
        node, *replies = client.submit(*fresh_look, Get(self.path), *reads)[len(fresh_look) :]
        self._begin = self._begin or client.zxid
        if not self._begin:  # the session ended right after its answer
            raise Again
        try:
            mine, existing = self._begins(node)
        except (Superseded, LeaseMismatch, LockLost):
            # A server that lags behind may have answered: only what is read after a sync decides.
            mine, existing = self._begins(client.submit(Sync(), Get(self.path))[1])
        if existing and existing.aside and existing.process == self._process:  # the reply was lost
            turn.record = existing
            turn.has_waited(existing, 0)
            return None
        fresh = mine.ticket_epoch == mine.epoch
        if not fresh:
            self._enter(mine, existing)
            return None
        if turn.position is not None:  # it was taken for dead
            self._bring_back_earlier_waiters(turn.position)
        group = waiting.look(store, mine.share) if mine.share else None
        if group and group.free(mine, None) is None:
            self._enter(waiting.park(store, mine, turn.passing_s), existing)
            return None
        return self._arrive(mine, existing, store.looked(self._request.locks, replies), group)

    def _begins(self, node: Node | None) -> tuple[Record, Record | None]:
        """The record that this process writes first, and the one that exists."""
        existing = Record.decode(node, self.path) if node else None
        # What another process holds was granted to that one, which may have got it. A server that lags behind may show a record
        # of before the grant.
        if existing and existing.process != self._process and existing.epoch >= self._turn.granting:
            self._turn.granting = 0
        mine = records.start(existing, self._request, self._process, self._begin)
        if mine.state is State.LOST and self._turn.granting != mine.ticket_epoch:
            raise LockLost(lost(mine))  # and not taken over: its holder has to stop, and release it
        return mine, existing

    def _arrive(
        self, mine: Record, existing: Record | None, look: Snapshot, group: GroupLook | None = None
    ) -> Lease | Free | Blocked | None:
        """A new arrival among the requests that want its locks: granted at once, or with tickets."""
        mine = replace(mine, entry=mine.entry + 1)
        tickets = self._store.queues.conflicting(mine, look.queues)
        if not tickets:
            try:
                return self._at_once(mine, existing, look, group)
            except NotAtOnce:
                pass
        self._enter(mine, existing, waiting.claim(self._store, mine, tickets, self._turn.passing_s))
        return None

    def _at_once(
        self, mine: Record, existing: Record | None, look: Snapshot, group: GroupLook | None
    ) -> Lease | Free | Blocked | None:
        """:raises NotAtOnce: a lock of Hive's is in the way, or no permit is free, or the transaction is too large."""
        return self._turn.attempt(existing, mine, look.objects, group)

    def _enter(self, mine: Record, existing: Record | None, claim: Claim | None = None) -> None:
        """Write the record of a request that waits, or of a grant that is taken over."""
        store, turn = self._store, self._turn
        done = store.transact(existing, mine, claim=claim, reads=store.reads(mine.locks))
        if isinstance(done, Refused):
            if done.op.path != self.path:
                store.make_queues(mine.locks)
            raise Again
        turn.record = record = done.record
        turn.look = store.looked(mine.locks, done.replies)
        if record.waits:
            turn.enters(record, claim, created=existing is None or not existing.has_tickets)

    def _bring_back_earlier_waiters(self, position: Position) -> None:
        """Queue again for the waiters of this process that were taken for dead with this one and were before it."""
        before = self._store.waiters.before(position)
        _, *found = self._store.client.submit(Sync(), *(Get(other.path) for other in before))
        for other, node in zip(before, found, strict=True):
            if node is not None:
                other.queue_again(Record.decode(node, other.path))

    def queue_again(self, free: Record) -> None:
        """A new ticket for a request that was taken for dead; its next step finds it. Refused if that was quicker."""
        if free.process != self._process or free.state is not State.FREE:
            return
        store = self._store
        mine = records.start(free, self._request, self._process, self._begin)
        claim = waiting.claim(store, mine, store.queues.conflicting(mine), self._turn.passing_s)
        done = store.transact(free, mine, claim=claim)
        if isinstance(done, Refused):
            return
        assert done.record.stat is not None
        if not store.waiters.is_back(self, position(done.record.stat.mzxid, mine.priority, claim)):
            self._withdraw()  # it left meanwhile, and did not see this

    # The next steps.

    def _advance(self, record: Record) -> Lease | Free | Blocked | None:
        """One step of what has been entered. None: another client was quicker, look again."""
        store, turn = self._store, self._turn
        if record.aside:
            return Free(turn.waited_s)
        if record.holds:
            return turn.verify_standing(record)
        if record.queued:
            return turn.advance(record)
        permitted = turn.wait_for_permit(record)
        if not isinstance(permitted, GroupLook):
            return permitted
        # Its turn: a new arrival among those that want its locks, which keeps its place in the group while it tries.
        look = store.looked(record.locks, store.client.submit(*store.reads(record.locks)))
        return self._arrive(replace(record, state=State.WAITING), record, look)
