"""A request's lock nodes, once they exist: they are verified before the lease is returned, and deleted at its end.

The verification reads the queues first, then the objects. In the other order, a lease could be returned whose node UNLOCK
TABLE in Hive has deleted in between. Nothing that other requests check is written, so requests that do not conflict never
refuse each other.

After UNLOCK TABLE an object can be created again, and its lock nodes are numbered from 0 again. So the path of this request's
node may be one that another request remembers. It marks that request LOST before its own lease is returned. That makes every
delete by path safe: the other request's transaction fails on its record, and it finds its nodes by their zxid. If it deletes
first, this request misses its node in its verification, and gives back. A release needs no read before it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Get, Names, Refused
from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode
from airflow_hivelock.locks.backends.zookeeper.namespace import Nodes
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.errors import AccessDenied, LockLost, Unsupported
from airflow_hivelock.locks.model import Lock, LockMode, locks_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Listing, Node, Op, Request
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Listings, Ticket
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import Lease, LockObject
    from airflow_hivelock.locks.queueing import Position


@dataclass(frozen=True)
class Verification:
    """What a verification has found.

    :param tickets: of ours, and *foreign*, lock nodes of Hive's clients, in the way; the nearest first.
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

MAX_AUDITED_LENGTH = 30_000

OUTRUN = 3
"""How often other requests may come to a partition that is about to be deleted as empty, before it is left to them."""


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
    reads = len(store.queues.reads(record.locks))
    changes, looked = replies[reads : len(replies) - len(targets)], replies[len(replies) - len(targets) :]
    queues = store.queues.named(record.locks, replies[:reads])
    tickets = store.queues.conflicting(record, queues)
    objects = dict(zip(targets, looked, strict=True))
    if _whole(record.locks):
        objects = _objects(store, targets)  # the other queues were read only now, so the objects are read after that
    if unread := [target for target in nodes.paths if target not in objects]:
        # Only a request that has, or had, a ticket in the queue of the same table can have deleted a node on its partitions.
        tables = [queues[f"{name}.{table}"] for name, table in {(one.database, one.table) for one in unread}]
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
    if unsure := _mark_older(store, record, objects, queues):
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
    own = {lock.object: "" for lock in record.locks if str(lock.object) in dict(record.placeholders)}
    tickets = store.queues.conflicting(record, store.queues.named(record.locks, replies))
    return _before(tickets, record, position, own)


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
    queues: Listings,
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
        older = store.queues.older(record, target, czxid, queues)
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


def look_for_losses(
    store: ZooKeeperStore, lease: Lease, record: Record, locks: Sequence[Lock], wake: Callable[[], None] | None = None
) -> Record:
    """:return: *record*, or what it is after a part was given back meanwhile.
    :raises LockLost: a lock node of *record*'s for *locks* is gone; the record tells it to every other process.
    """
    missing = store.namespace.missing(locks, record.node_zxids, wake)
    marking = store.retry(f"the record of {lease.owner} changed while it was marked as lost")
    while missing:
        record = store.held(lease)  # read again: a release takes the record and the nodes together, also that of a part
        missing = [lock.object for lock in record.locks if lock.object in missing]
        if missing and store.rewrite(record, replace(record, state=State.LOST)):
            raise LockLost(
                f"{lease.owner}: lease {lease.id} has lost its lock on {', '.join(map(str, missing[:3]))}, "
                "most likely to UNLOCK TABLE in Hive; stop the work under it"
            )
        if missing:  # refused: another process wrote. It may have given back just what is missing
            marking.again()
    return record


# Deleting.


def remove(
    store: ZooKeeperStore, current: Record, final: Record, *also: Op, part: bool = False, nodes: Nodes | None = None
) -> Record | None:
    """One transaction: *final* in place of *current*, its lock nodes and empty partition nodes gone, and *also*.

    :param part: delete only the nodes for locks that *final* no longer has.
    :param nodes: those of *current*, if they have just been found.
    :return: *final* as it was written; None if the record, or what *also* names, is no longer as it was read.
    """
    kept = set(final.locks) if part else set()
    locks = [lock for lock in current.locks if lock not in kept]
    if nodes is None:
        nodes = store.known_nodes(current)
    nodes = find(store, current, locks) if nodes is None else nodes.on(locks)
    emptied, outrun = _emptied(store, nodes), 0
    removing = store.retry(f"the locks of {current.owner} changed while they were removed")
    while True:
        deletes = [Delete(gone) for gone in (*nodes.paths.values(), *emptied)]
        done = store.transact(current, final, *deletes, *also)
        if not isinstance(done, Refused):
            return done.record
        if done.op not in deletes:
            return None
        removing.again()
        if done.reason == Refused.NOT_EMPTY:  # other requests have come since; the last one deletes it
            nodes, outrun = nodes._replace(created=frozenset()), outrun + 1
        else:
            nodes = find(store, current, locks)
        emptied = _emptied(store, nodes) if outrun < OUTRUN else []


def free(store: ZooKeeperStore, record: Record) -> Record | None:
    """End a request that holds no lease: a withdrawn one, a dead one, one that stepped aside. None: the record has changed."""
    return remove(store, record, record.freed())


def entomb(store: ZooKeeperStore, record: Record, *also: Op) -> Record | None:
    """End a lease, and leave a tombstone. None: the record has changed, read again."""
    return remove(store, record, replace(record.outside(), state=State.TOMBSTONE), *also)


