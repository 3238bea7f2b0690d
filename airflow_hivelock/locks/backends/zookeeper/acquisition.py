"""The acquisition of one owner's lease: create, then look. ``docs/architecture.md`` explains the protocol.

A first look finds the requests that conflict. If there are none, one transaction creates the tickets and all lock
nodes, and writes the owner's record GRANTED. The reads after it show whether the lease can be returned (:mod:`.nodes`).
Otherwise the request takes its tickets, and waits for its turn (:mod:`.turn`). The first look is only advice: the
verification sees what it misses.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock.locks import calls, queueing
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import nodes, permits, start, waiting
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Delete, Get, Refused, Sync
from airflow_hivelock.locks.backends.zookeeper.layout import fitting
from airflow_hivelock.locks.backends.zookeeper.permits import GroupLook
from airflow_hivelock.locks.backends.zookeeper.queue import position
from airflow_hivelock.locks.backends.zookeeper.record import Record, State, instant
from airflow_hivelock.locks.backends.zookeeper.start import Again, lost
from airflow_hivelock.locks.backends.zookeeper.store import FIRST_S, pause_s
from airflow_hivelock.locks.backends.zookeeper.turn import NotAtOnce, Turn
from airflow_hivelock.locks.calls import Call
from airflow_hivelock.locks.errors import LeaseMismatch, LockLost, StoreUnavailable, Superseded, Withdrawn
from airflow_hivelock.locks.model import Blocker, Lease, LockRequest, owner_key
from airflow_hivelock.locks.queueing import Ruling

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_hivelock.locks.backends.zookeeper.client import Node
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.queueing import Position

STEP_S = 1.0
"""How long one step may continue while it makes progress, before its manager checks the deadline, in seconds."""

QUICKER = "a quicker client each time"
"""The owner in the message when another request was quicker each time. It is the name of no owner."""


class ZooKeeperAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(
        self, store: ZooKeeperStore, request: LockRequest, wake: Callable[[], None], patience_s: float, passing_s: float
    ) -> None:
        """Prepare a request; nothing is sent.

        :param patience_s: how long the request at its turn lets Hive's clients go first, before it creates a
            placeholder, in seconds.
        :param passing_s: how long requests of higher priority may overtake a waiter, by the store's clock, in seconds.
        """
        self._key = owner_key(request.owner)
        self.path = store.layout.record(self._key)
        self._alive = store.layout.alive(self._key)
        self._store = store
        self._request = fitting(request, store.layout, store.acl_bytes)
        self._process = uuid.uuid4().hex
        self._begin = 0
        self._session = 0
        self._granted = 0  # the epoch of the returned lease, if this request was granted it
        self._abandoned = False
        self._turn = Turn(store, self._request, wake, patience_s, passing_s, store.clock())

    @property
    def asked(self) -> datetime | None:
        return instant(self._turn.first_ms) if self._turn.first_ms else None

    def step(self) -> Lease | NeedsSlot | Blocked:
        store, turn = self._store, self._turn
        if self._abandoned:  # its withdrawal is tried again, and must not end what this step begins
            self._process, self._begin, self._abandoned = uuid.uuid4().hex, 0, False
            turn.record, turn.granting = None, 0
        until = store.clock() + STEP_S
        while True:
            try:
                outcome = self._start() if turn.record is None or self._session != store.client.session else None
                self._note_position()
                outcome = outcome or (self._advance(turn.record) if turn.record else None)
                self._note_position()
            except Again:
                turn.record = outcome = None
            except NotAtOnce:  # of a worker, which joins no queue
                outcome = Blocked((self._quicker(),))
            except StoreUnavailable:
                # the next step reads the record, which shows whether the last transaction was applied
                turn.record = None
                raise
            if outcome is None:
                turn.failures += 1
                if pause := pause_s(turn.failures) or (FIRST_S if store.clock() > until else 0.0):
                    return Blocked((self._quicker(),), turn.waited_s, passing=True, recheck_s=pause)
                continue
            turn.failures = 0
            if not isinstance(outcome, Blocked):
                store.waiters.leaves(self)
            if isinstance(outcome, Lease):
                self._granted, turn.granting = turn.granting, 0
                return outcome
            if isinstance(outcome, NeedsSlot) or self._request.has_slot:
                turn.record = None  # before the next step another process may act for the owner
            return replace(outcome, waited_s=turn.waited_s)

    def _note_position(self) -> None:
        record, waiters = self._turn.record, self._store.waiters
        if record and record.queued and self._turn.position:
            waiters.waits_at(self, self._turn.position)
        elif record and record.parked:
            waiters.leaves(self)

    def _quicker(self) -> Blocker:
        lock = self._request.locks[-1]
        return Blocker(QUICKER, lock.object, lock.mode, waiting=True)

    def withdraw(self) -> None:
        call = Call(self._request.attempt, self._begin, self._process)
        self._end(partial(self._withdraw, call, self._turn.granting or self._granted))

    def hand_over(self) -> None:
        self._end(partial(self._hand_over, self._process))

    def _end(self, end: Callable[[], None]) -> None:
        # First: another thread that brings this process's waiters back then leaves this one out.
        self._store.waiters.leaves(self)
        try:
            end()
        except (StoreUnavailable, KeyboardInterrupt):  # while the store is away, a user may press Ctrl-C twice
            self._store.abandoned.add(self._process, end)
            self._abandoned = True
            raise

    def _hand_over(self, process: str) -> None:
        mine = self._store.read(self._key, fresh=True)
        if mine is not None and mine.process == process and mine.waits:
            # Refused if another process has taken over by now, or if its session has ended.
            self._store.client.submit(Commit((Check(self.path, mine.version), Delete(self._alive))))

    def _withdraw(self, call: Call, granting: int) -> None:
        withdrawing = self._store.retry(f"{self._request.owner}: its record changed while it was withdrawn")
        while True:
            mine = self._store.read(self._key, fresh=True)
            if mine is None or (mine.process != call.process and not self._may_decline(mine, call)):
                return
            if mine.holds and mine.ticket_epoch == granting:  # the caller may not have received the lease
                ended = nodes.entomb(self._store, mine)
            elif mine.waits or mine.invited or mine.away:
                ended = nodes.free(self._store, mine)
            else:
                return
            if ended:
                return
            withdrawing.again()

    def _may_decline(self, invited: Record, call: Call) -> bool:
        """Whether the owner's request is *invited* and *call* is its worker's, which has written nothing."""
        return self._request.has_slot and invited.invited and not calls.stale(call, invited.earlier.call)

    # The first transaction.

    def _start(self) -> Lease | NeedsSlot | Blocked | None:
        store, client, turn = self._store, self._store.client, self._turn
        self._session, turn.record = client.session, None
        if self._request.has_slot:  # another process may have changed its position since the last look
            turn.position = None
        # The reads of a deferred request decide, because no verification follows. So they must not come from a server
        # that lags.
        fresh_look = [Sync()] if queueing.reads_decide(self._request.deferred) else []
        reads = store.reads(self._request.locks)
        node, *replies = client.submit(*fresh_look, Get(self.path), *reads)[len(fresh_look) :]
        self._begin = self._begin or client.zxid
        if not self._begin:  # the session ended right after its answer
            raise Again
        try:
            mine, existing = self._begins(node)
        except (Superseded, Withdrawn, LeaseMismatch, LockLost):
            # The answer may come from a server that lags behind: only a read after a sync decides.
            mine, existing = self._begins(client.submit(Sync(), Get(self.path))[1])
        own = existing and existing.process == self._process and not self._request.has_slot
        # the reply to the transaction that wrote this was lost
        if existing and own and (existing.away or existing.invited):
            turn.record = existing
            turn.has_waited(existing, 0)
            return None
        fresh = mine.ticket_epoch == mine.epoch
        if fresh and existing and existing.invited:  # it asks for other locks, and so gives up its invitation
            nodes.free(store, existing)
            raise Again
        if not fresh:
            if existing and self._request.has_slot and not existing.holds:
                # A new plan may have other locks than the request that it takes over.
                same = existing.locks == self._request.locks
                return self._look_with_slot(mine, existing, store.snapshot(existing.locks, replies) if same else None)
            self._enter(mine, existing)
            return None
        if turn.position is not None:  # another waiter has removed it as dead
            self._bring_back_earlier_waiters(turn.position)
        group = permits.look(store, mine.share) if mine.share else None
        if group:
            group = permits.fitting(store, mine, group)
        if group and group.free(mine, None) is None:
            if self._request.has_slot:
                return permits.wait_for_holders(store, group) or Blocked((self._quicker(),))
            self._enter(permits.park(store, mine, turn.passing_s), existing)
            return None
        return self._arrive(mine, existing, store.snapshot(self._request.locks, replies), group)

    def _begins(self, node: Node | None) -> tuple[Record, Record | None]:
        """The record that this process writes first, and the one that exists."""
        existing = Record.decode(node, self.path) if node else None
        # A lease that another process holds was granted to that process, which may have returned it. A server that lags
        # behind may show an older record: an earlier lease, or a request that waits.
        granting = self._turn.granting
        if existing and existing.process != self._process and existing.holds and existing.ticket_epoch == granting:
            self._turn.granting = 0
        mine = start.start(existing, self._request, self._process, self._begin)
        if mine.state is State.LOST and self._turn.granting != mine.ticket_epoch:
            raise LockLost(lost(mine))  # not taken over: its holder must stop and release it
        if mine.priority != self._request.priority:  # by a person: it stays if this process has to queue again
            self._request = replace(self._request, priority=mine.priority)
        return mine, existing

    def _arrive(
        self, mine: Record, existing: Record | None, look: Snapshot, group: GroupLook | None = None
    ) -> Lease | NeedsSlot | Blocked | None:
        """Start as a new arrival among the requests for its locks: granted at once, or with tickets."""
        old, mine = mine, mine.but(entry=mine.entry + 1, old_turn=0, old_since_ms=0)
        tickets = self._store.queues.conflicting(mine, look.queues)
        # No verification follows an invitation. So a deferred request takes its tickets first: then the look at its turn
        # shows every request that arrived before it.
        if not tickets and self._turn.at_turn(mine) is Ruling.GRANT:
            try:
                return self._at_once(mine, existing, look, group)
            except NotAtOnce:
                if self._request.has_slot:
                    raise
        if self._request.has_slot:
            return self._turn.wait_for(mine, tickets)
        self._enter(mine, existing, waiting.claim(self._store, old, tickets, self._turn.passing_s))
        return None

    def _look_with_slot(
        self, mine: Record, existing: Record, look: Snapshot | None
    ) -> Lease | NeedsSlot | Blocked | None:
        """Try to grant the owner's invited or waiting request to its worker; otherwise write nothing."""
        turn = self._turn
        if not existing.parked:
            turn.enters(existing, created=False)
            return turn.look_at(existing, mine, look)
        permitted = turn.wait_for_permit(existing)
        return self._permitted(mine, existing) if isinstance(permitted, GroupLook) else permitted

    def _at_once(
        self, mine: Record, existing: Record | None, look: Snapshot, group: GroupLook | None
    ) -> Lease | NeedsSlot | Blocked | None:
        """Try to be granted as a new arrival.

        :raises NotAtOnce: a lock of Hive's blocks it, or no permit is free, or the transaction is too large.
        """
        return self._turn.attempt(existing, mine, look.objects, group)

    def _enter(self, mine: Record, existing: Record | None, claim: Claim | None = None) -> None:
        """Write the record of a request that waits, or of a grant that is taken over."""
        store, turn = self._store, self._turn
        done = store.transact(existing, mine, claim=claim, reads=store.reads(mine.locks), acquires=True)
        if isinstance(done, Refused):
            if done.op.path != self.path:
                store.make_queues(mine.locks)
            raise Again
        turn.record = record = done.record
        # A parked request, or a grant that is taken over, first looks elsewhere. By then these reads are too old.
        turn.look = store.snapshot(mine.locks, done.replies) if record.queued else None
        if record.waits:
            turn.enters(record, claim, created=existing is None or not existing.has_tickets)

    def _bring_back_earlier_waiters(self, position: Position) -> None:
        """Queue again for the waiters of this process that were before it and were removed as dead together with it."""
        before = self._store.waiters.before(position)
        _, *found = self._store.client.submit(Sync(), *(Get(other.path) for other in before))
        for other, node in zip(before, found, strict=True):
            if node is not None:
                other.queue_again(Record.decode(node, other.path))

    def queue_again(self, free: Record) -> None:
        """Create a new ticket for a request that was removed as dead; its next step finds it. Refused if that step was
        quicker."""
        if free.process != self._process or free.state is not State.FREE:
            return
        store = self._store
        mine = start.start(free, self._request, self._process, self._begin)
        claim = waiting.claim(store, mine, store.queues.conflicting(mine), self._turn.passing_s)
        done = store.transact(free, mine, claim=claim, acquires=True)
        if isinstance(done, Refused):
            return
        assert done.record.stat is not None
        if not store.waiters.is_back(self, position(done.record.stat.mzxid, mine.priority, claim)):
            self.withdraw()  # it was withdrawn meanwhile, and withdraw() did not see the new ticket

    # The next steps.

    def _advance(self, record: Record) -> Lease | NeedsSlot | Blocked | None:
        """Do one more step of a request that has a record. None: another client was quicker, look again."""
        turn = self._turn
        if record.holds:
            return turn.verify_existing(record)
        if self._request.has_slot:  # a worker has given its grant back
            raise Again
        if record.away or record.invited:
            return NeedsSlot(until=record.until)
        if record.queued:
            return turn.advance(record)
        permitted = turn.wait_for_permit(record)
        return self._permitted(record, record) if isinstance(permitted, GroupLook) else permitted

    def _permitted(self, mine: Record, parked: Record) -> Lease | NeedsSlot | Blocked | None:
        # At its turn in the group it is a new arrival among the requests for its locks. It keeps its entry in the
        # group's queue while it tries.
        store = self._store
        look = store.snapshot(mine.locks, store.client.submit(*store.reads(mine.locks)))
        return self._arrive(mine.but(state=State.WAITING), parked, look)
