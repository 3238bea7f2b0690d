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
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Refused
from airflow_hivelock.locks.backends.zookeeper.layout import LockData
from airflow_hivelock.locks.errors import AccessDenied, Unsupported
from airflow_hivelock.locks.model import Lock, locks_to_json

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Node
    from airflow_hivelock.locks.backends.zookeeper.namespace import PlacedLock
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import LockObject


def free(store: ZooKeeperStore, query_id: str, target: LockObject | None, *, reason: str, user: str) -> list[Lock]:
    """See :meth:`.FreesForeign.force_unlock`."""
    store.namespace.ready()
    if not store.namespace.probed:
        raise AccessDenied(
            f"{query_id}: its locks are not freed, for {store.layout.above} in ZooKeeper may not be looked at, and so "
            "nobody can tell them from later ones; give this user the right to read there and to create"
        )
    name = f"unchanged-{uuid.uuid4().hex}"
    freeing = store.retry(f"locks came and went where those of {query_id} lie")
    while found := _locks_of(store, query_id, target):
        locks = [Lock(placed.object, placed.node.mode) for placed, _ in found]
        survey = store.namespace.survey(rules.with_parents([lock.object for lock in locks], ()))
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
                *store.namespace.unchanged(survey, name),
                *(Delete(placed.path) for placed, _ in found),
                Create(f"{store.layout.audit}/", entry, sequential=True),
            ]
            if not isinstance(store.client.submit(Commit(tuple(ops)))[0], Refused):
                return locks
        freeing.again()
    return []


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
