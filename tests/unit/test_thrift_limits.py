"""The time limits of a call to Hive's servers: of each part of a message, and of the whole call."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest
from thrift.transport.TSocket import TSocket

from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.locks.hive.thrift import Metastore, transport

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = "x" * 1_000


def answer() -> bytes:
    """The answer to ``get_config_value``."""
    name = b"get_config_value"
    begin = struct.pack("!II", 0x80010002, len(name)) + name + struct.pack("!i", 0)
    return begin + struct.pack("!bhi", 11, 0, len(TEXT)) + TEXT.encode() + b"\0"


class Server:
    """A socket to a server that sends a part of its answer after each pause.

    :param answer: everything that it sends.
    :param size: the bytes in each part.
    :param takes: as slowly it takes requests: a byte after each pause. Otherwise it takes them at once.
    """

    def __init__(self, answer: bytes = b"", size: int = 1, pause_s: float = 9.0, takes: bool = False) -> None:
        self.now, self.limits = 0.0, list[float]()
        self._answer, self._size, self._pause_s, self._takes = answer, size, pause_s, takes

    def connect(self, address: object) -> None:
        pass

    def close(self) -> None:
        pass

    def settimeout(self, limit_s: float) -> None:
        self.limits.append(limit_s)

    def send(self, buff: bytes) -> int:
        if not self._takes:
            return len(buff)
        self._pause()
        return 1

    def recv(self, size: int) -> bytes:
        self._pause()
        size = min(size, self._size)
        part, self._answer = self._answer[:size], self._answer[size:]
        return part

    def _pause(self) -> None:
        limit_s = self.limits[-1]
        self.now += min(limit_s, self._pause_s)
        if limit_s < self._pause_s:
            raise TimeoutError("timed out")


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], Server]:
    def connect(server: Server) -> Server:
        monkeypatch.setattr(TSocket, "_do_open", lambda *_: server)
        monkeypatch.setattr(time, "monotonic", lambda: server.now)
        return server

    return connect


def test_a_server_that_sends_a_byte_now_and_then_is_given_up(connected: Callable[[Server], Server]) -> None:
    """Each byte came in time, so the call went on for as long as the server wanted."""
    server = connected(Server(answer()))
    with pytest.raises(StoreUnavailable, match="the answer was not complete within 60 s"):
        Metastore.parse("127.0.0.1").settings(["a"])
    assert server.now == 60
    assert server.limits[-7:] == [10] * 6 + [6]


def test_a_server_that_takes_a_byte_now_and_then_is_given_up(
    connected: Callable[[Server], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_hivelock.locks.hive.sockets._PIECE", 1, raising=False)
    server = connected(Server(takes=True))
    with pytest.raises(StoreUnavailable, match="not complete within 60 s"):
        Metastore.parse("127.0.0.1").settings(["a"])
    assert server.now == 60


def test_an_answer_in_many_parts_has_its_time(connected: Callable[[Server], Server]) -> None:
    """As the names of a table's 100,000 partitions."""
    server = connected(Server(answer() * 2, pause_s=0.05))
    assert Metastore.parse("127.0.0.1").settings(["a", "b"]) == {"a": TEXT, "b": TEXT}
    assert server.now > 100, "two calls have twice the time"


def test_a_part_that_does_not_come_is_given_up_sooner(connected: Callable[[Server], Server]) -> None:
    server = connected(Server(answer(), pause_s=11))
    with pytest.raises(StoreUnavailable, match="read timeout"):
        Metastore.parse("127.0.0.1").settings(["a"])
    assert server.now == 10


def test_a_negotiation_without_an_end_is_given_up(
    connected: Callable[[Server], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Negotiator:
        def __init__(self, *_: object, **login: object) -> None:
            pass

        def start(self, mechanism: str) -> tuple[bool, str, bytes]:
            return True, mechanism, b""

        def step(self, challenge: bytes) -> tuple[bool, bytes]:
            return True, b""

    monkeypatch.setattr("airflow_hivelock.locks.hive.sasl.Negotiator", Negotiator)
    more = struct.pack(">BI", 2, 0)
    server = connected(Server(more * 1_000, size=100, pause_s=1))
    with pytest.raises(Exception, match="not complete within 60 s"):
        transport("127.0.0.1", 10000, 10.0, sasl="PLAIN").open()
    assert server.now == 60
