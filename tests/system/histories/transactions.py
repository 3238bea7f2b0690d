"""ZooKeeper's own transaction log, read from its files: every write there ever was, in its order.

The format is ``org.apache.zookeeper.server.persistence.FileTxnLog``'s.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.servers import ZooKeeperServer

_FILE_HEADER_BYTES = 16
_ENVELOPE = struct.Struct(">qi")  # checksum, length
_HEADER = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_INT = struct.Struct(">i")
_ERROR, _CREATE, _DELETE, _SET_DATA, _MULTI, _CREATE_2, _CLOSE_SESSION = -1, 1, 2, 5, 14, 15, -11


@dataclass(frozen=True)
class Write:
    """A node made or changed; *data* is None for one deleted."""

    path: str
    data: bytes | None


@dataclass(frozen=True)
class Transaction:
    """The writes of one transaction; none if it failed, or began a session. One that ends a session deletes its nodes.

    :param time_ms: since 1970, by the clock of the server that led.
    :param session: of the client that wrote it, or the session that it ends.
    """

    zxid: int
    time_ms: int
    writes: tuple[Write, ...]
    session: int = 0


def transactions(servers: Iterable[ZooKeeperServer]) -> list[Transaction]:
    """All that the members of one ensemble have logged. They must agree, and nothing be missing."""
    logged: dict[int, Transaction] = {}
    for server in servers:
        for path in (server.home / "data" / "version-2").glob("log.*"):
            with path.open("rb") as file:
                for transaction in _read(file):
                    assert logged.setdefault(transaction.zxid, transaction) == transaction, f"{path} contradicts"
    zxids = sorted(logged)
    for one, following in pairwise(zxids):
        elected = following >> 32 > one >> 32 and following & 0xFFFFFFFF == 1
        assert following == one + 1 or elected, f"nobody has logged what follows {one:#x}"
    return [logged[zxid] for zxid in zxids]


def _read(file: BinaryIO) -> Iterator[Transaction]:
    """To the end, or to what a kill has left half written: its server, too, starts again from there."""
    file.seek(_FILE_HEADER_BYTES)
    while len(envelope := file.read(_ENVELOPE.size)) == _ENVELOPE.size:
        checksum, length = _ENVELOPE.unpack(envelope)
        body = file.read(length)
        if not body or zlib.adler32(body) != checksum:
            return
        session, _, zxid, time_ms, kind = _HEADER.unpack_from(body)
        yield Transaction(zxid, time_ms, tuple(_writes(kind, body[_HEADER.size :])), session)
        file.read(1)  # the end of the record


def _writes(kind: int, body: bytes) -> Iterator[Write]:
    if kind == _MULTI:
        (count,), at = _INT.unpack_from(body), _INT.size
        parts = []
        for _ in range(count):
            (part,) = _INT.unpack_from(body, at)
            written, at = _buffer(body, at + _INT.size)
            parts.append((part, written))
        if all(part != _ERROR for part, _ in parts):  # one that failed is logged with what came before its failure
            yield from (write for part, written in parts for write in _writes(part, written))
    elif kind == _CLOSE_SESSION and body:
        (count,), at = _INT.unpack_from(body), _INT.size
        for _ in range(count):
            path, at = _buffer(body, at)
            yield Write(path.decode(), None)
    elif kind in (_CREATE, _CREATE_2, _SET_DATA, _DELETE):
        path, at = _buffer(body, 0)
        yield Write(path.decode(), None if kind == _DELETE else _buffer(body, at)[0])


def _buffer(body: bytes, at: int) -> tuple[bytes, int]:
    """The bytes that are counted at *at*, and where they end."""
    (length,) = _INT.unpack_from(body, at)
    end = at + _INT.size + max(0, length)  # -1 means none
    return body[at + _INT.size : end], end
