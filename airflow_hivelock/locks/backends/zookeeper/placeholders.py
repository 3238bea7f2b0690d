"""Placeholders: the lock nodes of a waiter among those of Hive's clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper import nodes
from airflow_hivelock.locks.backends.zookeeper.client import Delete, Listing
from airflow_hivelock.locks.backends.zookeeper.namespace import hives_order

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Refused
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import Done, ZooKeeperStore
    from airflow_hivelock.locks.model import LockObject


def standing(store: ZooKeeperStore, record: Record) -> dict[LockObject, PlacedLock]:
    """The placeholders of *record* that still exist."""
    names = dict(record.placeholders)
    locks = [lock for lock in record.locks if str(lock.object) in names]
    return store.namespace.own_nodes(locks, record.node_zxids)


def place(store: ZooKeeperStore, record: Record, target: LockObject, lock_data: bytes) -> Done | Refused:
    """Create a placeholder on *target*, and delete those on objects that sort after it."""
    names = {str(lock.object): lock for lock in record.locks}
    lock = names[str(target)]
    placed = [names[name] for name, _ in record.placeholders]
    dropped = [other for other in placed if hives_order(other.object) > hives_order(target)]
    kept = tuple(entry for entry in record.placeholders if names[entry[0]] not in dropped)
    gone = nodes.find(store, record, dropped)
    created = store.namespace.lock_nodes([lock], {target: Listing((), 0)}, lock_data)
    deletes = map(Delete, gone.paths.values())
    changed = replace(record, placeholders=(*kept, (str(target), 0)))
    reads = store.queues.reads(record.locks)
    return store.transact(record, changed, *deletes, *created, reads=reads, acquires=True)
