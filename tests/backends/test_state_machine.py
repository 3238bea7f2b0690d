"""Each store answers the random calls of the queue machine as its plain model does.

The examples are the same in every run. ``FULL=1`` makes many new ones, and prints how to repeat one that fails.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from sqlalchemy import delete

from airflow_hivelock.locks import (
    Lock,
    LockManager,
    LockMode,
    LockObject,
    connect,
)
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Exists
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.backends.databases import database
from tests.backends.queue_machine import OBJECTS, Machine, picks
from tests.backends.queue_model import exclude

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.servers import ZooKeeperServer

FULL = bool(os.environ.get("FULL"))
numbers = itertools.count()


class InMemory(Machine):
    wake_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        backend = MemoryBackend()
        self.sessions = [LockManager(backend), LockManager(backend)]


class InDatabase(Machine):
    wake_s = 10.0

    url: str

    def __init__(self) -> None:
        super().__init__()
        url = f"{self.url}{'&' if '?' in self.url else '?'}prefix=machine_{next(numbers)}_"
        self.sessions = [connect(url), connect(url)]

    def teardown(self) -> None:
        super().teardown()
        for manager in self.sessions:
            manager.close()


class InZooKeeper(Machine):
    """With Hive's own sessions: their ``LOCK TABLE … [PARTITION]`` locks one object, and none of its parents."""

    wake_s = 10.0

    clients: Sequence[KazooSession]

    def __init__(self) -> None:
        super().__init__()
        number = next(numbers)
        self.client = self.clients[0]
        self.layout = Layout(f"/hive-machine-{number}", f"/hivelock-machine-{number}")
        self.sessions = [LockManager(ZooKeeperBackend(client, self.layout)) for client in self.clients]
        self.paths: dict[str, str] = {}

    @rule(locked=st.sampled_from(OBJECTS), mode=st.sampled_from(LockMode))
    def hive_locks(self, locked: LockObject, mode: LockMode) -> None:
        """As its lock manager does: a sequential node of its own, unless there is one before it that conflicts."""
        lock = Lock(locked, mode)
        if any(exclude((lock,), place.locks) for place in self.model.queue if place.lease):
            return
        if any(exclude((lock,), (its,)) for its in self.model.hive.values()):
            return
        for path in map(self.layout.object, (*locked.parents, locked)):
            if self.client.submit(Exists(path))[0] is None:
                self.client.submit(Commit((Create(path),)))
        query = f"hive{len(self.paths)}"
        data = f"{query}:1:EXPLICIT:lock table:127.0.0.1".encode()
        path = f"{self.layout.object(locked)}/LOCK-{mode.value}-"
        self.paths[query] = self.client.submit(Commit((Create(path, data, sequential=True),)))[0][0]
        self.model.hive[query] = lock

    @precondition(lambda self: self.model.hive)
    @rule(pick=picks)
    def hive_unlocks(self, pick: int) -> None:
        query = list(self.model.hive)[pick % len(self.model.hive)]
        del self.model.hive[query]
        self.client.submit(Commit((Delete(self.paths[query]),)))


class InMySQL(Machine):
    """Told by their own looks, which come once a second at least."""

    wake_s = 10.0

    managers: Sequence[LockManager]

    def __init__(self) -> None:
        super().__init__()
        self.sessions = list(self.managers)
        kept = database(self.managers[0])
        for table in (kept.tables.request, kept.tables.lock):
            kept.transact(lambda transaction: transaction.ask(delete(table)))  # noqa: B023


def check(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples * (50 if FULL else 1),
            stateful_step_count=30,
            derandomize=not FULL,
            print_blob=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3600)
def test_memory_does_as_the_model() -> None:
    check(InMemory, 400)


@pytest.mark.timeout(3600)
def test_sqlite_does_as_the_model(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InDatabase, "url", sqlite_url, raising=False)
    check(InDatabase, 10)


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_postgresql_does_as_the_model(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InDatabase, "url", postgres_url, raising=False)
    check(InDatabase, 10)


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_zookeeper_does_as_the_model(zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [KazooSession(zookeeper.hosts, 20) for _ in range(2)]
    monkeypatch.setattr(InZooKeeper, "clients", clients, raising=False)
    try:
        check(InZooKeeper, 20)
    finally:
        for client in clients:
            client.close()


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_mysql_does_as_the_model(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(mysql_url) as one, connect(mysql_url) as other:
        monkeypatch.setattr(InMySQL, "managers", (one, other), raising=False)
        check(InMySQL, 20)
