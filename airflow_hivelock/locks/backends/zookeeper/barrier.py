"""The barrier: Hive's clients neither queue nor give way, so a lock node of ours that they see holds a place among them.

It is the lock later, never swapped for another. Hive keeps earlier locks while it waits for later ones, in sorted order; so a
request waits only at an object that sorts at or after every one where it has a node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.client import Delete, Listing, SetData
from airflow_hivelock.locks.backends.zookeeper.namespace import hives_order
from airflow_hivelock.locks.backends.zookeeper.queue import unit
from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.layout import LockNode
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import LockObject


def standing(store: ZooKeeperStore, record: Record) -> dict[LockObject, LockNode]:
    """The nodes of *record*'s barrier that are still there."""
    if not record.barrier:
        return {}
    listed = {name for name, _ in record.barrier}
    locks = [lock for lock in record.locks if str(lock.object) in listed]
    own = store.namespace.own_nodes(locks, record.node_zxids)
    return {target: placed.node for target, placed in own.items()}


def hold(store: ZooKeeperStore, record: Record, target: LockObject, data: bytes) -> tuple[Record, list[Op]]:
    """*record* with a lock node on *target*, and the operations that make it, and drop those on objects that sort after it.

    :param data: what the node says.
    """
    names = {str(lock.object): lock for lock in record.locks}
    dropped = [names[name] for name, _ in record.barrier if hives_order(names[name].object) > hives_order(target)]
    kept = tuple(entry for entry in record.barrier if hives_order(names[entry[0]].object) < hives_order(target))
    guards = store.removal.guards(dropped)
    gone = store.namespace.own_nodes(dropped, record.node_zxids)
    lock = names[str(target)]
    bump = [SetData(store.layout.queue(unit(lock)), b"", -1)] if lock.mode is LockMode.SHARED else []
    created = store.namespace.lock_nodes([lock], {target: Listing((), 0, 0)}, data)
    deletes = (Delete(placed.path) for placed in gone.values())
    return replace(record, barrier=(*kept, (str(target), 0))), [*guards, *bump, *deletes, *created]
