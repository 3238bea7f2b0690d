"""The seam to ZooKeeper: pipelined reads and transactions, nothing else. A test's simulated ZooKeeper has the same.

Replies are values, failures of the *connection* are raised: a transaction whose reply was lost may have been
applied, and is never sent again; its owner's record settles what became of it.

Reads never go back, not even from one session to the next. ZooKeeper promises that within a session only: the next
one may be with a server that lags behind, and would not show a ticket or a lock that the last one has shown.
"""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization
from kazoo.protocol.states import KazooState
from kazoo.security import OPEN_ACL_UNSAFE

from airflow_hivelock.locks.backends.zookeeper import bulk
from airflow_hivelock.locks.errors import InvalidRequest, RequestTooLarge, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


log = logging.getLogger(__name__)

GIVE_UP_AFTER = 3
"""A session that has been without a connection for so many of its time-outs is given up for a new one."""

LARGE_BYTES = 50_000
"""From here on a lost connection may be due to a ``jute.maxbuffer`` of the server's that is smaller than its default."""

MOST_BYTES = 1_048_575
"""ZooKeeper's default ``jute.maxbuffer``: it closes the connection of whoever sends more."""

_OP_BYTES = 55


# Replies are tuples: a look at everything takes some thousands of them.


class Stat(NamedTuple):
    """What ZooKeeper tells of a node; zxids order every write there is, ``mtime_ms`` is the server's clock."""

    czxid: int
    mzxid: int
    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral: bool


class Node(NamedTuple):
    """A node's data and stat."""

    data: bytes
    stat: Stat


class Listing(NamedTuple):
    """A node's children, and the zxid that made the node itself."""

    names: tuple[str, ...]
    czxid: int


@dataclass(frozen=True)
class Get:
    """Read a node: :class:`Node`, or None where there is none."""

    path: str
    wake: Callable[[], None] | None = None


@dataclass(frozen=True)
class Exists:
    """Look whether a node is there: :class:`Stat` or None. *wake* fires when it comes or goes."""

    path: str
    wake: Callable[[], None] | None = None


@dataclass(frozen=True)
class Children:
    """List a node: :class:`Listing`, or None where there is no such node. *wake* fires when the list changes."""

    path: str
    wake: Callable[[], None] | None = None


@dataclass(frozen=True)
class Names(Children):
    """Children's names alone; its listing's ``czxid`` says nothing. Where thousands are wanted, they come together."""


@dataclass(frozen=True)
class Sync:
    """Bring this session up to date with every write acknowledged before: None."""


# The operations of a transaction are tuples: a thousand partitions take some thousands of them.


class Create(NamedTuple):
    """Create a node; the reply is its path."""

    path: str
    data: bytes = b""
    sequential: bool = False
    ephemeral: bool = False


class SetData(NamedTuple):
    """Write a node if it has *version* (-1: any); the reply is its new :class:`Stat`."""

    path: str
    data: bytes
    version: int


class Check(NamedTuple):
    """Fail the transaction unless the node has *version*."""

    path: str
    version: int


class Delete(NamedTuple):
    """Delete a node."""

    path: str


Op = Create | SetData | Check | Delete


@dataclass(frozen=True)
class Commit:
    """One transaction: a tuple of the operations' replies, or :class:`Refused`, in which case nothing happened."""

    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Refused:
    """The transaction failed whole, at the operation *op*, for *reason*."""

    op: Op
    reason: str

    NO_NODE = "NoNode"
    NODE_EXISTS = "NodeExists"
    BAD_VERSION = "BadVersion"
    NOT_EMPTY = "NotEmpty"


Request = Get | Exists | Children | Sync | Commit


