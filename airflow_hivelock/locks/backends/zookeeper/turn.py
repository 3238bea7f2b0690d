"""A request's turn: it waits for the requests before it, creates its lock nodes, and looks whether that was right.

One transaction creates all lock nodes of a request (:meth:`Turn._grant`); the reads behind it tell whether its lease can be
returned (:mod:`.nodes`). If not, :meth:`Turn._give_back` takes everything back except its position in the queue. Hive's
clients neither queue nor give way: once its patience is spent, the request creates a *placeholder* among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import nodes, waiting
from airflow_hivelock.locks.backends.zookeeper.client import Delete, Exists, Listing, Op, Refused, Stat
from airflow_hivelock.locks.backends.zookeeper.namespace import Nodes, hives_order
from airflow_hivelock.locks.backends.zookeeper.nodes import Verification
from airflow_hivelock.locks.backends.zookeeper.queue import position
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.backends.zookeeper.waiting import GroupLook, Lookout
from airflow_hivelock.locks.errors import LockLost, RequestTooLarge
from airflow_hivelock.locks.model import Blocker, Lease
from airflow_hivelock.locks.queueing import Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.model import Lock, LockObject, LockRequest
    from airflow_hivelock.locks.queueing import Position

_NO_POSITION = 1 << 63
"""Later than every write."""


class Again(Exception):
    """What was read is out of date; start again from the record."""


class NotAtOnce(Exception):
    """A new arrival cannot be granted at once; it queues."""


@dataclass(eq=False)
class Turn:
    """What one acquisition knows of its request, and does while it is queued, parked, or granted and not yet verified.

    :param patience_s: how long Hive's clients may pass, when it is the request's turn, before it creates a placeholder.
    :param passing_s: how long a request may be overtaken.
    :ivar record: the owner's, as this acquisition wrote it last; None: it has to be read again.
    :ivar granting: the epoch of a grant that has not been returned to any caller.
    :ivar look: what was read right behind the transaction that created the tickets.
    :ivar vain: how often in a row another client was quicker.
    :ivar position: of its tickets; None: it has none.
    :ivar first_ms: when the owner first asked, by the store's clock; 0 while that is not known.
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
    vain: int = 0
    position: Position | None = None
    waited_s: float = 0.0
    first_ms: int = 0
    _asked_ms: int = 0
    _refused_at: float | None = None
    _outrun: int = 0

    @property
    def steps_aside(self) -> bool:
        """Whether the request, where it would be granted, leaves its locks to others until it is asked for again."""
        return queueing.at_turn(self.request.late) is Ruling.STEP_ASIDE

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
        """Remember since when the owner has waited, by *record*, which arrived at *since_ms* unless it contains the time."""
        assert record.stat is not None
        self._asked_ms = record.asked_ms or since_ms
        self.first_ms = record.first_ms or self._asked_ms
        # Started again, when its session has ended, it has itself waited for a part of that.
        in_all_s = (record.stat.mtime_ms - self.first_ms) / 1000
        self.waited_s = max(0.0, in_all_s - (self.store.clock() - self.began_s))

    def advance(self, record: Record) -> Lease | Free | Blocked | None:
        """One step of a request that is queued. None: another client was quicker, look again."""
        outcome = self._advance(record)
        record = self.record or record
        if isinstance(outcome, Blocked) and record.queued and record.share and record.share.ticket:
            # The first of its group is blocked by the locks of others: the next one in the group need not wait for that.
            self._write(record, record.outside())
            return None
        return outcome

    def _advance(self, record: Record) -> Lease | Free | Blocked | None:
        look, self.look = self.look, None
        if self.steps_aside and record.node_zxids:  # an earlier process of the owner was not late, and has created them
            return self._give_back(record, Verification(missing=True))
        if record.has_nodes:  # a placeholder is in the way of all, also of those before it: they see it, and wait
            return self.attempt(record, record, look and look.objects)
        assert self.position is not None
        store, locks = self.store, record.locks
        look = look or store.looked(locks, store.client.submit(*store.reads(locks)))
        ahead = waiting.in_the_way(store, record, self.position, look.queues)
        if not ahead:
            return self.attempt(record, record, look.objects)
        outcome = self._wait_for(record, ahead)
        if outcome is None:
            self.vain = 0  # there are fewer ahead now
        return outcome

    def _wait_for(self, record: Record, ahead: Sequence[Ticket]) -> Blocked | None:
        """Watch the nearest ticket in the way. None: look again."""
        assert self.position is not None
        outcome = waiting.wait(self._lookout(record), self.position, ahead[0], ahead[-1])
        return outcome and replace(outcome, waited_s=self.waited_s)

    def wait_for_permit(self, parked: Record) -> Blocked | GroupLook | None:
        """Wait for a lease of its group, parked; a look that shows it a free one ends that. None: look again."""
        outcome = waiting.wait_for_permit(self._lookout(parked))
        return replace(outcome, waited_s=self.waited_s) if isinstance(outcome, Blocked) else outcome

    def _lookout(self, record: Record) -> Lookout:
        return Lookout(self.store, record, self.wake, self._check_mine)

    # The grant.

    def attempt(
        self,
        existing: Record | None,
        mine: Record,
        tops: Sequence[Listing | None] | None,
        group: GroupLook | None = None,
    ) -> Lease | Free | Blocked | None:
        """No ticket is in the way: be granted, or step aside. None: an object node came or went, look again.

        :param existing: the record that is replaced: *mine*, if it is queued.
        :param tops: the databases and tables, if they have been read.
        :param group: what a new arrival has seen of its group.
        :raises NotAtOnce: of a new arrival, which has to queue.
        """
        store, locks = self.store, mine.locks
        queued = existing is mine
        granted, more = mine, list[Op]()
        if mine.share and (queued or not self.steps_aside):
            if (permitted := waiting.permitted(store, mine, group)) is not None:
                granted, count = permitted
                more.append(count)
            elif queued:
                self._park(replace(mine, asked_ms=self._asked_ms))
                return None
            else:
                raise NotAtOnce
        seen = store.namespace.survey(locks, tops)
        held = self._placeholders(mine) if queued else {}
        if foreign := self.foreign(locks, seen, held):
            if not queued:
                raise NotAtOnce
            return self._wait_for_hive(mine, foreign)
        asked_ms = self._asked_ms if queued else mine.asked_ms
        if self.steps_aside:
            self._write(existing, replace(mine.outside(), state=State.AWAY, asked_ms=asked_ms))
            if not queued and self.record is not None:
                self.has_waited(self.record, 0)
            return Free(self.waited_s)
        granted = replace(granted, state=State.GRANTED, written=0, token=0, since_ms=0, asked_ms=asked_ms)
        return self._grant(existing, granted, seen, held, more)

    def _grant(
        self,
        existing: Record | None,
        granted: Record,
        seen: Mapping[LockObject, Listing],
        held: Mapping[LockObject, LockNode],
        more: Sequence[Op],
    ) -> Lease | Blocked | None:
        """One transaction: GRANTED, and all lock nodes. Then the lease, if nothing is in the way; or everything is given back.

        None: nothing happened, look again.

        :param seen: the objects that exist.
        :param held: the placeholders, which are lock nodes already.
        """
        store, locks = self.store, granted.locks
        queued = existing is not None and existing.queued
        if existing and existing.aside and existing.stat:
            # Its lock nodes contain when: a new process need not write to learn the time.
            self._asked_ms = existing.stat.mtime_ms
        missing = [lock for lock in locks if lock.object not in held]
        creates = store.namespace.lock_nodes(missing, seen, self._lock_data())
        targets = nodes.to_read(locks, seen)
        self.granting = granted.ticket_epoch
        try:
            done = store.transact(existing, granted, *creates, *more, reads=nodes.reads(store, locks, targets))
        except RequestTooLarge:
            if queued:
                raise
            raise NotAtOnce from None  # with its tickets it is larger than a try
        if isinstance(done, Refused):
            self._refused(granted, done)
            if done.op in creates:
                self._outrun += 1  # an object came or went since the look: others lock and release it all the time
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
        if self.granting != record.ticket_epoch:  # the process before may have got this lease
            # A ticket that was read before its partial release does not take it back.
            stats = self.store.client.submit(*(Exists(ticket.path) for ticket in verdict.tickets))
            if self.store.queues.forget_changed(zip(verdict.tickets, stats, strict=True)):
                raise Again
            if verdict.missing:  # the work of the process before has to stop
                self._write(record, replace(record, state=State.LOST))
                raise LockLost(lost(record))
        if not verdict.stands:
            return self._give_back(record, verdict, own)
        self.store.remember(record, own)
        return record.lease()

    def verify_standing(self, record: Record) -> Lease | Blocked | None:
        """Verify a grant whose transaction another process has sent, or whose reply was lost."""
        own = nodes.find(self.store, record, record.locks)
        self.enters(record, created=False)
        replies = self.store.client.submit(*nodes.reads(self.store, record.locks, list(own.paths)))
        return self._verify(record, own, list(own.paths), replies)

    def _give_back(self, record: Record, verdict: Verification, own: Nodes | None = None) -> Blocked | None:
        """Take everything back but the position in the queue, then wait for what was in the way. None: look again.

        :param own: the request's lock nodes, if they are known.
        """
        store = self.store
        waits = replace(record.outside(), state=State.WAITING, written=0, token=0, since_ms=0, placeholders=(), lost=())
        # Where a node is missing, other paths may be another request's, too: find them by their zxid.
        known = None if verdict.missing or own is None else own._replace(paths=verdict.own)
        self.record = nodes.remove(store, record, waits, nodes=known)
        if self.record is None:
            raise Again
        if verdict.tickets:
            return self._wait_for(self.record, verdict.tickets)
        return self._wait_for_hive(self.record, list(verdict.foreign)) if verdict.foreign else None

    def _refused(self, granted: Record, refused: Refused) -> None:
        """A grant's transaction has failed: create what it lacked.

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
        """Its turn, but not in its group: step aside, and leave nothing that other requests wait for."""
        self.record = nodes.remove(self.store, asking, waiting.park(self.store, asking, self.passing_s))
        if self.record is None:
            raise Again
        self.enters(self.record)

    # Hive's clients.

    def foreign(
        self, locks: Sequence[Lock], seen: Mapping[LockObject, Listing], held: Mapping[LockObject, LockNode]
    ) -> list[PlacedLock]:
        """Hive's locks that are in the way of a try, or of a late request."""
        namespace = self.store.namespace
        foreign = namespace.foreign_conflicts(locks, seen, held)
        # Another try in vain would write my record, and so wake me; a late request has no try to find out.
        if not foreign and (self._refused_at is not None or self.steps_aside):
            foreign = namespace.foreign_below(locks, seen, _NO_POSITION)
        return foreign

    def _wait_for_hive(self, record: Record, foreign: list[PlacedLock]) -> Blocked | None:
        """Watch one of Hive's locks that are in the way; once patience is spent, create a placeholder among its clients.

        None: look again."""
        store, now_s = self.store, self.store.clock()
        nearest = min(foreign, key=lambda placed: hives_order(placed.object))
        if self._refused_at is None:
            self._refused_at = now_s
        left_s = self.patience_s - (now_s - self._refused_at)
        # Below what I lock (Hive's LOCK TABLE … PARTITION under my table) there is no lock of mine for a placeholder.
        below = nearest.object not in {lock.object for lock in record.locks}
        # Nor does a request that steps aside need one.
        holding = below or self.steps_aside or str(nearest.object) in dict(record.placeholders)
        if left_s <= 0 and self.request.wait and not holding:
            self._place(record, nearest.object)
            return None
        mine, standing = store.client.submit(
            Exists(self.store.layout.record(record.key), self.wake), Exists(nearest.path, self.wake)
        )
        self._check_mine(mine)
        if standing is None:
            self.wake()
        by = store.namespace.blockers(foreign[:3]) or [Blocker("Hive", nearest.object, nearest.node.mode)]
        recheck_s = None if holding or not self.request.wait else max(0.01, left_s)
        return Blocked(tuple(by), self.waited_s, recheck_s=recheck_s)

    def _placeholders(self, record: Record) -> dict[LockObject, LockNode]:
        """The placeholders that still exist; one that Hive has unlocked is struck from the record."""
        if not record.placeholders:
            return {}
        names = dict(record.placeholders)
        locks = [lock for lock in record.locks if str(lock.object) in names]
        own = self.store.namespace.own_nodes(locks, record.node_zxids)
        if len(own) < len(locks):
            kept = tuple(entry for entry in record.placeholders if entry[0] in map(str, own))
            self._write(record, replace(record, placeholders=kept))
            raise Again
        return {target: placed.node for target, placed in own.items()}

    def _place(self, record: Record, target: LockObject) -> None:
        """Create a placeholder on *target*, and delete those on objects that sort after it."""
        store, names = self.store, {str(lock.object): lock for lock in record.locks}
        lock = names[str(target)]
        placed = [names[name] for name, _ in record.placeholders]
        dropped = [other for other in placed if hives_order(other.object) > hives_order(target)]
        kept = tuple(entry for entry in record.placeholders if names[entry[0]] not in dropped)
        gone = nodes.find(store, record, dropped)
        created = store.namespace.lock_nodes([lock], {target: Listing((), 0)}, self._lock_data())
        deletes = map(Delete, gone.paths.values())
        changed = replace(record, placeholders=(*kept, (str(target), 0)))
        done = store.transact(record, changed, *deletes, *created, reads=store.queues.reads(record.locks))
        if isinstance(done, Refused):
            raise Again
        self.record = done.record
        if not kept:  # it is in the way of all from now on, and so has to look whether another request is in its own
            assert self.position is not None
            if ahead := nodes.verify_placeholder(store, done.record, self.position, done.replies):
                self._give_back(done.record, Verification(ahead))

    # The record.

    def _write(self, existing: Record | None, changed: Record) -> None:
        """Compare and set it."""
        done = self.store.transact(existing, changed)
        if isinstance(done, Refused):
            raise Again
        self.record = done.record

    def _check_mine(self, stat: Stat | None) -> None:
        """Another process may have taken over, or have taken this one for dead, while it waited."""
        if stat is None or self.record is None or stat.version != self.record.version:
            raise Again

    def _lock_data(self) -> bytes:
        """What its lock nodes contain."""
        return self.store.layout.lock_data(self.request, self._asked_ms or self.store.time_ms())


def lost(record: Record) -> str:
    """The message about a lease that has lost a lock."""
    return (
        f"{record.owner}: one of the locks of its lease {record.lease_id} was removed by another client, most likely by "
        "UNLOCK TABLE in Hive. Stop the work under it and release it; then acquire again"
    )
