"""Who locks SHARED on a database and a table and EXCLUSIVE on some of its partitions, each in its own way.

Each has its own namespace, in which the database and the table are there already, as they are after the first day.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol

from kazoo.client import KazooClient

from airflow_hivelock.locks import LockObject, rules
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Refused
from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockData, owner_key
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.benchmarks.samples import timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks import Lock, LockManager
    from tests.servers import ZooKeeperServer
    from tests.servers.lock_manager import HiveLockManagers

TABLE = "dw.delays"
QUERY = "insert overwrite table dw.delays select carrier, avg(delay) from dw.flights group by carrier"
TIMEOUT_S = 30.0


def partitions(count: int) -> list[str]:
    """The names of *count* partitions."""
    return [f"{TABLE}/n={number:04d}" for number in range(count)]


def wanted(count: int) -> tuple[Lock, ...]:
    """What every contender locks: *count* partitions EXCLUSIVE, and what lies above them SHARED."""
    return rules.with_parents((), map(LockObject.parse, partitions(count)))


class Contender(Protocol):
    """One way to lock."""

    @property
    def name(self) -> str: ...

    def lock(self, count: int) -> float:
        """Lock *count* partitions; how long that took, in milliseconds."""
        ...

    def unlock(self) -> float:
        """Free them; how long that took, in milliseconds."""
        ...

    def close(self) -> None: ...


class Ours:
    """``LockManager.acquire`` and ``release``; every lease for another owner, as Airflow's runs are."""

    name = "airflow_hivelock"

    def __init__(self, manager: LockManager) -> None:
        self._manager = manager
        self._owners = (f"flights/run-{number}" for number in itertools.count())

    def lock(self, count: int) -> float:
        writes, owner = partitions(count), next(self._owners)

        def acquire() -> None:
            self._lease = self._manager.acquire(owner=owner, writes=writes, query=QUERY)

        return timed(acquire)

    def unlock(self) -> float:
        return timed(lambda: self._manager.release(self._lease))

    def close(self) -> None:
        self._manager.close()


class Hive:
    """Real Hive's lock manager, timed inside its JVM."""

    name = "Hive's lock manager"

    def __init__(self, managers: HiveLockManagers) -> None:
        self._locks = managers.session("benchmark")

    def lock(self, count: int) -> float:
        answer = self._locks.lock([(lock.object.path, lock.mode.value) for lock in wanted(count)], QUERY)
        if not answer.granted:
            raise RuntimeError("Hive refused locks that nobody else wants")
        return answer.ms

    def unlock(self) -> float:
        return self._locks.unlock()

    def close(self) -> None:
        self._locks.unlock()


class Recipes:
    """kazoo's ReadLock and WriteLock, one an object, in order."""

    name = "kazoo's recipes"

    def __init__(self, zookeeper: ZooKeeperServer) -> None:
        self._zk = KazooClient(zookeeper.hosts)
        self._zk.start(TIMEOUT_S)

    def lock(self, count: int) -> float:
        recipes = {"SHARED": self._zk.ReadLock, "EXCLUSIVE": self._zk.WriteLock}
        self._locks = [
            recipes[lock.mode.value]("/".join(("/recipes", *lock.object.path)), QUERY) for lock in wanted(count)
        ]
        return timed(lambda: [lock.acquire(timeout=TIMEOUT_S) for lock in self._locks])

    def unlock(self) -> float:
        return timed(lambda: [lock.release() for lock in reversed(self._locks)])

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()


class Floor:
    """What ZooKeeper takes for the nodes alone: one bare transaction that makes them, and one that deletes them."""

    name = "bare transactions"

    def __init__(self, zookeeper: ZooKeeperServer) -> None:
        self._client = KazooSession(zookeeper.hosts, TIMEOUT_S)
        self._layout = Layout(namespace="/floor")
        database, table = (lock.object for lock in wanted(1)[:2])
        for path in (self._layout.namespace, self._layout.object(database), self._layout.object(table)):
            self._client.submit(Commit((Create(path),)))

    def lock(self, count: int) -> float:
        owner = "flights/run-0"
        data = LockData(owner, 0, True, QUERY, owner_key(owner)).encode()
        creates: list[Create] = []
        for lock in wanted(count):
            if lock.object.partition:
                creates.append(Create(self._layout.object(lock.object)))
            creates.append(Create(self._layout.lock_prefix(lock.object, lock.mode), data, sequential=True))

        def submit() -> None:
            self._made = self._commit(Commit(tuple(creates)))

        return timed(submit)

    def unlock(self) -> float:
        deletes = Commit(tuple(Delete(path) for path in reversed(self._made)))
        return timed(lambda: self._commit(deletes))

    def close(self) -> None:
        self._client.close()

    def _commit(self, transaction: Commit) -> Sequence[str]:
        outcome: Sequence[str] | Refused = self._client.submit(transaction)[0]
        if isinstance(outcome, Refused):
            raise RuntimeError(f"a bare transaction was refused: {outcome}")
        return outcome
