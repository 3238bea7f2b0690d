"""Every backend against the one suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.testing import BackendConformance

if TYPE_CHECKING:
    from collections.abc import Callable


class TestMemory(BackendConformance, capabilities=MemoryBackend.capabilities):
    @pytest.fixture
    def connect(self) -> Callable[[], LockManager]:
        backend = MemoryBackend()
        return lambda: LockManager(backend)


@pytest.mark.integration
class TestZooKeeper(BackendConformance, capabilities=ZooKeeperBackend.capabilities):
    @pytest.fixture
    def connect(self, connect_zookeeper: Callable[[], LockManager]) -> Callable[[], LockManager]:
        return connect_zookeeper


class TestSQLite(BackendConformance, capabilities=Capabilities(prioritized=False, limits=False)):
    @pytest.fixture
    def connect(self, sqlite_url: str) -> Callable[[], LockManager]:
        return lambda: connect(f"{sqlite_url}?expiry=suspect")


class TestSQLiteFrees(BackendConformance, capabilities=Capabilities(expires=True, prioritized=False, limits=False)):
    @pytest.fixture
    def connect(self, sqlite_url: str) -> Callable[[], LockManager]:
        return lambda: connect(f"{sqlite_url}?expiry=frees")


@pytest.mark.integration
class TestPostgreSQL(BackendConformance, capabilities=Capabilities(prioritized=False, limits=False)):
    @pytest.fixture
    def connect(self, postgres_url: str) -> Callable[[], LockManager]:
        return lambda: connect(f"{postgres_url}&expiry=suspect")


@pytest.mark.integration
class TestPostgreSQLFrees(BackendConformance, capabilities=Capabilities(expires=True, prioritized=False, limits=False)):
    @pytest.fixture
    def connect(self, postgres_url: str) -> Callable[[], LockManager]:
        return lambda: connect(f"{postgres_url}&expiry=frees")
