"""Many reads in one request: ZooKeeper's ``multiRead``, which kazoo does not have.

``org.apache.zookeeper.ZooDefs.OpCode.multiRead`` (22), in ZooKeeper 3.6 and later: a list of operations, each behind a
``MultiHeader``, as in a transaction, and a list of results like it (``MultiOperationRecord``, ``MultiResponse``). What a
session of thousands of single reads costs is kazoo's threads, a wake-up and some system calls each, not the server.
An older server ends the session of whoever sends it, so its version has to be known first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST, MOST_BYTES = 1_000, 1 << 19
"""How many reads one request carries, and how much they take in it: far less than ``jute.maxbuffer``."""

FEWEST = 2
"""Fewer are sent one by one."""

_HEADERS = {
    kind.type: serialization.MultiHeader(kind.type, False, -1).serialize()
    for kind in (serialization.GetData, serialization.GetChildren)
}
_SINCE = (3, 6)
_VERSION = re.compile(r"version: (\d+)\.(\d+)")


@dataclass(frozen=True)
class MultiRead:
    """A request for kazoo to send: its result has, for each operation, what kazoo gives for it alone, None for no node, or the
    exception that kazoo would raise; of those after it, nothing."""

    operations: Sequence[Any]
    type: ClassVar = 22

    def serialize(self) -> bytearray:
        written = bytearray()
        for operation in self.operations:
            written += _HEADERS[operation.type] + operation.serialize()
        written += serialization.multiheader_struct.pack(-1, True, -1)
        return written

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        found: list[Any] = []
        while True:
            kind, done, _ = serialization.multiheader_struct.unpack_from(data, offset)
            offset += serialization.multiheader_struct.size
            if done:
                return found
            if kind == serialization.GetData.type:
                content, offset = serialization.read_buffer(data, offset)
                stat = ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))
                offset += serialization.stat_struct.size
                found.append((content, stat))
            elif kind == serialization.GetChildren.type:
                number = serialization.int_struct.unpack_from(data, offset)[0]
                offset += serialization.int_struct.size
                names = []
                for _ in range(number):
                    name, offset = serialization.read_string(data, offset)
                    names.append(name)
                found.append(names)
            else:
                code = serialization.int_struct.unpack_from(data, offset)[0]
                offset += serialization.int_struct.size
                found.append(None if code == NoNodeError.code else EXCEPTIONS[code]())


def understood(srvr: str) -> bool:
    """Whether a server that says this of itself (the four letter word ``srvr``) knows the request."""
    version = _VERSION.search(srvr)
    return version is not None and (int(version[1]), int(version[2])) >= _SINCE
