"""The leases of a Spark driver: when they are released, and when they stay."""

from __future__ import annotations

import logging
import queue
import time
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import (
    HiveLeases,
    InvalidRequest,
    LockLost,
    LockManager,
    LockObject,
    StoreCorrupted,
    StoreUnavailable,
)
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.locks.reservations import reserve
from airflow_hivelock.spark import renewal
from airflow_hivelock.spark.holding import NotPlanned, hold
from airflow_hivelock.spark.leases import DriverLeases, DriverName
from airflow_hivelock.spark.statements import StatementLocks
from tests.support.patience import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import Lease

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
    monkeypatch.setattr(renewal, "RETRY_S", 0.05)
    release, tried = manager.release, list[str]()

    def once_silent(lease: Any) -> bool:
        tried.append(lease.id)
        if len(tried) == 1:
            raise StoreUnavailable("no answer")
        return release(lease)

    monkeypatch.setattr(manager, "release", once_silent)
    with of(driver, manager, lease_s=3600.0).locked(PLAN, "insert"):
        pass
    until(lambda: not manager.leases(), "no lease", HANG_S)


def test_a_session_of_another_application_does_not_run_unlocked(
    driver: list[DriverLeases], manager: LockManager
) -> None:
    """As after ``spark.stop()`` and a new session."""
    plans: Any = SimpleNamespace()
    mine = StatementLocks(object(), plans, of(driver, manager))
    with pytest.raises(InvalidRequest, match=r"application local-2.*call enable_hive_locks for it"):
        mine.begins_statement(SimpleNamespace(_sc=SimpleNamespace(applicationId="local-2")))


INSERT = Plan([], [LockObject.parse("dw.t/dt=2013-01-01")], {})
SELECT = Plan([LockObject("dw", "t")], [], {})


def free_all(manager: LockManager) -> None:
    manager.force_release_all(held_s=0, reason="not needed", user="ops")


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewal thread does not notice that a lease is lost."""
    monkeypatch.setattr(renewal.Renewal, "_keep", lambda self, held: None)


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("writes", [PLAN, INSERT], ids=["of the whole table", "of a part"])
def test_a_statement_does_not_write_under_a_lost_lease(
    driver: list[DriverLeases], manager: LockManager, writes: Plan
) -> None:
    mine, ran = of(driver, manager), list[str]()
    with suppress(LockLost), mine.locked(PLAN, "lease", named=True):
        free_all(manager)
        rival = manager.acquire(owner="rival", writes=["dw.t"])
        with pytest.raises(LockLost, match="the statement did not run"), mine.locked(writes, "insert"):
            ran.append("insert")
    assert not ran
    assert [lease.id for lease in manager.leases()] == [rival.id]


@pytest.mark.usefixtures("unwatched")
def test_a_statement_does_not_write_what_it_read_under_a_lost_lease(
    driver: list[DriverLeases], manager: LockManager
) -> None:
    """The lease is lost while the statement waits for the locks that it also needs."""
    mine, ran = of(driver, manager, progress=False), list[str]()
    both = Plan([LockObject("dw", "t")], [LockObject("dw", "u")], {})
    acquire = manager.acquire

    def after_a_wait(**request: Any) -> Any:
        free_all(manager)
        return acquire(**request)

    with suppress(LockLost), mine.locked(SELECT, "lease", named=True):
        manager.acquire = after_a_wait  # type: ignore[method-assign]
        with (
            pytest.raises(LockLost, match="the statement did not run"),
            mine.locked(both, "insert into u select from t"),
        ):
            ran.append("insert")
    assert not ran
    assert manager.leases() == []


@pytest.mark.usefixtures("unwatched")
def test_a_statement_that_cannot_be_planned_does_not_run_under_a_lost_lease(
    driver: list[DriverLeases], manager: LockManager
) -> None:
    mine, ran = of(driver, manager), list[str]()
    with suppress(LockLost), mine.locked(PLAN, "lease", named=True):
        free_all(manager)
        with (
            pytest.raises(LockLost, match="the statement did not run"),
            hold(mine, Mock(side_effect=NotPlanned), "execute immediate"),
        ):
            ran.append("execute immediate")
    assert not ran


def test_the_loss_of_a_lease_for_several_statements_is_noticed_at_once(
    driver: list[DriverLeases], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store notifies the driver, which would renew its lease only in 20 minutes."""
    monkeypatch.setattr(renewal, "RETRY_S", 3600.0)
    stopped = queue.Queue[str]()
    mine = of(driver, manager, stop=lambda lease: stopped.put(lease.id))
    with suppress(LockLost), mine.locked(PLAN, "lease", named=True):
        [lease] = manager.leases()
        free_all(manager)
        assert stopped.get(timeout=HANG_S) == lease.id
        with pytest.raises(LockLost, match="the statement did not run"), mine.locked(SELECT, "select"):
            pass


