"""Contenders that lock SHARED on a database and a table and EXCLUSIVE on some of its partitions, each in its own way.

Each has its own namespace. The database and the tables are there already, as they are after the first day.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Create, Delete, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from airflow_hivelock.locks import LockManager, LockObject, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Get, Names
from airflow_hivelock.locks.backends.zookeeper.layout import LOCK_PREFIXES, Layout, LockData
from airflow_hivelock.locks.backends.zookeeper.wire import MultiRead
from airflow_hivelock.locks.model import owner_key
from tests.bench.samples import timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks import Lease, Lock
    from tests.support.servers.lock_manager import HiveLockManagers

TABLES = ("dw.delays", "dw.flights")
QUERY = "insert overwrite table dw.delays select carrier, avg(delay) from dw.flights group by carrier"
TIMEOUT_S = 30.0
_SEQUENTIAL = 2  # org.apache.zookeeper.CreateMode.PERSISTENT_SEQUENTIAL


def partitions(count: int, table: str = TABLES[0]) -> list[str]:
    """The names of *count* partitions."""
    return [f"{table}/n={number}" for number in range(count)]


def wanted(writes: Sequence[str]) -> tuple[Lock, ...]:
    """The locks of every contender: *writes* EXCLUSIVE, and their parents SHARED."""
    return rules.with_parents((), map(LockObject.parse, writes))


def connect(hosts: str, namespace: str) -> LockManager:
    """A session of its own, in the namespace of that name."""
    return LockManager(ZooKeeperBackend.connect(hosts, namespace, root=f"/airflow-{namespace}", timeout_s=TIMEOUT_S))


def nodes(layout: Layout, writes: Sequence[str]) -> list[Create]:
    """The nodes that a bare transaction creates for the locks on *writes*, the partitions' own nodes included."""
    owner = "flights/run-0"
    data = LockData(owner, 0, True, QUERY, owner_key(owner)).encode()
    creates: list[Create] = []
    for lock in wanted(writes):
        if lock.object.partition:
            creates.append(Create(layout.object(lock.object), b"", OPEN_ACL_UNSAFE, 0))
        node = f"{layout.object(lock.object)}/{LOCK_PREFIXES[lock.mode]}"
        creates.append(Create(node, data, OPEN_ACL_UNSAFE, _SEQUENTIAL))
    return creates


def commit(zk: KazooClient, operations: Sequence[Create | Delete]) -> list[str]:
    """One bare transaction. It leaves out what looks at each path three times over in kazoo's API."""
    transaction = zk.transaction()
    transaction.operations = operations
    outcome: list[str] = transaction.commit()
    if any(isinstance(result, Exception) for result in outcome):
        raise RuntimeError(f"a bare transaction was refused: {outcome[:3]}")
    return outcome


class Contender(Protocol):
    """One way to lock."""

    @property
    def name(self) -> str: ...

    def lock(self, writes: Sequence[str]) -> float:
        """Lock the partitions *writes*; how long that took, in milliseconds."""
        ...

    def unlock(self) -> float:
        """Free them; how long that took, in milliseconds."""
        ...

    def close(self) -> None: ...


class Ours:
    """``LockManager.acquire`` and ``release``; every lease for another owner, as Airflow's runs are."""

    name = "airflow_hivelock"

    def __init__(self, hosts: str, namespace: str = "hive-cycles") -> None:
        self._manager = connect(hosts, namespace)
        self._numbers = itertools.count()

    def cycle(self, writes: Sequence[str]) -> None:
        self._manager.release(self._acquire(writes, TIMEOUT_S))

    def lock(self, writes: Sequence[str]) -> float:
        def acquire() -> None:
            self._lease = self._acquire(writes)

        return timed(acquire)

    def unlock(self) -> float:
        return timed(lambda: self._manager.release(self._lease))

    def close(self) -> None:
        self._manager.close()

    def _acquire(self, writes: Sequence[str], timeout_s: float = 0, reads: Sequence[str] = ()) -> Lease:
        owner = f"flights/run-{os.getpid()}-{next(self._numbers)}"
        return self._manager.acquire(owner=owner, reads=reads, writes=writes, query=QUERY, timeout_s=timeout_s)


class OneTable(Ours):
    """The same, and all clients use one table."""

    name = "airflow_hivelock, one table"

    def cycle(self, writes: Sequence[str]) -> None:
        super().cycle([f"{TABLES[0]}/{name.partition('/')[2]}" for name in writes])


class Readers(Ours):
    """All clients read one partition."""

    name = "airflow_hivelock, readers of one partition"

    def cycle(self, writes: Sequence[str]) -> None:
        self._manager.release(self._acquire((), TIMEOUT_S, reads=partitions(1)))


class Hive:
    """Real Hive's lock manager, timed inside its JVM."""

    name = "Hive's lock manager"

    def __init__(self, managers: HiveLockManagers) -> None:
        self._locks = managers.session("benchmark")

    def lock(self, writes: Sequence[str]) -> float:
        answer = self._locks.lock([(lock.object.path, lock.mode.value) for lock in wanted(writes)], QUERY)
        if not answer.granted:
            raise RuntimeError("Hive refused locks that nobody else wants")
        return answer.ms

    def unlock(self) -> float:
        return self._locks.unlock()

    def close(self) -> None:
        self._locks.unlock()


