"""A number of grabbers, begun at once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

READY_S = 300.0


@dataclass(frozen=True)
class Grabber:
    """A process that grabs leases."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, url: str, way: str, jobs: int, objects: int, seed: int) -> Grabber:
        command = [sys.executable, "-m", "tests.system.leases.grabber", url, way, str(jobs), str(objects), str(seed)]
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def begin(self) -> None:
        assert self.process.stdin
        print(file=self.process.stdin, flush=True)

    def stop(self) -> None:
        """Have it stop, if it would go on without end."""
        assert self.process.stdin
        self.process.stdin.close()

    def done(self) -> int:
        """Wait until it has stopped; how much it has done."""
        said = self.hear()
        assert said, "a grabber failed; its traceback is above"
        return int(said)

    def end(self) -> None:
        """Have its process end."""
        self.stop()
        assert self.process.wait(READY_S) == 0, "a grabber failed; its traceback is above"

    def kill(self) -> None:
        """SIGKILL it."""
        self.process.kill()
        self.process.wait(READY_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


@dataclass(frozen=True)
class Race:
    """So many jobs by so many processes."""

    done: int
    seconds: float

    @property
    def per_s(self) -> float:
        return self.done / self.seconds


def race(url: str, way: str, *, processes: int, jobs: int, objects: int, seed: int) -> Race:
    """Have them all begin at once, and time them until the last is done."""
    chance = random.Random(seed)
    with ExitStack() as undo:
        grabbers = []
        for _ in range(processes):
            grabber = Grabber.start(url, way, jobs // processes, objects, chance.randrange(1 << 32))
            undo.callback(grabber.kill)
            grabbers.append(grabber)
        for grabber in grabbers:
            assert grabber.hear() == "ready"
        begun = time.monotonic()
        for grabber in grabbers:
            grabber.begin()
        taken = Race(sum(grabber.done() for grabber in grabbers), time.monotonic() - begun)
        for grabber in grabbers:
            grabber.end()
        return taken
