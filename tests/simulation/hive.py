"""Hive's own clients, as in ``ZooKeeperHiveLockManager``: no queue, no fairness, earlier locks kept while retrying.

See its ``lock``, ``lockPrimitive``, ``unlockPrimitive`` and ``removeAllRedundantNodes`` in Hive 2.3. Two things differ.
These clients never give up, so that a deadlock is found. A lock whose creation got no answer is searched for and
removed, as a user would do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.client import Children, Commit, Create, Delete, Get, Refused, Sync
from airflow_hivelock.locks.errors import StoreUnavailable
from tests.simulation.state import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Node
    from tests.simulation.checks import Checks
    from tests.simulation.schedule import Schedule
    from tests.simulation.session import SimulatedSession
    from tests.simulation.themes import Draw
    from tests.simulation.world import World

SLEEP_S = 0.2
TRIES = 3
"""After so many the query fails, and the next one is a new session's, which makes the namespace where there is none."""
_LOCK = re.compile(r"LOCK-(SHARED|EXCLUSIVE)-([0-9]+)")


@dataclass(frozen=True)
class HiveLock:
    """A lock that it believes to hold.

    :param object: the path below the namespace, as in ``dw/t/p=1``.
    """

    object: str
    path: str


class HiveClient:
    """One Hive session."""

    def __init__(self, session: SimulatedSession, schedule: Schedule, checks: Checks) -> None:
        self.session = session
        self._schedule = schedule
        self._checks = checks

    def begin(self) -> None:
        """A session begins: ``setContext``."""
        self._insist(lambda: self._write(Create(NAMESPACE)))

    def clean_up(self) -> None:
        """A session ends with ``hive.zookeeper.clean.extra.nodes=true``: every empty node goes, the namespace too."""
        self._insist(lambda: self._remove_redundant(NAMESPACE))

    def leave_empty(self, target: str) -> None:
        """A query makes its objects' nodes, and does not get its locks."""
        parts = target.split("/")
        for depth in range(1, len(parts) + 1):
            self._insist(partial(self._write, Create(f"{NAMESPACE}/{'/'.join(parts[:depth])}")))

    def query(self, locks: dict[str, str]) -> list[HiveLock]:
        """The locks of a query: ephemeral, in the order of their names; the modes are ``SHARED`` and ``EXCLUSIVE``."""
        return [self._lock(target, mode, explicit=False) for target, mode in sorted(locks.items())]

    def lock_table(self, target: str, mode: str) -> HiveLock:
        """``LOCK TABLE``: one persistent lock, its parents created but not locked."""
        return self._lock(target, mode, explicit=True)

    def unlock(self, locks: Sequence[HiveLock]) -> None:
        for lock in locks:
            self._insist(partial(self._unlock, lock.object, lock.path))

    def unlock_table(self, target: str) -> None:
        """``UNLOCK TABLE``: delete every lock on exactly that object, of any client."""

        def act() -> None:
            listing = self.session.submit(Children(f"{NAMESPACE}/{target}"))[0]
            for name in listing.names if listing else ():
                if _LOCK.fullmatch(name):
                    self._unlock(target, f"{NAMESPACE}/{target}/{name}")

        self._checks.robbers.add(self.session)
        self._insist(act)
        self._checks.robbers.remove(self.session)

    def _insist(self, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except StoreUnavailable:
                self._schedule.sleep(SLEEP_S)
            else:
                return

    def _lock(self, target: str, mode: str, *, explicit: bool) -> HiveLock:
        for number in count(1):
            try:
                if lock := self._lock_once(target, mode, explicit):
                    return lock
            except StoreUnavailable:
                self._insist(partial(self._remove_mine, target))
            self._schedule.sleep(SLEEP_S)
            if number % TRIES == 0:
                self.begin()
        raise AssertionError

    def _lock_once(self, target: str, mode: str, explicit: bool) -> HiveLock | None:
        parent = f"{NAMESPACE}/{target}"
        self._write(Create(parent))
        data = f"{self._name}:0:{'EXPLICIT' if explicit else 'IMPLICIT'}:q:127.0.0.1".encode()
        path = self._write(Create(f"{parent}/LOCK-{mode}-", data, sequential=True, ephemeral=not explicit))
        if path is None:
            parts = target.split("/")
            for depth in range(1, len(parts)):
                self._write(Create(f"{NAMESPACE}/{'/'.join(parts[:depth])}"))
            return None
        mine = int(path.rpartition("-")[2])
        listing = self.session.submit(Children(parent))[0]
        for name in listing.names if listing else ():
            match = _LOCK.fullmatch(name)
            if match and int(match[2]) < mine and "EXCLUSIVE" in (match[1], mode):
                self._write(Delete(path))
                return None
        lock = HiveLock(target, path)
        self._checks.hive_locked(lock)
        return lock

    def _unlock(self, target: str, path: str) -> None:
        self._checks.hive_unlocks(path)
        self._write(Delete(path))
        parent = f"{NAMESPACE}/{target}"
        listing = self.session.submit(Children(parent))[0]
        if listing is not None and not listing.names:
            self._write(Delete(parent))

    def _remove_mine(self, target: str) -> None:
        """Remove the rest of a lock on *target* whose creation got no answer."""
        self.session.submit(Sync())
        for path, node in self._children(f"{NAMESPACE}/{target}"):
            if node is not None and node.data.startswith(f"{self._name}:".encode()):
                self._write(Delete(path))

    def _remove_redundant(self, path: str) -> None:
        for child, _ in self._children(path):
            if not _LOCK.fullmatch(child.rpartition("/")[2]):
                self._remove_redundant(child)
        listing = self.session.submit(Children(path))[0]
        if listing is not None and not listing.names:
            self._write(Delete(path))

    def _children(self, path: str) -> list[tuple[str, Node | None]]:
        listing = self.session.submit(Children(path))[0]
        paths = [f"{path}/{name}" for name in (listing.names if listing else ())]
        return list(zip(paths, self.session.submit(*map(Get, paths)), strict=True))

    @property
    def _name(self) -> str:
        return f"query-of-{self.session.name}"

    def _write(self, op: Create | Delete) -> str | None:
        """Write one operation; None if it was refused, which does not matter here."""
        outcome = self.session.submit(Commit((op,)))[0]
        return None if isinstance(outcome, Refused) else str(outcome[0])


@dataclass(frozen=True)
class Habits:
    """How Hive is used in a run.

    :param unlocks: how likely the next thing is an UNLOCK TABLE.
    :param cleans: how likely its session ends after that, and cleans up; the next one begins with the next thing.
    :param leaves: how likely the next thing is a query that fails, and leaves empty nodes.
    :param regular: each user asks for one object again and again.
    :param pace_s: how long it rests, at least.
    """

    unlocks: float
    cleans: float
    leaves: float
    regular: bool
    pace_s: float

    @classmethod
    def draw(cls, draw: Draw) -> Habits:
        return cls(
            unlocks=draw("unlocks", 0.0, 0.4, 0.9),
            cleans=draw("cleans", 0.0, 0.0, 0.3, 0.9),
            leaves=draw("leaves", 0.0, 0.2),
            regular=draw("regular", True, False, False),
            pace_s=draw("pace_s", 0.1, 0.1, 0.01),
        )


class HiveUser:
    """Somebody at Hive's prompt: queries, explicit locks, and now and then UNLOCK TABLE."""

    def __init__(self, session: SimulatedSession, world: World, rounds: int, habits: Habits) -> None:
        self.session = session
        self._dice = world.dice
        self._schedule = world.schedule
        self._checks = world.checks
        self._world = world
        self._objects = world.workload.objects
        self._client = HiveClient(session, world.schedule, world.checks)
        self._rounds = rounds
        self._habits = habits
        if habits.regular:
            self._objects = [self._dice.pick(self._objects)]

    def work(self) -> None:
        habits = self._habits
        for _ in range(self._rounds):
            if self._world.workload.over:
                break
            self._client.begin()
            target = self._dice.pick(self._objects)
            mode = self._dice.pick(("SHARED", "EXCLUSIVE"))
            if self._dice.chance(habits.leaves):
                self._note(f"leaves {target} empty")
                self._client.leave_empty(target)
            elif self._dice.chance(habits.unlocks):
                locked = [placed.target for placed in self._checks.all_nodes()]
                target = self._dice.pick(locked) if locked else target
                self._note(f"UNLOCK TABLE {target}")
                self._client.unlock_table(target)
            elif self._dice.chance(0.3) and not habits.regular:
                self._note(f"LOCK TABLE {target} {mode}")
                self._hold([self._client.lock_table(target, mode)])
            else:
                locks = {target: mode}
                if self._dice.chance(0.5) and not habits.regular:
                    locks[self._dice.pick(self._objects)] = self._dice.pick(("SHARED", "EXCLUSIVE"))
                for parts in [name.split("/") for name in locks]:
                    for depth in range(1, len(parts)):
                        locks.setdefault("/".join(parts[:depth]), "SHARED")
                self._note(f"query with {locks}")
                self._hold(self._client.query(locks))
            self._schedule.progress()
            if self._dice.chance(habits.cleans):
                self._note("cleans up")
                self._client.clean_up()
            self._rest()
        self.session.close()

    def _hold(self, locks: Sequence[HiveLock]) -> None:
        self._rest()
        self._client.unlock(locks)

    def _rest(self) -> None:
        self._schedule.sleep(self._habits.pace_s * (1 + self._dice.below(8)))

    def _note(self, what: str) -> None:
        self._schedule.note(self.session.name, what)
