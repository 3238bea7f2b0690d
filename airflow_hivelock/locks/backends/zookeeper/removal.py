"""Taking lock nodes away, for release, roll-back and breaking: never a successor's, and never half.

Hive's UNLOCK TABLE removes our nodes too, its clean-up then removes the object node, and the sequence numbers of
the next ones start at 0 again: a path that was mine may be another's now, and a delete in ZooKeeper cannot ask whose.
So nodes are known by the zxid that made them, and between that look and the delete nobody can have made another:

* an EXCLUSIVE node of ours on the same object needs my ticket gone, which this very transaction removes;
* a SHARED one bumps its queue's guard, whose version this transaction checks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.client import (
    Check,
    Children,
    Client,
    Commit,
    Delete,
    Exists,
    Op,
    Refused,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.queue import shared_units
from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
    from airflow_hivelock.locks.backends.zookeeper.record import Record

MAX_TRIES = 200


class Removal:
    """Removes what a record's request has in Hive's namespace, together with the record's next state."""

    def __init__(self, client: Client, layout: Layout, namespace: Namespace) -> None:
        self._client = client
        self._layout = layout
        self._namespace = namespace

    def commit(self, key: str, current: Record, final: Record, also: Sequence[Op] = ()) -> Record | None:
        """One transaction: *final* in place of *current*, its lock nodes and empty partition nodes gone, and *also*.

        :return: *final* with its stat; None if the record, or what *also* names, is no longer as it was read: read again.
        """
        emptied: list[str] | None = None
        path = self._layout.record(key)
        for _ in range(MAX_TRIES):
            guards = self._guards(current)
            nodes = self._namespace.own_nodes(current.locks, current.lock_zxid) if current.lock_zxid else []
            if emptied is None:
                emptied = self._emptied(nodes)
            ops: list[Op] = [
                *guards,
                SetData(path, final.encode(), current.version),
                *map(Delete, nodes),
                *map(Delete, emptied),
                *also,
            ]
            outcome = self._client.submit(Commit(tuple(ops)))[0]
            if not isinstance(outcome, Refused):
                return replace(final, stat=outcome[len(guards)])
            if outcome.op in also and isinstance(outcome.op, Delete):
                also = [op for op in also if op != outcome.op]  # gone already
            elif outcome.op.path == path or outcome.op in also:
                return None
            elif outcome.op.path in emptied:
                emptied = [] if outcome.reason == Refused.NO_NODE else self._emptied(nodes)
        raise StoreUnavailable(
            f"the locks of {current.owner} changed {MAX_TRIES} times while they were being removed; try again"
        )

    def _guards(self, record: Record) -> list[Check]:
        """What must not have changed since now, in every queue in which the record's request has SHARED nodes."""
        if not record.lock_zxid:
            return []
        queues = [self._layout.queue(name) for name in shared_units(record.locks)]
        stats = self._client.submit(*map(Exists, queues))
        return [Check(queue, stat.version) for queue, stat in zip(queues, stats, strict=True) if stat is not None]

    def _emptied(self, nodes: Sequence[str]) -> list[str]:
        """The partition nodes that are left empty once *nodes* are gone, deepest first. Databases and tables stay."""
        depth_of_table = self._layout.namespace.count("/") + 2
        parents = sorted({node.rpartition("/")[0] for node in nodes}, key=lambda path: -path.count("/"))
        partitions = [path for path in parents if path.count("/") > depth_of_table]
        listings = self._client.submit(*map(Children, partitions))
        gone = set(nodes)
        for path, listing in zip(partitions, listings, strict=True):
            if listing is not None and all(f"{path}/{name}" in gone for name in listing.names):
                gone.add(path)
        return [path for path in partitions if path in gone]
