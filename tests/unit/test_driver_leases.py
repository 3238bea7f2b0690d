"""The leases of a Spark driver: when they are released, and when they stay."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import InvalidRequest, LockManager, LockObject, StoreUnavailable
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark import leases
from airflow_hivelock.spark.leases import DriverLeases, DriverName
from airflow_hivelock.spark.statements import StatementLocks

if TYPE_CHECKING:
    from collections.abc import Iterator

HANG_S = 20.0
PLAN = Plan([], [LockObject("dw", "t")], {})


@pytest.fixture
def manager() -> LockManager:
    return LockManager(MemoryBackend())


@pytest.fixture
def driver(manager: LockManager) -> Iterator[list[DriverLeases]]:
    """The leases that a test makes; they are closed in the end."""
    made: list[DriverLeases] = []
    yield made
    for each in made:
        each.close()


def of(driver: list[DriverLeases], manager: LockManager, **options: Any) -> DriverLeases:
    driver.append(DriverLeases(manager, DriverName("local-1", "local"), **options))
    return driver[-1]


def test_an_interrupted_statement_keeps_its_locks_until_its_jobs_have_ended(
    driver: list[DriverLeases], manager: LockManager
) -> None:
    held = []

    def ended(_error: BaseException) -> bool:
        held.append(len(manager.leases()))
        return True

    mine = of(driver, manager, ended=ended)
    with pytest.raises(KeyboardInterrupt), mine.locked(PLAN, "insert"):
        raise KeyboardInterrupt
    assert held == [1]
    assert manager.leases() == []


def test_the_locks_of_a_statement_that_still_runs_stay(
    driver: list[DriverLeases], manager: LockManager, caplog: pytest.LogCaptureFixture
) -> None:
    mine = of(driver, manager, ended=lambda error: False)
    with caplog.at_level(logging.ERROR), pytest.raises(KeyboardInterrupt), mine.locked(PLAN, "insert"):
        raise KeyboardInterrupt
    [lease] = manager.leases()
    assert f"DROP FORCE LEASE '{lease.id}'" in caplog.text


def test_a_second_interrupt_keeps_them_too(driver: list[DriverLeases], manager: LockManager) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        of(driver, manager, ended=Mock(side_effect=KeyboardInterrupt)).locked(PLAN, "insert"),
    ):
        raise KeyboardInterrupt
    assert len(manager.leases()) == 1


def test_a_release_without_an_answer_is_tried_again_soon_although_leases_are_long(
    driver: list[DriverLeases], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RETRY_S", 0.05)
    release, tried = manager.release, list[str]()

    def once_silent(lease: Any) -> bool:
        tried.append(lease.id)
        if len(tried) == 1:
            raise StoreUnavailable("no answer")
        return release(lease)

    monkeypatch.setattr(manager, "release", once_silent)
    with of(driver, manager, lease_s=3600.0).locked(PLAN, "insert"):
        pass
    deadline = time.monotonic() + HANG_S
    while manager.leases() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert manager.leases() == []


def test_a_session_of_another_application_does_not_run_unlocked(
    driver: list[DriverLeases], manager: LockManager
) -> None:
    """As after ``spark.stop()`` and a new session."""
    plans: Any = SimpleNamespace()
    mine = StatementLocks(object(), plans, of(driver, manager))
    with pytest.raises(InvalidRequest, match=r"application local-2.*call enable_hive_locks for it"):
        mine.begins_statement(SimpleNamespace(_sc=SimpleNamespace(applicationId="local-2")))
