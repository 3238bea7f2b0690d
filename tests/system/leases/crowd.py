"""A number of grabbers, begun at once."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from tests.support.fleet import Fleet

GRABBER = "tests.system.leases.grabber"


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
    with Fleet() as fleet:
        for _ in range(processes):
            fleet.start(GRABBER, url, way, jobs // processes, objects, chance.randrange(1 << 32))
        assert set(fleet.hear()) == {"ready"}
        begun = time.monotonic()
        fleet.tell()
        taken = Race(sum(fleet.hear()), time.monotonic() - begun)
        fleet.end()
        return taken
