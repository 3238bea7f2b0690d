"""A ZooKeeper that only has what a file says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import (
    Children,
    Commit,
    Create,
    Exists,
    Get,
    Listing,
    Names,
    Node,
    SetData,
    Stat,
)
from airflow_hivelock.locks.backends.zookeeper.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper.client import Client

NAMESPACE, ROOT = "/hive", "/airflow_hivelock"


def dump(client: Client) -> dict[str, Any]:
    """The nodes below both paths: each with its data and stat."""
    found: dict[str, Any] = {}
    level = [NAMESPACE, ROOT]
    while level:
        nodes = client.submit(*map(Get, level))
        listings = client.submit(*map(Names, level))
        found |= {path: [node.data.decode(), *node.stat] for path, node in zip(level, nodes, strict=True)}
        level = [f"{at}/{name}" for at, listing in zip(level, listings, strict=True) for name in sorted(listing.names)]
    return found


class Stored:
    """A session with the nodes of :func:`dump`; see :class:`~.client.Client`."""

    session = connection = 1

    def __init__(self, nodes: dict[str, Any]) -> None:
        self._nodes = {path: Node(data.encode(), Stat(*stat)) for path, (data, *stat) in nodes.items()}
        self.zxid = max(node.stat.mzxid for node in self._nodes.values())

    def submit(self, *requests: Any) -> list[Any]:
        return list(map(self._reply, requests))

    def close(self) -> None:
        """Nothing is open."""

    def _reply(self, request: Any) -> Any:
        if isinstance(request, Commit):  # this version's stamp
            for op in request.ops:
                assert isinstance(op, Create | SetData), "a listing writes nothing"
                made = self._nodes.get(op.path, Node(b"", Stat(1, 1, -1, 1, 1, False, 0)))
                self._nodes[op.path] = Node(op.data, made.stat._replace(version=made.stat.version + 1))
            return (made.stat,) * len(request.ops)
        node = self._nodes.get(getattr(request, "path", ""))
        if node is None:
            return None
        if isinstance(request, Get):
            return node
        if isinstance(request, Exists):
            return node.stat
        assert isinstance(request, Children)
        above = f"{request.path}/"
        names = [path.removeprefix(above) for path in self._nodes if path.startswith(above)]
        czxid = 0 if isinstance(request, Names) else node.stat.czxid
        return Listing(tuple(name for name in names if "/" not in name), czxid)


def opened(file: Path) -> LockManager:
    """A manager of the store in *file*."""
    return LockManager(ZooKeeperBackend(Stored(json.loads(file.read_text())), Layout(NAMESPACE, ROOT)))
