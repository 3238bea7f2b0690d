"""Runs workers, does them and their servers harm, and frees what the dead have left."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import InvalidRequest, LockManager, LockTimeout, StoreUnavailable, WaitsFor, reservations
from tests.support.fleet import Fleet
from tests.support.patience import again, until
from tests.system.histories.worker import DAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Fault = Callable[[], None]

SESSION_S = 2.0

STOPPED_S = (0.1, 1.5 * SESSION_S)
"""Bounds of how long a process stands still: some sessions outlive it, some end."""


def withdraw(manager: LockManager, owner: str, _: random.Random) -> bool:
    return manager.force_withdraw(owner, reason="not needed", user="chaos")


def change(manager: LockManager, owner: str, chance: random.Random) -> bool:
    with suppress(InvalidRequest):  # it has that priority already, or has waited for too long
        return manager.force_priority(owner, chance.choice((0, 1, 5, 9)), reason="urgent", user="chaos")
    return False


BY_HAND = {"withdraw": withdraw, "change": change}

RESERVED_S = (1.5, 4.0)
"""Bounds of how long an object is reserved, by its request and by its grant together. Its time ends it."""


@dataclass
class Chaos:
    """A number of workers under faults.

    :param faults: harm to the servers; each leaves them running again.
    :param program: the module that the workers run.
    """

    url: str
    directory: Path
    seed: int
    workers: int = 8
    faults: Sequence[Fault] = ()
    program: str = "tests.system.histories.worker"
    arguments: Sequence[str] = ()
    done: Counter[str] = field(default_factory=Counter)
    dead: set[str] = field(default_factory=set)
    _fleet: Fleet = field(default_factory=Fleet)
    _deck: list[str] = field(default_factory=list)

    def run(self, manager: LockManager, over: Callable[[], bool]) -> None:
        """Harm and repair until it is *over*, the servers at least once, then let every worker finish, and free what the dead held."""
        chance = random.Random(self.seed)
        with self._fleet as fleet:
            for _ in range(self.workers):
                self._start(chance)
            while not over() or (self.faults and not self.done.keys() - {"kill", "stop", "reserve", *BY_HAND}):
                time.sleep(chance.uniform(0.4, 1.2))
                self._harm(chance, manager)
                end_reservations(manager)
            fleet.dismiss()
            self._finish(manager)

    def free(self, manager: LockManager) -> None:
        """Force-release what dead workers held, and what no worker knows that it holds; tried again while the store is away.

        The server can still grant the last request of a killed worker. So the judge calls this once more.
        """
        unknown = {owner for log in self.directory.glob("unknown-*") for owner in log.read_text().split()}

        def is_left(owner: str) -> bool:
            return owner.partition("-")[0] in self.dead or owner in unknown

        def free() -> None:
            for lease_id in {one.lease_id for one in manager.show() if one.lease_id and is_left(one.owner)}:
                manager.force_release(lease_id, reason="its process was killed", user="chaos")
            manager.sweep()

        again(free, StoreUnavailable, 60)

    def _finish(self, manager: LockManager) -> None:
        """Until each worker and each reservation has ended. A worker may wait for a reservation."""

        def over() -> bool:
            left = end_reservations(manager)
            return self._fleet.have_ended() and not left

        until(over, "each worker and each reservation to end", 90)

    def _harm(self, chance: random.Random, manager: LockManager) -> None:
        victim = chance.choice(self._fleet.workers)
        if not self._deck:
            self._deck = (
                ["kill"] * 3 + ["stop"] * 6 + ["withdraw", "change", "reserve"] * 2 + ["fault"] * bool(self.faults)
            )
            chance.shuffle(self._deck)
        match self._deck.pop():
            case "kill":
                self._fleet.lose(victim)
                self.done["kill"] += 1
                self.dead.add(str(victim.pid))
                self.free(manager)
                self._start(chance)
            case "stop":
                self._fleet.pause(victim, chance.uniform(*STOPPED_S))
                self.done["stop"] += 1
            case "withdraw" | "change" as what:
                self._act(what, chance, manager)
            case "reserve":
                self._reserve(chance, manager)
            case "fault":
                fault = chance.choice(self.faults)
                fault()
                self.done[fault.__name__] += 1

    def _start(self, chance: random.Random) -> None:
        self._fleet.start(self.program, self.url, self.directory, chance.randrange(1 << 32), *self.arguments)

    def _act(self, what: str, chance: random.Random, manager: LockManager) -> None:
        """A person withdraws a request that waits, or changes its priority. Within two seconds there is one, or none is."""
        act, deadline = BY_HAND[what], time.monotonic() + 2
        with suppress(StoreUnavailable):
            while time.monotonic() < deadline:
                waiting = sorted({one.owner for one in manager.waiters() if one.waits_for is not WaitsFor.SLOT})
                if waiting and act(manager, chance.choice(waiting), chance):
                    self.done[what] += 1
                    return
                time.sleep(0.02)

    def _reserve(self, chance: random.Random, manager: LockManager) -> None:
        """A person keeps new work off a day, or off the table. The log of returned leases has it like a worker's."""
        target = chance.choice((*(f"dw.delays/dt={day}" for day in DAYS), "dw.flights"))
        with suppress(LockTimeout, StoreUnavailable):
            until = manager.now() + timedelta(seconds=chance.uniform(*RESERVED_S))
            lease = reservations.reserve(manager, target, until, reason="compaction", user="chaos")
            with (self.directory / f"returned-{os.getpid()}").open("a") as returned:
                print(lease.id, time.time_ns() // 1_000_000, file=returned)
            self.done["reserve"] += 1


def end_reservations(manager: LockManager) -> bool:
    """Do what a keeper does every 20 seconds. Whether some reservation may be left."""
    try:
        leases = manager.leases()
        ended = reservations.end_over(manager, leases, manager.now())
    except StoreUnavailable:
        return True
    return len(ended) < sum(reservations.end_of(lease.owner) is not None for lease in leases)
