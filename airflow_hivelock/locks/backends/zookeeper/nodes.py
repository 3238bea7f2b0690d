"""A request's lock nodes after their creation: they are verified before the lease is returned, and deleted at its end.

The verification reads the queues first, then the objects. In the other order, a node that UNLOCK TABLE in Hive deletes
between the two would not be missed. It writes nothing that other requests check. So requests without a conflict never
refuse each other.

After UNLOCK TABLE an object can be created again, and its lock nodes are numbered from 0 again. So the path of this
request's node may be one that another request remembers. It marks that request LOST before its own lease is returned.
That makes every delete by path safe: the other request's transaction fails on its record, and it finds its nodes by
their zxid. If it deletes first, this request misses its node, and gives back. A release needs no read before it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.zookeeper import marking
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Get, Listing, Names, Refused
from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode
from airflow_hivelock.locks.backends.zookeeper.namespace import Nodes, hives_order
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.errors import AccessDenied, LockLost, Unsupported
from airflow_hivelock.locks.model import Lock, LockMode
from airflow_hivelock.locks.queueing import AFTER_ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Node, Op, Request
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim, Ticket
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import Done, ZooKeeperStore
    from airflow_hivelock.locks.model import Lease, LockObject
    from airflow_hivelock.locks.queueing import Position


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    :param tickets: the tickets ahead, and *foreign*, the blocking lock nodes of Hive's clients; the nearest first.
    :param missing: one of the request's own nodes is gone: UNLOCK TABLE.
    :param own: the paths of its nodes that were found.
    """

    tickets: Sequence[Ticket] = ()
    foreign: Sequence[PlacedLock] = ()
    missing: bool = False
    own: Mapping[LockObject, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing blocks it, and the lease can be returned."""
        return not (self.tickets or self.foreign or self.missing)


FEW = 32
"""Up to this many objects that the transaction itself has created are read like any others."""

OUTRUN = 3
"""How often others may use a partition while it is deleted as empty, before it is left to them."""


def to_read(locks: Sequence[Lock], existed: Collection[LockObject]) -> list[LockObject]:
    """The objects to read. Many partitions created by the transaction are left out, unless their queues change."""
    created = [lock.object for lock in locks if lock.object not in existed]
    few = len(created) <= FEW
    return [lock.object for lock in locks if few or lock.object in existed or not lock.object.partition]


def reads(store: ZooKeeperStore, locks: Sequence[Lock], targets: Sequence[LockObject]) -> list[Request]:
    """The reads to pipeline after the transaction that creates the lock nodes; the objects are *targets*."""
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
    """Check whether *record*'s lease can be returned.

    :param position: of its tickets.
    :param nodes: its lock nodes.
    :param targets: as :func:`reads` took them, with the *replies*.
    """
    queues, first_object = store.queues.named(record.locks, replies), len(replies) - len(targets)
    changes, objects = replies[len(queues) : first_object], dict(zip(targets, replies[first_object:], strict=True))
    tickets = store.queues.conflicting(record, queues)
    if _whole(record.locks):
        objects = _objects(store, targets)  # again, because other queues were read just now
    if unread := [target for target in nodes.paths if target not in objects]:
        # Only a request that has, or had, a ticket in the same table's queue can have deleted a node on its partitions.
        tables = [queues[f"{name}.{table}"] for name, table in {(one.database, one.table) for one in unread}]
        alone = all(listing is not None and len(listing.names) <= 1 for listing in tables)
        if not alone or any(queue is None or queue.stat.pzxid != record.written for queue in changes):
            objects |= _objects(store, unread)
    own = _own(record, nodes.paths, objects)
    if ahead := _before(tickets, record, position):
        return Verification(ahead, own=own)
    if len(own) < len(record.locks):
        return Verification(missing=True, own=own)
    mine = {target: node for target, path in own.items() if (node := LockNode.parse(path.rpartition("/")[2]))}
    foreign = store.namespace.foreign_conflicts(record.locks, objects, mine)
    foreign += store.namespace.foreign_below(record.locks, objects, record.written)
    if foreign:
        return Verification(foreign=foreign, own=own)
    read_again = marking.mark_older(store, record, position, tickets, objects, queues)
    again = _own(record, {target: own[target] for target in read_again}, read_again)
    if len(again) < len(read_again):
        return Verification(missing=True, own=again)
    # Only now: after a lost connection the next look must mark again the requests that this one did not reach.
    marking.settle(store, record, read_again, objects)
    return Verification(own=own)


def place(store: ZooKeeperStore, record: Record, target: LockObject, lock_data: bytes) -> Done | Refused:
    """Create a placeholder on *target*, and delete those on objects that sort after it."""
    locks = {str(lock.object): lock for lock in record.locks}
    placed = [locks[name] for name, _ in record.placeholders]
    dropped = [lock for lock in placed if hives_order(lock.object) > hives_order(target)]
    kept = [entry for entry in record.placeholders if locks[entry[0]] not in dropped]
    deletes = map(Delete, find(store, record, dropped).paths.values())
    created = store.namespace.lock_nodes([locks[str(target)]], {target: Listing((), 0)}, lock_data)
    changed = record.but(placeholders=(*kept, (str(target), 0)))
    return store.transact(record, changed, *deletes, *created, reads=store.queues.reads(record.locks), acquires=True)


def verify_placeholder(
    store: ZooKeeperStore, record: Record, position: Position, replies: Sequence[Any]
) -> list[Ticket]:
    """The tickets ahead of a waiter that has just created its first placeholder."""
    tickets = store.queues.conflicting(record, store.queues.named(record.locks, replies))
    return _before(tickets, record, position)


def _before(tickets: Iterable[Ticket], record: Record, position: Position) -> list[Ticket]:
    """The tickets before *position* that are older than the request's lock nodes, nearest first. A younger ticket has
    claimed its position, and its request sees these nodes at its turn."""
    # The lease was returned before a part of it was released. The oldest node can be gone with that part: a placeholder.
    if record.given:
        return []
    # By the record: if UNLOCK TABLE has deleted the oldest node, a returned lease is lost. It must not be given back.
    since = min(record.node_zxids)
    older = {ticket.path: ticket for ticket in tickets if ticket.zxid < since}
    # Granted at once, it has not looked whether the requests that it has overtaken have lock nodes.
    end = AFTER_ALL if position.arrival == since else position
    before = queueing.earlier(end, {path: ticket.position for path, ticket in older.items()})
    return [older[path] for path in reversed(before)]


def _own(
    record: Record, paths: Mapping[LockObject, str], objects: Mapping[LockObject, Listing | None]
) -> dict[LockObject, str]:
    """The request's nodes that exist, by their *objects*' listings. A younger object has another request's node."""
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


def _objects(store: ZooKeeperStore, targets: Sequence[LockObject]) -> dict[LockObject, Listing | None]:
    return dict(zip(targets, store.client.submit(*store.namespace.listings(targets)), strict=True))


def _whole(locks: Iterable[Lock]) -> bool:
    return any(not lock.object.table and lock.mode is LockMode.EXCLUSIVE for lock in locks)


def look_for_losses(
    store: ZooKeeperStore, lease: Lease, record: Record, locks: Sequence[Lock], wake: Callable[[], None] | None = None
) -> Record:
    """Return *record*, or its newer version after a partial release.

    :raises LockLost: a lock node of *record*'s for *locks* is gone; the record shows that to every other process.
    """
    missing = store.namespace.missing(locks, record.node_zxids, wake)
    marking = store.retry(f"the record of {lease.owner} changed while it was marked as lost")
    while missing:
        record = store.held(lease)  # read again: a release, even of a part, removes record and node together
        missing = [lock.object for lock in record.locks if lock.object in missing]
        if missing and store.rewrite(record, record.but(state=State.LOST)):
            raise LockLost(
                f"{lease.owner}: lease {lease.id} has lost its lock on {', '.join(map(str, missing[:3]))}, "
                "most likely because of UNLOCK TABLE in Hive. Stop the work under it"
            )
        if missing:  # refused: another process wrote. It may have released exactly the missing part
            marking.again()
    return record


# Deleting.


def remove(
    store: ZooKeeperStore,
    current: Record,
    final: Record,
    *also: Op,
    part: bool = False,
    nodes: Nodes | None = None,
    claim: Claim | None = None,
) -> Record | None:
    """Write *final* over *current* in one transaction, delete its lock nodes and empty partition nodes, and do *also*.

    :param part: delete only the nodes for locks that *final* no longer has.
    :param nodes: those of *current*, if they have just been found.
    :param claim: of the new tickets, if *final* gets some.
    :return: *final* as it was written; None if the record, or a node that *also* names, has changed since it was read.
    """
    kept: Collection[Lock] = set(final.locks) if part else ()
    locks = [lock for lock in current.locks if lock not in kept]
    if nodes is None:
        nodes = store.known_nodes(current)
    nodes = find(store, current, locks) if nodes is None else nodes.on(locks)
    emptied, outrun = _emptied(store, nodes), 0
    removing = store.retry(f"the locks of {current.owner} changed while they were removed")
    while True:
        deletes = [Delete(gone) for gone in (*nodes.paths.values(), *emptied)]
        done = store.transact(current, final, *deletes, *also, claim=claim)
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
    """End a request that holds no lease: withdrawn, dead or away. None: the record has changed."""
    return remove(store, record, record.freed())


def entomb(store: ZooKeeperStore, record: Record, *also: Op) -> Record | None:
    """End a lease, and leave a tombstone. None: the record has changed, read again."""
    return remove(store, record, record.outside().but(state=State.TOMBSTONE), *also)


def shrink(store: ZooKeeperStore, record: Record, left: tuple[Lock, ...]) -> Record | None:
    """Release all locks except *left* in one transaction. None: the record has changed, read again.

    The tickets stay with fewer locks, so that no request overtakes it. The waiters behind watch them."""
    return remove(store, record, record.without(left), *store.queues.shrinks(record, left), part=True)


def find(store: ZooKeeperStore, record: Record, locks: Sequence[Lock]) -> Nodes:
    """The lock nodes of *record* for *locks* that still exist."""
    own = store.namespace.own_nodes(locks, record.node_zxids)
    return Nodes({target: placed.path for target, placed in own.items()})


def _emptied(store: ZooKeeperStore, nodes: Nodes) -> list[str]:
    """The partition nodes that become empty, each before the one that contains it. Databases and tables stay."""
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


def free_hives(
    store: ZooKeeperStore, query_id: str, target: LockObject | None, *, reason: str, user: str
) -> list[Lock]:
    """See :meth:`.FreesForeign.force_unlock`."""
    above = store.layout.above
    try:
        store.client.submit(Get(above))
    except AccessDenied as error:
        raise AccessDenied(
            f"{query_id}: its locks are not freed, because this user cannot read {above} in ZooKeeper. So it cannot distinguish "
            "them from later locks. Give it the rights to read and to create there"
        ) from error
    name = f"unchanged-{uuid.uuid4().hex}"
    freeing = store.retry(f"other clients changed the locks next to those of {query_id} meanwhile")
    while found := _locks_of(store, query_id, target):
        locks = [Lock(placed.object, placed.node.mode) for placed, _ in found]
        objects = [lock.object for lock in rules.with_parents([lock.object for lock in locks], ())]
        paths = list(dict.fromkeys([above, store.layout.namespace, *map(store.layout.object, objects)]))
        nodes = store.client.submit(*map(Get, paths))  # each after the one above it
        # Read again after the nodes above: from here on, a new node below one of them makes the transaction fail.
        reread = [(placed, node.stat.czxid) for placed, node in store.namespace.read([placed for placed, _ in found])]
        if reread == [(placed, node.stat.czxid) for placed, node in found]:
            ops = [
                *(op for path, node in zip(paths, nodes, strict=True) for op in _unchanged(path, node, name)),
                *(Delete(placed.path) for placed, _ in found),
                *store.audited("", query_id, tuple(locks), reason, user),
            ]
            if not isinstance(store.client.submit(Commit(tuple(ops)))[0], Refused):
                return locks
            store.format.read()
        freeing.again()
    return []


def _unchanged(path: str, node: Node | None, name: str) -> list[Op]:
    """Operations that fail unless the *node* at *path* has had the same number of children. They leave nothing behind.

    ZooKeeper compares a node's version, and not its children. But it numbers a sequential node by how many children its
    parent ever had. An operation sees the earlier ones of its transaction (``PrepRequestProcessor``). So a node with a
    unique name gets the number that follows from the look, or the transaction fails.

    A node that was deleted and created again counts from 0 again, and may have reached the same number. Its creation
    counts with its parent. So every node above is checked too, up to the one that contains Hive's namespace. Hive's
    clean-up (``hive.zookeeper.clean.extra.nodes``) deletes the namespace itself.
    """
    if node is None:
        return []
    probe = Create(f"{path.rstrip('/')}/{name}-", sequential=True)
    return [probe, Delete(f"{probe.path}{node.stat.created:010}")]


def _locks_of(store: ZooKeeperStore, query_id: str, target: LockObject | None) -> list[tuple[PlacedLock, Node]]:
    """The lock nodes of a Hive query, only on *target* if it is given.

    :raises Unsupported: one is at a path that Hive would not look at.
    """
    foreign = [placed for placed in store.namespace.below(target) if not placed.node.ours]
    here = [placed for placed in foreign if target is None or placed.object == target]
    found = [each for each in store.namespace.read(here) if LockData.decode(each[1].data).query_id == query_id]
    for placed, _ in found:
        if placed.path.rpartition("/")[0] != store.layout.object(placed.object):
            raise Unsupported(f"{placed.path} does not have Hive's format. Delete it with zkCli.sh")
    return found
