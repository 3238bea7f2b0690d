"""What a request reads after its lock nodes exist, and before its lease is returned to the caller: create, then look.

Of two requests that conflict, the later one always sees the earlier one: among ours by its ticket, among Hive's clients by the
lower number of its lock node. Nothing that other requests check is written, so requests that do not conflict never refuse
each other.

The order of the reads matters: first the queues, then the objects. The other way round, a lease could be returned whose
node UNLOCK TABLE in Hive has deleted in between.

After UNLOCK TABLE an object can be created again, and its lock nodes are numbered from 0 again. The path of this request's
node may then be the one that another request remembers. So whoever gets a lease on an object that is younger than another
request's ticket for it marks that request LOST first: its release then fails, and finds its nodes by their zxid.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Request
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Ticket
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.removal import Nodes
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import Lock, LockObject
    from airflow_hivelock.locks.queueing import Position


@dataclass(frozen=True)
class Verification:
    """What a verification has found.

    :param tickets: of ours, in the way; the nearest first.
    :param foreign: lock nodes of Hive's clients in the way.
    :param missing: one of the request's own nodes is gone: UNLOCK TABLE.
    :param own: the paths of its nodes that were found.
    """

    tickets: Sequence[Ticket] = ()
    foreign: Sequence[PlacedLock] = ()
    missing: bool = False
    own: Mapping[LockObject, str] = field(default_factory=dict)

    @property
    def stands(self) -> bool:
        """Whether nothing is in the way, and the lease can be returned."""
        return not (self.tickets or self.foreign or self.missing)


FEW = 32
"""Up to so many objects that the transaction itself has created are read as any others."""


def to_read(locks: Sequence[Lock], existed: Collection[LockObject]) -> list[LockObject]:
    """The objects to read: of many partitions that the transaction itself creates, none, unless their queues change."""
    created = [lock.object for lock in locks if lock.object not in existed]
    few = len(created) <= FEW
    return [lock.object for lock in locks if few or lock.object in existed or not lock.object.partition]


def reads(store: ZooKeeperStore, locks: Sequence[Lock], targets: Sequence[LockObject]) -> list[Request]:
    """What to read, pipelined behind the transaction that creates the lock nodes; the objects are *targets*."""
    changes = store.queues.changes(locks) if len(targets) < len(locks) else []
    return [*store.queues.reads(locks), *changes, *store.namespace.listings(targets)]


def verify(
    store: ZooKeeperStore,
    record: Record,
    position: Position,
    nodes: Nodes,
    targets: Sequence[LockObject],
    replies: Sequence[Any],
) -> Verification:
    """Whether *record*'s lease can be returned.

    :param position: of its tickets.
    :param nodes: its lock nodes.
    :param targets: as :func:`reads` took them, with the *replies*.
    """
    queues = len(store.queues.reads(record.locks))
    listings, changes = replies[:queues], replies[queues : len(replies) - len(targets)]
    if _whole(
        record.locks
    ):  # its reads of the queues come after a look at which there are: read the objects after that
        tickets = store.queues.conflicting(record.locks)
        objects = _objects(store, targets)
    else:
        tickets = store.queues.conflicting(record.locks, listings)
        objects = dict(zip(targets, replies[len(replies) - len(targets) :], strict=True))
    if unread := [target for target in nodes.paths if target not in objects]:
        # Only a request that has, or had, a ticket in the queue of the same table can have deleted a node on its partitions.
        named = store.queues.named(record.locks, listings)
        tables = [named[f"{name}.{table}"] for name, table in {(one.database, one.table) for one in unread}]
        alone = all(listing is not None and len(listing.names) <= 1 for listing in tables)
        if not alone or any(queue is None or queue.stat.pzxid != record.written for queue in changes):
            objects |= _objects(store, unread)
    own = _own(record, nodes.paths, objects)
    if ahead := _before(tickets, record, position, own):
        return Verification(ahead, own=own)
    if len(own) < len(record.locks):
        return Verification(missing=True, own=own)
    mine = {target: node for target, path in own.items() if (node := LockNode.parse(path.rpartition("/")[2]))}
    foreign = store.namespace.foreign_conflicts(record.locks, objects, mine)
    foreign += store.namespace.foreign_below(record.locks, objects, record.written)
    if foreign:
        return Verification(foreign=foreign, own=own)
    if unsure := _mark_older(store, record, objects, store.queues.named(record.locks, listings)):
        again = _own(record, {target: own[target] for target in unsure}, _objects(store, unsure))
        if len(again) < len(unsure):
            return Verification(missing=True, own=again)
    # Only now: after a lost connection the next look has to mark those again that this one did not reach.
    for target in unsure:
        if not target.table:
            store.settle(store.layout.object(target), _czxid(record, target, objects))
    return Verification(own=own)


def verify_placeholder(
    store: ZooKeeperStore, record: Record, position: Position, replies: Sequence[Any]
) -> list[Ticket]:
    """The tickets in the way of a waiter that has just created its first placeholder among Hive's clients."""
    listings = None if _whole(record.locks) else replies
    own = {lock.object: "" for lock in record.locks if str(lock.object) in dict(record.placeholders)}
    return _before(store.queues.conflicting(record.locks, listings), record, position, own)