def test_the_loss_of_one_lease_stops_spark_once_and_the_others_are_renewed(
    driver: list[DriverLeases],
    manager: LockManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Although Spark does not answer the stop."""
    stopped, renewed, renew = list[str](), queue.Queue[str](), manager.renew

    def renewing(lease: Lease) -> None:
        renew(lease)
        renewed.put(lease.id)

    def stop(lease: Lease) -> None:
        stopped.append(lease.id)
        raise OSError("connection refused")

    mine = of(driver, manager, stop=stop, lease_s=1.0)
    with suppress(LockLost), mine.locked(PLAN, "lost"):
        [lost] = manager.leases()
        with mine.locked(Plan([LockObject("dw", "u")], [], {}), "renewed"):
            manager.force_release(lost.id, reason="not needed", user="ops")
            monkeypatch.setattr(manager, "renew", renewing)
            [other] = manager.leases()
            for _ in range(4):
                assert renewed.get(timeout=HANG_S) == other.id
    assert stopped == [lost.id]
    assert "could not be stopped" in caplog.text


def test_a_release_that_fails_does_not_end_the_renewals(
    driver: list[DriverLeases], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "RETRY_S", 0.05)
    release = manager.release
    answers = iter([StoreUnavailable("no answer"), StoreCorrupted("a record of a later version"), OSError("closed")])

    def fails_at_first(lease: Any) -> bool:
        if error := next(answers, None):
            raise error
        return release(lease)

    monkeypatch.setattr(manager, "release", fails_at_first)
    with of(driver, manager).locked(PLAN, "insert"):
        pass
    until(lambda: not manager.leases(), "no lease", HANG_S)


@pytest.mark.usefixtures("unwatched")
def test_a_store_that_does_not_answer_stops_a_job_only_after_its_lease_has_expired(
    driver: list[DriverLeases], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[str]()
    mine = of(driver, manager, lease_s=100.0)
    with mine.locked(PLAN, "lease", named=True):
        monkeypatch.setattr(manager, "verify", Mock(side_effect=StoreUnavailable("no answer")))
        with mine.locked(INSERT, "insert"):
            ran.append("insert")
        later = time.monotonic() + 101
        monkeypatch.setattr(renewal, "time", SimpleNamespace(monotonic=lambda: later))
        with pytest.raises(StoreUnavailable), mine.locked(INSERT, "another insert"):
            ran.append("another insert")
    assert ran == ["insert"]


@pytest.mark.parametrize("plan", [SELECT, PLAN], ids=["reads", "writes"])
def test_a_lease_that_another_thread_has_ended_covers_no_later_statement(
    driver: list[DriverLeases], manager: LockManager, plan: Plan
) -> None:
    """As an iterator over rows that another thread reads to its end, or a task of asyncio that outlives its lease."""
    mine = of(driver, manager)
    rows = mine.locked(PLAN, "rows", named=True)
    rows.__enter__()
    copy_context().run(rows.__exit__, None, None, None)
    assert manager.leases() == []
    with mine.locked(plan, "the next statement"):
        assert len(manager.leases()) == 1
    assert not mine.has_named_lease


class TimedOut(BaseException):
    """As Airflow's AirflowTaskTimeout."""


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, TimedOut])
def test_a_grant_that_an_interrupt_hides_is_released(
    interrupt: type[BaseException],
    driver: list[DriverLeases],
    manager: LockManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acquire, lease_of = manager.acquire, manager.lease_of

    def interrupted(**request: Any) -> Any:
        acquire(**request)
        raise interrupt

    mine = of(driver, manager)
    monkeypatch.setattr(manager, "acquire", interrupted)
    for call in (
        lambda: mine.locked(PLAN, "insert").__enter__(),
        lambda: HiveLeases(manager).grab_lease([("dw.t", "x")], 60),
        lambda: reserve(manager, "dw.t", datetime.now(UTC) + timedelta(hours=1), reason="a change", user="ann"),
    ):
        with pytest.raises(interrupt):
            call()
        assert manager.leases() == []
    monkeypatch.setattr(manager, "lease_of", Mock(side_effect=StoreUnavailable("no answer")))
    with pytest.raises(interrupt), mine.locked(PLAN, "insert"):
        pass
    monkeypatch.setattr(manager, "lease_of", lease_of)
