"""One owner's way to its lease: at once, or by ticket, turn, try, verify, grant. The heart of the protocol.

Tickets first: only the request whose turn it is touches Hive's namespace (:mod:`.turn`). Every step compares and sets the
owner's record, so that of two processes which act for one owner only the later goes on; and a reply that was lost is settled
by reading the record, never by sending again.

Most are alone: where nobody is in the way at a first look, the rest is one transaction, which fails if anybody has come
since (:func:`.layout.unchanged`). A request that is outrun takes its ticket and goes the long way, on which it cannot be.

A late request ends where another would be granted: it gives up its place, and its record says AWAY. It makes no lock nodes.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import parking, places, retry
from airflow_hivelock.locks.backends.zookeeper import record as records
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Op,
    Refused,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.groups import GroupLook, gives_back
from airflow_hivelock.locks.backends.zookeeper.layout import fitting
from airflow_hivelock.locks.backends.zookeeper.queue import named, place
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.backends.zookeeper.store import SnapshotReads
from airflow_hivelock.locks.backends.zookeeper.turn import Again, Turn
from airflow_hivelock.locks.errors import AccessDenied, LockLost, RequestTooLarge, StoreUnavailable
from airflow_hivelock.locks.model import Blocker, Lease, Lock, LockRequest, owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.queue import Claim
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

    # The first transaction: the record, a ticket a table, and the sign of life.

    def _start(self) -> None:
        store, client, turn = self._store, self._store.client, self._turn
        self._session = client.session
        turn.unpassed = None
        reads = self._reads(() if self._begin else self._request.locks)  # started again, it goes step by step
        _, node, alive, *replies = client.submit(Sync(), Get(self.path), Get(self._alive), *reads.all())
        self._begin = self._begin or client.zxid
        if not self._begin:  # the session ended right after its answer
            raise Again
        existing = Record.decode(node, self.path) if node else None
        if existing and existing.process != self._process:
            turn.granting = 0  # what it holds was granted to another process, which has been told
        elif existing and existing.aside:  # the reply was lost
            turn.record = existing
            return
        mine = records.start(existing, self._request, self._process, self._begin)
        if mine.state is State.LOST:  # and not taken over: its holder has to stop, and release it
            raise LockLost(
                f"{self._request.owner}: one of the locks of its lease {mine.lease_id} was "
                "removed behind its back. Stop the work under it and release it; then acquire again"
            )
        fresh = mine.ticket_epoch == mine.epoch
        if fresh and turn.place is not None:  # it was taken for dead
            self._bring_back_earlier_waiters()
        life = [Delete(self._alive)] if alive is not None else []
        look = store.groups.look(mine.share) if fresh and mine.share else None
        if look and look.free(mine, None) is None:
            parked, stands_there = parking.park(store, mine, turn.passing_s)
            self._enter(parked, existing, [*life, stands_there])
        elif fresh:
            self._arrive(mine, existing, reads.snapshot(replies) if reads.queues else None, life, look)
        else:
            self._enter(mine, existing, life)

    def _arrive(
        self,
        mine: Record,
        existing: Record | None,
        snapshot: Snapshot | None,
        life: Sequence[Op],
        look: GroupLook | None = None,
    ) -> None:
        """A new arrival among those that want its locks: at once, or with tickets."""
        if snapshot and self._request.late and self._step_aside_at_once(mine, existing, snapshot, life):
            return
        if snapshot and not self._request.late and self._grant_at_once(mine, existing, snapshot, life, look):
            return
        claim = places.claim(self._store, mine, snapshot and snapshot.queues, self._turn.passing_s)
        self._enter(mine, existing, life, self._store.queues.creates(mine, claim), claim)

    def _enter(
        self,
        mine: Record,
        existing: Record | None,
        also: Sequence[Op],
        creates: Mapping[str, Create] | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Write the record, with *also*, the sign of life, and the tickets that it *creates*."""
        store, turn = self._store, self._turn
        ops = store.writes(mine, existing)
        written = len(ops) - 1
        creates = creates or {}
        ops += creates.values()
        if not (existing and existing.parked and mine.queued):  # a parked request keeps its sign of life
            ops += [*also, *([Create(self._alive, mine.process.encode(), ephemeral=True)] if mine.waits else [])]
        ops += [*store.queues.announces(creates), *(store.queues.claims(mine.locks) if claim else ())]
        reads = self._reads(mine.locks)._replace(urgents=store.queues.urgents(mine.locks))
        outcome, *replies = store.client.submit(Commit(tuple(ops)), *reads.all())
        if isinstance(outcome, Refused):
            if creates and outcome.reason == Refused.NO_NODE:
                store.make_queues(mine.locks)
            raise Again
        turn.record = record = mine.at(outcome[written])
        turn.snapshot = reads.snapshot(replies)
        store.tell_time(outcome[written])
        if record.queued:
            made = outcome[written + 1 : written + 1 + len(creates)]
            tickets = store.queues.made(record, made, claim) if creates else store.queues.of(record)
            store.waiters.stands(self, turn.take_place(record, tickets))
        elif record.parked:
            turn.parks(record)
            store.waiters.leaves(self)

    def _reads(self, locks: tuple[Lock, ...]) -> SnapshotReads:
        store = self._store
        return SnapshotReads((), Get(store.layout.queues), store.queues.reads(locks), store.namespace.reads(locks))

    def _bring_back_earlier_waiters(self) -> None:
        """Queue again for the waiters of this process that were taken for dead with this one and stood before it."""
        assert self._turn.place is not None
        before = self._store.waiters.before(self._turn.place)
        _, *nodes = self._store.client.submit(Sync(), *(Get(other.path) for other in before))
        for other, node in zip(before, nodes, strict=True):
            if node is not None:
                other.queue_again(Record.decode(node, other.path))

    def queue_again(self, free: Record) -> None:
        """A new ticket for a request that was taken for dead; what it asks for next finds it. Refused if it was quicker."""
        if free.process != self._process or free.state is not State.FREE:
            return
        mine = records.start(free, self._request, self._process, self._begin)
        claim = places.claim(self._store, mine, None, self._turn.passing_s)
        creates = self._store.queues.creates(mine, claim)
        life = Create(self._alive, mine.process.encode(), ephemeral=True)
        ops = [*self._store.writes(mine, free), *creates.values(), life, *self._store.queues.announces(creates)]
        ops += self._store.queues.claims(mine.locks) if claim else ()
        outcome = self._store.client.submit(Commit(tuple(ops)))[0]
        if isinstance(outcome, Refused):
            return
        if not self._store.waiters.is_back(self, place(outcome[0].mzxid, mine.priority, claim)):
            self._withdraw()  # it left meanwhile, and did not see this

    # At once, where nobody is in the way.

    def _grant_at_once(
        self, mine: Record, existing: Record | None, snapshot: Snapshot, life: Sequence[Op], look: GroupLook | None
    ) -> bool:
        """The tickets, all lock nodes and GRANTED in one transaction, if nobody is in the way. False: nothing happened."""
        store, locks, now_ms = self._store, mine.locks, self._store.now_ms()
        if now_ms is None and existing is not None and existing.aside and existing.stat is not None:
            now_ms = existing.stat.mtime_ms  # a worker's first request: its lock nodes say when its turn came
        tickets = store.queues.creates_at_once(mine, snapshot.queues)
        if now_ms is None or snapshot.root is None or tickets is None:
            return False
        if store.queues.conflicting(locks, snapshot.queues):
            return False
        survey = store.namespace.survey(locks, snapshot.objects)
        if not store.namespace.tells_all(locks, survey) or store.namespace.foreign_conflicts(
            locks, survey.children, {}
        ):
            return False
        permit: list[Op] = []
        if mine.share:
            if (permitted := store.groups.permitted(mine, look)) is None:
                return False
            mine, permit = permitted
        granted = replace(mine, state=State.GRANTED, tickets=named(check.path for _, check in tickets))
        written = self._store.writes(granted, existing)
        first = [*written, Check(store.layout.queues, snapshot.root.stat.version)]
        first += [op for pair in tickets for op in pair]
        first += store.namespace.unchanged(survey, f"unchanged-{self._process}")
        guards = store.queues.guards(locks)
        said = store.layout.lock_data(self._request, now_ms)
        creates = [*store.namespace.absent(survey), *store.namespace.lock_nodes(locks, survey.children, said)]
        self._turn.granting = granted.ticket_epoch
        try:
            outcome = store.client.submit(Commit((*first, *guards, *creates, *permit, *life)))[0]
        except RequestTooLarge:  # it says more than a try does
            return False
        except AccessDenied:  # and writes to more nodes
            store.namespace.probed = False
            return False
        if isinstance(outcome, Refused):
            return False
        self._turn.record = granted = granted.at(outcome[len(written) - 1])
        store.removal.remember(granted, guards, creates, outcome[len(first) :])
        store.remember(granted)
        return True

    def _step_aside_at_once(
        self, mine: Record, existing: Record | None, snapshot: Snapshot, life: Sequence[Op]
    ) -> bool:
        """AWAY in one transaction, if nobody is in the way, without a ticket. False: nothing happened."""
        if self._store.queues.conflicting(mine.locks, snapshot.queues):
            return False
        if self._turn.foreign(mine.locks, self._store.namespace.survey(mine.locks, snapshot.objects).children, {}):
            return False
        away = replace(mine.outside(), state=State.AWAY)
        written = self._store.writes(away, existing)
        outcome = self._store.client.submit(Commit((*written, *gives_back(self._store.layout, mine), *life)))[0]
        if isinstance(outcome, Refused):
            return False
        self._turn.record = away.at(outcome[len(written) - 1])
        self._store.tell_time(outcome[len(written) - 1])
        return True

    # The next steps.

    def _advance(self) -> Lease | Free | Blocked | None:
        """One step of what has been entered. None: somebody was quicker, look again."""
        turn, record = self._turn, self._turn.record
        assert record is not None
        if settled := self._settled():
            return settled
        if record.queued:
            return turn.advance(record)
        self._store.waiters.leaves(self)
        outcome = turn.wait_for_permit(record)
        if isinstance(outcome, GroupLook):
            # Its turn: a new arrival among those that want its locks, which keeps its place in the group while it tries.
            reads = self._reads(record.locks)
            snapshot = reads.snapshot(self._store.client.submit(*reads.all()))
            self._arrive(replace(record, state=State.WAITING), record, snapshot, self._delete_alive())
            return self._settled()
        return outcome

    def _settled(self) -> Lease | Free | None:
        """What has become of the request, once that is decided."""
        record = self._turn.record
        assert record is not None
        return Free(self._turn.waited_s) if record.aside else record.lease() if record.holds else None

    def _delete_alive(self) -> list[Delete]:
        there = self._store.client.submit(Exists(self._alive))[0]
        return [Delete(self._alive)] if there is not None else []
