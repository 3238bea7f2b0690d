"""Servers that tests share; each is started once, when the first test asks for it."""

from __future__ import annotations

import gc
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.support.servers import MariaDBServer, PostgresServer, ZooKeeperServer
from tests.system.histories.trace.summary import pytest_runtest_makereport, pytest_terminal_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]

ROOT = Path(__file__).parents[1]
LONGEST = (
    "tests/system/race/test_race.py",
    "tests/airflow/test_real.py",
    "tests/backends/test_spark_connect.py",
)
"""The files that take minutes. They come first, so that no worker ends with one of them while the others have no work."""

_numbers = itertools.count()

# Airflow leaves a million objects. A full collection reads all of them, and frees next to nothing: with Python's own
# threshold of 10 it took a seventh of the time of the tests in tests/airflow. The imports of the tests also leave objects
# that are never freed. They are frozen, so that no later collection reads them.
gc.set_threshold(700, 10, 100)
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {(ROOT / file).resolve(strict=True): place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_asked_for() -> None:
    """Whether a machine has it makes no difference."""
    if not os.environ.get("MARIADB"):
        pytest.skip("make test-mysql")


@pytest.fixture(scope="session", name="mariadb")
def mariadb_server(mariadb_asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDBServer]:
    with MariaDBServer(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of an empty set of tables on the shared server."""
    return f"{postgres.url}?schema=test_{next(_numbers)}"


@pytest.fixture
def mysql_url(mariadb: MariaDBServer) -> str:
    """The same on a MariaDB."""
    return f"{mariadb.url}?schema=test_{next(_numbers)}"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
def connect_zookeeper(zookeeper: ZooKeeperServer) -> Callable[..., LockManager]:
    """New sessions with one empty pair of namespaces on the shared server."""
    number = next(_numbers)

    def connect(**options: Any) -> LockManager:
        root = f"/hivelock-{number}"
        backend = ZooKeeperBackend.connect(zookeeper.hosts, f"hive-{number}", root=root, timeout_s=5, **options)
        return LockManager(backend)

    return connect
