"""A transaction as it is on the wire: a thousand partitions take four thousand operations, which kazoo's own way of
writing them takes four times as long for.

``org.apache.zookeeper.ZooDefs.OpCode.multi`` (14): a list of operations, each behind a ``MultiHeader``, and a list of
results like it (``MultiOperationRecord``, ``MultiResponse``). What is written and read is what kazoo would, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat

from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, SetData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kazoo.security import ACL

    from airflow_hivelock.locks.backends.zookeeper.client import Op

_int = serialization.int_struct
_header = serialization.multiheader_struct
_CREATE, _DELETE, _SET_DATA, _CHECK = (
    _header.pack(kind.type, False, -1)
    for kind in (serialization.Create, serialization.Delete, serialization.SetData, serialization.CheckVersion)
)
_END = _header.pack(-1, True, -1)
_ANY_VERSION = _int.pack(-1)
_FLAGS = [_int.pack(flags) for flags in range(4)]


@dataclass(frozen=True)
class Transaction(Commit):
    """A :class:`~.client.Commit` for kazoo to send. Its result has, for each operation, what kazoo gives for it."""

    packet: bytes
    type: ClassVar = 14

    @classmethod
    def of(cls, commit: Commit, acl: Callable[[str], bytes]) -> Self:
        """:param acl: that of a node to be made, as :func:`acl_packet` writes it."""
        return cls(commit.ops, b"".join(_written(commit.ops, acl)))

    def serialize(self) -> bytes:
        return self.packet

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
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
                results.append(ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset)))
                offset += serialization.stat_struct.size
            elif kind == -1:
                results.append(EXCEPTIONS[_int.unpack_from(data, offset)[0]]())
                offset += _int.size
            else:
                results.append(True)


def acl_packet(acls: Sequence[ACL]) -> bytes:
    """An ACL as it is in an operation that makes a node."""
    write = serialization.write_string
    entries = [part for acl in acls for part in (_int.pack(acl.perms), write(acl.id.scheme), write(acl.id.id))]
    return b"".join((_int.pack(len(acls)), *entries))


def _written(ops: Iterable[Op], acl: Callable[[str], bytes]) -> list[bytes]:
    pack = _int.pack
    parts: list[bytes] = []
    for op in ops:
        path = op.path.encode()
        length = pack(len(path))
        if isinstance(op, Create):
            name, data, sequential, ephemeral = op
            parts += (_CREATE, length, path, pack(len(data)), data, acl(name), _FLAGS[ephemeral | sequential << 1])
        elif isinstance(op, Delete):
            parts += (_DELETE, length, path, _ANY_VERSION)
        elif isinstance(op, SetData):
            parts += (_SET_DATA, length, path, pack(len(op.data)), op.data, pack(op.version))
        else:
            parts += (_CHECK, length, path, pack(op.version))
    return [*parts, _END]
