"""One owner's way to its lease: create, then look. The heart of the protocol.

A look tells whether any other request is in the way. If not, one transaction creates the tickets and all lock nodes, and writes
the owner's record GRANTED; the reads behind it tell whether the lease can be returned (:mod:`.verification`). If so, the request
takes its tickets, and waits for its turn (:mod:`.turn`). The look is only advice: what it misses, the verification sees.

Every transaction compares and sets the owner's record, so that of two processes that act for one owner only the later one can
continue. A reply that was lost is settled by reading the record, never by sending again.

A late request ends where another would be granted: it gives up its position, and its record says AWAY. It has no lock nodes.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import parking, positions, retry
from airflow_hivelock.locks.backends.zookeeper import record as records
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Node,
    Op,
    Refused,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.groups import GroupLook, gives_back
from airflow_hivelock.locks.backends.zookeeper.layout import fitting
from airflow_hivelock.locks.backends.zookeeper.queue import position
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.backends.zookeeper.turn import Again, Turn, lost
from airflow_hivelock.locks.errors import LeaseMismatch, LockLost, RequestTooLarge, StoreUnavailable, Superseded
from airflow_hivelock.locks.model import Blocker, Lease, LockRequest, owner_key
from airflow_hivelock.locks.queueing import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore

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

    def step(self) -> Lease | Free | Blocked:
        store, turn = self._store, self._turn
        store.end_abandoned()
        until = store.clock() + STEP_S
        while True:
            try:
                if turn.record is None or self._session != store.client.session:
                    self._start()
                outcome = self._advance()
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
            if pause := retry.pause_s(turn.vain) or (retry.FIRST_S if store.clock() > until else 0.0):
                return Blocked((self._somebody(),), turn.waited_s, passing=True, recheck_s=pause)

    def _somebody(self) -> Blocker:
        """In the way is another request, which was quicker each time."""
        lock = self._request.locks[-1]
        return Blocker("somebody quicker each time", lock.object, lock.mode, waiting=True)

    def withdraw(self) -> None:
        self._store.waiters.leaves(self)
        try:
            self._withdraw()
        except StoreUnavailable:
            self._store.abandon(self.withdraw)  # its ticket must not block others for as long as this session lives
            raise

    def hand_over(self) -> None:
        self._store.waiters.leaves(self)
        try:
            mine = self._store.read(self._key, fresh=True)
            if mine is not None and mine.process == self._process and mine.waits:
                # Refused where another process has taken over by now, or where its session has ended.
                self._store.client.submit(Commit((Check(self.path, mine.version), Delete(self._alive))))
        except StoreUnavailable:
            self._store.abandon(self.hand_over)
            raise

    def _withdraw(self) -> None:
        withdrawing = self._store.retry(f"{self._request.owner}: its record changed while it was withdrawn")
        while True:
            mine = self._store.read(self._key, fresh=True)
            if mine is None or mine.process != self._process:
                return
            if mine.holds and mine.ticket_epoch == self._turn.granting:  # granted after all, but nobody was told
                ended = self._store.entomb(mine)
            elif mine.aside:
                ended = self._store.forget_aside(mine)
            elif mine.waits:
                also: list[Op] = [*self._store.queues.deletes(mine), *self._delete_alive()]
                ended = self._store.removal.commit(mine, mine.freed(), also)
            else:
                return
            if ended:
                return
            withdrawing.again()

    # The first transaction.

    def _start(self) -> None:
        store, client, turn = self._store, self._store.client, self._turn
        self._session = client.session
        # A verification follows what is granted, so the look may be old; nothing follows a late request that steps aside.
        fresh_look = [Sync()] if self._turn.steps_aside else []
        node, *replies = client.submit(*fresh_look, Get(self.path), *store.reads(self._request.locks))[
            len(fresh_look) :
        ]
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
            return
        fresh = mine.ticket_epoch == mine.epoch
        if fresh and turn.position is not None:  # it was taken for dead
            self._bring_back_earlier_waiters()
        life = self._delete_alive() if existing and existing.waits else []
        look = store.groups.look(mine.share) if fresh and mine.share else None
        if look and look.free(mine, None) is None:
            parked, at = parking.park(store, mine, turn.passing_s)
            self._enter(parked, existing, [*life, at])
        elif fresh:
            self._arrive(mine, existing, store.looked(self._request.locks, replies), life, look)
        else:
            self._enter(mine, existing, life)

    def _begins(self, node: Node | None) -> tuple[Record, Record | None]:
        """The record that this process writes first, and the one that exists."""
        existing = Record.decode(node, self.path) if node else None
        if existing and existing.process != self._process:
            self._turn.granting = 0  # what it holds was granted to another process, which may have got it
        mine = records.start(existing, self._request, self._process, self._begin)
        if mine.state is State.LOST and self._turn.granting != mine.ticket_epoch:
            raise LockLost(lost(mine))  # and not taken over: its holder has to stop, and release it
        return mine, existing

    def _arrive(
        self,
        mine: Record,
        existing: Record | None,
        look: Snapshot,
        life: Sequence[Op],
        group: GroupLook | None = None,
    ) -> None:
        """A new arrival among those that want its locks: granted at once, or with tickets."""
        store = self._store
        mine = replace(mine, entry=mine.entry + 1)
        tickets = store.queues.conflicting(mine.locks, look.queues)
        if not tickets:
            if self._turn.steps_aside:
                if self._step_aside_at_once(mine, existing, look, life):
                    return
            elif self._grant_at_once(mine, existing, look, life, group):
                return
        claim = self._claim(mine, tickets)
        self._enter(mine, existing, life, store.queues.creates(mine, claim), claim)

    def _claim(self, mine: Record, tickets: Sequence[Ticket]) -> Claim | None:
        """The position that *mine* claims before those of *tickets* that it may overtake."""
        store = self._store
        if not queueing.may_overtake(Position.newcomer(mine.priority), [ticket.position for ticket in tickets]):
            return None
        # A look may be old, and so lack a request that it may not overtake.
        _, *listings = store.client.submit(Sync(), *store.queues.reads(mine.locks))
        return positions.claim(store, mine, store.queues.conflicting(mine.locks, listings), self._turn.passing_s)

    def _enter(
        self,
        mine: Record,
        existing: Record | None,
        also: Sequence[Op],
        creates: Sequence[Create] = (),
        claim: Claim | None = None,
    ) -> None:
        """Write the record, with *also*, the liveness node, and the tickets that it *creates*."""
        store, turn = self._store, self._turn
        writes = store.writes(mine, existing)
        ops = [*writes, *creates]
        if not (existing and existing.parked and mine.queued):  # a parked request keeps its liveness node
            ops += [*also, *([Create(self._alive, mine.process.encode(), ephemeral=True)] if mine.waits else [])]
        outcome, *replies = store.client.submit(Commit(tuple(ops)), *store.reads(mine.locks))
        if isinstance(outcome, Refused):
            if outcome.op in creates:
                store.make_queues(mine.locks)
            raise Again
        turn.record = record = mine.at(outcome[len(writes) - 1])
        turn.look = store.looked(mine.locks, replies)
        store.tell_time(outcome[len(writes) - 1])
        if record.queued:
            tickets = store.queues.created(record, claim) if creates else store.queues.of(record)
            store.waiters.stands(self, turn.takes_position(record, tickets))
        elif record.parked:
            turn.parks(record)
            store.waiters.leaves(self)

    def _bring_back_earlier_waiters(self) -> None:
        """Queue again for the waiters of this process that were taken for dead with this one and were before it."""
        assert self._turn.position is not None
        before = self._store.waiters.before(self._turn.position)
        _, *nodes = self._store.client.submit(Sync(), *(Get(other.path) for other in before))
        for other, node in zip(before, nodes, strict=True):
            if node is not None:
                other.queue_again(Record.decode(node, other.path))

    def queue_again(self, free: Record) -> None:
        """A new ticket for a request that was taken for dead; its next step finds it. Refused if that was quicker."""
        if free.process != self._process or free.state is not State.FREE:
            return
        store = self._store
        mine = records.start(free, self._request, self._process, self._begin)
        claim = self._claim(mine, store.queues.conflicting(mine.locks))
        life = Create(self._alive, mine.process.encode(), ephemeral=True)
        ops = [*store.writes(mine, free), *store.queues.creates(mine, claim), life]
        outcome = store.client.submit(Commit(tuple(ops)))[0]
        if isinstance(outcome, Refused):
            return
        if not store.waiters.is_back(self, position(outcome[0].mzxid, mine.priority, claim)):
            self._withdraw()  # it left meanwhile, and did not see this

    # At once, where no other request is in the way.

    def _grant_at_once(
        self, mine: Record, existing: Record | None, look: Snapshot, life: Sequence[Op], group: GroupLook | None
    ) -> bool:
        """Tickets, lock nodes and GRANTED in one transaction, verified. False: a lock of Hive's is in the way, or no permit is
        free, or the transaction is too large."""
        store, turn, locks = self._store, self._turn, mine.locks
        seen = store.namespace.survey(locks, look.objects)
        if store.namespace.foreign_conflicts(locks, seen, {}):
            return False
        permit: list[Op] = []
        if mine.share:
            if (permitted := store.groups.permitted(mine, group)) is None:
                return False
            mine, permit = permitted
        granted = replace(mine, state=State.GRANTED)
        if existing and existing.aside:
            turn.returns(existing)
        writes, tickets = store.writes(granted, existing), store.queues.creates(mine)
        try:
            turn.outcome = turn.grant(granted, writes, seen, {}, [*permit, *life], tickets)
        except RequestTooLarge:  # with its tickets it is larger than a try
            return False
        if turn.outcome is None and turn.record is None:
            raise Again  # refused: look again
        if turn.record is not None and turn.record.queued:
            assert turn.position is not None
            store.waiters.stands(self, turn.position)
        return True

    def _step_aside_at_once(self, mine: Record, existing: Record | None, look: Snapshot, life: Sequence[Op]) -> bool:
        """AWAY in one transaction, without a ticket. False: a lock of Hive's is in the way."""
        if self._turn.foreign(mine.locks, self._store.namespace.survey(mine.locks, look.objects), {}):
            return False
        away = replace(mine.outside(), state=State.AWAY)
        written = self._store.writes(away, existing)
        outcome = self._store.client.submit(Commit((*written, *gives_back(self._store.layout, mine), *life)))[0]
        if isinstance(outcome, Refused):
            raise Again
        self._turn.record = away.at(outcome[len(written) - 1])
        self._store.tell_time(outcome[len(written) - 1])
        return True

    # The next steps.

    def _advance(self) -> Lease | Free | Blocked | None:
        """One step of what has been entered. None: another client was quicker, look again."""
        turn = self._turn
        outcome, turn.outcome = turn.outcome, None
        record = turn.record
        assert record is not None
        if outcome is not None:
            return outcome
        if record.aside:
            return Free(turn.waited_s)
        if record.holds:
            outcome = turn.verify_standing(record)
            if turn.record is not None and turn.record.queued and turn.position is not None:
                self._store.waiters.stands(self, turn.position)
            return outcome
        if record.queued:
            return turn.advance(record)
        self._store.waiters.leaves(self)
        permitted = turn.wait_for_permit(record)
        if not isinstance(permitted, GroupLook):
            return permitted
        # Its turn: a new arrival among those that want its locks, which keeps its place in the group while it tries.
        look = self._store.looked(record.locks, self._store.client.submit(*self._store.reads(record.locks)))
        self._arrive(replace(record, state=State.WAITING), record, look, self._delete_alive())
        return self._advance() if turn.record is not None and not turn.record.waits else None

    def _delete_alive(self) -> list[Delete]:
        there = self._store.client.submit(Exists(self._alive))[0]
        return [Delete(self._alive)] if there is not None else []