class Client(Protocol):
    """A session with ZooKeeper."""

    def submit(self, *requests: Request) -> list[Any]:
        """Send all *requests* at once, in order, and give their replies in order; all of them in one session.

        :raises StoreUnavailable: the connection failed; a transaction among them may have been applied.
        """
        ...

    @property
    def session(self) -> int:
        """The session's id; ephemeral nodes and what was read before are void when it changes."""
        ...

    @property
    def connection(self) -> int:
        """Changes when the connection is lost: what comes next may be a store that has lost its data meanwhile."""
        ...

    @property
    def zxid(self) -> int:
        """The latest write that this session has seen."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        ...


_REASONS: dict[type[Exception], str] = {
    NoNodeError: Refused.NO_NODE,
    NodeExistsError: Refused.NODE_EXISTS,
    BadVersionError: Refused.BAD_VERSION,
    NotEmptyError: Refused.NOT_EMPTY,
}


class KazooSession:
    """:class:`Client` over kazoo.

    :param hosts: ``host:port,host:port``.
    :param timeout_s: the session's time-out, and the longest that one call waits for a connection or a reply.
    """

    def __init__(self, hosts: str, timeout_s: float = 10.0) -> None:
        self._hosts = shown = hosts.rpartition("@")[2]
        self._timeout_s = timeout_s
        self._synced = 0
        self._latest = 0
        try:
            self._zk = KazooClient(hosts, timeout=timeout_s)
        except ValueError as error:
            raise InvalidRequest(f"{shown!r}: {error}; name ZooKeeper's servers, as in zk1:2181,zk2:2181") from error
        try:
            self._zk.start(timeout=timeout_s)
        except (KazooTimeoutError, KazooException, OSError) as error:
            self._zk.stop()
            self._zk.close()
            raise StoreUnavailable(
                f"ZooKeeper at {shown} did not answer within {timeout_s:g} s; check that it runs and can be reached from here"
            ) from error
        self._reads_in_bulk: bool | None = None
        self._lost_at, self._losses = 0.0, 0
        self._connected = self._zk.handler.event_object()
        self._connected.set()
        self._zk.add_listener(self._on_state)

    @property
    def session(self) -> int:
        return int(self._zk._session_id or 0)

    @property
    def connection(self) -> int:
        return self._losses

    @property
    def zxid(self) -> int:
        return int(self._zk.last_zxid)

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()

    def submit(self, *requests: Request) -> list[Any]:
        for request in requests:
            if isinstance(request, Commit) and (size := _size_bytes(request)) > MOST_BYTES:
                raise RequestTooLarge(
                    f"{request.ops[0].path}: {size:,} bytes in one transaction are more than ZooKeeper takes "
                    f"({MOST_BYTES:,}), and would cost everybody here the connection; nothing was changed"
                )
        # Commands queued while suspended would be sent whenever the connection is back, wanted or not.
        if not self._connected.wait(self._timeout_s):
            if time.monotonic() - self._lost_at > GIVE_UP_AFTER * self._timeout_s:
                self._give_up()
            raise StoreUnavailable(f"ZooKeeper at {self._hosts} is not connected; nothing was sent")
        session = self.session
        asked = requests if session == self._synced else (Sync(), *requests)
        deadline = time.monotonic() + 2 * self._timeout_s
        pending = [(part, self._send(*part)) for part in self._parts(asked)]
        replies = [reply for part, result in pending for reply in self._replies(part, result, deadline)]
        if session != self.session:
            raise StoreUnavailable(
                f"ZooKeeper at {self._hosts}: the session ended during a request; its outcome is unknown"
            )
        if session != self._synced and self.zxid < self._latest:
            log.error(
                "ZooKeeper at %s has gone back, from zxid %#x to %#x: it has lost data, or was restored from a backup. Locks "
                "may be missing and others be back, and fencing tokens begin anew: stop the DAGs that lock, let the jobs end, "
                "and start with empty namespaces",
                *(self._hosts, self._latest, self.zxid),
            )
            self._latest = 0
        self._synced, self._latest = session, max(self._latest, self.zxid)
        return replies[len(asked) - len(requests) :]

    def _parts(self, requests: Sequence[Request]) -> Iterator[tuple[Request, ...]]:
        """*requests*, in order; where there are many reads, as many as one request carries together."""
        if len(requests) < bulk.FEWEST or sum(map(_fits_bulk, requests)) < bulk.FEWEST or not self._knows_bulk():
            yield from ((request,) for request in requests)
            return
        for together, run in itertools.groupby(requests, _fits_bulk):
            size = bulk.MOST if together else 1
            found = tuple(run)
            yield from (found[start : start + size] for start in range(0, len(found), size))

    def _knows_bulk(self) -> bool:
        """Ask the server that this session is with, once; another one may be older."""
        if self._reads_in_bulk is None:
            try:
                self._reads_in_bulk = bulk.understood(self._zk.command(b"srvr"))
            except (KazooException, OSError, AttributeError):  # the last: the connection went meanwhile
                return False
        return self._reads_in_bulk

    def _give_up(self) -> None:
        """Have the next connection begin a new session: a server that has lost data refuses whoever has seen more of it."""
        self._zk._reset_session()  # before the zxid: the old session must not go on with a server that lags behind
        self._zk.last_zxid = 0

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
        else:
            if self._connected.is_set():
                self._lost_at = time.monotonic()
                self._losses += 1
            self._connected.clear()
            self._reads_in_bulk = None

    def _send(self, request: Request, *more: Request) -> Any:
        if more:
            result = self._zk.handler.async_result()
            self._zk._call(bulk.MultiRead([_read(read) for read in (request, *more)]), result)
            return result
        match request:
            case Get(path, wake):
                return self._zk.get_async(path, watch=_watcher(wake))
            case Exists(path, wake):
                return self._zk.exists_async(path, watch=_watcher(wake))
            case Children(path, wake):
                return self._zk.get_children_async(path, watch=_watcher(wake), include_data=True)
            case Sync():
                return self._zk.sync_async("/")
            case Commit(ops):
                transaction = self._zk.transaction()
                # Not by its own methods: they look at each path three times over, half of what a thousand locks cost.
                transaction.operations = [_operation(op) for op in ops]
                return transaction.commit_async()

    def _replies(self, requests: Sequence[Request], result: Any, deadline: float) -> list[Any]:
        if len(requests) == 1:
            return [self._reply(requests[0], result, deadline)]
        try:
            found = result.get(timeout=max(0.001, deadline - time.monotonic()))
        except (KazooTimeoutError, KazooException) as error:
            raise StoreUnavailable(f"ZooKeeper at {self._hosts}: {type(error).__name__} during a look") from error
        return [_looked(request, value) for request, value in zip(requests, found, strict=True)]

    def _reply(self, request: Request, result: Any, deadline: float) -> Any:
        try:
            value = result.get(timeout=max(0.001, deadline - time.monotonic()))
        except NoNodeError:
            return None
        except (KazooTimeoutError, KazooException) as error:
            lost = "its outcome is unknown" if isinstance(request, Commit) else "nothing was changed"
            why = "connection lost" if isinstance(error, ConnectionLoss) else type(error).__name__
            if isinstance(request, Commit) and (size_bytes := _size_bytes(request)) > LARGE_BYTES:
                lost += f". If that happens again: its jute.maxbuffer may be smaller than this request, {size_bytes:,} bytes"
            raise StoreUnavailable(f"ZooKeeper at {self._hosts}: {why} during a request; {lost}") from error
        match request:
            case Get():
                return _node(value)
            case Exists():
                return _stat(value) if value else None
            case Children():
                return Listing(tuple(value[0]), value[1].czxid)
            case Commit(ops):
                return _outcome(ops, value)
            case _:
                return None


def _size_bytes(commit: Commit) -> int:
    """What the transaction takes on the wire, or a little more."""
    return sum(len(op.path.encode()) + len(getattr(op, "data", None) or b"") + _OP_BYTES for op in commit.ops)


def _fits_bulk(request: Request) -> bool:
    return isinstance(request, Get | Names) and request.wake is None


def _read(request: Request) -> Any:
    assert isinstance(request, Get | Names)
    kind = serialization.GetData if isinstance(request, Get) else serialization.GetChildren
    return kind(request.path, None)


def _looked(request: Request, value: Any) -> Node | Listing | None:
    if value is None:
        return None
    return _node(value) if isinstance(request, Get) else Listing(tuple(value), 0)


def _node(value: Any) -> Node:
    # Java's clients also make nodes without data, which is not empty data.
    return Node(value[0] or b"", _stat(value[1]))


def _operation(op: Op) -> Any:
    match op:
        case Create():
            flags = (1 if op.ephemeral else 0) | (2 if op.sequential else 0)
            return serialization.Create(op.path, op.data, OPEN_ACL_UNSAFE, flags)
        case Delete():
            return serialization.Delete(op.path, -1)
        case SetData():
            return serialization.SetData(op.path, op.data, op.version)
        case Check():
            return serialization.CheckVersion(op.path, op.version)


def _outcome(ops: Sequence[Op], results: Sequence[Any]) -> tuple[Any, ...] | Refused:
    for op, result in zip(ops, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            if reason := _REASONS.get(type(result)):
                return Refused(op, reason)
            raise StoreUnavailable(
                f"ZooKeeper refused {op.path}: {type(result).__name__}; nothing was changed"
            ) from result
    return tuple(_stat(result) if hasattr(result, "mzxid") else result for result in results)


def _watcher(wake: Callable[[], None] | None) -> Callable[[object], None] | None:
    return None if wake is None else _Watcher(wake)


@dataclass(frozen=True)
class _Watcher:
    """Equal for equal callbacks, so that kazoo keeps one a path however often it is set."""

    wake: Callable[[], None]

    def __call__(self, event: object) -> None:
        self.wake()


def _stat(stat: Any) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ctime, stat.mtime, stat.ephemeralOwner != 0)
