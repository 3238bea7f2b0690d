"""A TCP proxy before a server of this host, that does to its connections what networks do."""

from __future__ import annotations

import enum
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from tests.system.faults.frames import Frames, PostgreSQLFrames, ZooKeeperFrames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLOSE_S = 30.0
"""Within which a server closes a connection that has ended."""

CHUNK_BYTES = 65_536


class Moment(enum.StrEnum):
    """The point at which a request's connection is cut."""

    BEFORE = "before the server has it"
    AFTER = "after the server has answered, before that is heard"
    LATE = "before the server has it; it gets it later, by the old connection"


@dataclass
class Trap:
    """Cuts the connection of one request, once.

    :param at: which, counted from 1 over all connections.
    """

    at: int
    moment: Moment
    seen: int = 0
    sprung: bool = False
    deliver: Callable[[], None] = lambda: None


class Proxy:
    """Listens on a port of its own; a context manager.

    A test may change the network at any time:

    :ivar latency_s: the additional time of each direction.
    :ivar bytes_per_s: of each direction; None: no limit.
    :ivar cut_every: after so many requests every connection is reset; None: never.
    :ivar upstream: set while the clients' data passes; otherwise it is kept back until then, as TCP does, which sends
        again.
    :ivar downstream: the same for the server's data.
    """

    def __init__(self, port: int, frames: Callable[[], tuple[Frames, Frames]]) -> None:
        self.latency_s = 0.0
        self.bytes_per_s: float | None = None
        self.cut_every: int | None = None
        self.upstream, self.downstream = threading.Event(), threading.Event()
        self._server = port
        self._frames = frames
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._trap: Trap | None = None
        self._requests = 0

    @classmethod
    def of_zookeeper(cls, port: int) -> Self:
        return cls(port, lambda: (ZooKeeperFrames(), ZooKeeperFrames()))

    @classmethod
    def of_postgresql(cls, port: int) -> Self:
        return cls(port, lambda: (PostgreSQLFrames.requests(), PostgreSQLFrames.answers()))

    def __enter__(self) -> Self:
        self._heal()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._heal()

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    def cut(self) -> None:
        """Reset every connection."""
        for connection in list(self._connections):
            connection.close()

    def forget(self) -> None:
        """The server's end of every connection goes, and the client is not told: half open."""
        for connection in list(self._connections):
            connection.forget()

    @contextmanager
    def partition(self) -> Iterator[None]:
        """No message passes, and no side is notified."""
        self.upstream.clear()
        self.downstream.clear()
        try:
            yield
        finally:
            self._heal()

    @contextmanager
    def trap(self, at: int, moment: Moment) -> Iterator[Trap]:
        """Cut at the request number *at* of those that come now."""
        self._trap = trap = Trap(at, moment)
        try:
            yield trap
        finally:
            self._trap = None

    def springs(self) -> Trap | None:
        """A request came; the trap, if it is the one."""
        with self._lock:
            self._requests += 1
            if self.cut_every and self._requests % self.cut_every == 0:
                self.cut()
            if (trap := self._trap) is None or trap.sprung:
                return None
            trap.seen += 1
            trap.sprung = trap.seen == trap.at
            return trap if trap.sprung else None

    def delay(self, size: int) -> None:
        """As long as so many bytes take."""
        time.sleep(self.latency_s + (size / self.bytes_per_s if self.bytes_per_s else 0))

    def closed(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def _heal(self) -> None:
        self.upstream.set()
        self.downstream.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                reset(client)
                continue
            connection = _Connection(self, client, server, *self._frames())
            self._connections.add(connection)
            connection.start()


class _Connection:
    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, requests: Frames, answers: Frames
    ) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._requests, self._answers = requests, answers
        self._awaited: int | None = None
        self._client_only = False
        self._asking, self._answering = (
            threading.Thread(target=self._until_closed, args=(pump,), daemon=True)
            for pump in (self._pump_requests, self._pump_answers)
        )
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for thread in (self._asking, self._answering):
            thread.start()

    def close(self) -> None:
        self._proxy.closed(self)
        reset(self._client)
        reset(self._server)

    def forget(self) -> None:
        self._client_only = True
        reset(self._server)

    def _until_closed(self, pump: Callable[[], None]) -> None:
        with suppress(OSError):
            pump()
        if not self._client_only:
            self.close()

    def _pump_requests(self) -> None:
        while data := self._client.recv(CHUNK_BYTES):
            self._proxy.delay(len(data))
            self._proxy.upstream.wait()
            if self._client_only:
                continue
            for frame, number in self._requests.feed(data):
                trap = self._proxy.springs() if number is not None else None
                if trap is None:
                    self._server.sendall(frame)
                    continue
                if trap.moment is Moment.AFTER:
                    self._awaited = number
                    self._server.sendall(frame)
                    continue
                if trap.moment is Moment.LATE:
                    self._client_only = True  # this end goes, and the server's stays for what is late
                    trap.deliver = partial(self._deliver, frame)
                    self._proxy.closed(self)
                    reset(self._client)
                return

    def _pump_answers(self) -> None:
        while data := self._server.recv(CHUNK_BYTES):
            self._proxy.delay(len(data))
            self._proxy.downstream.wait()
            for frame, number in self._answers.feed(data):
                if self._awaited is not None and number == self._awaited:
                    return
                if not self._client_only:
                    self._client.sendall(frame)

    def _deliver(self, frame: bytes) -> None:
        with suppress(OSError):
            self._server.sendall(frame)
            self._server.shutdown(socket.SHUT_WR)  # once it has read to this end it closes its own
        self._answering.join(CLOSE_S)
        assert not self._answering.is_alive(), "the server has not taken what came late"
        reset(self._server)


def reset(end: socket.socket) -> None:
    """Close it so that the peer gets an error, whatever is under way."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)  # wakes who reads
    end.close()
