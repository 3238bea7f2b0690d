"""Three of Hive's own lock managers and three of ours race for the same objects, while UNLOCK TABLE removes locks of both.

At the end ZooKeeper's transaction log is replayed against the specification, with Hive's actions.

``RACE_SECONDS=600 RACE_SEED=1 python -m pytest -s tests/backends/test_hive_races.py`` is a longer race.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockLost, LockManager, LockObject, connect, rules
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.queueing import conflicts
from tests.backends.zookeepers import kazoo
from tests.support.servers.lock_manager import HiveLockManagers, HiveLocks
from tests.system.histories.trace.validate import Returned, validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_hivelock.locks import Lock
    from tests.support.servers import ZooKeeperServer

SECONDS = float(os.environ.get("RACE_SECONDS", "12"))

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300 + int(SECONDS))]

SPACE, ROOT = "hive_races", "/hivelock_races"
TABLE = LockObject("dw", "t")
DAYS = [LockObject("dw", "t", (("dt", day),)) for day in ("1", "2")]
OF_EACH = 3
HELD_S = 0.01


@dataclass(eq=False)
class Holder:
    """One that believes that it holds *locks*.

    :param asked: the number of UNLOCK TABLEs that had ended when it asked for them.
    :param robbed: UNLOCK TABLE has removed one of them, or may have.
    """

    locks: Sequence[Lock]
    hives: bool
    asked: int
    robbed: bool = False

    def on(self, target: LockObject) -> bool:
        return any(lock.object == target for lock in self.locks)


@dataclass
class Referee:
    """Records which clients believe that they hold locks, and which two conflict.

    A lock manager of Hive with a robbed lock may later delete a path that another lock of Hive has got meanwhile. So
    that lock counts as robbed too. Locks of this package never get a path that Hive uses.
    """

    grants: Counter[str] = field(default_factory=Counter)
    overlaps: list[str] = field(default_factory=list)
    _holders: set[Holder] = field(default_factory=set)
    _unlocking: LockObject | None = None
    _unlocked: Counter[LockObject] = field(default_factory=Counter)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def unlocked(self, locks: Sequence[Lock]) -> int:
        with self._mutex:
            return sum(self._unlocked[lock.object] for lock in locks)

    def enters(self, mine: Holder) -> None:
        with self._mutex:
            since = sum(self._unlocked[lock.object] for lock in mine.locks) > mine.asked
            mine.robbed = since or (self._unlocking is not None and mine.on(self._unlocking))
            mine.robbed |= mine.hives and any(self._taints(other, mine) for other in self._holders)
            if not mine.robbed:
                against = [other for other in self._holders if not other.robbed and conflicts(mine.locks, other.locks)]
                self.overlaps += [f"{mine} beside {other}" for other in against]
                self.grants["Hive's" if mine.hives else "ours"] += 1
            self._holders.add(mine)

    def leaves(self, mine: Holder) -> bool:
        """Whether it was robbed, or may have been."""
        with self._mutex:
            self._holders.remove(mine)
            return mine.robbed or (self._unlocking is not None and mine.on(self._unlocking))

    def unlock(self, hive: HiveLocks, target: LockObject) -> int:
        """UNLOCK TABLE: every client that holds a lock on *target* during it is robbed."""
        with self._mutex:
            self._unlocking = target
        freed = hive.free(target.path)
        with self._mutex:
            for holder in self._holders:
                holder.robbed |= holder.on(target)
            self._unlocking = None
            self._unlocked[target] += 1
        return freed

    @staticmethod
    def _taints(other: Holder, mine: Holder) -> bool:
        return other.hives and other.robbed and any(mine.on(lock.object) for lock in other.locks)


@dataclass(frozen=True)
class Race:
    referee: Referee
    over_s: float
    returned: list[Returned] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return time.monotonic() > self.over_s

    def ours(self, manager: LockManager, name: str, dice: random.Random) -> None:
        number = 0
        while not self.over:
            number += 1
            reads, writes = wanted(dice)
            locks = rules.with_parents(reads, writes)
            asked, lost = self.referee.unlocked(locks), False
            lease = manager.acquire(owner=f"{name}-{number}", reads=reads, writes=writes, timeout_s=120)
            self.returned.append(Returned(time.time_ns() // 1_000_000, lease.id))
            mine = Holder(locks, hives=False, asked=asked)
            self.referee.enters(mine)
            time.sleep(dice.random() * HELD_S)
            try:
                manager.verify(lease)
            except LockLost:
                lost = True
            assert self.referee.leaves(mine) or not lost, f"{mine} was lost, and UNLOCK TABLE did not do it"
            assert manager.release(lease)

    def theirs(self, hive: HiveLocks, dice: random.Random) -> None:
        while not self.over:
            locks = rules.with_parents(*wanted(dice))
            asked = self.referee.unlocked(locks)
            if not hive.lock([(lock.object.path, lock.mode.value) for lock in locks]).granted:
                continue
            mine = Holder(locks, hives=True, asked=asked)
            self.referee.enters(mine)
            time.sleep(dice.random() * HELD_S)
            self.referee.leaves(mine)
            hive.unlock()

    def unlocks(self, hive: HiveLocks, dice: random.Random) -> int:
        freed = 0
        while not self.over:
            time.sleep(dice.uniform(0.2, 1.0))
            freed += self.referee.unlock(hive, dice.choice([*DAYS, TABLE]))
        return freed


def wanted(dice: random.Random) -> tuple[Sequence[LockObject], Sequence[LockObject]]:
    """What to read and what to write: mostly one partition; at times both, or the table."""
    leaves = dice.choices([DAYS[:1], DAYS[1:], DAYS, [TABLE]], [6, 6, 2, 2])[0]
    return ((), leaves) if dice.random() < 0.5 else (leaves, ())


@pytest.fixture(scope="module")
def hives(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLockManagers]:
    with HiveLockManagers(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, tries=2) as managers:
        yield managers


def test_three_hives_and_three_of_ours_exclude_each_other_and_leave_nothing(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers
) -> None:
    seed = int(os.environ.get("RACE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"RACE_SEED={seed}")
    url = f"zookeeper://{zookeeper.hosts}/{SPACE}?root={ROOT}"
    managers = [connect(url) for _ in range(OF_EACH)]
    sessions = [hives.session(f"race-{number}", SPACE) for number in range(OF_EACH + 1)]
    race = Race(Referee(), time.monotonic() + SECONDS)
    with ThreadPoolExecutor(2 * OF_EACH + 1) as threads:
        calls = [
            threads.submit(race.ours, manager, f"ours-{number}", random.Random(seed + number))
            for number, manager in enumerate(managers)
        ]
        calls += [
            threads.submit(race.theirs, session, random.Random(seed + 100 + number))
            for number, session in enumerate(sessions[1:])
        ]
        freed = threads.submit(race.unlocks, sessions[0], random.Random(seed + 200)).result()
        for call in calls:
            call.result()
    print(f"{dict(race.referee.grants)} grants that nobody robbed; UNLOCK TABLE removed {freed} locks")
    assert not race.referee.overlaps, "\n".join(race.referee.overlaps)
    assert min(race.referee.grants.values()) > SECONDS
    assert freed > SECONDS / 4
    assert not managers[0].show()
    assert not managers[0].waiters()
    assert not lock_nodes(zookeeper)
    for manager in managers:
        manager.close()
    trace = validate(transactions([zookeeper]), Layout(f"/{SPACE}", ROOT), race.returned, hive=True)
    trace.processes = 2
    print(trace)
    assert not trace.wrong, "\n".join(trace.wrong)
    assert min(trace.actions[name] for name in ("hive_creates", "hive_unlocks", "grant", "release")) > SECONDS


def lock_nodes(zookeeper: ZooKeeperServer) -> list[str]:
    """All lock nodes of the namespace."""
    with kazoo(zookeeper.hosts) as client:
        paths, found = [f"/{SPACE}"], []
        for path in paths:
            children = [f"{path}/{name}" for name in client.get_children(path)]
            paths += [child for child in children if "/LOCK-" not in child]
            found += [child for child in children if "/LOCK-" in child]
        return found
