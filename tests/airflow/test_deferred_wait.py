"""A wait of several rounds: how long it was, what its log tells, and when it is given up."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.triggers.base import TaskFailedEvent

from airflow_hivelock import compat
from tests.airflow.tasks import OBJECT, OWNER, away, on_worker, work_trigger

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines
    from tests.airflow.triggerer import Triggerer


async def test_its_trigger_tells_how_long_it_has_waited_in_all(
    manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    held = manager.acquire(owner="somebody", writes=[OBJECT])
    trigger_id = await triggerer.defer(work_trigger(round_number=2, waited_s=40.0))
    await triggerer.until(manager.waiters, "a waiter")
    await asyncio.sleep(0.05)
    manager.release(held)
    event = await triggerer.event(trigger_id)
    assert event.payload["free"] == 2
    assert 40.05 <= event.payload["waited_s"] < 50
    assert not triggerer.xcoms
    assert away(manager) == [OWNER]
    assert on_worker({"free": 2, "waited_s": 40.1}) is None
    assert not manager.show()
    assert "Found free in round 2 of 3, after waiting 40 s" in lines()


def test_the_whole_wait_is_told_over_two_rounds(
    manager: LockManager, triggerer: Triggerer, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log, the metric, the listing and the history: the time for a worker slot too, which no time-out counts."""
    sent: dict[str, float] = {}
    monkeypatch.setattr(compat.stats, "timing", lambda name, value: sent.__setitem__(name, value))

    async def frees(deferred: Any, held: Lease) -> Any:
        trigger_id = await triggerer.defer(deferred)
        await triggerer.until(lambda: manager.waiters() and not away(manager), "a waiter")
        listed.append(manager.waiters()[0].since)
        await asyncio.sleep(0.3)
        manager.release(held)
        return (await triggerer.event(trigger_id)).payload

    listed: list[datetime] = []
    first = asyncio.run(frees(work_trigger(), manager.acquire(owner="first", writes=[OBJECT])))
    time.sleep(0.5)  # for a worker slot
    outrun = manager.acquire(owner="second", writes=[OBJECT], priority=10)
    with pytest.raises(TaskDeferred) as deferred:
        on_worker(first, timeout=timedelta(minutes=1))
    _, kwargs = deferred.value.trigger.serialize()
    assert 0.5 <= kwargs["slot_s"] < kwargs["waited_s"] - 0.3
    second = asyncio.run(frees(deferred.value.trigger, outrun))
    assert listed[0] == listed[1], "the listing counts from the first request"
    on_worker(second, timeout=timedelta(minutes=1))
    (tenure,) = [one for one in manager.history() if one.owner == OWNER]
    assert tenure.asked == listed[0]
    assert (tenure.granted - tenure.asked).total_seconds() >= 1.1
    assert sent["hivelock.acquired.wait"] >= 1100
    assert "Acquired lease" in lines()
    (acquired,) = [
        line for line in lines().splitlines() if "Acquired lease" in line and OBJECT in line and "after" in line
    ]
    assert re.search(r"after waiting [1-9]\d* s, for first and second", acquired)


async def test_the_time_out_spans_all_rounds(manager: LockManager, triggerer: Triggerer, lines: Lines) -> None:
    manager.acquire(owner="somebody", writes=[OBJECT])
    with pytest.raises(TaskDeferred) as deferred:
        on_worker({"free": 1, "waited_s": 59.5}, timeout=timedelta(minutes=1))
    assert not manager.waiters()
    _, kwargs = deferred.value.trigger.serialize()
    assert (kwargs["round_number"], kwargs["timeout_s"]) == (2, 60)
    assert 59.5 <= kwargs["waited_s"] < 60
    begun = asyncio.get_running_loop().time()
    assert isinstance(await triggerer.event(await triggerer.defer(deferred.value.trigger)), TaskFailedEvent)
    assert asyncio.get_running_loop().time() - begun < 30
    assert "within 60 s: somebody holds" in lines()
