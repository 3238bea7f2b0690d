"""An empty store in each kind of database; and Hive's locks in a session of Spark, for the modules with TABLES or a fixture ``spark``."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backends.database import notifier
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.turn import NotAtOnce
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.rules import named
from airflow_hivelock.spark import enable_hive_locks
from tests.backends.metastores import TIMEOUT_S, Hive
from tests.backends.zookeepers import kazoo, store
from tests.support.servers import lock_metastore as start_metastore
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kazoo.client import KazooClient

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.spark import HiveLocks
    from tests.support.servers import Metastore, ZooKeeperServer

URL = "memory://locks-in-spark"
DATABASES = ["sqlite", *(pytest.param(name, marks=pytest.mark.integration) for name in ("postgres", "mysql"))]


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store in each kind of database."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def opened(database_url: str) -> Iterator[Callable[..., LockManager]]:
    """Managers of that store, with options; closed in the end."""
    with ExitStack() as managers:

        def open_(**options: object) -> LockManager:
            given = "&".join(f"{name}={value}" for name, value in options.items())
            url = f"{database_url}{'&' if '?' in database_url else '?'}{given}" if given else database_url
            return managers.enter_context(connect(url))

        yield open_


@pytest.fixture
def raw(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client of the shared ZooKeeper that is not ours, and has no credentials."""
    with kazoo(zookeeper.hosts) as client:
        yield client


@pytest.fixture(scope="module")
def hives(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLockManagers]:
    """Real Hive with sessions that remove their nodes."""
    with HiveLockManagers(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, cleans=True) as managers:
        yield managers


@pytest.fixture
def hive(raw: KazooClient) -> KazooClient:
    """Does what Hive does."""
    return raw


@pytest.fixture
def layout(connect_zookeeper: Callable[[], LockManager]) -> Layout:
    """That of the managers of :func:`connect_zookeeper`."""
    with connect_zookeeper() as manager:
        return store(manager).layout


@pytest.fixture(params=[True, False], ids=["at once", "queued"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a request that no other is in the way of is granted in its first transaction."""
    if not request.param:
        monkeypatch.setattr(ZooKeeperAcquisition, "_at_once", Mock(side_effect=NotAtOnce))
    return bool(request.param)


@pytest.fixture(scope="session")
def lock_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """A metastore with a lock manager; HIVE names another release than that in PySpark's jars."""
    with start_metastore(tmp_path_factory.mktemp("locks"), txn_timeout_s=TIMEOUT_S) as metastore:
        yield metastore


@pytest.fixture
def connect_metastore(lock_metastore: Metastore) -> Callable[[], LockManager]:
    """New managers over the shared metastore, empty of locks."""
    backend = MetastoreBackend.connect(f"127.0.0.1:{lock_metastore.port}", recheck_s="0.5")
    with backend.store.client() as client:
        for number in {row.id for row in client.rows()}:
            client.unlock(number)
    return lambda: LockManager(backend)


@pytest.fixture
def raw_metastore(lock_metastore: Metastore) -> Hive:
    """A client of that metastore that is not ours."""
    return Hive(lock_metastore.port)


@pytest.fixture(scope="module")
def catalog(servers: Any) -> Catalog:
    """The metastore of the module's servers. Each question is asked once: the statements change nothing."""
    found = connect_catalog(servers.metastore_uri)
    table, partitions = cache(found.table), cache(lambda below: list(found.partitions(below)))
    return cast("Catalog", SimpleNamespace(table=table, partitions=partitions, names=found.names))


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks: who is not told is never woken."""
    monkeypatch.setattr(notifier, "LOOK_S", 3600.0)


@pytest.fixture
def manager() -> Iterator[LockManager]:
    manager = connect(URL)
    yield manager
    left = manager.leases()
    manager.force_release_all(held_s=0, reason="the test is over", user="test")
    assert not left


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the module's TABLES."""
    from tests.support.local_spark import local_spark

    with local_spark(tmp_path_factory.mktemp("spark"), cores=2) as session:
        for statement in request.module.TABLES:
            session.sql(statement)
        yield session


@pytest.fixture
def locks(spark: Any, manager: LockManager) -> Iterator[HiveLocks]:
    locks = enable_hive_locks(spark, URL, timeout_s=20, progress=False)
    yield locks
    locks.disable()


@pytest.fixture
def taken(manager: LockManager, locks: HiveLocks) -> Callable[[], list[str]]:
    """What was locked since the last question, and was given back: each object with its mode, but no parents."""
    seen = len(manager.history())

    def since() -> list[str]:
        nonlocal seen
        assert not manager.leases()
        history = sorted(manager.history(), key=lambda each: each.granted or each.asked)
        leases, seen = history[seen:], len(history)
        return [
            f"{lock.object}{'!' if lock.mode is LockMode.EXCLUSIVE else ''}"
            for lease in leases
            for lock in named(lease.locks)
        ]

    return since
