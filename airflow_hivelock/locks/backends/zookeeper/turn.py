"""A request's turn: it waits for whoever goes before it, tries, looks once more, and is granted.

Only the request whose turn it is touches Hive's namespace, where one transaction makes all of its lock nodes. What was there
before is then looked at once more, for Hive's own clients neither queue nor give way.

Nor would they ever let one pass that waits for many objects. So, once its patience is spent, a lock node of its own holds a
place among them: the *barrier*. It is the lock later, never swapped for another. Hive keeps earlier locks while it waits for
later ones, in sorted order; so a request waits only at an object that sorts at or after every one where it has a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import parking, places
from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
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
from airflow_hivelock.locks.backends.zookeeper.queue import named
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.model import Blocker, Lease, Lock, LockObject, LockRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Place, Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore

_NO_PLACE = 1 << 63
"""Later than every write."""


class Again(Exception):
    """What was read is out of date; begin anew from the record."""


@dataclass(eq=False)
class Turn:
    """What one acquisition knows of its request, and does while that is queued or parked.

    :param patience_s: how long Hive's clients may pass, when it is the request's turn, before it holds its place.
    :param passing_s: how old a place is, by the store's clock, before which no request of higher priority goes.
    :param began_s: when the acquisition began, by the process's clock.
    :ivar record: the owner's, as this acquisition wrote it last; None: it has to be read again.
    :ivar granting: the epoch of a grant of which nobody may have been told.
    :ivar snapshot: what was seen right behind the transaction that made the tickets.
    :ivar vain: how often in turn somebody else was quicker.
    """

    store: ZooKeeperStore
    request: LockRequest
    wake: Callable[[], None]
    patience_s: float
    passing_s: float
    began_s: float
    record: Record | None = None
    granting: int = 0
    snapshot: Snapshot | None = None
    vain: int = 0
    place: Place | None = None
    waited_s: float = 0.0
    unpassed: list[Check] | None = None
    _asked_ms: int = 0
    _refused_at: float | None = None
    _tickets: tuple[tuple[str, str], ...] = ()

    def take_place(self, record: Record, tickets: Sequence[Ticket]) -> Place:
        """Remember the place, and how long the owner had had it when this acquisition began."""
        if not tickets:
            raise Again
        self.place = tickets[0].place
        self._tickets = named(ticket.path for ticket in tickets)
        self._has_waited(record, tickets[0].since_ms)
        return self.place

    def parks(self, record: Record) -> None:
        """It has been parked: it has no place among those that want its locks."""
        self.place = self._refused_at = None
        self._has_waited(record, 0)

    def _has_waited(self, record: Record, since_ms: int) -> None:
        # Started again, when its session has ended, it has itself waited for a part of that.
        assert record.stat is not None
        self._asked_ms = record.asked_ms or since_ms
        in_all_s = (record.stat.mtime_ms - self._asked_ms) / 1000
        self.waited_s = max(0.0, in_all_s - (self.store.clock() - self.began_s))

    def advance(self, record: Record) -> Lease | Free | Blocked | None:
        """One step of a request that is queued. None: somebody was quicker, look again."""
        outcome = self._advance(record)
        if isinstance(outcome, Blocked) and self.record is not None and self.record.first_in_group:
            # Blocked by others' locks: whoever is next in the group need not wait for that.
            self._rewrite(self.record, self.record.outside(), gives_back(self.store.layout, self.record))
            return None
        return outcome

    def _advance(self, record: Record) -> Lease | Free | Blocked | None:
        snapshot, self.snapshot = self.snapshot, None
        if self.request.late and record.node_zxids:
            return self._refuse(record, [])  # an earlier process of the owner was not late, and has made them
        if record.state is State.TRYING:
            return self._verify(record, None)
        if record.has_nodes:  # a place held among Hive's clients is in the way of all, also of those before it
            return self._try(record, snapshot and snapshot.objects)
        assert self.place is not None
        store, locks = self.store, record.locks
        snapshot = snapshot or store.look(locks)
        if None in snapshot.urgents:  # a store that an earlier version has made
            store.make_queues(locks)
            return None
        self.unpassed = store.queues.unpassed(locks, snapshot.urgents)
        ahead = places.in_the_way(store, locks, self.place, snapshot)
        if not ahead:
            return self._try(record, snapshot.objects)
        outcome = self._wait_for(record, ahead[0], ahead[-1])
        if outcome is None:
            self.vain = 0  # there are fewer ahead now
        return outcome

    def _wait_for(self, record: Record, nearest: Ticket, first: Ticket) -> Blocked | None:
        """Watch the nearest ticket in the way. None: look again."""
        assert self.place is not None
        outcome = places.wait(self.store, record, self.place, nearest, first, self.wake, self._check_mine)
        return outcome and replace(outcome, waited_s=self.waited_s)

    def wait_for_permit(self, parked: Record) -> Blocked | GroupLook | None:
        """Wait for a lease of its group, parked; a look that shows it a free one ends that. None: look again."""
        outcome = parking.wait(self.store, parked, self.wake)
        if isinstance(outcome, Blocked):
            self._check_mine(self.store.client.submit(Exists(self._path(parked), self.wake))[0])
            return replace(outcome, waited_s=self.waited_s)
        return outcome

    def _try(self, record: Record, objects: Sequence[Any] | None) -> Lease | Free | Blocked | None:
        """All lock nodes in one transaction. None: an object node came or went, look again."""
        store, locks, mine = self.store, record.locks, record
        permit: list[Op] = []
        if mine.share:
            if (permitted := store.groups.permitted(mine)) is None:
                self._park(replace(record, tickets=self._tickets, asked_ms=self._asked_ms))
                return None
            mine, permit = permitted
        survey = store.namespace.survey(locks, objects)
        children = survey.children
        held = self._barrier(record)
        if foreign := self.foreign(locks, children, held):
            return self._wait_for_hive(record, foreign)
        if self.request.late:
            return self._step_aside(record)
        trying = replace(mine, state=State.TRYING, written=0, tickets=self._tickets, asked_ms=self._asked_ms)
        guards = store.queues.guards(locks)
        missing = [lock for lock in locks if lock.object not in held]
        creates = [*store.namespace.absent(survey), *store.namespace.lock_nodes(missing, children, self._said())]
        write = SetData(self._path(record), trying.encode(), record.version)
        checks = self._still_first(record)
        ops: list[Op] = [write, *checks, *guards, *creates, *permit]
        existed = [lock.object for lock in locks if lock.object in children]
        outcome, *listings = store.client.submit(
            Commit(tuple(ops)), *(Children(store.layout.object(target)) for target in existed)
        )
        if isinstance(outcome, Refused):
            if outcome.op == write:
                raise Again
            return None
        self.record = tried = trying.at(outcome[0])
        own = store.removal.remember(tried, guards, creates, outcome[1 + len(checks) :], complete=not held)
        own |= {f"{store.layout.object(target)}/{node.name}" for target, node in held.items()}
        return self._verify(tried, own, dict(zip(existed, listings, strict=True)))

    def _still_first(self, record: Record) -> list[Check]:
        """What fails where somebody has gone before this request since its last look: never a later one's versions, for a
        place held among Hive's clients keeps all others back, and is held without a look."""
        if record.has_nodes:
            return []
        if self.unpassed is None:
            raise Again
        return self.unpassed

    def _park(self, asking: Record) -> None:
        """Its turn, but not in its group: step aside, with nothing left that anybody waits behind."""
        parked, stands_there = parking.park(self.store, asking, self.passing_s)
        self.record = self.store.removal.commit(asking, parked, [*self.store.queues.deletes(asking), stands_there])
        if self.record is None:
            raise Again
        self.parks(self.record)

    def _step_aside(self, record: Record) -> Free:
        """A late request's turn: give the place up instead of trying."""
        layout = self.store.layout
        away = replace(record.outside(), state=State.AWAY, tickets=(), asked_ms=self._asked_ms)
        stands_there = gives_back(layout, record)
        tickets = self.store.queues.deletes(replace(record, tickets=self._tickets))
        life = Delete(layout.alive(record.key)), Create(layout.aside(record.key))
        self._rewrite(record, away, [*tickets, *stands_there, *life])
        return Free(self.waited_s)

    def _verify(
        self, trying: Record, own: set[str] | None, children: Mapping[LockObject, Listing | None] | None = None
    ) -> Lease | Blocked:
        """Look at what existed before once more: my nodes still there, and nothing of Hive's before them."""
        namespace, locks = self.store.namespace, trying.locks
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
        self.granting = trying.ticket_epoch
        return self._rewrite(trying, granted, [Delete(self.store.layout.alive(trying.key))]).lease()

    def _refuse(self, trying: Record, foreign: list[PlacedLock]) -> Blocked:
        """Take everything back but the place in the queue, then wait for what was in the way."""
        waiting = replace(trying.outside(), state=State.WAITING, written=0, barrier=())
        self.record = self.store.removal.commit(trying, waiting)
        if self.record is None or not foreign:
            raise Again
        return self._wait_for_hive(self.record, foreign)

    # Hive's clients.

    def foreign(
        self, locks: Sequence[Lock], children: Mapping[LockObject, Listing], held: Mapping[LockObject, LockNode]
    ) -> list[PlacedLock]:
        """What of Hive's is in the way of a try, or of a late request."""
        namespace = self.store.namespace
        foreign = namespace.foreign_conflicts(locks, children, held)
        # Another try in vain would write my record, and so wake me; a late request has no try to find out.
        if not foreign and (self._refused_at is not None or self.request.late):
            foreign = namespace.foreign_below(locks, children, _NO_PLACE)
        return foreign

    def _wait_for_hive(self, record: Record, foreign: list[PlacedLock]) -> Blocked:
        """Watch one of Hive's locks that are in the way; once patience is spent, hold the place among its clients."""
        store, now_s = self.store, self.store.clock()
        nearest = min(foreign, key=lambda placed: hives_order(placed.object))
        if self._refused_at is None:
            self._refused_at = now_s
        left_s = self.patience_s - (now_s - self._refused_at)
        # Below what I lock (Hive's LOCK TABLE … PARTITION under my table) there is no place of mine to hold.
        below = nearest.object not in {lock.object for lock in record.locks}
        # Nor does one that steps aside need a place.
        holding = below or self.request.late or str(nearest.object) in dict(record.barrier)
        if left_s <= 0 and self.request.wait and not holding:
            self._hold_place(record, nearest.object)
            raise Again
        mine, standing = store.client.submit(Exists(self._path(record), self.wake), Exists(nearest.path, self.wake))
        self._check_mine(mine)
        if standing is None:
            self.wake()
        by = store.namespace.blockers(foreign[:3]) or [Blocker("Hive", nearest.object, nearest.node.mode)]
        recheck_s = None if holding or not self.request.wait else max(0.01, left_s)
        return Blocked(tuple(by), self.waited_s, recheck_s=recheck_s)

    def _barrier(self, record: Record) -> dict[LockObject, LockNode]:
        """The barrier's nodes that are still there; one that Hive has unlocked is struck from the record."""
        if not record.barrier:
            return {}
        names = dict(record.barrier)
        locks = [lock for lock in record.locks if str(lock.object) in names]
        own = self.store.namespace.own_nodes(locks, record.node_zxids)
        if len(own) < len(locks):
            kept = tuple(entry for entry in record.barrier if entry[0] in map(str, own))
            self._rewrite(record, replace(record, barrier=kept), [])
            raise Again
        return {target: placed.node for target, placed in own.items()}

    def _hold_place(self, record: Record, target: LockObject) -> None:
        """Make a lock node on *target*, and drop those on objects that sort after it."""
        store, names = self.store, {str(lock.object): lock for lock in record.locks}
        lock = names[str(target)]
        dropped = [names[name] for name, _ in record.barrier if hives_order(names[name].object) > hives_order(target)]
        kept = tuple(entry for entry in record.barrier if names[entry[0]] not in dropped)
        guards = store.removal.guards(dropped)
        gone = store.namespace.own_nodes(dropped, record.node_zxids)
        created = store.namespace.lock_nodes([lock], {target: Listing((), 0, 0)}, self._said())
        deletes = (Delete(placed.path) for placed in gone.values())
        ops: list[Op] = [*self._still_first(record), *guards, *store.queues.guards([lock]), *deletes, *created]
        self._rewrite(record, replace(record, barrier=(*kept, (str(target), 0))), ops)

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

    def _said(self) -> bytes:
        """What its lock nodes say."""
        return self.store.layout.lock_data(self.request, self._asked_ms)
