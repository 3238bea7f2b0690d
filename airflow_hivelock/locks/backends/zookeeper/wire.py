"""Requests that kazoo lacks: reads in bulk, and transactions of thousands of operations.

``multi`` (14) is written byte by byte like kazoo's (``MultiOperationRecord``, ``MultiResponse``). A thousand partitions
take four thousand operations, and kazoo's own writing takes four times as long.

kazoo does not have ``multiRead`` (22) of ZooKeeper 3.6 and later. Thousands of single reads cost its threads a wake-up
and some system calls each. An older server ends the session that sends a ``multiRead``, so its version has to be known
first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kazoo.exceptions import (
    EXCEPTIONS,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol import serialization

from airflow_hivelock.locks.backends.zookeeper.client import (
    Children,
    Commit,
    Create,
    Delete,
    Get,
    Listing,
    Names,
    Node,
    Refused,
    Request,
    SetData,
    Stat,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kazoo.protocol.states import ZnodeStat
    from kazoo.security import ACL

    from airflow_hivelock.locks.backends.zookeeper.client import Op

MOST_READS, MOST_READ_BYTES = 1_000, 1 << 19
"""How many reads one request carries, and how many bytes they take in it: far less than ``jute.maxbuffer``."""

_READ_BYTES = 24  # an operation's header, lengths and numbers
_READS = (Get, Children)
_SINCE = (3, 6)
_VERSION = re.compile(r"version: (\d+)\.(\d+)")

_REASONS: dict[type[Exception], str] = {
    NoNodeError: Refused.NO_NODE,
    NodeExistsError: Refused.NODE_EXISTS,
    BadVersionError: Refused.BAD_VERSION,
    NotEmptyError: Refused.NOT_EMPTY,
}

_int = serialization.int_struct
_stat_struct = serialization.stat_struct
_header = serialization.multiheader_struct
_CREATE, _DELETE, _SET_DATA, _CHECK, _GET, _LIST = (
    _header.pack(kind.type, False, -1)
    for kind in (
        *(serialization.Create, serialization.Delete, serialization.SetData, serialization.CheckVersion),
        *(serialization.GetData, serialization.GetChildren),
    )
)
_END = _header.pack(-1, True, -1)
_ANY_VERSION = _int.pack(-1)
_NO_WATCH = b"\0"
_FLAGS = [_int.pack(flags) for flags in range(4)]


@dataclass(frozen=True)
class Transaction(Commit):
    """A :class:`~.client.Commit` for kazoo to send; its result is that of :func:`_results`."""

    packet: bytes
    type: ClassVar = 14

    @classmethod
    def of(cls, commit: Commit, acls: Iterable[bytes]) -> Self:
        """Serialize a commit.

        :param acls: the ACLs of the nodes to be made, in their order, as :func:`acl_packet` writes them.
        """
        return cls(commit.ops, b"".join(_written(commit.ops, iter(acls))))

    def serialize(self) -> bytes:
        return self.packet

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        return _results(data, offset)


def acl_packet(acls: Sequence[ACL]) -> bytes:
    """An ACL in the form of an operation that makes a node."""
    write = serialization.write_string
    entries = [part for acl in acls for part in (_int.pack(acl.perms), write(acl.id.scheme), write(acl.id.id))]
    return b"".join((_int.pack(len(acls)), *entries))


def _written(ops: Iterable[Op], acls: Iterator[bytes]) -> list[bytes]:
    pack = _int.pack
    parts: list[bytes] = []
    for op in ops:
        path = op.path.encode()
        length = pack(len(path))
        if isinstance(op, Create):
            _, data, sequential, ephemeral = op
            parts += (_CREATE, length, path, pack(len(data)), data, next(acls), _FLAGS[ephemeral | sequential << 1])
        elif isinstance(op, Delete):
            parts += (_DELETE, length, path, _ANY_VERSION)
        elif isinstance(op, SetData):
            parts += (_SET_DATA, length, path, pack(len(op.data)), op.data, pack(op.version))
        else:
            parts += (_CHECK, length, path, pack(op.version))
    return [*parts, _END]


def failure(ops: Sequence[Op], results: Sequence[Any]) -> tuple[Op, Exception, str | None]:
    """The operation at which a transaction failed, and the reason; None if :class:`~.client.Refused` has no such
    reason."""
    others = RolledBackError | RuntimeInconsistency
    op, error = next(it for it in zip(ops, results, strict=True) if not isinstance(it[1], others))
    return op, error, _REASONS.get(type(error))


@dataclass(frozen=True)
class MultiRead:
    """Reads for kazoo to send together; its result has for each its reply, or the exception."""

    requests: Sequence[Request]
    type: ClassVar = 22

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for request in self.requests:
            assert isinstance(request, Get | Children)
            path = request.path.encode()
            read = (_int.pack(len(path)), path, _NO_WATCH)
            if not isinstance(request, Get):
                parts += (_LIST, *read)
            # A listing's node is read after its names. If it was created again in between, its zxid is younger than
            # the names, never older.
            if not isinstance(request, Names):
                parts += (_GET, *read)
        return b"".join([*parts, _END])

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        results = iter(_results(data, offset))
        return [_read(request, results) for request in self.requests]


def _read(request: Request, results: Iterator[Any]) -> Node | Listing | Exception | None:
    """The reply to a request that was read with others, from the *results* that follow."""
    names = () if isinstance(request, Get) else next(results)
    node = None if isinstance(request, Names) else next(results)
    for found in (names, node):
        if isinstance(found, Exception):
            return None if isinstance(found, NoNodeError) else found
    if isinstance(request, Get):
        return node
    return Listing(names, node.stat.czxid if node else 0)


def _results(data: bytes, offset: int) -> list[Any]:
    """The reply to each operation in the answer to a ``multi`` or a ``multiRead``; failures are exceptions."""
    results: list[Any] = []
    while True:
        kind, done, _ = _header.unpack_from(data, offset)
        offset += _header.size
        if done:
            return results
        if kind == serialization.Create.type:
            path, offset = serialization.read_string(data, offset)
            results.append(path)
        elif kind == serialization.SetData.type:
            results.append(_stat(*_stat_struct.unpack_from(data, offset)))
            offset += _stat_struct.size
        elif kind == serialization.GetData.type:
            content, offset = serialization.read_buffer(data, offset)
            results.append(Node(content or b"", _stat(*_stat_struct.unpack_from(data, offset))))
            offset += _stat_struct.size
        elif kind == serialization.GetChildren.type:
            number, offset = _int.unpack_from(data, offset)[0], offset + _int.size
            names = []
            for _ in range(number):  # without a call for each name, because there can be thousands
                start = offset + _int.size
                offset = start + _int.unpack_from(data, offset)[0]
                names.append(data[start:offset].decode())
            results.append(tuple(names))
        elif kind == -1:
            results.append(EXCEPTIONS[_int.unpack_from(data, offset)[0]]())
            offset += _int.size
        else:
            results.append(True)


def knows_multi_read(srvr: str) -> bool:
    """Whether a server knows ``multiRead``, by its answer to the four letter word ``srvr``."""
    version = _VERSION.search(srvr)
    return version is not None and (int(version[1]), int(version[2])) >= _SINCE


def parts(requests: Iterable[Request]) -> Iterator[tuple[Request, ...]]:
    """*requests*, in order: reads grouped, as many as one request carries, the others one by one."""
    part: list[Request] = []
    size_bytes = 0
    for request in requests:
        if not isinstance(request, _READS) or request.wake is not None:
            if part:
                yield tuple(part)
            yield (request,)
            part, size_bytes = [], 0
            continue
        read_bytes = 3 * (len(request.path.encode()) + _READ_BYTES)  # the most that it takes there
        if part and (len(part) == MOST_READS or size_bytes + read_bytes > MOST_READ_BYTES):
            yield tuple(part)
            part, size_bytes = [], 0
        part.append(request)
        size_bytes += read_bytes
    if part:
        yield tuple(part)


def node(value: Any) -> Node:
    # Java's clients also make nodes without data, which kazoo distinguishes from empty data.
    return Node(value[0] or b"", stat(value[1]))


def listing(value: Any) -> Listing:
    return Listing(tuple(value[0]), value[1].czxid)


def stat(raw: ZnodeStat) -> Stat:
    return _stat(*raw)


def _stat(
    czxid: int,
    mzxid: int,
    ctime: int,
    mtime: int,
    version: int,
    cversion: int,
    _aversion: int,
    owner: int,
    _length: int,
    children: int,
    pzxid: int,
) -> Stat:
    # cversion counts created children and deleted ones (Java's DataNode.copyStat), in 32 bits.
    created = ((cversion + children) & 0xFFFF_FFFF) >> 1
    return Stat(czxid, mzxid, version, ctime, mtime, owner != 0, created, pzxid)


def watcher(wake: Callable[[], None] | None) -> Callable[[object], None] | None:
    """kazoo's watcher for a request with *wake*."""
    return None if wake is None else _Watcher(wake)


@dataclass(frozen=True)
class _Watcher:
    """Equal for equal callbacks, so that kazoo keeps one per path however often it is set."""

    wake: Callable[[], None]

    def __call__(self, event: object) -> None:
        self.wake()
