"""The parts of kazoo's client that the backend's real session needs, over a simulated session.

So :mod:`~airflow_hivelock.locks.backends.zookeeper.session` itself is under test: its bulk reads, which are not atomic;
a listing whose node is deleted between its parts; sessions that end while it waits.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat

from airflow_hivelock.locks.backends.zookeeper.client import (
    Children,
    Commit,
    Exists,
    Get,
    Listing,
    Node,
    Refused,
    Stat,
    Sync,
)
from airflow_hivelock.locks.backends.zookeeper.wire import MultiRead
from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from tests.simulation.session import SimulatedSession

_ERRORS = {
    Refused.NO_NODE: NoNodeError,
    Refused.NODE_EXISTS: NodeExistsError,
    Refused.BAD_VERSION: BadVersionError,
    Refused.NOT_EMPTY: NotEmptyError,
}


class Result:
    """The result of a request. It is sent when a caller asks for the result."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._value: Any = None
        self.known = False

    def set(self, value: Any) -> None:
        self._value, self.known = value, True

    def get(self, timeout: float) -> Any:
        if not self.known:
            self._flush()
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Wire:
    """Stands in for ``KazooClient``; always connected, for a connection that breaks is there again at once.

    :param version: the server's; an old one does not read in bulk.
    """

    client_state = KeeperState.CONNECTED
    connected = True

    def __init__(self, session: SimulatedSession, version: str) -> None:
        self.hosts = [(session.name, 2181)]
        self.handler = SimpleNamespace(event_object=threading.Event, async_result=lambda: Result(self._flush))
        self._connection = SimpleNamespace(_connect=None)
        self._session = session
        self._version = version
        self._pending: list[tuple[tuple[Request, ...], Result, Callable[[list[Any]], Any]]] = []

    @property
    def last_zxid(self) -> int:
        return self._session.zxid

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._session.listeners.append(listener)

    def start_async(self) -> None:
        self._session.listeners[-1](KazooState.CONNECTED)

    def stop(self) -> None:
        """Nothing runs here."""

    close = stop

    def command(self, word: bytes) -> str:
        return f"Zookeeper version: {self._version}"

    def sync_async(self, path: str) -> Result:
        return self._send((Sync(),), lambda replies: path)

    def get_async(self, path: str, watch: Any) -> Result:
        return self._send((Get(path, watch and watch.wake),), lambda replies: _node(replies[0]))

    def exists_async(self, path: str, watch: Any) -> Result:
        return self._send((Exists(path, watch and watch.wake),), lambda replies: replies[0] and _stat(replies[0]))

    def get_children_async(self, path: str, watch: Any, include_data: bool) -> Result:
        return self._send((Children(path, watch and watch.wake),), lambda replies: _listing(replies[0]))

    def _call(self, request: Any, result: Result) -> None:
        if isinstance(request, MultiRead):
            self._send(tuple(request.requests), list, result)
        else:
            assert isinstance(request, Commit)
            self._send((Commit(request.ops),), lambda replies: list(_outcome(request, replies[0])), result)

    def _send(
        self, requests: tuple[Request, ...], told: Callable[[list[Any]], Any], result: Result | None = None
    ) -> Result:
        found = result or Result(self._flush)
        self._pending.append((requests, found, told))
        return found

    def _flush(self) -> None:
        """All that has been sent arrives, one request after the other."""
        pending, self._pending = self._pending, []
        try:
            replies = self._session.submit(*(request for requests, _, _ in pending for request in requests))
        except StoreUnavailable:
            for _, result, _ in pending:
                result.set(ConnectionLoss())
            return
        for requests, result, told in pending:
            result.set(told(replies[: len(requests)]))
            replies = replies[len(requests) :]


def _stat(stat: Stat) -> ZnodeStat:
    owner = int(stat.ephemeral)
    return ZnodeStat(
        stat.czxid, stat.mzxid, stat.ctime_ms, stat.mtime_ms, stat.version, 2 * stat.created, 0, owner, 0, 0, stat.pzxid
    )


def _node(node: Node | None) -> Any:
    return NoNodeError() if node is None else (node.data, _stat(node.stat))


def _listing(listing: Listing | None) -> Any:
    if listing is None:
        return NoNodeError()
    return list(listing.names), _stat(Stat(listing.czxid, 0, 0, 0, 0, False, 0))


def _outcome(request: Commit, reply: tuple[Any, ...] | Refused) -> Iterator[Any]:
    if not isinstance(reply, Refused):
        yield from reply
        return
    at = request.ops.index(reply.op)
    yield from (RolledBackError() for _ in range(at))
    yield _ERRORS[reply.reason]()
    yield from (RuntimeInconsistency() for _ in request.ops[at + 1 :])
