"""Real Hive's lock manager, ours, and the two mixed in one namespace: each answers every request as one model does.

The schedules are random. A failure tells its seed, and ``DIFFERENTIAL_SEED=<seed>`` repeats it.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from airflow_hivelock.locks import Lease, LockManager, LockObject, LockTimeout, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.backends.queue_model import exclude
from tests.support.servers.lock_manager import HiveLockManagers, HiveLocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_hivelock.locks import Lock
    from tests.support.servers import ZooKeeperServer

# On a machine that is full the schedules take minutes: a time-out is for what hangs.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

SCHEDULES = 200
STEPS = 8
OWNERS = 4
DATABASE = LockObject("dw")
TABLES = [LockObject("dw", table) for table in ("flights", "delays")]
PARTITIONS = [LockObject("dw", table.table, (("dt", day),)) for table in TABLES for day in ("1", "2", "3")]

Held = set[tuple[str, str]]
"""Path and mode of every lock there is."""


@dataclass(frozen=True)
class Step:
    """*owner* frees what it holds; or, if it holds nothing, asks for locks: Hive's manager for *hives*, else ours."""

    owner: int
    reads: tuple[LockObject, ...]
    writes: tuple[LockObject, ...]
    hives: bool

    @property
    def locks(self) -> tuple[Lock, ...]:
        return rules.with_parents(self.reads, self.writes)

    def __str__(self) -> str:
        asked = ", ".join([f"S({target})" for target in self.reads] + [f"X({target})" for target in self.writes])
        return f"owner {self.owner} unlocks, or asks {'Hive' if self.hives else 'us'} for {asked}"


Schedule = tuple[Step, ...]


def schedules(seed: int) -> list[Schedule]:
    """Random requests of one to three leaves, mostly partitions."""
    dice = random.Random(seed)
    leaves, weights = [*PARTITIONS, *TABLES, DATABASE], [4] * len(PARTITIONS) + [2] * len(TABLES) + [1]

    def step() -> Step:
        chosen = sorted(set(dice.choices(leaves, weights, k=dice.randint(1, 3))))
        writes = tuple(leaf for leaf in chosen if dice.random() < 0.4)
        reads = tuple(leaf for leaf in chosen if leaf not in writes)
        return Step(dice.randrange(OWNERS), reads, writes, dice.random() < 0.5)

    return [tuple(step() for _ in range(STEPS)) for _ in range(SCHEDULES)]


class World(Protocol):
    """Where locks are granted, or refused at once."""

    def lock(self, step: Step) -> bool: ...

    def unlock(self, owner: int) -> None: ...

    def held(self) -> Held: ...


@dataclass(frozen=True)
class Transcript:
    """The answers of a world: True for a grant, False for a refusal, None for an unlock; and the locks held at the end."""

    answers: tuple[bool | None, ...]
    held: Held


def play(schedule: Schedule, world: World) -> Transcript:
    holding: set[int] = set()
    answers: list[bool | None] = []
    for step in schedule:
        if step.owner in holding:
            world.unlock(step.owner)
            holding.remove(step.owner)
            answers.append(None)
        else:
            granted = world.lock(step)
            if granted:
                holding.add(step.owner)
            answers.append(granted)
    held = world.held()
    for owner in holding:
        world.unlock(owner)
    assert world.held() == set(), "left behind"
    return Transcript(tuple(answers), held)


class Model:
    """The required results, as a plain model."""

    def __init__(self) -> None:
        self._locks: dict[int, tuple[Lock, ...]] = {}

    def lock(self, step: Step) -> bool:
        if any(exclude(step.locks, locks) for locks in self._locks.values()):
            return False
        self._locks[step.owner] = step.locks
        return True

    def unlock(self, owner: int) -> None:
        del self._locks[owner]

    def held(self) -> Held:
        return {("/".join(lock.object.path), lock.mode.value) for locks in self._locks.values() for lock in locks}


class Namespace:
    """One namespace in ZooKeeper, and for each owner a lock manager of *hives*, of ours, or both."""

    def __init__(self, name: str, zookeeper: ZooKeeperServer, hives: HiveLockManagers | None, *, ours: bool) -> None:
        self._path = f"/{name}"
        self._hives: list[HiveLocks] = []
        self._ours: list[LockManager] = []
        self._leases: dict[int, Lease] = {}
        self._requests = 0
        with ExitStack() as undo:
            self._zk = KazooClient(zookeeper.hosts)
            self._zk.start()
            undo.callback(self._zk.close)
            undo.callback(self._zk.stop)
            for owner in range(OWNERS):
                if hives:
                    self._hives.append(hives.session(f"{name}-{owner}", name))
                if ours:
                    backend = ZooKeeperBackend.connect(zookeeper.hosts, name, root=f"/hivelock-{name}", timeout_s=30)
                    self._ours.append(undo.enter_context(LockManager(backend)))
            self.close = undo.pop_all().close

    def lock(self, step: Step) -> bool:
        if self._hives and (step.hives or not self._ours):
            return self._hives[step.owner].lock([(lock.object.path, lock.mode.value) for lock in step.locks]).granted
        self._requests += 1
        try:
            self._leases[step.owner] = self._ours[step.owner].acquire(
                owner=f"request {self._requests}", reads=step.reads, writes=step.writes
            )
        except LockTimeout:
            return False
        return True

    def unlock(self, owner: int) -> None:
        if owner in self._leases:
            assert self._ours[owner].release(self._leases.pop(owner))
        else:
            self._hives[owner].unlock()

    def held(self) -> Held:
        return set(self._below(self._path))

    def _below(self, path: str) -> Iterator[tuple[str, str]]:
        try:
            names = self._zk.get_children(path)
        except NoNodeError:
            return  # not yet made
        for name in names:
            if name.startswith("LOCK-"):
                yield path.removeprefix(f"{self._path}/"), name.split("-")[1]
            else:
                yield from self._below(f"{path}/{name}")


@pytest.fixture(scope="module")
def hives(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLockManagers]:
    with HiveLockManagers(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper) as managers:
        yield managers


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("DIFFERENTIAL_SEED", random.SystemRandom().randrange(2**32)))
    print(f"DIFFERENTIAL_SEED={seed}")
    return seed


def check(worlds: Sequence[World], seed: int) -> None:
    """Every world, each in a thread of its own, plays every schedule as the model does."""
    given = schedules(seed)
    expected = [play(schedule, Model()) for schedule in given]
    refused = sum(transcript.answers.count(False) for transcript in expected)
    assert refused > SCHEDULES, "schedules without conflicts would show nothing"
    with ThreadPoolExecutor(len(worlds)) as threads:
        for played in threads.map(lambda world: [play(schedule, world) for schedule in given], worlds):
            for schedule, transcript, right in zip(given, played, expected, strict=True):
                assert transcript == right, "\n".join(map(str, schedule))


def test_we_grant_and_refuse_exactly_what_hive_does(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers, seed: int
) -> None:
    theirs = Namespace("hive-alone", zookeeper, hives, ours=False)
    ours = Namespace("ours-alone", zookeeper, None, ours=True)
    try:
        check([theirs, ours], seed)
    finally:
        theirs.close()
        ours.close()


def test_hive_and_we_honour_each_other_in_one_namespace(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers, seed: int
) -> None:
    mixed = Namespace("mixed", zookeeper, hives, ours=True)
    try:
        check([mixed], seed)
    finally:
        mixed.close()
