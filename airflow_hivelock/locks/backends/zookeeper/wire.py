"""Requests that kazoo lacks: reads in bulk, and transactions of thousands of operations.

``multi`` (14) is written byte by byte like kazoo's (``MultiOperationRecord``, ``MultiResponse``). A thousand partitions
take four thousand operations, and kazoo's own writing takes four times as long.

kazoo does not have ``multiRead`` (22) of ZooKeeper 3.6 and later. Thousands of single reads cost its threads a wake-up
and some system calls each. An older server ends the session that sends a ``multiRead``, so its version has to be known
first.
"""

from __future__ import annotations

import itertools
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
from kazoo.protocol.states import ZnodeStat

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

    from kazoo.security import ACL

    from airflow_hivelock.locks.backends.zookeeper.client import Op

MOST_READS, MOST_READ_BYTES = 1_000, 1 << 19
"""How many reads one request carries, and how many bytes they take in it: far less than ``jute.maxbuffer``."""

FEWEST_READS = 2
"""Fewer are sent one by one."""

_READ_BYTES = 24  # an operation's header, lengths and numbers
_SINCE = (3, 6)
_VERSION = re.compile(r"version: (\d+)\.(\d+)")

_REASONS: dict[type[Exception], str] = {
    NoNodeError: Refused.NO_NODE,
    NodeExistsError: Refused.NODE_EXISTS,
    BadVersionError: Refused.BAD_VERSION,
    NotEmptyError: Refused.NOT_EMPTY,
}

_int = serialization.int_struct
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


def done(results: Sequence[Any]) -> tuple[Any, ...]:
    """The replies to the operations of a transaction that was applied."""
    return tuple(stat(result) if isinstance(result, ZnodeStat) else result for result in results)


def failure(ops: Sequence[Op], results: Sequence[Any]) -> tuple[Op, Exception, str | None]:
    """The operation at which a transaction failed, and the reason; None if :class:`~.client.Refused` has no such
    reason."""
    others = RolledBackError | RuntimeInconsistency
    op, error = next(it for it in zip(ops, results, strict=True) if not isinstance(it[1], others))
    return op, error, _REASONS.get(type(error))


@dataclass(frozen=True)
class MultiRead:
    """Reads for kazoo to send together; its result is that of :func:`_results`, with None for no node.

    Operations after an exception have no result.
    """

    operations: Sequence[Any]
    type: ClassVar = 22

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Self:
        return cls([operation for request in requests for operation in _reads(request)])

    def serialize(self) -> bytearray:
        written = bytearray()
        for operation in self.operations:
            written += (_GET if operation.type == serialization.GetData.type else _LIST) + operation.serialize()
        written += _END
        return written

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        return [None if isinstance(result, NoNodeError) else result for result in _results(data, offset)]


def _results(data: bytes, offset: int) -> list[Any]:
    """kazoo's value for each operation in the answer to a ``multi`` or a ``multiRead``; failures are exceptions."""
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
            results.append(_stat_at(data, offset))
            offset += serialization.stat_struct.size
        elif kind == serialization.GetData.type:
            content, offset = serialization.read_buffer(data, offset)
            results.append((content, _stat_at(data, offset)))
            offset += serialization.stat_struct.size
        elif kind == serialization.GetChildren.type:
            number, offset = _int.unpack_from(data, offset)[0], offset + _int.size
            names = []
            for _ in range(number):
                name, offset = serialization.read_string(data, offset)
                names.append(name)
            results.append(names)
        elif kind == -1:
            results.append(EXCEPTIONS[_int.unpack_from(data, offset)[0]]())
            offset += _int.size
        else:
            results.append(True)


def _stat_at(data: bytes, offset: int) -> ZnodeStat:
    return ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))


def knows_multi_read(srvr: str) -> bool:
    """Whether a server knows ``multiRead``, by its answer to the four letter word ``srvr``."""
    version = _VERSION.search(srvr)
    return version is not None and (int(version[1]), int(version[2])) >= _SINCE


def worth_together(requests: Sequence[Request]) -> bool:
    """Whether *requests* has reads to group."""
    return len(requests) >= FEWEST_READS and sum(map(_together, requests)) >= FEWEST_READS


def parts(requests: Sequence[Request]) -> Iterator[tuple[Request, ...]]:
    """*requests*, in order: reads grouped, as many as one request carries, the others one by one."""
    for together, run in itertools.groupby(requests, _together):
        found = tuple(run)
        size = min(MOST_READS, MOST_READ_BYTES // max(map(_read_bytes, found))) if together else 1
        yield from (found[start : start + size] for start in range(0, len(found), size))


def _together(request: Request) -> bool:
    return isinstance(request, Get | Children) and request.wake is None


def _read_bytes(request: Request) -> int:
    """The most bytes that a read takes in a request that reads many."""
    assert isinstance(request, Get | Children)
    return 3 * (len(request.path.encode()) + _READ_BYTES)


def by_request(requests: Iterable[Request], found: Iterable[Any]) -> list[tuple[Request, list[Any]]]:
    """The result of a :class:`MultiRead` of *requests*, by request."""
    values = iter(found)
    return [(request, [next(values) for _ in _reads(request)]) for request in requests]


def _reads(request: Request) -> list[Any]:
    """The operations of a request that reads many.

    A listing's node is read after its names. If it was created again in between, its zxid is younger than the names,
    never older.
    """
    match request:
        case Get(path):
            return [serialization.GetData(path, None)]
        case Names(path):
            return [serialization.GetChildren(path, None)]
        case Children(path):
            return [serialization.GetChildren(path, None), serialization.GetData(path, None)]
    raise AssertionError(request)


def reply(request: Request, values: Sequence[Any]) -> Node | Listing | None:
    """The reply to a request, from the values that a :class:`MultiRead` has read for it."""
    if None in values:
        return None
    match request, values:
        case Get(), (found,):
            return node(found)
        case _, (names,):
            return Listing(tuple(names), 0)
        case _, (names, (_, after)):
            return Listing(tuple(names), after.czxid)
    raise AssertionError(values)


def node(value: Any) -> Node:
    # Java's clients also make nodes without data, which kazoo distinguishes from empty data.
    return Node(value[0] or b"", stat(value[1]))


def listing(value: Any) -> Listing:
    return Listing(tuple(value[0]), value[1].czxid)


def stat(raw: Any) -> Stat:
    ephemeral = raw.ephemeralOwner != 0
    return Stat(raw.czxid, raw.mzxid, raw.version, raw.ctime, raw.mtime, ephemeral, _created(raw), raw.pzxid)


def _created(raw: Any) -> int:
    # cversion counts created children and deleted ones (Java's DataNode.copyStat), in 32 bits.
    return int((raw.cversion + raw.numChildren) & 0xFFFF_FFFF) >> 1


def watcher(wake: Callable[[], None] | None) -> Callable[[object], None] | None:
    """kazoo's watcher for a request with *wake*."""
    return None if wake is None else _Watcher(wake)


@dataclass(frozen=True)
class _Watcher:
    """Equal for equal callbacks, so that kazoo keeps one per path however often it is set."""

    wake: Callable[[], None]

    def __call__(self, event: object) -> None:
        self.wake()
