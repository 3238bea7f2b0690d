"""Marks the requests whose lock nodes UNLOCK TABLE has deleted, before another request's lease is returned.

Such a request has a ticket that is older than the object's node, and its record has lock nodes. A waiter without a
placeholder has none. With a thousand waiters their records are most of the work, so they are not read. One read lists
the liveness nodes: a request that has one waits. It has no placeholder if it is *behind*: it conflicts, its ticket is
younger, and it comes later in the queue. Each of its looks shows the ticket of the request that is granted here, and a
placeholder needs a look that shows none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backends.zookeeper.client import Get
from airflow_hivelock.locks.backends.zookeeper.queue import unit_of
from airflow_hivelock.locks.backends.zookeeper.record import Record, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Listing
    from airflow_hivelock.locks.backends.zookeeper.queue import Listings, Ticket
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.queueing import Position

    Objects = Mapping[LockObject, Listing | None]
    Suspect = tuple[Ticket, LockObject, int]

FEW = 8
"""Up to so many records are read. To list all waiters of the store can cost more."""


def mark_older(
    store: ZooKeeperStore,
    record: Record,
    position: Position,
    rivals: Sequence[Ticket],
    objects: Objects,
    queues: Listings,
) -> Objects:
    """Mark requests LOST that had a lock node on an earlier node of one of *record*'s objects, by their older tickets.

    :param position: of *record*'s tickets.
    :param rivals: the tickets that conflict with *record*.
    :return: the objects on which such a request may have deleted a node at this request's path, as they are after that.
    """
    suspects: list[Suspect] = []
    targets = []
    others = store.queues.others(record, queues)
    shared = [lock.object for lock in record.locks if not lock.object.table or unit_of(lock.object) in others]
    czxids = {target: _czxid(record, target, objects) for target in shared}
    unsettled = {target: czxid for target, czxid in czxids.items() if not _is_settled(store, record, target, czxid)}
    older = store.queues.older(record, unsettled, others)
    for target, czxid in unsettled.items():
        # The queues of a database were listed after its node was read: a ticket may have gone in between.
        if older.get(target) or not target.table:
            targets.append(target)
            suspects += [(ticket, target, czxid) for ticket in older.get(target, {}).values() if ticket]
    if not targets:
        return {}
    if len(suspects) > FEW:
        suspects = _without_waiters(store, position, rivals, suspects)
    # The request's own nodes are read last: a request whose liveness node or record is gone may have deleted them.
    paths = {ticket.key: store.layout.record(ticket.key) for ticket, _, _ in suspects}
    replies = store.client.submit(*map(Get, paths.values()), *store.namespace.listings(targets))
    records = {
        key: Record.decode(node, path) if node else None
        for (key, path), node in zip(paths.items(), replies, strict=False)
    }
    lost = [one for one in suspects if _had_node(records[one[0].key], *one)]
    for one in lost:
        _mark(store, *one)
    found = store.client.submit(*store.namespace.listings(targets)) if lost else replies[len(paths) :]
    return dict(zip(targets, found, strict=True))


def _without_waiters(
    store: ZooKeeperStore, position: Position, rivals: Sequence[Ticket], suspects: list[Suspect]
) -> list[Suspect]:
    """The *suspects* that can have, or have had, lock nodes that are older than those of the request at *position*."""
    before = {one.path for one in queueing.in_the_way(position, rivals)}
    behind = {one.path for one in rivals if one.path not in before and not position.passed(one.position)}
    # Listed after the grant. So the lock nodes that a waiter may have had are gone, and it gets no older ones.
    alive = set(store.names(store.layout.alives)) if behind else set()
    return [one for one in suspects if one[0].path not in behind or one[0].key not in alive]


def settle(store: ZooKeeperStore, record: Record, targets: Iterable[LockObject], objects: Objects) -> None:
    """Note that all requests are marked that had a lock node on an earlier node of one of *targets*."""
    for target in targets:
        store.settle(store.layout.object(target), _czxid(record, target, objects))


def _is_settled(store: ZooKeeperStore, record: Record, target: LockObject, czxid: int) -> bool:
    """Whether :func:`settle` noted that before *record* was written. If later, *record*'s node may have been deleted
    between its own look and that note."""
    assert record.stat is not None
    settled = store.settled.get(store.layout.object(target))
    return settled is not None and settled[0] == czxid and settled[1] <= record.stat.mzxid


def _mark(store: ZooKeeperStore, ticket: Ticket, target: LockObject, czxid: int) -> None:
    """Record that the request with *ticket* has lost its node on *target*, which was created again at *czxid*."""
    marking = store.retry(f"the record of {ticket.owner} changed while it was marked as lost")
    while True:
        if not (record := store.read(ticket.key)) or not _had_node(record, ticket, target, czxid):
            return
        kept = tuple(entry for entry in record.placeholders if entry[0] != str(target))
        lost = record.but(state=State.LOST, lost=(*record.lost, str(target)))
        if store.rewrite(record, lost if record.holds else record.but(placeholders=kept)):
            return
        marking.again()


def _had_node(record: Record | None, ticket: Ticket, target: LockObject, czxid: int) -> bool:
    """Whether the request with *ticket* had a lock node on *target* before *czxid*, and may not know that it is gone."""
    if record is None or record.ticket_epoch != ticket.epoch or not record.has_nodes or str(target) in record.lost:
        return False
    # Its ticket may have been read before a partial release.
    return any(lock.object == target for lock in record.locks) and 0 < record.made(target) < czxid


def _czxid(record: Record, target: LockObject, objects: Objects) -> int:
    """The zxid that created *target*'s node; of its own transaction if that was not read."""
    listing = objects.get(target)
    return listing.czxid if listing else record.made(target)
