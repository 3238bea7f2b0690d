"""Runs workers, does them and their servers harm, and frees what the dead have left."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockManager, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Fault = Callable[[], None]


@dataclass
class Chaos:
    """A number of workers under faults.

    :param faults: harm to the servers; each leaves them running again.
    """

    url: str
    directory: Path
    seed: int
    workers: int = 6
    faults: Sequence[Fault] = ()
    killed: int = 0
    done: list[str] = field(default_factory=list)

    def run(self, manager: LockManager, seconds: float) -> None:
        """Harm and repair for that long, then let every worker finish, and free what the dead held."""
        chance = random.Random(self.seed)
        running = [self._start(chance) for _ in range(self.workers)]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(0.5, 1.5))
            victim = chance.randrange(self.workers)
            match chance.choices(("kill", "stop", "fault"), (2, 4, 1 if self.faults else 0))[0]:
                case "kill":
                    self._kill(running[victim], manager)
                    running[victim] = self._start(chance)
                case "stop":
                    self._stop_for(running[victim], chance.uniform(0.1, 2.0))
                case "fault":
                    self.done.append(self._fault(chance))
        for worker in running:
            assert worker.stdin
            worker.stdin.close()
        for worker in running:
            worker.wait(90)
            self._close(worker)

    def _start(self, chance: random.Random) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.histories.worker",
            self.url,
            str(self.directory),
            str(chance.random())[2:],
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    def _kill(self, worker: subprocess.Popen[bytes], manager: LockManager) -> None:
        worker.kill()
        worker.wait(30)
        self._close(worker)
        self.killed += 1
        self.done.append("kill")
        free_of(manager, worker.pid)

    @staticmethod
    def _close(worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdin
        worker.stdin.close()

    def _stop_for(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        worker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        worker.send_signal(signal.SIGCONT)
        self.done.append("stop")

    def _fault(self, chance: random.Random) -> str:
        fault = chance.choice(self.faults)
        fault()
        return fault.__name__


def free_of(manager: LockManager, pid: int) -> None:
    """Force-release what a dead worker held; tried again while the store is away."""
    deadline = time.monotonic() + 60
    while True:
        try:
            for lease_id in {h.lease_id for h in manager.show() if h.owner.startswith(f"{pid}-") and h.lease_id}:
                manager.force_release(lease_id, reason="its process was killed", user="chaos")
            manager.sweep()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
