"""The namespaces of this ZooKeeper, and which of them a Hive uses: the connection's own or another one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import NamespaceUse
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Get, Names, SetData
from airflow_hivelock.locks.backends.zookeeper.layout import MADE_HERE, LockNode
from airflow_hivelock.locks.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore

MOST_NODES = 1_000
"""How many nodes of a namespace are looked at."""

MOST_NAMESPACES = 30
"""How many nodes beside the namespace are looked at."""

_HIVES_NAME = "hive_zookeeper_namespace"
"""What Hive calls its namespace by default; distributions put the name of the service behind it."""


def namespaces(store: ZooKeeperStore, chroot: str) -> list[NamespaceUse]:
    """The use of the store's own namespace, then of the other namespaces that a Hive uses or has used.

    :raises AccessDenied: the own namespace may not be looked at; others are then left out.
    """
    own = _use(store, store.layout.namespace, chroot)
    found = [_seen_by_hive(store, own, chroot)]
    ours = store.layout.root.split("/")
    with suppress(AccessDenied):
        above = store.layout.above.rstrip("/")
        listing = store.client.submit(Names(above or "/"))[0]
        paths = [f"{above}/{name}" for name in sorted(listing.names if listing else ())]
        others = [path for path in paths if path not in ("/zookeeper", store.layout.namespace)]
        for path in [path for path in others if path.split("/") != ours[: path.count("/") + 1]][:MOST_NAMESPACES]:
            with suppress(AccessDenied):
                other = _use(store, path, chroot)
                if other.hives or (_HIVES_NAME in path and other.objects and not other.made_here):
                    found.append(other)
    return found


def _use(store: ZooKeeperStore, path: str, chroot: str) -> NamespaceUse:
    node = store.client.submit(Get(path))[0]
    below = [LockNode.parse(name) for name in _names(store, path)]
    hives = sum(lock is not None and not lock.ours for lock in below)
    made_here = node is not None and node.data == MADE_HERE
    return NamespaceUse(path.removeprefix(chroot), hives, None in below, made_here)


def _names(store: ZooKeeperStore, path: str) -> Iterator[str]:
    """The names of the nodes below *path*, level by level; the first MOST_NODES of them."""
    level, left = [path], MOST_NODES
    while level and left > 0:
        following = []
        for above, listing in zip(level, store.client.submit(*map(Names, level)), strict=True):
            names = listing.names[: max(0, left)] if listing else ()
            left -= len(names)
            yield from names
            following += [f"{above}/{name}" for name in names if LockNode.parse(name) is None]
        level = following


def _seen_by_hive(store: ZooKeeperStore, own: NamespaceUse, chroot: str) -> NamespaceUse:
    """*own*; a Hive that locks there is remembered: its locks may all be gone at the next look."""
    if own.hives and own.made_here:
        with suppress(AccessDenied):
            store.client.submit(Commit((SetData(f"{chroot}{own.path}", b"", -1),)))
    return own
