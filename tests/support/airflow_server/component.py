"""One Airflow process, the session of its child processes, and its log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

from tests.support.airflow_server import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

START_TIMEOUT_S = 600
# A scheduler waits for its running tasks, and a triggerer often for 10 to 20 s; a throw-away one need not.
STOP_TIMEOUT_S = 3
LOG_TAIL_LINES = 40


class ComponentDied(AssertionError):
    """A component ended without a request. The message has its name, the reason, and the end of its log."""


class Guard:
    """Kills the sessions it knows when this process dies, however it dies."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", session.__file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def watch(self, sid: int) -> None:
        self._say(f"+{sid}")

    def forget(self, sid: int) -> None:
        """A session number is free for others once the session is empty: it must not be killed later."""
        self._say(f"-{sid}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.communicate(timeout=30)


class Component:
    """`airflow KIND …` as a process that leads a session of its own.

    `expect` is asked before each start and returns the condition that tells when that start is over.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        guard: Guard,
        expect: Callable[[], Callable[[], bool]],
    ) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-m", "airflow", *command]
        self._env = dict(env)
        self._guard = guard
        self._expect = expect
        self._process: subprocess.Popen[bytes] | None = None
        self._may_end = False

    @property
    def pid(self) -> int:
        """The leader's process id. Raises LookupError when the component is not started."""
        if self._process is None:
            raise LookupError(f"{self.name} is not running")
        return self._process.pid

    def launch(self) -> Self:
        """Start the process without waiting for it; `await_ready` waits."""
        self._is_ready = self._expect()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._may_end = False
        self._guard.watch(self._process.pid)
        return self

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        deadline = time.monotonic() + timeout_s
        while not self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} is not ready after {timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.1)
        return self

    def check(self) -> None:
        """Raises ComponentDied when the leader ended and neither `kill` nor `stop` was called."""
        if self._process is not None and not self._may_end and self._process.poll() is not None:
            raise ComponentDied(f"{self.name} ended with {self._process.returncode}:\n{self.log_tail()}")

    def revive(self) -> None:
        """Start a component again that ended without a request, as an init system does."""
        if self._process is not None and not self._may_end and self._process.poll() is not None:
            self.restart()

    def members(self) -> list[int]:
        """The process ids of everything that the component forked, its leader first, tasks included."""
        return session.members(self.pid)

    def memory_bytes(self) -> int:
        """What all members use together; pages they share are counted once."""
        return sum(map(session.memory_bytes, self.members()))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the leader alone, as an init system does."""
        self._may_end = self._may_end or number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        if self._process is not None:
            self._process.send_signal(number)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """All members are stopped, as on a machine that is paused or swaps."""
        pids = self.members()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def kill(self, *pids: int) -> None:
        """SIGKILL the whole component or, when pids are given, only those members of it."""
        self._may_end = True
        if not pids:
            self._finish()
            return
        for pid in set(pids) & set(self.members()):
            os.kill(pid, signal.SIGKILL)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM, unless it was sent before, and SIGKILL to the rest after the time-out."""
        if self._process is None:
            return
        if not self._may_end:
            self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self._finish()

    def restart(self) -> Self:
        """Start it again, after a `kill` or instead of a `stop`; returns when it is ready."""
        self.stop()
        return self.launch().await_ready()

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def _finish(self) -> None:
        if self._process is not None:
            session.kill(self._process.pid)
            self._process.wait()
            self._guard.forget(self._process.pid)
            self._process = None