def _before(tickets: Iterable[Ticket], record: Record, position: Position, own: Collection[LockObject]) -> list[Ticket]:
    """The tickets that come before *position* and are older than the request's lock nodes: the owner of a younger one, which
    has claimed its position, sees these nodes at its turn."""
    since = min((record.made(target) for target in own), default=record.written)
    before = queueing.earlier(position, {ticket: ticket.position for ticket in tickets})
    return [ticket for ticket in reversed(before) if ticket.zxid < since]


def _own(
    record: Record, paths: Mapping[LockObject, str], objects: Mapping[LockObject, Listing | None]
) -> dict[LockObject, str]:
    """The request's nodes that exist, by what was read of their *objects*; on a younger object that path is another's."""
    found = {}
    for target, path in paths.items():
        if target in objects:
            listing = objects[target]
            if listing is None or listing.czxid > record.made(target):
                continue
            if path.rpartition("/")[2] not in listing.names:
                continue
        found[target] = path
    return found


def _mark_older(
    store: ZooKeeperStore,
    record: Record,
    objects: Mapping[LockObject, Listing | None],
    listings: Mapping[str, Listing | None],
) -> list[LockObject]:
    """Mark every request LOST that has a ticket older than one of *record*'s objects, and a lock node there before.

    :return: the objects that such a request may have deleted a node on since they were read: with this request's path.
    """
    found: list[LockObject] = []
    for lock in record.locks:
        target = lock.object
        czxid = _czxid(record, target, objects)
        path = store.layout.object(target)
        # A database has many queues: they are read once for each time that its node was created.
        if not target.table and store.settled.get(path) == czxid:
            continue
        older = store.queues.older(target, czxid, listings)
        older = {path: ticket for path, ticket in older.items() if f"/{record.lease_id}-" not in path}
        for ticket in older.values():
            if ticket is not None:
                _mark(store, ticket, target, czxid)
        # The queues of a database were listed after its node was read: a ticket may have gone in between.
        if older or not target.table:
            found.append(target)
    return found


def _mark(store: ZooKeeperStore, ticket: Ticket, target: LockObject, czxid: int) -> None:
    """Write into its record that the request with *ticket* has lost its node on *target*, whose node was created at *czxid*."""
    marking = store.retry(f"the record of {ticket.owner} changed while it was marked as lost")
    while True:
        record = store.read(ticket.key)
        if record is None or record.ticket_epoch != ticket.epoch or not record.has_nodes:
            return
        # Its ticket may have been read before a partial release.
        holds = any(lock.object == target for lock in record.locks)
        if not holds or not 0 < record.made(target) < czxid:
            return
        if str(target) in record.lost:
            return
        kept = tuple(entry for entry in record.placeholders if entry[0] != str(target))
        lost = (
            replace(record, state=State.LOST, lost=(*record.lost, str(target)))
            if record.holds
            else replace(record, placeholders=kept)
        )
        if store.rewrite(record, lost):
            return
        marking.again()


def _czxid(record: Record, target: LockObject, objects: Mapping[LockObject, Listing | None]) -> int:
    """The zxid that created *target*'s node: its own transaction's, where that was not read."""
    listing = objects.get(target)
    return listing.czxid if listing else record.made(target)


def _objects(store: ZooKeeperStore, targets: Sequence[LockObject]) -> dict[LockObject, Listing | None]:
    return dict(zip(targets, store.client.submit(*store.namespace.listings(targets)), strict=True))


def _whole(locks: Iterable[Lock]) -> bool:
    return any(not lock.object.table and lock.mode is LockMode.EXCLUSIVE for lock in locks)
