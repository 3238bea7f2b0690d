"""The metrics that Airflow gets: from a task, from the keeper and from a force release."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import Stats, TaskDeferred
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_hivelock import compat, metrics
from airflow_hivelock.compat import stats
from airflow_hivelock.locks import StoreCorrupted, rules
from airflow_hivelock.locks.model import Waiter, WaitsFor
from airflow_hivelock.operators.force_unlock import HiveForceUnlockOperator
from airflow_hivelock.operators.lock import HiveLockOperator, HiveUnlockOperator
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.spec import Owner
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.triggers.lock import HiveLockTrigger
from tests.airflow.tasks import context
from tests.support.airflow_names import NoStatsLogger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.triggers.base import TriggerEvent

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines, Run


NAP_S = 0.2


class Nap(EmptyOperator):
    def execute(self, context: object) -> None:
        threading.Event().wait(NAP_S)


class Naps(HiveLockMixin, Nap):
    pass


class Recorder(NoStatsLogger):
    """Records what a StatsD server would get."""

    told: ClassVar[dict[str, list[float]]] = {}

    @classmethod
    def incr(cls, stat: str, count: int = 1, **_: object) -> None:  # type: ignore[override]
        cls.told.setdefault(stat, []).append(count)

    @classmethod
    def gauge(cls, stat: str, value: float, **_: object) -> None:  # type: ignore[override]
        cls.told.setdefault(stat, []).append(value)

    @classmethod
    def timing(cls, stat: str, dt: float, **_: object) -> None:  # type: ignore[override]
        cls.told.setdefault(stat, []).append(dt)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[float]]]:
    """The metrics so far, by name."""
    _have_told(Recorder, monkeypatch)
    metrics._initialize.cache_clear()
    Recorder.told.clear()
    yield Recorder.told
    metrics._initialize.cache_clear()
    _have_told(NoStatsLogger, monkeypatch)
    compat.initialize_stats()


def _have_told(logger: type, monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(compat, "stats_utils"):
        monkeypatch.setattr(compat.stats_utils, "get_stats_factory", lambda *_: logger)
    else:  # before Airflow 3.2
        monkeypatch.setattr(type(Stats), "factory", logger)
        monkeypatch.setattr(Stats, "instance", None)


def test_a_task_tells_what_it_acquires_and_releases(
    told: dict[str, list[float]], manager: LockManager, run: Run
) -> None:
    with DAG("metrics", schedule=None) as dag:
        lock = HiveLockOperator(task_id="lock", writes=["dw.t"], waiting="poke").as_setup()  # type: ignore[no-untyped-call]
        lock >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    assert run(dag).state == "success"
    assert told["hivelock.acquired"] == told["hivelock.released"] == [1]
    assert 0 <= told["hivelock.acquired.wait"][0] < 600_000
    assert 0 < told["hivelock.held"][0] < 600_000


def test_a_task_tells_how_long_it_held_its_locks_and_did_not_work(
    told: dict[str, list[float]], manager: LockManager, run: Run
) -> None:
    with DAG("metrics", schedule=None) as dag:
        Naps(task_id="work", writes=["dw.t"])
    assert run(dag).state == "success"
    (held,), (idle,) = told["hivelock.held"], told["hivelock.idle_hold"]
    assert 0 < idle < held - NAP_S * 900


def test_a_task_tells_of_its_invitation_and_of_the_slot_that_it_gave_back(
    told: dict[str, list[float]], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def free() -> TriggerEvent:
        return await anext(trigger.run())

    task = Naps(task_id="work", writes=["dw.t"])
    owner = str(Owner("here", "dag", "run", "work"))
    asks = {"hivelock_conn_id": "hivelock_default", "reads": [], "writes": ["dw.t"], "owner": owner}
    trigger = HiveLockTrigger(lease_s=60, ends_task=False, round_number=1, **asks)  # type: ignore[arg-type]
    event = asyncio.run(free())
    held = manager.acquire(owner="urgent", writes=["dw.t"], priority=10)
    with pytest.raises(TaskDeferred):
        task.execute_locked(context("work"), event.payload)
    assert told["hivelock.invited"] == told["hivelock.slots_given_back"] == [1]
    assert "hivelock.invited.lapsed" not in told
    assert len(told["hivelock.invited.wait"]) == 1
    over = event.payload | {"until_s": manager.now().timestamp() - 1}
    with pytest.raises(TaskDeferred):
        task.execute_locked(context("work"), over)
    assert told["hivelock.invited.lapsed"] == [1]
    manager.release(held)
    assert manager.forget_deferred(owner, 0)
    assert "hivelock.acquired" not in told


def test_the_wait_for_locks_is_that_of_all_rounds(told: dict[str, list[float]], manager: LockManager) -> None:
    Naps(task_id="work", writes=["dw.t"]).execute_locked(context("work"), {"free": 2, "waited_s": 90.0})
    assert 90_000 <= told["hivelock.acquired.wait"][0] < 150_000


def test_the_keeper_tells_how_many_hold_and_wait(told: dict[str, list[float]], manager: LockManager) -> None:
    owners = [
        str(Owner(installation, "dag", run, "t")) for installation, run in (("here", "1"), ("here", "2"), ("x", "1"))
    ]
    manager.acquire(owner=owners[0], writes=["dw.t"])
    manager.acquire(owner=owners[2], writes=["dw.other"])
    waiting = manager.begin(rules.request(owners[1], writes=["dw.t"]), lambda: None)
    waiting.poll()
    asyncio.run(HiveLockKeeper()._keep())
    waiting.withdraw()
    assert (told["hivelock.leases"], told["hivelock.waiting"], told["hivelock.suspect"]) == ([1], [1], [0])
    assert told["hivelock.lost"] == [0], "Prometheus would miss the first loss"


def test_the_keeper_tells_of_the_longest_wait_and_the_oldest_lease(
    told: dict[str, list[float]], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an alert can be built on them, and ends with them."""
    old, young, waits, elsewhere = (
        str(Owner(installation, "dag", run, "t"))
        for installation, run in (("here", "1"), ("here", "2"), ("here", "3"), ("x", "1"))
    )
    now = manager.now()

    def at(minutes: int) -> None:
        monkeypatch.setattr(manager.backend, "now", lambda: now + timedelta(minutes=minutes))

    at(0)
    manager.acquire(owner=elsewhere, writes=["dw.other"])
    at(30)
    lease = manager.acquire(owner=old, writes=["dw.t"])
    at(60)
    waiting = manager.begin(rules.request(waits, writes=["dw.t"]), lambda: None)
    waiting.poll()
    at(90)
    manager.acquire(owner=young, writes=["dw.young"])
    at(150)
    asyncio.run(HiveLockKeeper()._keep())
    waiting.withdraw()
    manager.release(lease)
    asyncio.run(HiveLockKeeper()._keep())
    assert told["hivelock.waiting.longest_s"] == [5400, 0]
    assert told["hivelock.leases.oldest_s"] == [7200, 3600]


