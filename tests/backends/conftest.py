"""Hive's locks in a session of Spark, for the modules that have one: a fixture ``spark``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.rules import named
from airflow_hivelock.spark import enable_hive_locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.spark import HiveLocks

URL = "memory://locks-in-spark"


@pytest.fixture
def manager() -> Iterator[LockManager]:
    manager = connect(URL)
    yield manager
    left = manager.leases()
    manager.force_release_all(held_s=0, reason="the test is over", user="test")
    assert not left


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
