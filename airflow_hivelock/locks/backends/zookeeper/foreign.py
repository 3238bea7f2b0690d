"""Freeing one lock of Hive's own and no other: Hive's UNLOCK TABLE frees every lock on the object, whoever made it.

A delete in ZooKeeper cannot tell the node that was looked at from a later one of the same name, and names come again once
Hive has cleaned up an object. So the transaction fails where any lock or object has come to where this one lies, since before the
last look at it.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Get, Refused
from airflow_hivelock.locks.backends.zookeeper.layout import LockData
from airflow_hivelock.locks.errors import AccessDenied, Unsupported
from airflow_hivelock.locks.model import Lock, locks_to_json

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Node, Op
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import LockObject


def free(store: ZooKeeperStore, query_id: str, target: LockObject | None, *, reason: str, user: str) -> list[Lock]:
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
        paths = [above, store.layout.namespace, *map(store.layout.object, objects)]
        nodes = store.client.submit(*map(Get, dict.fromkeys(paths)))  # each behind the one above it
        looked = [(placed, node.stat.czxid) for placed, node in store.namespace.read([placed for placed, _ in found])]
        if looked == [(placed, node.stat.czxid) for placed, node in found]:
            what = {
                "lease": "",
                "owner": query_id,
                "locks": locks_to_json(tuple(locks)),
                "reason": reason,
                "user": user,
            }
            entry = json.dumps(what, ensure_ascii=False).encode()
            ops = [
                *(
                    op
                    for path, node in zip(dict.fromkeys(paths), nodes, strict=True)
                    for op in _unchanged(path, node, name)
                ),
                *(Delete(placed.path) for placed, _ in found),
                Create(f"{store.layout.audit}/", entry, sequential=True),
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

    :raises Unsupported: one lies where Hive would not look for it.
    """
    foreign = [placed for placed in store.namespace.below(target) if not placed.node.ours]
    here = [placed for placed in foreign if target is None or placed.object == target]
    found = [each for each in store.namespace.read(here) if LockData.decode(each[1].data).query_id == query_id]
    for placed, _ in found:
        if placed.path.rpartition("/")[0] != store.layout.object(placed.object):
            raise Unsupported(f"{placed.path} is not written as Hive writes it; delete it by zkCli.sh")
    return found
