"""One owner's way to its lease: ticket, turn, try, verify, grant. The heart of the protocol.

Tickets first: only the request whose turn it is touches Hive's namespace, where one transaction makes all of its lock
nodes. What was there before is then looked at once more, for Hive's own clients neither queue nor give way. Every step
compares and sets the owner's record, so that of two processes which act for one owner only the later goes on; and a
reply that was lost is settled by reading the record, never by sending again.

Most are alone: where nobody is in the way at a first look, the rest is one transaction, which fails if anybody has come
since (:func:`.layout.unchanged`). A request that is outrun takes its ticket and goes the long way, on which it cannot be.

A late request ends where another would be granted: it gives up its place, and its record says AWAY. It makes no lock nodes.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import barrier, parking, places, retry
from airflow_hivelock.locks.backends.zookeeper import record as records
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Listing,
    Op,
    Refused,
    SetData,
    Stat,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.groups import GroupLook, gives_back
from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode, fitting
from airflow_hivelock.locks.backends.zookeeper.namespace import hives_order
from airflow_hivelock.locks.backends.zookeeper.queue import named, place
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.backends.zookeeper.store import SnapshotReads
from airflow_hivelock.locks.errors import AccessDenied, LockLost, RequestTooLarge, StoreUnavailable
from airflow_hivelock.locks.model import Blocker, Lease, Lock, LockObject, LockRequest, owner_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Place, Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore

STEP_S = 1.0
"""How long one step goes on, though it gets on, before its manager looks at the deadline."""

_NO_PLACE = 1 << 63
"""Later than every write."""


class _Again(Exception):
    """What was read is out of date; begin anew from the record."""


class ZooKeeperAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(
        self, store: ZooKeeperStore, request: LockRequest, wake: Callable[[], None], patience_s: float, passing_s: float
    ) -> None:
        """:param patience_s: how long Hive's clients may pass, when it is the request's turn, before it holds its place.
        :param passing_s: how old a place is, by the store's clock, before which no request of higher priority goes.
        """
        self.path = store.layout.record(owner_key(request.owner))
        self._store = store
        self._request = fitting(request, store.layout, store.acl_bytes)
        self._wake = wake
        self._key = owner_key(request.owner)
        self._patience_s = patience_s
        self._passing_s = passing_s
        self._alive = store.layout.alive(self._key)
        self._process = uuid.uuid4().hex
        self._begin = 0
        self._record: Record | None = None
        self._session = 0
        self._place: Place | None = None
        self._unpassed: list[Check] | None = None
        self._asked_ms = 0
        self._granting = 0
        self._refused_at: float | None = None
        self._waited_s = 0.0
        self._began_s = store.clock()
        self._tickets: tuple[tuple[str, str], ...] = ()
        self._snapshot: Snapshot | None = None
        self._vain = 0

    def step(self) -> Lease | Free | Blocked:
        store = self._store
        store.end_abandoned()
        until = store.clock() + STEP_S
        while True:
            try:
                if self._record is None or self._session != store.client.session:
                    self._start()
                outcome = self._advance()
                if isinstance(outcome, Blocked) and self._record is not None and self._record.first_in_group:
                    # Blocked by others' locks: whoever is next in the group need not wait for that.
                    self._rewrite(self._record.outside(), gives_back(store.layout, self._record))
                    outcome = None
            except _Again:
                self._record = outcome = None
            except StoreUnavailable:
                self._record = None  # whatever became of the last transaction, the record tells
                raise
            if outcome is not None:
                self._vain = 0
                if isinstance(outcome, Lease):
                    self._granting = 0
                if isinstance(outcome, Lease | Free):
                    store.waiters.leaves(self)
                if isinstance(outcome, Free):
                    self._record = None  # another process may act for the owner by the next step
                return outcome
            self._vain += 1
            if pause := retry.pause_s(self._vain) or (retry.FIRST_S if store.clock() > until else 0.0):
                return Blocked((self._somebody(),), self._waited_s, passing=True, recheck_s=pause)

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
            if mine.holds and mine.ticket_epoch == self._granting:  # granted after all, but nobody was told
                if self._store.entomb(mine):
                    return
            elif mine.aside:
                if self._store.forget_aside(mine):
                    return
            elif not mine.waits:
                return
            else:
                also: list[Op] = [*self._store.queues.deletes(mine), *self._delete_alive()]
                if self._store.removal.commit(mine, mine.freed(), also):
                    return
            withdrawing.again()

    # The first transaction: the record, a ticket a table, and the sign of life.

    def _start(self) -> None:
        store, client = self._store, self._store.client
        self._session = client.session
        self._unpassed = None
        reads = self._reads(() if self._begin else self._request.locks)  # started again, it goes step by step
        _, node, alive, *replies = client.submit(Sync(), Get(self.path), Get(self._alive), *reads.all())
        self._begin = self._begin or client.zxid
        if not self._begin:  # the session ended right after its answer
            raise _Again
        existing = Record.decode(node, self.path) if node else None
        if existing and existing.process != self._process:
            self._granting = 0  # what it holds was granted to another process, which has been told
        elif existing and existing.aside:  # the reply was lost
            self._record = existing
            return
        mine = records.start(existing, self._request, self._process, self._begin)
        if mine.state is State.LOST:  # and not taken over: its holder has to stop, and release it
            raise LockLost(
                f"{self._request.owner}: one of the locks of its lease {mine.lease_id} was "
                "removed behind its back. Stop the work under it and release it; then acquire again"
            )
        fresh = mine.ticket_epoch == mine.epoch
        if fresh and self._place is not None:  # it was taken for dead
            self._bring_back_earlier_waiters()
        life = [Delete(self._alive)] if alive is not None else []
        look = store.groups.look(mine.share) if fresh and mine.share else None
        if look and look.free(mine, None) is None:
            parked, stands_there = parking.park(store, mine, self._passing_s)
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
        claim = places.claim(self._store, mine, snapshot and snapshot.queues, self._passing_s)
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
        store = self._store
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
            raise _Again
        self._record = mine.at(outcome[written])
        store.tell_time(outcome[written])
        self._snapshot = reads.snapshot(replies)
        if creates:
            self._take_place(store.queues.made(self._record, outcome[written + 1 : written + 1 + len(creates)], claim))
        elif self._record.queued:
            self._take_place(store.queues.of(self._record))
        elif self._record.parked:
            self._parks()

    def _reads(self, locks: tuple[Lock, ...]) -> SnapshotReads:
        store = self._store
        return SnapshotReads((), Get(store.layout.queues), store.queues.reads(locks), store.namespace.reads(locks))

    def _take_place(self, tickets: Sequence[Ticket]) -> None:
        """Remember the place, and how long the owner had had it when this acquisition began."""
        assert self._record is not None
        if not tickets:
            raise _Again
        self._place = tickets[0].place
        self._store.waiters.stands(self, self._place)
        self._tickets = named(ticket.path for ticket in tickets)
        self._has_waited(tickets[0].since_ms)

    def _has_waited(self, since_ms: int) -> None:
        # Started again, when its session has ended, it has itself waited for a part of that.
        assert self._record is not None
        assert self._record.stat is not None
        self._asked_ms = self._record.asked_ms or since_ms
        in_all_s = (self._record.stat.mtime_ms - self._asked_ms) / 1000
        self._waited_s = max(0.0, in_all_s - (self._store.clock() - self._began_s))

    def _bring_back_earlier_waiters(self) -> None:
        """Queue again for the waiters of this process that were taken for dead with this one and stood before it."""
        assert self._place is not None
        before = self._store.waiters.before(self._place)
        _, *nodes = self._store.client.submit(Sync(), *(Get(other.path) for other in before))
        for other, node in zip(before, nodes, strict=True):
            if node is not None:
                other.queue_again(Record.decode(node, other.path))

    def queue_again(self, free: Record) -> None:
        """A new ticket for a request that was taken for dead; what it asks for next finds it. Refused if it was quicker."""
        if free.process != self._process or free.state is not State.FREE:
            return
        mine = records.start(free, self._request, self._process, self._begin)
        claim = places.claim(self._store, mine, None, self._passing_s)
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
        if not store.namespace.tells_all(locks, survey):
            return False
        if store.namespace.foreign_conflicts(locks, survey.children, {}):
            return False
        if (permitted := store.groups.permitted(mine, look)) is None:
            return False
        mine, permit = permitted
        granted = replace(mine, state=State.GRANTED, tickets=named(check.path for _, check in tickets))
        written = self._store.writes(granted, existing)
        first = [*written, Check(store.layout.queues, snapshot.root.stat.version)]
        first += [op for pair in tickets for op in pair]
        first += store.namespace.unchanged(survey, f"unchanged-{self._process}")
        guards = store.queues.guards(locks)
        creates = [
            *store.namespace.absent(survey),
            *store.namespace.lock_nodes(locks, survey.children, self._said(now_ms)),
        ]
        self._granting = granted.ticket_epoch
        try:
            outcome = store.client.submit(Commit((*first, *guards, *creates, *permit, *life)))[0]
        except RequestTooLarge:  # it says more than a try does
            return False
        except AccessDenied:  # and writes to more nodes
            store.namespace.probed = False
            return False
        if isinstance(outcome, Refused):
            return False
        self._record = granted.at(outcome[len(written) - 1])
        store.removal.remember(self._record, guards, creates, outcome[len(first) :])
        store.remember(self._record)
        return True

    # A late request's end.

    def _step_aside_at_once(
        self, mine: Record, existing: Record | None, snapshot: Snapshot, life: Sequence[Op]
    ) -> bool:
        """AWAY in one transaction, if nobody is in the way, without a ticket. False: nothing happened."""
        if self._store.queues.conflicting(mine.locks, snapshot.queues):
            return False
        if self._foreign(mine.locks, self._store.namespace.survey(mine.locks, snapshot.objects).children, {}):
            return False
        away = replace(mine.outside(), state=State.AWAY)
        written = self._store.writes(away, existing)
        outcome = self._store.client.submit(Commit((*written, *gives_back(self._store.layout, mine), *life)))[0]
        if isinstance(outcome, Refused):
            return False
        self._record = away.at(outcome[len(written) - 1])
        self._store.tell_time(outcome[len(written) - 1])
        return True

    def _step_aside(self) -> Free:
        """My turn: give the place up instead of trying."""
        assert self._record is not None
        away = replace(self._record.outside(), state=State.AWAY, tickets=(), asked_ms=self._asked_ms)
        stands_there = gives_back(self._store.layout, self._record)
        tickets = self._store.queues.deletes(replace(self._record, tickets=self._tickets))
        self._rewrite(away, [*tickets, *stands_there, Delete(self._alive), Create(self._store.layout.aside(self._key))])
        return Free(self._waited_s)

    # Turn, try, verify, grant.

    def _advance(self) -> Lease | Free | Blocked | None:
        """One turn. None: somebody was quicker, look again."""
        assert self._record is not None
        snapshot, self._snapshot = self._snapshot, None
        if self._record.aside:
            return Free(self._waited_s)
        if self._request.late and self._record.queued and self._record.node_zxids:
            return self._refuse(self._record, [])  # an earlier process of the owner was not late, and has made them
        if self._record.state is State.TRYING:
            return self._verify(self._record, None)
        if self._record.holds:
            return self._record.lease()
        if self._record.parked:
            return self._wait_for_permit(self._record)
        if self._record.has_nodes:  # a place held among Hive's clients is in the way of all, also of those before it
            return self._try(snapshot and snapshot.objects)
        assert self._place is not None
        store, locks = self._store, self._record.locks
        snapshot = snapshot or store.look(locks)
        if None in snapshot.urgents:  # a store that an earlier version has made
            store.make_queues(locks)
            return None
        self._unpassed = store.queues.unpassed(locks, snapshot.urgents)
        ahead = places.in_the_way(store, locks, self._place, snapshot)
        if not ahead:
            return self._try(snapshot.objects)
        outcome = self._wait_for(ahead[0], ahead[-1])
        if outcome is None:
            self._vain = 0  # there are fewer ahead now
        return outcome

    def _wait_for(self, nearest: Ticket, first: Ticket) -> Blocked | None:
        """Watch the nearest ticket in the way. None: look again."""
        assert self._record is not None
        assert self._place is not None
        outcome = places.wait(self._store, self._record, self._place, nearest, first, self._wake, self._check_mine)
        return outcome and replace(outcome, waited_s=self._waited_s)

    def _try(self, objects: Sequence[Any] | None) -> Lease | Free | Blocked | None:
        """My turn: all lock nodes in one transaction. None: an object node came or went, look again."""
        assert self._record is not None
        store, locks = self._store, self._record.locks
        if (permitted := store.groups.permitted(self._record)) is None:
            self._park(replace(self._record, tickets=self._tickets, asked_ms=self._asked_ms))
            return None
        mine, permit = permitted
        survey = store.namespace.survey(locks, objects)
        children = survey.children
        held = self._barrier()
        foreign = self._foreign(locks, children, held)
        if foreign:
            return self._wait_for_hive(foreign)
        if self._request.late:
            return self._step_aside()
        trying = replace(mine, state=State.TRYING, written=0, tickets=self._tickets, asked_ms=self._asked_ms)
        guards = store.queues.guards(locks)
        missing = [lock for lock in locks if lock.object not in held]
        creates = [
            *store.namespace.absent(survey),
            *store.namespace.lock_nodes(missing, children, self._said(self._asked_ms)),
        ]
        write = SetData(self.path, trying.encode(), self._record.version)
        checks = self._still_first()
        ops: list[Op] = [write, *checks, *guards, *creates, *permit]
        existed = [lock.object for lock in locks if lock.object in children]
        outcome, *listings = store.client.submit(
            Commit(tuple(ops)), *(Children(store.layout.object(target)) for target in existed)
        )
        if isinstance(outcome, Refused):
            if outcome.op.path == self.path:
                raise _Again
            return None
        self._record = trying.at(outcome[0])
        own = store.removal.remember(self._record, guards, creates, outcome[1 + len(checks) :], complete=not held)
        own |= {f"{store.layout.object(target)}/{node.name}" for target, node in held.items()}
        return self._verify(self._record, own, dict(zip(existed, listings, strict=True)))

    def _still_first(self) -> list[Check]:
        """What fails where somebody has gone before this request since its last look: never a later one's versions, for a
        place held among Hive's clients keeps all others back, and is held without a look."""
        assert self._record is not None
        if self._record.has_nodes:
            return []
        if self._unpassed is None:
            raise _Again
        return self._unpassed

    def _foreign(
        self, locks: Sequence[Lock], children: Mapping[LockObject, Listing], held: Mapping[LockObject, LockNode]
    ) -> list[PlacedLock]:
        """What of Hive's is in the way of a try, or of a late request."""
        namespace = self._store.namespace
        foreign = namespace.foreign_conflicts(locks, children, held)
        # Another try in vain would write my record, and so wake me; a late request has no try to find out.
        if not foreign and (self._refused_at is not None or self._request.late):
            foreign = namespace.foreign_below(locks, children, _NO_PLACE)
        return foreign

    def _said(self, now_ms: int) -> bytes:
        """What my lock nodes say."""
        return LockData.of(self._request, now_ms).encode()

    def _verify(
        self, trying: Record, own: set[str] | None, children: Mapping[LockObject, Listing | None] | None = None
    ) -> Lease | Blocked:
        """Look at what existed before once more: my nodes still there, and nothing of Hive's before them."""
        namespace, locks = self._store.namespace, trying.locks
        if children is None or own is None:  # taken over, or the reply was lost
            own = {placed.path for placed in namespace.own_nodes(locks, trying.node_zxids).values()}
            children = namespace.survey(locks).children
            if len(own) < len(locks):
                return self._refuse(trying, [])
        mine: dict[LockObject, LockNode] = {}
        for target, listing in children.items():
            nodes = [placed.node for placed in namespace.placed(target, listing) if placed.path in own]
            made = dict(trying.barrier).get(str(target), trying.written)
            if not nodes or listing is None or listing.czxid > made:
                return self._refuse(trying, [])  # unlocked behind my back; a younger object's node is another's
            mine[target] = nodes[0]
        foreign = namespace.foreign_conflicts(locks, children, mine)
        foreign += namespace.foreign_below(locks, children, trying.written)
        return self._refuse(trying, foreign) if foreign else self._grant(trying)

    def _grant(self, trying: Record) -> Lease:
        assert trying.stat is not None
        granted = replace(trying, state=State.GRANTED, token=trying.written, since_ms=trying.stat.mtime_ms)
        self._granting = trying.ticket_epoch
        self._record = self._store.rewrite(trying, granted, Delete(self._alive))
        if self._record is None:
            raise _Again
        return self._record.lease()

    def _refuse(self, trying: Record, foreign: list[PlacedLock]) -> Blocked:
        """Take everything back but the place in the queue, then wait for what was in the way."""
        waiting = replace(trying.outside(), state=State.WAITING, written=0, barrier=())
        self._record = self._store.removal.commit(trying, waiting)
        if self._record is None or not foreign:
            raise _Again
        return self._wait_for_hive(foreign)

    def _wait_for_hive(self, foreign: list[PlacedLock]) -> Blocked:
        """Watch one of Hive's locks that are in the way; once patience is spent, hold the place among its clients."""
        assert self._record is not None
        store = self._store
        nearest = min(foreign, key=lambda placed: hives_order(placed.object))
        spent_s = store.clock() - self._refused_at if self._refused_at is not None else 0.0
        if self._refused_at is None:
            self._refused_at = store.clock()
        # Below what I lock (Hive's LOCK TABLE … PARTITION under my table) there is no place of mine to hold.
        below = nearest.object not in {lock.object for lock in self._record.locks}
        # Nor does one that steps aside need a place.
        holding = below or self._request.late or str(nearest.object) in dict(self._record.barrier)
        if spent_s >= self._patience_s and self._request.wait and not holding:
            self._hold_place(nearest.object)
            raise _Again
        mine, standing = store.client.submit(Exists(self.path, self._wake), Exists(nearest.path, self._wake))
        self._check_mine(mine)
        if standing is None:
            self._wake()
        by = store.namespace.blockers(foreign[:3]) or [Blocker("Hive", nearest.object, nearest.node.mode)]
        recheck_s = None if holding or not self._request.wait else max(0.01, self._patience_s - spent_s)
        return Blocked(tuple(by), self._waited_s, recheck_s=recheck_s)

    # A lease of the group: see :mod:`.groups` and :mod:`.parking`.

    def _wait_for_permit(self, parked: Record) -> Blocked | None:
        """Parked. At its turn it is a new arrival among those that want its locks, and keeps its place while it tries."""
        outcome = parking.wait(self._store, parked, self._wake)
        if isinstance(outcome, Blocked):
            self._check_mine(self._store.client.submit(Exists(self.path, self._wake))[0])
            return replace(outcome, waited_s=self._waited_s)
        if outcome is not None:
            reads = self._reads(parked.locks)
            snapshot = reads.snapshot(self._store.client.submit(*reads.all()))
            self._arrive(replace(parked, state=State.WAITING), parked, snapshot, self._delete_alive())
        return None

    def _park(self, asking: Record) -> None:
        """Its turn, but not in its group: step aside, with nothing left that anybody waits behind."""
        parked, stands_there = parking.park(self._store, asking, self._passing_s)
        also: list[Op] = [*self._store.queues.deletes(asking), stands_there]
        self._record = self._store.removal.commit(asking, parked, also)
        if self._record is None:
            raise _Again
        self._parks()

    def _parks(self) -> None:
        self._place = self._refused_at = None
        self._has_waited(0)
        self._store.waiters.leaves(self)

    def _barrier(self) -> dict[LockObject, LockNode]:
        """My barrier's nodes that are still there; one that Hive has unlocked is struck from the record."""
        assert self._record is not None
        own = barrier.standing(self._store, self._record)
        if len(own) < len(self._record.barrier):
            kept = tuple(entry for entry in self._record.barrier if entry[0] in map(str, own))
            self._rewrite(replace(self._record, barrier=kept), [])
            raise _Again
        return own

    def _hold_place(self, target: LockObject) -> None:
        assert self._record is not None
        holding, ops = barrier.hold(self._store, self._record, target, self._said(self._asked_ms))
        self._rewrite(holding, [*self._still_first(), *ops])

    def _rewrite(self, record: Record, ops: Sequence[Op]) -> None:
        """Compare and set my record, with *ops* in the same transaction."""
        assert self._record is not None
        self._record = self._store.rewrite(self._record, record, *ops)
        if self._record is None:
            raise _Again

    def _check_mine(self, stat: Stat | None) -> None:
        """Another process may have taken over, or have taken this one for dead, while it waited."""
        assert self._record is not None
        if stat is None or stat.version != self._record.version:
            raise _Again

    def _delete_alive(self) -> list[Delete]:
        there = self._store.client.submit(Exists(self._alive))[0]
        return [Delete(self._alive)] if there is not None else []