class _Kazoo:
    """One with a session of kazoo's."""

    def __init__(self, hosts: str) -> None:
        self._zk = KazooClient(hosts)
        self._zk.start(TIMEOUT_S)

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()


class Recipes(_Kazoo):
    """kazoo's ReadLock and WriteLock, one an object, in order."""

    name = "kazoo's recipes"

    def lock(self, writes: Sequence[str]) -> float:
        recipes = {"SHARED": self._zk.ReadLock, "EXCLUSIVE": self._zk.WriteLock}
        self._locks = [
            recipes[lock.mode.value]("/".join(("/recipes", *lock.object.path)), QUERY) for lock in wanted(writes)
        ]
        return timed(lambda: [lock.acquire(timeout=TIMEOUT_S) for lock in self._locks])

    def unlock(self) -> float:
        return timed(lambda: [lock.release() for lock in reversed(self._locks)])


class Floor(_Kazoo):
    """What kazoo and ZooKeeper take for the nodes alone: one bare transaction that makes them, and one that deletes them.

    Nothing of ours is in it.
    """

    name = "bare transactions"

    def __init__(self, hosts: str, namespace: str = "/floor", tables: Sequence[str] = TABLES) -> None:
        super().__init__(hosts)
        self._layout = Layout(namespace)
        for table in tables:
            self._zk.ensure_path(self._layout.object(LockObject.parse(table)))

    def cycle(self, writes: Sequence[str]) -> None:
        self._delete(commit(self._zk, nodes(self._layout, writes)))

    def lock(self, writes: Sequence[str]) -> float:
        creates = nodes(self._layout, writes)

        def create() -> None:
            self._made = commit(self._zk, creates)

        return timed(create)

    def unlock(self) -> float:
        return timed(lambda: self._delete(self._made))

    def _delete(self, made: Sequence[str]) -> None:
        commit(self._zk, [Delete(path, -1) for path in reversed(made)])


class _Request(NamedTuple):
    """One request of :class:`Steps`, serialized apart from its transactions."""

    record: str
    data: bytes
    tickets: Sequence[str]
    reads: Sequence[Names]
    creates: Sequence[Create]


class Steps(_Kazoo):
    """The requests of this protocol by kazoo alone: a look; a transaction, and the look after it; a transaction.

    It applies no rule, and ignores what it reads. So a lock manager of this protocol in Python cannot be faster.
    """

    name = "the same requests, bare"

    def __init__(self, hosts: str, tables: Sequence[str] = TABLES) -> None:
        super().__init__(hosts)
        self._layout = Layout("/steps", "/airflow-steps")
        self._numbers = itertools.count(os.getpid() << 32)
        self._zk.ensure_path(self._layout.records)
        for table in tables:
            for name in (table.partition(".")[0], table):
                self._zk.ensure_path(self._layout.queue(name))
            self._zk.ensure_path(self._layout.object(LockObject.parse(table)))

    def cycle(self, writes: Sequence[str]) -> None:
        request = self._serialized(writes)
        self._release(request, self._acquire(request))

    def lock(self, writes: Sequence[str]) -> float:
        self._request = self._serialized(writes)

        def acquire() -> None:
            self._made = self._acquire(self._request)

        return timed(acquire)

    def unlock(self) -> float:
        return timed(lambda: self._release(self._request, self._made))

    def _serialized(self, writes: Sequence[str]) -> _Request:
        layout, key, locks = self._layout, f"{next(self._numbers):016x}", wanted(writes)
        data, record = json.dumps([QUERY, *map(str, locks)]).encode(), layout.record(key)
        tables = sorted({str(lock.object) for lock in locks if not lock.object.partition})
        queues = [Names(layout.queue(name)) for name in tables]
        objects = [Names(layout.object(LockObject.parse(name))) for name in tables]
        tickets = [f"{layout.queue(name)}/{key}-1-1-A" for name in tables if "." in name]
        creates = [Create(path, data, OPEN_ACL_UNSAFE, 0) for path in (record, *tickets)]
        return _Request(record, data, tickets, (*queues, *objects), (*creates, *nodes(layout, writes)))

    def _acquire(self, request: _Request) -> list[str]:
        """The paths of the nodes for Hive."""
        self._ask(MultiRead((Get(request.record), *request.reads)))
        made: list[str] = self._ask(Transaction(request.creates), MultiRead(request.reads))[0]
        return made[len(request.tickets) + 1 :]

    def _release(self, request: _Request, made: Sequence[str]) -> None:
        deletes = [Delete(path, -1) for path in (*reversed(made), *request.tickets)]
        self._ask(Transaction([SetData(request.record, request.data, -1), *deletes]))

    def _ask(self, *requests: Any) -> list[Any]:
        """Send all at once; their results."""
        results = [self._zk.handler.async_result() for _ in requests]
        for request, result in zip(requests, results, strict=True):
            self._zk._call(request, result)
        found = [result.get(timeout=TIMEOUT_S) for result in results]
        refused = [each for each in found[0] if isinstance(each, Exception)]
        if refused:
            raise RuntimeError(f"a bare transaction was refused: {refused[:3]}")
        return found
