"""A request's turn: it waits for the requests before it, creates its lock nodes, and looks whether that was right.

One transaction creates all lock nodes of a request (:meth:`Turn.grant`); the reads behind it tell whether its lease can be
returned (:mod:`.verification`). If not, :meth:`Turn.give_back` takes everything back but the position in the queue.

Hive's clients neither queue nor give way, and would never let a request pass that waits for many objects. So, once its
patience is spent, a *placeholder*, a lock node of its own, holds a place among them. It is the lock later, never swapped for
another. Hive keeps earlier locks while it waits for later ones, in sorted order; so a request waits only at an object that
sorts at or after every one where it has a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import parking, positions, verification
from airflow_hivelock.locks.backends.zookeeper.client import (
    Commit,
    Create,
    Delete,
    Exists,
    Listing,
    Op,
    Refused,
    SetData,
    Stat,
)
from airflow_hivelock.locks.backends.zookeeper.groups import GroupLook, gives_back
from airflow_hivelock.locks.backends.zookeeper.namespace import hives_order
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.backends.zookeeper.removal import Nodes
from airflow_hivelock.locks.backends.zookeeper.verification import Verification
from airflow_hivelock.locks.errors import LockLost
from airflow_hivelock.locks.model import Blocker, Lease, Lock, LockObject, LockRequest, owner_key
from airflow_hivelock.locks.queueing import Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
    from airflow_hivelock.locks.queueing import Position

_NO_POSITION = 1 << 63
"""Later than every write."""


class Again(Exception):
    """What was read is out of date; start again from the record."""


@dataclass(eq=False)
class Turn:
    """What one acquisition knows of its request, and does while it is queued, parked, or granted and not yet verified.

    :param patience_s: how long Hive's clients may pass, when it is the request's turn, before it creates a placeholder.
    :param passing_s: how old a position is, by the store's clock, before which no request of higher priority goes.
    :param began_s: when the acquisition began, by the process's clock.
    :ivar record: the owner's, as this acquisition wrote it last; None: it has to be read again.
    :ivar granting: the epoch of a grant that has not been returned to any caller.
    :ivar look: what was read right behind the transaction that created the tickets.
    :ivar vain: how often in a row another client was quicker.
    :ivar outcome: of a grant at once, until the next step.
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
    outcome: Lease | Blocked | None = None
    position: Position | None = None
    waited_s: float = 0.0
    _asked_ms: int = 0
    _refused_at: float | None = None
    _outrun: int = 0

    @property
    def steps_aside(self) -> bool:
        """Whether the request, where it would be granted, leaves its locks to others until it is asked for again."""
        return queueing.at_turn(self.request.late) is Ruling.STEP_ASIDE

    def takes_position(self, record: Record, tickets: Sequence[Ticket]) -> Position:
        """Remember the position, and how long the owner had had it when this acquisition began."""
        if not tickets:
            raise Again
        self.position = tickets[0].position
        self._has_waited(record, tickets[0].since_ms)
        return self.position

    def returns(self, away: Record) -> None:
        """It had stepped aside: its lock nodes contain when its turn came, so a new process need not write to learn the time."""
        assert away.stat is not None
        self._asked_ms = away.stat.mtime_ms

    def parks(self, record: Record) -> None:
        """It has been parked: it has no position among those that want its locks."""
        self.position = self._refused_at = None
        self._has_waited(record, 0)

    def _has_waited(self, record: Record, since_ms: int) -> None:
        # Started again, when its session has ended, it has itself waited for a part of that.
        assert record.stat is not None
        self._asked_ms = record.asked_ms or since_ms
        in_all_s = (record.stat.mtime_ms - self._asked_ms) / 1000
        self.waited_s = max(0.0, in_all_s - (self.store.clock() - self.began_s))

    def advance(self, record: Record) -> Lease | Free | Blocked | None:
        """One step of a request that is queued. None: another client was quicker, look again."""
        outcome = self._advance(record)
        if isinstance(outcome, Blocked) and self.record is not None and self.record.first_in_group:
            # Blocked by the locks of others: the next one in the group need not wait for that.
            self._rewrite(self.record, self.record.outside(), gives_back(self.store.layout, self.record))
            return None
        return outcome

    def _advance(self, record: Record) -> Lease | Free | Blocked | None:
        look, self.look = self.look, None
        if self.steps_aside and record.node_zxids:  # an earlier process of the owner was not late, and has created them
            return self.give_back(record, Verification(missing=True))
        if record.has_nodes:  # a placeholder is in the way of all, also of those before it: they see it, and wait
            return self._try(record, look and look.objects)
        assert self.position is not None
        store, locks = self.store, record.locks
        look = look or store.looked(locks, store.client.submit(*store.reads(locks)))
        ahead = positions.in_the_way(store, locks, self.position, look.queues)
        if not ahead:
            return self._try(record, look.objects)
        outcome = self._wait_for(record, ahead[0], ahead[-1])
        if outcome is None:
            self.vain = 0  # there are fewer ahead now
        return outcome

    def _wait_for(self, record: Record, nearest: Ticket, first: Ticket) -> Blocked | None:
        """Watch the nearest ticket in the way. None: look again."""
        assert self.position is not None
        outcome = positions.wait(self.store, record, self.position, nearest, first, self.wake, self._check_mine)
        return outcome and replace(outcome, waited_s=self.waited_s)

    def wait_for_permit(self, parked: Record) -> Blocked | GroupLook | None:
        """Wait for a lease of its group, parked; a look that shows it a free one ends that. None: look again."""
        outcome = parking.wait(self.store, parked, self.wake)
        if isinstance(outcome, Blocked):
            self._check_mine(self.store.client.submit(Exists(self._path(parked), self.wake))[0])
            return replace(outcome, waited_s=self.waited_s)
        return outcome

    # The grant.

    def _try(self, record: Record, tops: Sequence[Listing | None] | None) -> Lease | Free | Blocked | None:
        """Its turn. None: an object node came or went, look again."""
        store, locks, mine = self.store, record.locks, record
        permit: list[Op] = []
        if mine.share:
            if (permitted := store.groups.permitted(mine)) is None:
                self._park(replace(record, asked_ms=self._asked_ms))
                return None
            mine, permit = permitted
        seen = store.namespace.survey(locks, tops)
        held = self._placeholders(record)
        if foreign := self.foreign(locks, seen, held):
            return self._wait_for_hive(record, foreign)
        if self.steps_aside:
            return self._step_aside(record)
        granted = replace(mine, state=State.GRANTED, written=0, token=0, since_ms=0, asked_ms=self._asked_ms)
        write = SetData(self._path(record), granted.encode(), record.version)
        alive = Delete(store.layout.alive(record.key))
        return self.grant(granted, [write], seen, held, [*permit, alive])

    def grant(
        self,
        granted: Record,
        writes: Sequence[Op],
        seen: Mapping[LockObject, Listing],
        held: Mapping[LockObject, LockNode],
        also: Sequence[Op],
        tickets: Sequence[Create] = (),
    ) -> Lease | Blocked | None:
        """One transaction: GRANTED, and all lock nodes. Then the lease, if nothing is in the way; or everything is given back.

        None: nothing happened, look again.

        :param writes: those of the record, the last one of *granted* itself.
        :param seen: the objects that exist.
        :param held: the placeholders, which are lock nodes already.
        :param tickets: where the request has none yet.
        """
        store, locks = self.store, granted.locks
        missing = [lock for lock in locks if lock.object not in held]
        creates = store.namespace.lock_nodes(missing, seen, self._lock_data())
        targets = verification.to_read(locks, seen)
        self.granting = granted.ticket_epoch
        ops = (*writes, *tickets, *creates, *also)
        outcome, *replies = store.client.submit(Commit(ops), *verification.reads(store, locks, targets))
        if isinstance(outcome, Refused):
            self._refused(outcome, writes, tickets)
            if outcome.op in creates:
                self._outrun += (
                    1  # an object came or went since the look: other requests lock and release it all the time
                )
                if self._outrun > 1:
                    store.namespace.make_partitions(one.object for one in missing if one.object not in seen)
            return None
        self._outrun = 0
        self.record = record = granted.at(outcome[len(writes) - 1])
        made = zip(creates, outcome[len(writes) + len(tickets) :], strict=False)
        paths = [str(path) for create, path in made if create.sequential]
        mine = {lock.object: path for lock, path in zip(missing, paths, strict=True)}
        mine |= {target: f"{store.layout.object(target)}/{node.name}" for target, node in held.items()}
        nodes = Nodes(mine, frozenset(lock.object for lock in missing if lock.object not in seen))
        if tickets:
            self.takes_position(record, store.queues.created(record))
        assert self.position is not None
        verdict = verification.verify(store, record, self.position, nodes, targets, replies)
        return self._settle(record, nodes, verdict)

    def verify_standing(self, record: Record) -> Lease | Blocked | None:
        """Verify a grant whose transaction another process has sent, or whose reply was lost."""
        store, locks = self.store, record.locks
        own = store.namespace.own_nodes(locks, record.node_zxids)
        self.takes_position(record, store.queues.of(record))
        assert self.position is not None
        nodes = Nodes({target: placed.path for target, placed in own.items()})
        targets = list(own)
        replies = store.client.submit(*verification.reads(store, locks, targets))
        verdict = verification.verify(store, record, self.position, nodes, targets, replies)
        if verdict.missing and self.granting != record.ticket_epoch:
            # The process before may have got this lease: its work has to stop.
            self._rewrite(record, replace(record, state=State.LOST), [])
            raise LockLost(lost(record))
        return self._settle(record, nodes, verdict)

    def _settle(self, record: Record, nodes: Nodes, verdict: Verification) -> Lease | Blocked | None:
        if not verdict.stands:
            return self.give_back(record, verdict, nodes)
        self.store.removal.remember(record, nodes)
        self.store.remember(record)
        return record.lease()

    def give_back(self, record: Record, verdict: Verification, nodes: Nodes | None = None) -> Blocked | None:
        """Take everything back but the position in the queue, then wait for what was in the way. None: look again.

        :param nodes: the request's lock nodes, if they are known.
        """
        store = self.store
        waiting = replace(
            record.outside(), state=State.WAITING, written=0, token=0, since_ms=0, placeholders=(), lost=()
        )
        # Where a node is missing, other paths may be another request's, too: find them by their zxid.
        known = None if verdict.missing or nodes is None else nodes._replace(paths=verdict.own)
        life = Create(store.layout.alive(record.key), record.process.encode(), ephemeral=True)
        self.record = store.removal.commit(record, waiting, [life] if record.holds else [], nodes=known)
        if self.record is None:
            raise Again
        if verdict.tickets:
            return self._wait_for(self.record, verdict.tickets[0], verdict.tickets[-1])
        return self._wait_for_hive(self.record, list(verdict.foreign)) if verdict.foreign else None

    def _refused(self, refused: Refused, writes: Sequence[Op], tickets: Sequence[Create]) -> None:
        """A grant's transaction has failed: create what it lacked.

        :raises Again: the record is no longer as it was read, or the session has ended.
        """
        store, op = self.store, refused.op
        if op in writes or (isinstance(op, Delete) and op.path == store.layout.alive(owner_key(self.request.owner))):
            raise Again
        if op in tickets:
            store.make_queues(self.request.locks)
        elif refused.reason == Refused.NO_NODE and op.path.rpartition("/")[0] == store.layout.namespace:
            store.namespace.make()

    def _park(self, asking: Record) -> None:
        """Its turn, but not in its group: step aside, and leave nothing that other requests wait for."""
        parked, at = parking.park(self.store, asking, self.passing_s)
        self.record = self.store.removal.commit(asking, parked, [*self.store.queues.deletes(asking), at])
        if self.record is None:
            raise Again
        self.parks(self.record)

    def _step_aside(self, record: Record) -> Free:
        """A late request's turn: give the position up instead of trying."""
        layout = self.store.layout
        away = replace(record.outside(), state=State.AWAY, asked_ms=self._asked_ms)
        life = Delete(layout.alive(record.key)), Create(layout.aside(record.key))
        tickets = self.store.queues.deletes(record)
        self._rewrite(record, away, [*tickets, *gives_back(layout, record), *life])
        return Free(self.waited_s)

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
        mine, standing = store.client.submit(Exists(self._path(record), self.wake), Exists(nearest.path, self.wake))
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
            self._rewrite(record, replace(record, placeholders=kept), [])
            raise Again
        return {target: placed.node for target, placed in own.items()}

    def _place(self, record: Record, target: LockObject) -> None:
        """Create a placeholder on *target*, and delete those on objects that sort after it."""
        store, names = self.store, {str(lock.object): lock for lock in record.locks}
        lock = names[str(target)]
        placed = [names[name] for name, _ in record.placeholders]
        dropped = [other for other in placed if hives_order(other.object) > hives_order(target)]
        kept = tuple(entry for entry in record.placeholders if names[entry[0]] not in dropped)
        gone = store.namespace.own_nodes(dropped, record.node_zxids)
        created = store.namespace.lock_nodes([lock], {target: Listing((), 0)}, self._lock_data())
        deletes = (Delete(each.path) for each in gone.values())
        changed = replace(record, placeholders=(*kept, (str(target), 0)))
        write = SetData(self._path(record), changed.encode(), record.version)
        outcome, *replies = store.client.submit(Commit((write, *deletes, *created)), *store.queues.reads(record.locks))
        if isinstance(outcome, Refused):
            raise Again
        self.record = written = changed.at(outcome[0])
        if not kept:  # it is in the way of all from now on, and so has to look whether another request is in its own
            assert self.position is not None
            if ahead := verification.verify_placeholder(store, written, self.position, replies):
                self.give_back(written, Verification(ahead))

    # The record.

    def _rewrite(self, record: Record, changed: Record, ops: Sequence[Op]) -> Record:
        """Compare and set it, with *ops* in the same transaction."""
        self.record = self.store.rewrite(record, changed, *ops)
        if self.record is None:
            raise Again
        return self.record

    def _check_mine(self, stat: Stat | None) -> None:
        """Another process may have taken over, or have taken this one for dead, while it waited."""
        if stat is None or self.record is None or stat.version != self.record.version:
            raise Again

    def _path(self, record: Record) -> str:
        return self.store.layout.record(record.key)

    def _lock_data(self) -> bytes:
        """What its lock nodes contain."""
        return self.store.layout.lock_data(self.request, self._asked_ms or self.store.time_ms())


def lost(record: Record) -> str:
    """The message about a lease that has lost a lock."""
    return (
        f"{record.owner}: one of the locks of its lease {record.lease_id} was removed by another client, most likely by "
        "UNLOCK TABLE in Hive. Stop the work under it and release it; then acquire again"
    )
