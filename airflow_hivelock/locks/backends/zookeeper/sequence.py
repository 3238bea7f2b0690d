"""Transactions that happen only if no child of some node was made since it was looked at.

ZooKeeper compares what a node says, not which children it has. But it numbers a sequential node by how many children its
parent ever had, and an operation sees what the earlier ones of its transaction have done (``PrepRequestProcessor``). So a
node under a name that nobody else uses gets the number which the snapshot makes us expect, or the transaction fails.

A node that was deleted and made anew counts from 0 again, and may have come as far. Its making counts with its parent.
So the node above is read as well, and first: up to the one that Hive's namespace lies in, for Hive's clean-up (``hive.zookeeper.clean.extra.nodes``) removes the namespace itself.
"""

from __future__ import annotations

from airflow_hivelock.locks.backends.zookeeper.client import Create, Delete


def expected(create: Create, created: int) -> str:
    """The path that the sequential *create* gets, if its parent still had *created* children in all."""
    return f"{create.path}{created:010}"


def unchanged(path: str, created: int, name: str) -> tuple[Create, Delete]:
    """Operations that fail unless the node at *path* still had *created* children in all. They leave nothing behind.

    :param name: one that no other process uses.
    """
    probe = Create(f"{path.rstrip('/')}/{name}-", sequential=True)
    return probe, Delete(expected(probe, created))