def test_an_alert_on_the_longest_wait_is_not_for_a_rerun_that_waits_for_slots(
    told: dict[str, list[float]], manager: LockManager
) -> None:
    locks, now = rules.request("any", writes=["dw.t"]).locks, manager.now()
    waiters = [
        Waiter(str(Owner("here", "dag", f"{what.value} {minutes}", "t")), locks, 0, now - timedelta(minutes=minutes), waits_for=what)
        for what, minutes in (
            *((WaitsFor.SLOT, minutes) for minutes in (90, 120, 240)),
            *((WaitsFor.LEASE, minutes) for minutes in (100, 300)),
            (WaitsFor.LOCK, 2),
        )
    ]  # fmt: skip
    metrics.set_gauges([], waiters, now, "here", 0)
    assert (told["hivelock.waiting"], told["hivelock.waiting.longest_s"]) == ([1], [120])
    assert (told["hivelock.waiting.lease"], told["hivelock.waiting.slot"]) == ([2], [3])


def test_a_lease_that_cannot_be_renewed_does_not_keep_the_others_from_it(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [str(Owner("here", "dag", run, "t")) for run in ("1", "2", "3")]
    leases = [
        manager.acquire(owner=owner, writes=[f"dw.{table}"], lease_s=2)
        for owner, table in zip(owners, "abc", strict=True)
    ]
    renewed = []

    def renew(lease: Lease) -> None:
        if lease.id == leases[0].id:
            raise StoreCorrupted("somebody else wrote it")
        renewed.append(lease.id)

    monkeypatch.setattr(manager.backend, "renew", renew)
    monkeypatch.setattr(manager.backend, "now", lambda: leases[0].since + timedelta(seconds=2))
    asyncio.run(HiveLockKeeper()._keep())
    assert renewed == [lease.id for lease in leases[1:]]


def test_a_metric_that_cannot_be_sent_costs_nothing(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    monkeypatch.setattr(stats, "incr", Mock(side_effect=OSError("no route")))
    metrics.lost()
    assert "hivelock.lost was not sent" in lines()


def test_a_time_out_and_a_force_release_are_told(told: dict[str, list[float]], manager: LockManager, run: Run) -> None:
    lease = manager.acquire(owner="somebody", writes=["dw.t"])
    with DAG("late", schedule=None) as dag:
        HiveLockOperator(task_id="lock", writes=["dw.t"], waiting="poke", timeout=timedelta(0))
    assert run(dag).state == "failed"
    with DAG("force", schedule=None) as force:
        HiveForceUnlockOperator(task_id="free", leases=[lease.id], stale=False, reason="test")
    assert run(force).state == "success"
    assert told["hivelock.timeout"] == told["hivelock.force_released"] == [1]
    assert "hivelock.acquired" not in told
