"""A request's turn: it waits for the requests before it, creates its lock nodes, and verifies the grant.

One transaction creates all lock nodes of a request (:meth:`Turn._grant`). The reads after it show whether its lease can
be returned (:mod:`.nodes`). If not, :meth:`Turn._give_back` takes back everything except its queue position. Hive's
clients do not queue and do not give way: after *patience_s*, the request creates a *placeholder* among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import nodes, permits, waiting
from airflow_hivelock.locks.backends.zookeeper.client import Exists, Listing, Op, Refused, Stat
from airflow_hivelock.locks.backends.zookeeper.namespace import Nodes, hives_order
from airflow_hivelock.locks.backends.zookeeper.nodes import Verification
from airflow_hivelock.locks.backends.zookeeper.queue import position
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.backends.zookeeper.start import Again, lost
from airflow_hivelock.locks.backends.zookeeper.waiting import Lookout
from airflow_hivelock.locks.errors import LockLost, RequestTooLarge
from airflow_hivelock.locks.model import Blocker, Lease
from airflow_hivelock.locks.queueing import AFTER_ALL, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.permits import GroupLook
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.model import Lock, LockObject, LockRequest
    from airflow_hivelock.locks.queueing import Position

_NO_POSITION = 1 << 63
"""Later than every write."""


class NotAtOnce(Exception):
    """A new arrival, or a worker, cannot be granted at once. A new arrival queues; a worker does not."""


@dataclass(eq=False)
class Turn:
    """The state of one acquisition, and its steps while it is queued, parked, or granted and not yet verified.

    :param patience_s: how long Hive's clients may go first at the request's turn, before it creates a placeholder.
    :param passing_s: how long a request may be overtaken.
    :ivar record: the owner's, as this acquisition wrote it last; None: it has to be read again.
    :ivar granting: the epoch of a grant that has not been returned to a caller.
    :ivar look: the reads after the transaction that created the tickets.
    :ivar failures: how often in a row another client was quicker.
    :ivar position: of its tickets; None: it has none.
    :ivar first_ms: when the owner first asked, by the store's clock; 0 while unknown.
    """

    store: ZooKeeperStore
    request: LockRequest
    wake: Callable[[], None]
    patience_s: float
    passing_s: float
    began_s: float
    record: Record | None = None
    granting: int = 0
    look: Snapshot | None = None
    failures: int = 0
    position: Position | None = None
    waited_s: float = 0.0
    first_ms: int = 0
    _asked_ms: int = 0
    _refused_at: float | None = None
    _outrun: int = 0

    def at_turn(self, record: Record) -> Ruling:
        """The ruling without blockers. A request with a placeholder among Hive's clients is not invited."""
        ruling = queueing.at_turn(self.request.deferred)
        return Ruling.GRANT if ruling is Ruling.INVITE and record.node_zxids else ruling

    def enters(self, record: Record, claim: Claim | None = None, *, created: bool = True) -> None:
        """Remember the position, and how long the owner had waited when this acquisition began.

        :param claim: of the tickets, if *record*'s own transaction has *created* them; otherwise they are read.
        """
        assert record.stat is not None
        since_ms = record.stat.mtime_ms
        if record.parked:
            self.position = self._refused_at = None
        elif created:
            self.position = position(record.stat.mzxid, record.priority, claim)
        elif tickets := self.store.queues.of(record):
            self.position, since_ms = tickets[0].position, tickets[0].since_ms
        else:
            raise Again
        self.has_waited(record, since_ms)

    def has_waited(self, record: Record, since_ms: int) -> None:
        """Remember since when the owner has waited. *record* contains the time, or it arrived at *since_ms*."""
        assert record.stat is not None
        self._asked_ms = record.asked_ms or since_ms
        self.first_ms = record.first_ms or self._asked_ms
        # A request starts again after its session has ended. Then this acquisition has waited for a part of that time.
        in_all_s = (record.stat.mtime_ms - self.first_ms) / 1000
        self.waited_s = max(0.0, in_all_s - (self.store.clock() - self.began_s))

    def advance(self, record: Record) -> Lease | NeedsSlot | Blocked | None:
        """Do one step of a request that is queued. None: another client was quicker, look again."""
        outcome: Lease | NeedsSlot | Blocked | None
        look, self.look = self.look, None
        if record.node_zxids and self.at_turn(record) is Ruling.GO_AWAY:
            # An earlier process of the owner asked without a deferred grant, and has left a placeholder.
            outcome = self._give_back(record, Verification(missing=True))
        else:
            outcome = self.look_at(record, record, look)
        record = self.record or record
        if isinstance(outcome, Blocked) and record.queued and record.share and record.share.ticket:
            # Locks block the first request of its group. The next one in the group need not wait for these.
            self._write(record, record.outside())
            return None
        return outcome

    def look_at(self, record: Record, mine: Record, look: Snapshot | None = None) -> Lease | NeedsSlot | Blocked | None:
        """Do one look of a request that has tickets, by its *record*. None: look again.

        :param mine: the record that this process writes over it.
        """
        if record.has_nodes:  # a placeholder blocks all others, even those before it: they see it, and wait
            return self.attempt(record, mine, look and look.objects)
        assert self.position is not None
        store, locks = self.store, record.locks
        look = look or store.snapshot(locks, store.client.submit(*store.reads(locks)))
        ahead = waiting.in_the_way(store, record, self.position, look.queues)
        if not ahead:
            return self.attempt(record, mine, look.objects)
        outcome = self.wait_for(record, ahead)
        if outcome is None:
            self.failures = 0  # fewer requests are ahead now
        return outcome

    def wait_for(self, record: Record, ahead: Sequence[Ticket]) -> Blocked | None:
        """Watch the nearest ticket ahead. None: look again."""
        position = self.position or AFTER_ALL
        return waiting.wait(Lookout(self.store, record, self.wake, self._check_mine), position, ahead)

    def wait_for_permit(self, parked: Record) -> Blocked | GroupLook | None:
        """Wait, parked, for a permit of its group; return the look that finds a free one. None: look again."""
        return permits.wait_for_permit(Lookout(self.store, parked, self.wake, self._check_mine))

    # The grant.

    def attempt(
        self,
        existing: Record | None,
        mine: Record,
        tops: Sequence[Listing | None] | None,
        group: GroupLook | None = None,
    ) -> Lease | NeedsSlot | Blocked | None:
        """At its turn: be granted or invited, or go away. None: an object node was created or deleted, look again.

        :param existing: the record that is replaced.
        :param tops: the databases and tables, if they have been read.
        :param group: a new arrival's look at its group.
        :raises NotAtOnce: a new arrival has to queue, or this is a worker's call.
        """
        store, locks = self.store, mine.locks
        queued, ruling = existing is not None and existing.has_tickets, self.at_turn(mine)
        granted, more = mine, list[Op]()
        if mine.share and mine.share.permit is None:
            if (permitted := permits.permitted(store, mine, group)) is None:
                if not queued or self.request.has_slot:
                    raise NotAtOnce
                self._park(mine.but(asked_ms=self._asked_ms))
                return None
            granted, more = permitted[0], [permitted[1]]
        seen, held = store.namespace.survey(locks, tops), self._placeholders(mine) if queued else {}
        if foreign := self.foreign(locks, seen, held):
            if not queued and not self.request.has_slot:
                raise NotAtOnce
            return self._wait_for_hive(mine, foreign)
        granted = granted.but(asked_ms=self._asked_ms if queued else mine.asked_ms)
        if ruling is not Ruling.GRANT:
            return self._defer_grant(existing, granted, more)
        granted = granted.but(state=State.GRANTED, written=0, token=0, since_ms=0)
        return self._grant(existing, granted, seen, held, more)

    def _defer_grant(self, existing: Record | None, mine: Record, more: Sequence[Op]) -> NeedsSlot | None:
        """Hold nothing until its worker comes: be invited, or go away and lose the position. None: look again."""
        mine = self._invited(mine)
        if not mine.invitation_s:
            mine, more = mine.outside().but(state=State.AWAY), ()
        done = self.store.transact(existing, mine, *more, acquires=True)
        if isinstance(done, Refused):
            self._refused(mine, done)
            return None
        self.record = done.record
        return NeedsSlot(until=done.record.until)

    def _grant(
        self,
        existing: Record | None,
        granted: Record,
        seen: Mapping[LockObject, Listing],
        held: Mapping[LockObject, LockNode],
        more: Sequence[Op],
    ) -> Lease | Blocked | None:
        """Write GRANTED and all lock nodes in one transaction. Then return the lease; if it is blocked, give all back.

        None: nothing happened, look again.

        :param seen: the objects that exist.
        :param held: the placeholders, which are lock nodes already.
        """
        store, locks = self.store, granted.locks
        queued = existing is not None and existing.has_tickets
        if existing and existing.away and existing.stat:
            # The lock nodes contain a time. With this one, a new process needs no write to learn the store's time.
            self._asked_ms = existing.stat.mtime_ms
        missing = [lock for lock in locks if lock.object not in held]
        creates = store.namespace.lock_nodes(missing, seen, self._lock_data())
        targets = nodes.to_read(locks, seen)
        self.granting = granted.ticket_epoch  # before the transaction: if its reply is lost, withdraw() ends this grant
        try:
            reads = nodes.reads(store, locks, targets)
            done = store.transact(existing, granted, *creates, *more, reads=reads, acquires=True)
        except RequestTooLarge:
            if queued:
                raise
            raise NotAtOnce from None  # with its tickets the transaction is larger than at its turn
        if isinstance(done, Refused):
            self._refused(granted, done)
            if done.op in creates:
                self._outrun += (
                    1  # an object was created or deleted since the look: others lock and release it all the time
                )
                if self._outrun > 1:
                    store.namespace.make_partitions(one.object for one in missing if one.object not in seen)
            return None
        self._outrun = 0
        self.record = record = done.record
        made = [str(path) for create, path in zip(creates, done.results, strict=False) if create.sequential]
        paths = {lock.object: path for lock, path in zip(missing, made, strict=True)}
        paths |= {target: f"{store.layout.object(target)}/{node.name}" for target, node in held.items()}
        if not queued:
            self.enters(record)
        created = frozenset(lock.object for lock in missing if lock.object not in seen)
        return self._verify(record, Nodes(paths, created), targets, done.replies)

    def _verify(
        self, record: Record, own: Nodes, targets: Sequence[LockObject], replies: Sequence[object]
    ) -> Lease | Blocked | None:
        assert self.position is not None
        verdict = nodes.verify(self.store, record, self.position, own, targets, replies)
        if self.granting != record.ticket_epoch:  # the process before may have returned this lease
            # A ticket that was read before its partial release must not end this grant.
            stats = self.store.client.submit(*(Exists(ticket.path) for ticket in verdict.tickets))
            if self.store.queues.forget_changed(zip(verdict.tickets, stats, strict=True)):
                raise Again
            if verdict.missing:  # the work of the process before has to stop
                self._write(record, record.but(state=State.LOST))
                raise LockLost(lost(record))
        if not verdict.passed:
            return self._give_back(record, verdict, own)
        self.store.remember(record, own)
        return record.lease()

    def verify_existing(self, record: Record) -> Lease | Blocked | None:
        """Verify a grant if another process sent its transaction, or the reply was lost."""
        own = nodes.find(self.store, record, record.locks)
        self.enters(record, created=False)
        replies = self.store.client.submit(*nodes.reads(self.store, record.locks, list(own.paths)))
        return self._verify(record, own, list(own.paths), replies)

    def _give_back(self, record: Record, verdict: Verification, own: Nodes | None = None) -> Blocked | None:
        """Take back everything except the queue position, then wait for the blockers. None: look again.

        A worker does not wait: it leaves a new invitation with its permit.

        :param own: the request's lock nodes, if they are known.
        """
        store = self.store
        left = record.but(written=0, token=0, since_ms=0, placeholders=(), lost=())
        waits = self._invited(left) if self.request.has_slot else left.outside().but(state=State.WAITING)
        # If a node is missing, other paths may be another request's as well: find this request's nodes by their zxid.
        known = None if verdict.missing or own is None else own._replace(paths=verdict.own)
        self.record = nodes.remove(store, record, waits, nodes=known)
        if self.record is None:
            raise Again
        if verdict.tickets:
            return self.wait_for(self.record, verdict.tickets)
        return self._wait_for_hive(self.record, list(verdict.foreign)) if verdict.foreign else None

    def _refused(self, granted: Record, refused: Refused) -> None:
        """Create the nodes that a grant's transaction lacked.

        :raises Again: the record is no longer as it was read.
        """
        store, path = self.store, refused.op.path
        above = path.rpartition("/")[0]
        if path == store.layout.record(granted.key):
            raise Again
        if above.startswith(f"{store.layout.queues}/"):
            store.make_queues(granted.locks)
        elif refused.reason == Refused.NO_NODE and above == store.layout.namespace:
            store.namespace.make()

    def _park(self, asking: Record) -> None:
        """At its turn without a permit: give the position up, so that no request for locks waits for it."""
        self.record = nodes.remove(self.store, asking, permits.park(self.store, asking, self.passing_s))
        if self.record is None:
            raise Again
        self.enters(self.record)

    # Hive's clients.

    def foreign(
        self, locks: Sequence[Lock], seen: Mapping[LockObject, Listing], held: Mapping[LockObject, LockNode]
    ) -> list[PlacedLock]:
        """Hive's locks that block a try, or a deferred request."""
        namespace = self.store.namespace
        foreign = namespace.foreign_conflicts(locks, seen, held)
        # A failed try would write the record, and that would wake this request at once.
        if not foreign and (self._refused_at is not None or queueing.reads_decide(self.request.deferred)):
            foreign = namespace.foreign_below(locks, seen, _NO_POSITION)
        return foreign

    def _wait_for_hive(self, record: Record, foreign: list[PlacedLock]) -> Blocked | None:
        """Watch one blocking lock of Hive, or create a placeholder there after *patience_s*. None: look again."""
        store, now_s = self.store, self.store.clock()
        nearest = min(foreign, key=lambda placed: hives_order(placed.object))
        if self._refused_at is None:
            self._refused_at = now_s
        left_s = self.patience_s - (now_s - self._refused_at)
        # Hive's LOCK TABLE … PARTITION below the request's table: the request has no lock there, and so no placeholder.
        below = nearest.object not in {lock.object for lock in record.locks}
        # A worker does not wait, and a request that will hold nothing at its turn needs no placeholder.
        deferred = self.request.has_slot or self.at_turn(record) is not Ruling.GRANT
        holding = below or deferred or str(nearest.object) in dict(record.placeholders)
        if left_s <= 0 and self.request.wait and not holding:
            self._place(record, nearest.object)
            return None
        reads = Exists(store.layout.record(record.key), self.wake), Exists(nearest.path, self.wake)
        mine, there = store.client.submit(*reads)
        self._check_mine(mine)
        if there is None:
            self.wake()
        by = store.namespace.blockers(foreign[:3]) or [Blocker("Hive", nearest.object, nearest.node.mode)]
        recheck_s = None if holding or not self.request.wait else max(0.01, left_s)
        return Blocked(tuple(by), recheck_s=recheck_s)

    def _placeholders(self, record: Record) -> dict[LockObject, LockNode]:
        """The placeholders that still exist; the record loses one that Hive has unlocked."""
        if not record.placeholders:
            return {}
        names = dict(record.placeholders)
        locks = [lock for lock in record.locks if str(lock.object) in names]
        own = self.store.namespace.own_nodes(locks, record.node_zxids)
        if len(own) < len(record.placeholders):
            if self.request.has_slot:  # a worker writes nothing but its grant
                raise NotAtOnce
            kept = tuple(entry for entry in record.placeholders if entry[0] in map(str, own))
            self._write(record, record.but(placeholders=kept))
            raise Again
        return {target: placed.node for target, placed in own.items()}

    def _place(self, record: Record, target: LockObject) -> None:
        """Create a placeholder on *target*, and delete those on objects that sort after it."""
        done = nodes.place(self.store, record, target, self._lock_data())
        if isinstance(done, Refused):
            raise Again
        self.record = done.record
        if len(done.record.placeholders) == 1:  # it blocks all others from now on, so it must check for earlier ones
            assert self.position is not None
            if ahead := nodes.verify_placeholder(self.store, done.record, self.position, done.replies):
                self._give_back(done.record, Verification(ahead))

    # The record.

    def _invited(self, record: Record) -> Record:
        assert self.request.deferred is not None
        return record.but(state=State.INVITED, invitation_s=self.request.deferred.invitation_s)

    def _write(self, existing: Record | None, changed: Record) -> None:
        done = self.store.transact(existing, changed)
        if isinstance(done, Refused):
            raise Again
        self.record = done.record

    def _check_mine(self, stat: Stat | None) -> None:
        """Start again if another process has taken over or removed this waiter as dead. A worker does not wait."""
        changed = stat is None or self.record is None or stat.version != self.record.version
        if changed and not self.request.has_slot:
            raise Again

    def _lock_data(self) -> bytes:
        return self.store.layout.lock_data(self.request, self._asked_ms or self.store.time_ms())
