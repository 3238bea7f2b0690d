"""The data between a client and its server, cut into messages, so that a test can select one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Frames(Protocol):
    """One direction of one connection."""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int | None]]:
        """The messages that are complete by now, each with the number of the request that it is, ends, or answers."""
        ...


class ZooKeeperFrames:
    """A length, and a header that begins with the request's number, except in the first message, pings and similar
    ones.

    ``org.apache.zookeeper.proto.RequestHeader`` and ``ReplyHeader``. A four letter word has no length: it passes
    unchanged.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._first = True

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int | None]]:
        self._buffer += data
        while len(self._buffer) >= 4:
            word, size = self._buffer[:4], 4 + int.from_bytes(self._buffer[:4])
            if self._first and word.isalpha():
                size = len(self._buffer)
            if len(self._buffer) < size:
                return
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            number = 0 if self._first else int.from_bytes(frame[4:8], signed=True)
            self._first = self._first and word.isalpha()
            yield frame, number if number > 0 else None


class PostgreSQLFrames:
    """A letter and a length, except in the first message, which has no letter.

    "Frontend/Backend Protocol", PostgreSQL's manual. A request ends with Sync or Query, its answer with ReadyForQuery.
    The messages of one request pass together, as they leave the client.
    """

    PARTS = b"PBDE"

    def __init__(self, ends: bytes, starts_up: bool, number: int) -> None:
        self._buffer, self._parts = bytearray(), b""
        self._ends, self._starts_up, self._number = ends, starts_up, number

    @classmethod
    def requests(cls) -> PostgreSQLFrames:
        return cls(b"SQ", starts_up=True, number=1)

    @classmethod
    def answers(cls) -> PostgreSQLFrames:
        return cls(b"Z", starts_up=False, number=0)  # the first ends the start

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int | None]]:
        self._buffer += data
        while len(self._buffer) >= 5:
            letters = 0 if self._starts_up else 1
            size = letters + int.from_bytes(self._buffer[letters : letters + 4])
            if len(self._buffer) < size:
                return
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            starts_up, self._starts_up = self._starts_up, False
            self._parts += frame
            if self._ends == b"SQ" and not starts_up and frame[0] in self.PARTS:
                continue
            ends = not starts_up and frame[0] in self._ends
            whole, self._parts = self._parts, b""
            yield whole, self._number if ends else None
            self._number += ends