def shrink(store: ZooKeeperStore, record: Record, left: tuple[Lock, ...]) -> Record | None:
    """Give back all but *left* in one transaction. The tickets stay where they are, with fewer locks, so that no request
    overtakes it; those that wait behind them watch them. None: the record has changed, read again."""
    return remove(store, record, record.without(left), *store.queues.shrinks(record, left), part=True)


def find(store: ZooKeeperStore, record: Record, locks: Sequence[Lock]) -> Nodes:
    """Those of *record*'s lock nodes for *locks* that still exist."""
    own = store.namespace.own_nodes(locks, record.node_zxids)
    return Nodes({target: placed.path for target, placed in own.items()})


def _emptied(store: ZooKeeperStore, nodes: Nodes) -> list[str]:
    """The partition nodes that are left empty, each before the one that contains it. Databases and tables stay."""
    partitions = [target for target in sorted(nodes.paths, key=rules.order, reverse=True) if target.partition]
    paths = {target: store.layout.object(target) for target in partitions}
    unknown = [target for target in partitions if target not in nodes.created]
    names = dict(zip(unknown, store.client.submit(*(Names(paths[target]) for target in unknown)), strict=True))
    gone, emptied = set(nodes.paths.values()), []
    for target in partitions:
        path, listing = paths[target], names.get(target)
        others = listing is not None and any(f"{path}/{name}" not in gone for name in listing.names)
        if target in nodes.created or (listing is not None and not others):
            gone.add(path)
            emptied.append(path)
    return emptied


# By force.


def audit_entry(
    store: ZooKeeperStore, lease_id: str, owner: str, locks: tuple[Lock, ...], reason: str, user: str
) -> Create:
    """The entry of the audit trail, for the transaction that does what it tells.

    The lock nodes of a request as large as requests may be nearly fill that. Of too many partitions it names the tables."""
    if sum(len(str(lock.object)) for lock in locks) >= MAX_AUDITED_LENGTH:
        locks = tuple(lock for lock in locks if not lock.object.partition)
    entry = {"lease": lease_id, "owner": owner, "locks": locks_to_json(locks), "reason": reason, "user": user}
    return Create(f"{store.layout.audit}/", json.dumps(entry, ensure_ascii=False).encode(), sequential=True)


def free_hives(
    store: ZooKeeperStore, query_id: str, target: LockObject | None, *, reason: str, user: str
) -> list[Lock]:
    """See :meth:`.FreesForeign.force_unlock`."""
    above = store.layout.above
    try:
        store.client.submit(Get(above))
    except AccessDenied as error:
        raise AccessDenied(
            f"{query_id}: its locks are not freed, because this user cannot read {above} in ZooKeeper, and so cannot tell them "
            "from later ones; give it the right to read there and to create"
        ) from error
    name = f"unchanged-{uuid.uuid4().hex}"
    freeing = store.retry(f"locks came and went where those of {query_id} lie")
    while found := _locks_of(store, query_id, target):
        locks = [Lock(placed.object, placed.node.mode) for placed, _ in found]
        objects = [lock.object for lock in rules.with_parents([lock.object for lock in locks], ())]
        paths = list(dict.fromkeys([above, store.layout.namespace, *map(store.layout.object, objects)]))
        nodes = store.client.submit(*map(Get, paths))  # each behind the one above it
        looked = [(placed, node.stat.czxid) for placed, node in store.namespace.read([placed for placed, _ in found])]
        if looked == [(placed, node.stat.czxid) for placed, node in found]:
            ops = [
                *(op for path, node in zip(paths, nodes, strict=True) for op in _unchanged(path, node, name)),
                *(Delete(placed.path) for placed, _ in found),
                audit_entry(store, "", query_id, tuple(locks), reason, user),
            ]
            if not isinstance(store.client.submit(Commit(tuple(ops)))[0], Refused):
                return locks
        freeing.again()
    return []


def _unchanged(path: str, node: Node | None, name: str) -> list[Op]:
    """Operations that fail unless the *node* at *path* still had as many children in all. They leave nothing behind.

    ZooKeeper compares a node's version, and not which children it has. But it numbers a sequential node by how many children
    its parent ever had, and an operation sees what the earlier ones of its transaction have done
    (``PrepRequestProcessor``). So a node under a name that no other process uses gets the number that the look makes us
    expect, or the transaction fails.

    A node that was deleted and created again counts from 0 again, and may have come as far. Its creation counts with its
    parent. So every node above is checked as well, up to the one that contains Hive's namespace, because Hive's clean-up
    (``hive.zookeeper.clean.extra.nodes``) deletes the namespace itself.
    """
    if node is None:
        return []
    probe = Create(f"{path.rstrip('/')}/{name}-", sequential=True)
    return [probe, Delete(f"{probe.path}{node.stat.created:010}")]


def _locks_of(store: ZooKeeperStore, query_id: str, target: LockObject | None) -> list[tuple[PlacedLock, Node]]:
    """The lock nodes of a query of Hive's, on just *target*, if there is one.

    :raises Unsupported: one is where Hive would not look for it.
    """
    foreign = [placed for placed in store.namespace.below(target) if not placed.node.ours]
    here = [placed for placed in foreign if target is None or placed.object == target]
    found = [each for each in store.namespace.read(here) if LockData.decode(each[1].data).query_id == query_id]
    for placed, _ in found:
        if placed.path.rpartition("/")[0] != store.layout.object(placed.object):
            raise Unsupported(f"{placed.path} is not written as Hive writes it; delete it by zkCli.sh")
    return found
