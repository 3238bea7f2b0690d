"""One server: a child process with a log, awaited until it is ready, and stopped by its own pid."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

START_S = 300.0
STOP_S = 10.0
LOG_TAIL_CHARS = 4000

# Below every system's ephemeral range: a client that reconnects to a stopped server's port could
# otherwise be given that very port as its own, connect to itself, and keep the server from coming back.
PORTS = range(20_000, 32_000)


class ServerError(Exception):
    """A server does not run: it died, was never started, or was not ready in time."""


_given: set[int] = set()


def free_port() -> int:
    """A free TCP port of 127.0.0.1 that this process has given to no other server. The three servers of an ensemble
    need nine before the first one listens.
    """
    for port in random.sample([port for port in PORTS if port not in _given], k=100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise ServerError(f"no free port among 100 of {PORTS}")


def accepts(port: int) -> bool:
    """Whether 127.0.0.1:``port`` accepts a connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


class Server(ABC):
    """A child process that lives as long as this one holds its stdin; a context manager.

    A child forked from this process without an exec holds that stdin too, for as long as it lives.
    The same object can be started again after :meth:`stop` or :meth:`kill`: same directory, same port.
    """

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home.resolve()
        self.log = self.home / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether the running process answers; asked until it does."""

    def environment(self) -> Mapping[str, str]:
        """Variables to set in addition to this process's own."""
        return {}

    @property
    def pid(self) -> int:
        """The running process; ServerError when there is none."""
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process; ServerError when there is none."""
        if self._process is None:
            raise ServerError(f"{self.home} is not running")
        return self._process

    def start(self, timeout_s: float = START_S) -> None:
        """Start and wait until ready; ServerError when it dies or is not ready in time."""
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start without waiting."""
        if self._process is not None:
            raise ServerError(f"{self.home} is running already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=self.stdout() or log,
                stderr=log,
                cwd=self.home,
                env={**os.environ, **self.environment()},
                # Ctrl-C is for this process, which then stops its servers.
                process_group=0,
            )

    def stdout(self) -> int | None:
        """The file for the process's output: None for the log."""
        return None

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until ready. A process that dies or is late is killed and ServerError raised.

        The tail of its log is a note of the error.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while not self.ready():
                if self.process.poll() is not None:
                    raise ServerError(f"{self.home} ended with status {self.process.returncode}")
                if time.monotonic() > deadline:
                    raise ServerError(f"{self.home} was not ready in {timeout_s} s")
                time.sleep(0.02)
        except BaseException as error:
            error.add_note(self.tail())
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, as the death of this process would, and SIGKILL it when it does not."""
        if self._process is None:
            return
        self.resume()
        self._close_stdin()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is None:
            return
        self._process.kill()
        self._close_stdin()
        self._process.wait()
        self._process = None

    def suspend(self) -> None:
        """SIGSTOP: it keeps its connections and gives no answer. All its threads are stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def tail(self) -> str:
        """The path of the log, and its end."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"{self.log}:\n{text[-LOG_TAIL_CHARS:]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _close_stdin(self) -> None:
        stdin = self.process.stdin
        if stdin is not None:
            # The unread rest of a dead Hive in the pipe.
            with suppress(BrokenPipeError):
                stdin.close()
