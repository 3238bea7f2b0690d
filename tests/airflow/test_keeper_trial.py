"""A connection that does not work is not tried for ever, and is tried again when it has changed."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
import structlog
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DRCount, GetDRCount

from airflow_hivelock import hooks
from airflow_hivelock.locks import InvalidRequest, LockManager, StoreCorrupted, StoreUnavailable
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.triggers.keeper import SUSPECT_LEASES, HiveLockKeeper, suspect_leases

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.airflow.conftest import Lines

CONNECTION = "AIRFLOW_CONN_HIVELOCK_DEFAULT"


def connection(host: str) -> str:
    return json.dumps({"conn_type": "hivelock", "host": host, "extra": {"installation": "here"}})


class Stores:
    """Which hosts answer, and which were tried."""

    def __init__(self) -> None:
        self.good: set[str] = set()
        self.tried: list[str] = []

    def __call__(self, url: str, site: object = None) -> LockManager:
        host = url.partition("://")[2].partition(":")[0]
        self.tried.append(host)
        if host not in self.good:
            raise StoreUnavailable(f"{host} does not answer")
        return LockManager(MemoryBackend())


class Answering:
    """An Airflow that answers, or not."""

    silent = False

    async def asend(self, message: Any) -> Any:
        if self.silent:
            raise OSError("the database is away")
        return DRCount(count=0) if isinstance(message, GetDRCount) else None


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    played = Stores()
    monkeypatch.setattr(hooks, "_shared_manager", played)
    return played


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Answering:
    played = Answering()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", played, raising=False)
    return played


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch, airflow: Answering) -> Callable[..., int]:
    """Let a keeper look so often, 20 s apart; how often it did before it ended."""
    now = [1000.0]
    real = asyncio.sleep
    monkeypatch.setattr("airflow_hivelock.triggers.keeper.time.monotonic", lambda: now[0])

    def play(kept: HiveLockKeeper, count: int, at: dict[int, Callable[[], Any]] | None = None) -> int:
        looks = 0

        async def sleep(seconds: float) -> None:
            nonlocal looks
            if looks == count:
                raise asyncio.CancelledError
            (at or {}).get(looks, lambda: None)()
            looks += 1
            now[0] += seconds
            await real(0)

        async def body() -> None:
            async for _ in kept.run():
                pass

        monkeypatch.setattr("airflow_hivelock.triggers.keeper.asyncio.sleep", sleep)
        with suppress(asyncio.CancelledError):
            asyncio.run(body())
        return looks

    return play


def test_a_store_that_has_not_answered_yet_is_tried_every_time(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The triggerer may have been started while it is away: what is over is freed within a minute of its return."""
    monkeypatch.setenv(CONNECTION, connection("zk"))
    assert rounds(HiveLockKeeper(), 100) == 100, "an asset's keeper must not end"
    assert len(stores.tried) == 100
    assert lines().count("cannot be renewed or checked. Trying again in 20 s") == len(stores.tried)
    assert "or when the connection has changed" in lines()


def test_an_error_of_our_own_is_logged_with_its_place(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage needs no traceback; a bug cannot be found without one."""
    monkeypatch.setenv(CONNECTION, connection("zk"))
    with structlog.testing.capture_logs() as entries:
        rounds(HiveLockKeeper(), 1)
        monkeypatch.setattr(hooks, "_shared_manager", Mock(side_effect=KeyError("a bug")))
        rounds(HiveLockKeeper(), 1)
    told = [
        (entry["log_level"], entry.get("exc_info")) for entry in entries if "cannot be renewed" in str(entry["event"])
    ]
    assert [level for level, _ in told] == ["warning", "error"]
    assert told[0][1] is None
    assert isinstance(told[1][1], KeyError)


def test_another_failure_after_a_long_outage_begins_with_short_pauses(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The leases of the tasks that still run are not left alone for REPEAT_S."""

    def away_then_foreign(url: str, site: object = None) -> LockManager:
        stores.tried.append(url)
        raise StoreUnavailable("away") if len(stores.tried) <= 20 else StoreCorrupted("foreign tables")

    monkeypatch.setattr(hooks, "_shared_manager", away_then_foreign)
    monkeypatch.setenv(CONNECTION, connection("zk"))
    rounds(HiveLockKeeper(), 22)
    pauses_s = [re.findall(r"Trying again in (\d+) s", line)[0] for line in lines().splitlines() if "foreign" in line]
    assert pauses_s == ["20", "40"]


def test_a_connection_that_cannot_be_meant_is_tried_less_and_less_often(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    def refused(url: str, site: object = None) -> LockManager:
        stores.tried.append(url)
        raise InvalidRequest("no such namespace")

    monkeypatch.setattr(hooks, "_shared_manager", refused)
    monkeypatch.setenv(CONNECTION, connection("typo"))
    hour = 180
    assert rounds(HiveLockKeeper(), hour) == hour, "an asset's keeper must not end"
    assert 5 <= len(stores.tried) <= 12
    assert lines().count("cannot be renewed or checked. Trying again in") == len(stores.tried)


def test_the_keeper_of_waiters_ends_with_a_store_that_never_answered(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setenv(CONNECTION, connection("typo"))
    assert 30 < rounds(HiveLockKeeper(ends=True), 180) < 100
    assert "The keeper of connection 'hivelock_default' has ended" in lines()


def test_a_connection_that_was_mended_is_tried_at_once(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.good = {"right"}
    monkeypatch.setenv(CONNECTION, connection("typo"))
    rounds(HiveLockKeeper(), 102, {100: lambda: monkeypatch.setenv(CONNECTION, connection("right"))})
    assert stores.tried[-2:] == ["right", "right"]


def test_a_store_that_has_worked_is_tried_every_time(
    stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what is over is freed as soon as it is back."""
    stores.good = {"zk"}
    monkeypatch.setenv(CONNECTION, connection("zk"))
    assert rounds(HiveLockKeeper(ends=True), 100, {10: stores.good.clear}) == 100
    assert len(stores.tried) == 100


@pytest.mark.parametrize("ends", [True, False])
def test_a_connection_that_is_gone_is_noticed(
    ends: bool, stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    stores.good = {"zk"}
    monkeypatch.setenv(CONNECTION, connection("zk"))
    assert rounds(HiveLockKeeper(ends=ends), 100, {10: lambda: monkeypatch.delenv(CONNECTION)}) == (11 if ends else 100)
    assert len(stores.tried) == 10
    assert "does not exist" in lines()
    assert lines().count("does not exist") < 10


def test_a_connection_that_a_silent_airflow_does_not_find_is_gone_by_as_it_was(
    airflow: Answering, stores: Stores, rounds: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.good = {"zk"}
    monkeypatch.setenv(CONNECTION, connection("zk"))

    def silence() -> None:
        monkeypatch.delenv(CONNECTION)
        airflow.silent = True

    assert rounds(HiveLockKeeper(ends=True), 100, {10: silence}) == 100
    assert len(stores.tried) == 100


def test_each_connection_has_an_asset_of_its_own_and_one_keeper() -> None:
    staging = suspect_leases("staging")
    assert staging.name != SUSPECT_LEASES.name == "hivelock_suspect_leases"
    assert [
        w.trigger.serialize()[1]["hivelock_conn_id"] for asset in (SUSPECT_LEASES, staging) for w in asset.watchers
    ] == [
        "hivelock_default",
        "staging",
    ]
