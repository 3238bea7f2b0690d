"""Every backend against the one suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.queueing import PASSING_S
from tests.conformance import BackendConformance

if TYPE_CHECKING:
    from collections.abc import Callable


def _with(url: str, options: dict[str, float]) -> str:
    return "&".join((url, *(f"{name}={value}" for name, value in options.items())))


class TestMemory(BackendConformance, capabilities=MemoryBackend.capabilities):
    @pytest.fixture
    def connect(self) -> Callable[..., LockManager]:
        backend = MemoryBackend()

        def connect(passing_s: float = PASSING_S) -> LockManager:
            backend._requests.passing_s = passing_s
            return LockManager(backend)

        return connect


@pytest.mark.integration
class TestZooKeeper(BackendConformance, capabilities=ZooKeeperBackend.capabilities):
    @pytest.fixture
    def connect(self, connect_zookeeper: Callable[..., LockManager]) -> Callable[..., LockManager]:
        return connect_zookeeper


class TestSQLite(BackendConformance):
    @pytest.fixture
    def connect(self, sqlite_url: str) -> Callable[..., LockManager]:
        return lambda **options: connect(_with(f"{sqlite_url}?expiry=suspect", options))


class TestSQLiteFrees(BackendConformance, capabilities=Capabilities(expires=True)):
    @pytest.fixture
    def connect(self, sqlite_url: str) -> Callable[..., LockManager]:
        return lambda **options: connect(_with(f"{sqlite_url}?expiry=frees", options))


@pytest.mark.integration
class TestPostgreSQL(BackendConformance):
    @pytest.fixture
    def connect(self, postgres_url: str) -> Callable[..., LockManager]:
        return lambda **options: connect(_with(f"{postgres_url}&expiry=suspect", options))


@pytest.mark.integration
class TestPostgreSQLFrees(BackendConformance, capabilities=Capabilities(expires=True)):
    @pytest.fixture
    def connect(self, postgres_url: str) -> Callable[..., LockManager]:
        return lambda **options: connect(_with(f"{postgres_url}&expiry=frees", options))


@pytest.mark.integration
class TestMySQL(BackendConformance):
    @pytest.fixture
    def connect(self, mysql_url: str) -> Callable[..., LockManager]:
        return lambda **options: connect(_with(f"{mysql_url}&expiry=suspect", options))


@pytest.mark.integration
class TestMySQLFrees(BackendConformance, capabilities=Capabilities(expires=True)):
    @pytest.fixture
    def connect(self, mysql_url: str) -> Callable[..., LockManager]:
        return lambda **options: connect(_with(f"{mysql_url}&expiry=frees", options))
