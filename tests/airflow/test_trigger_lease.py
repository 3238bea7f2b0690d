"""What becomes of the lease that a trigger was granted, if its task ends or is taken over meanwhile."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.triggers.base import TaskSuccessEvent

from airflow_hivelock.locks import LockLost
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.locks.model import LeaseLimit
from airflow_hivelock.triggers import keeper
from airflow_hivelock.triggers import lock as lock_trigger
from tests.airflow.tasks import ALIVE, DAY, OBJECT, OVER, OWNER, context, lock, other, start_granted, start_waiting
from tests.airflow.triggerer import Triggerer

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines


@pytest.mark.parametrize("state", OVER)
async def test_a_lease_of_which_nobody_heard_is_released(
    state: str | None, manager: LockManager, triggerer: Triggerer
) -> None:
    """The task was marked failed after the grant and before its event was stored: Airflow drops the event."""
    trigger_id = await start_granted(triggerer, manager)
    triggerer.states = {} if state is None else {"lock": state}
    assert triggerer.running(trigger_id), "only a trigger that runs hears of it"
    await triggerer.user_acts(trigger_id)
    assert manager.lease_of(OWNER) is None


@pytest.mark.parametrize("state", ["success", *ALIVE])
async def test_the_normal_end_keeps_the_lease(state: str, manager: LockManager, triggerer: Triggerer) -> None:
    trigger_id = await start_granted(triggerer, manager)
    triggerer.states = {"lock": state}
    await triggerer.user_acts(trigger_id)
    assert manager.lease_of(OWNER) is not None


async def test_a_late_end_leaves_what_the_task_has_taken_over_and_says_nothing(
    manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    trigger_id = await start_granted(triggerer, manager)
    lease = manager.acquire(owner=OWNER, writes=[OBJECT], attempt=1)
    triggerer.states = {"lock": "failed"}
    await triggerer.user_acts(trigger_id)
    assert manager.lease_of(OWNER) == lease
    assert "has left the queue" not in lines()


async def test_a_task_killed_in_the_middle_of_the_grant_holds_nothing(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    step = MemoryAcquisition.step

    def slow(self: MemoryAcquisition) -> Any:
        entered.set()
        assert go_on.wait(10)
        return step(self)

    monkeypatch.setattr(MemoryAcquisition, "step", slow)
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.until(entered.is_set, "the request to be on its way")
    triggerer.states = {"lock": "failed"}
    asyncio.get_running_loop().call_later(0.2, go_on.set)
    await triggerer.user_acts(trigger_id)
    await triggerer.until(lambda: triggerer.asked, "on_kill")
    assert go_on.is_set(), "on_kill did not wait for the request that was on its way"
    await triggerer.until(lambda: manager.lease_of(OWNER) is None, "the lease to be released")


async def test_a_superseded_trigger_says_nothing_and_ends_as_if_it_were_cancelled(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other end would fail the task, which another trigger now waits for."""
    monkeypatch.setattr(lock_trigger, "AGAIN_S", 0.0)
    held = other(manager)
    old = await start_waiting(triggerer, manager)
    new = await triggerer.start(lock(), logical_date=DAY, try_number=2)
    await triggerer.until(lambda: not triggerer.running(old), "the first try to end")
    late = await triggerer.start(lock(), logical_date=DAY, try_number=1)
    await triggerer.until(lambda: not triggerer.running(late), "the late trigger to end")
    manager.release(held)
    await triggerer.event(new)
    await triggerer.runner.cleanup_finished_triggers()
    assert not triggerer.runner.failed_triggers
    assert [entry[0] for entry in triggerer.runner.events] == [new]
    lease = manager.lease_of(OWNER)
    assert lease is not None
    assert lease.attempt == 2


async def test_a_task_that_airflow_gives_back_is_taken_up_again(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first triggerer hangs, and the second gets its triggers. Then the second hangs, and the first gets them back."""

    def _epoch(manager: LockManager) -> int:
        epoch: int = manager.backend._requests.entries[OWNER].epoch  # type: ignore[attr-defined]
        return epoch

    monkeypatch.setattr(lock_trigger, "AGAIN_S", 0.0)
    held = other(manager)
    trigger_id = await start_waiting(triggerer, manager)
    workload, before = triggerer.workloads[trigger_id], _epoch(manager)
    second = Triggerer(monkeypatch)
    await second.give(workload)
    await second.until(lambda: _epoch(manager) > before, "the second triggerer to take over")
    taken = _epoch(manager)
    async with asyncio.timeout(10):
        while _epoch(manager) == taken:
            await triggerer.give(workload)
            await asyncio.sleep(0.01)
    second.states = {"lock": "deferred"}
    await second.user_acts(trigger_id)
    manager.release(held)
    assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)


async def test_where_a_task_waits_leases_are_renewed_even_after_an_error(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where waiters fill the triggerer, Airflow starts no keeper of its own."""
    errors = [OSError("Airflow is away")]
    requests = manager.requests

    def flaky() -> Any:
        if errors:
            raise errors.pop()
        return requests()

    monkeypatch.setattr(manager, "requests", flaky)
    monkeypatch.setattr(lock_trigger, "_keepers", {})
    monkeypatch.setattr(
        lock_trigger, "HiveLockKeeper", lambda conn_id, ends: keeper.HiveLockKeeper(conn_id, 0.05, ends)
    )
    kept = manager.acquire(owner="here/dag/run/kept/-1", writes=["dw.kept"], lease_s=1)
    held = other(manager)
    waiting_id = await triggerer.start(lock(), logical_date=DAY)
    async with asyncio.timeout(10):
        while manager.show("dw.kept")[0].expires == kept.since + timedelta(seconds=1):
            await asyncio.sleep(0.02)
    manager.release(held)
    await triggerer.event(waiting_id)
    assert not errors


def test_a_lease_that_a_user_has_freed_is_not_replaced_above_the_limit(manager: LockManager) -> None:
    """The task resumes with the lease of its trigger, and the group has given the permit to another task."""
    limit = LeaseLimit("dag", 1)
    lease = manager.acquire(owner=OWNER, writes=[OBJECT], attempt=1, limit=limit)
    assert manager.force_release(lease.id, reason="not needed", user="ann")
    manager.acquire(owner="somebody", writes=["dw.other"], limit=limit)
    with pytest.raises(LockLost, match=f"lease {lease.id} was lost before the task resumed"):
        lock(waiting="defer", max_leases=1).acquired(context(), lease.to_json())
    assert [held.owner for held in manager.leases()] == ["somebody"]
