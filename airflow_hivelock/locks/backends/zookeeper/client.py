"""The seam to ZooKeeper: pipelined reads and transactions. :mod:`.session` is the real one; the simulation has another.

Replies are values; failures of the *connection* are raised. A transaction without a reply may have been applied, and is
never sent again: its owner's record shows it. Reads never go back, not even from one session to the next. ZooKeeper
promises that within a session only: the next server may lag behind, and lack a ticket or a lock that the last one has
shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Replies are tuples: a look at everything takes some thousands of them.


class Stat(NamedTuple):
    """A node's stat. Zxids order all writes; ``mtime_ms`` is the server's clock.

    :param created: how many children it ever had.
    :param pzxid: the last write that created or deleted one of them.
    """

    czxid: int
    mzxid: int
    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral: bool
    created: int
    pzxid: int = 0


class Node(NamedTuple):
    """A node's data and stat."""

    data: bytes
    stat: Stat


def cached_latest(parse: Callable[[Any, Node, str], T]) -> Callable[[Any, Node, str], T]:
    """Cache the result of *parse*, which gets a class, a node and its path, for the latest version of each node.

    Each renewal makes a new version. Old versions of large records would fill the memory of a triggerer.
    """

    @lru_cache(maxsize=20_000)
    def latest(path: str) -> list[tuple[Node, T]]:
        return []

    @wraps(parse)
    def parsed(cls: Any, node: Node, path: str) -> T:
        for seen, result in latest(path):
            if seen == node:
                return result
        result = parse(cls, node, path)
        latest(path)[:] = [(node, result)]
        return result

    return parsed


class Listing(NamedTuple):
    """A node's children, and the zxid that created the node itself, which is never older than *names*."""

    names: tuple[str, ...]
    czxid: int


class Get(NamedTuple):
    """Read a node: :class:`Node`, or None if there is none.

    :param lenient: for a listing: a node that this client may not read is logged, and counts as none.
    """

    path: str
    wake: Callable[[], None] | None = None
    lenient: bool = False


class Exists(NamedTuple):
    """A node's :class:`Stat`, or None. *wake* fires when it is created, written or deleted."""

    path: str
    wake: Callable[[], None] | None = None


class Children(NamedTuple):
    """List a node: :class:`Listing`, or None if there is none. *wake* fires when the list changes.

    :param lenient: as for :class:`Get`.
    """

    path: str
    wake: Callable[[], None] | None = None
    lenient: bool = False


class Names(Children):
    """The children's names alone, with 0 for the zxid: half the work for thousands of nodes."""

    __slots__ = ()


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
    """One transaction: a tuple of the operations' replies, or :class:`Refused`; then nothing happened."""

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
        """Send all *requests* at once, in order, and return their replies in order; all of them in one session.

        :raises StoreUnavailable: the connection failed; a transaction among them may have been applied.
        """
        ...

    @property
    def session(self) -> int:
        """A number that changes when the session ends. It is not the session's id: a server may give that again."""
        ...

    @property
    def connection(self) -> int:
        """A number that changes when the connection is lost: the next server may have lost its data meanwhile."""
        ...

    @property
    def zxid(self) -> int:
        """The latest write that this session has seen."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes are deleted at once."""
        ...
