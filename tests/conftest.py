"""Servers that tests share; each is started once, when the first test asks for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.servers import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def connect_zookeeper(zookeeper: ZooKeeperServer) -> Callable[[], LockManager]:
    """New sessions with one empty pair of namespaces on the shared server."""
    number = next(_numbers)

    def connect() -> LockManager:
        backend = ZooKeeperBackend.connect(zookeeper.hosts, f"hive-{number}", root=f"/hivelock-{number}", timeout_s=5)
        return LockManager(backend)

    return connect
