"""How long a waiter keeps its place in the queue: while its task lives, whatever becomes of the triggerer and the lock store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent

from airflow_hivelock import HiveLockOperator, HiveLockSensor, compat, waiting
from airflow_hivelock.locks import StoreUnavailable, pending
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from tests.airflow.tasks import ALIVE, DAY, OVER, OWNER, lock, other, start_granted, start_waiting
from tests.airflow.triggerer import CANCELLED_AGAIN_S, Triggerer

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines


@pytest.mark.parametrize("state", [*OVER, "success"])
async def test_a_waiter_whose_task_is_over_leaves_the_queue(
    state: str | None, manager: LockManager, triggerer: Triggerer
) -> None:
    held = other(manager)
    trigger_id = await start_waiting(triggerer, manager)
    triggerer.states = {} if state is None else {"lock": state}
    await triggerer.user_acts(trigger_id)
    assert not manager.waiters()
    manager.release(held)


@pytest.mark.parametrize("state", ALIVE)
async def test_a_waiter_keeps_its_place_while_its_task_lives(
    state: str, manager: LockManager, triggerer: Triggerer
) -> None:
    """A triggerer that was frozen, and a task that was cleared, come here with the task deferred again."""
    held = other(manager)
    trigger_id = await start_waiting(triggerer, manager)
    triggerer.states = {"lock": state}
    await triggerer.user_acts(trigger_id)
    assert len(manager.waiters()) == 1
    again = await triggerer.start(lock(), logical_date=DAY, try_number=2)
    manager.release(held)
    await triggerer.event(again)


async def test_a_waiter_keeps_its_place_when_airflow_cannot_tell(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    async def no_answer(_: Any) -> Any:
        raise ConnectionError("no line")

    held = other(manager)
    trigger_id = await start_waiting(triggerer, manager)
    with monkeypatch.context() as patch:
        patch.setattr(triggerer, "asend", no_answer)
        await triggerer.user_acts(trigger_id)
    assert len(manager.waiters()) == 1
    assert "Keeping the queue position or the lease: Airflow did not report the state of" in lines()
    again = await triggerer.start(lock(), logical_date=DAY)
    manager.release(held)
    await triggerer.event(again)


async def test_a_place_that_nobody_takes_up_keeps_nobody_waiting(manager: LockManager, triggerer: Triggerer) -> None:
    """Airflow has given the task to another triggerer, which hangs. The session of the first one continues."""
    held = other(manager)
    trigger_id = await start_waiting(triggerer, manager)
    newcomer = await triggerer.start(lock(), logical_date=DAY, run_id="newcomer")
    await triggerer.until(lambda: len(manager.waiters()) == 2, "the newcomer")
    triggerer.states = {"lock": "deferred"}
    await triggerer.user_acts(trigger_id)
    manager.release(held)
    assert isinstance(await triggerer.event(newcomer), TaskSuccessEvent)


async def test_a_triggerer_that_stops_keeps_places_and_another_goes_on(
    manager: LockManager, triggerer: Triggerer
) -> None:
    held = other(manager)
    await triggerer.shut_down(await start_waiting(triggerer, manager))
    assert len(manager.waiters()) == 1
    assert not (triggerer.asked and compat.TRIGGERS_HEAR_OF_KILLS), "its line to the supervisor is dead"
    again = await triggerer.start(lock(), logical_date=DAY)
    manager.release(held)
    assert isinstance(await triggerer.event(again), TaskSuccessEvent)


@pytest.mark.parametrize("granted", [False, True])
async def test_what_is_over_is_given_up_although_airflow_asks_for_the_end_again_meanwhile(
    granted: bool, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow cancels a trigger every second until it has ended; its answer may take longer."""
    asend = triggerer.asend

    async def slow(message: Any) -> Any:
        await asyncio.sleep(5 * CANCELLED_AGAIN_S)
        return await asend(message)

    held = None if granted else other(manager)
    trigger_id = await (start_granted if granted else start_waiting)(triggerer, manager)
    triggerer.states = {"lock": "failed"}
    monkeypatch.setattr(triggerer, "asend", slow)
    await triggerer.user_acts(trigger_id)
    await triggerer.until(lambda: not manager.waiters() and not manager.lease_of(OWNER), "it to be given up")
    if held:
        manager.release(held)


@pytest.mark.parametrize("options", [{}, {"timeout": timedelta(0)}])
async def test_the_end_of_every_wait_is_not_called_a_users_action(
    options: dict[str, Any], manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    held = other(manager) if options else None
    trigger_id = await triggerer.start(lock(**options), logical_date=DAY)
    event = await triggerer.event(trigger_id)
    assert isinstance(event, TaskFailedEvent if options else TaskSuccessEvent)
    triggerer.states = {"lock": event.task_instance_state}
    await triggerer.user_acts(trigger_id)
    assert (manager.lease_of(OWNER) is None) is bool(options)
    if held:
        manager.release(held)
    assert "trigger completed" in lines()
    assert "user action" not in lines()


@pytest.mark.skipif(not compat.TRIGGERS_RETRY, reason="before Airflow 3.3 it raises, and a worker logs why")
@pytest.mark.parametrize("cls", [HiveLockOperator, HiveLockSensor])
async def test_a_trigger_that_fails_stays_until_airflow_has_read_why(
    cls: Any, manager: LockManager, triggerer: Triggerer
) -> None:
    """Airflow closes a task's log as it hears of the trigger's end, be there lines to read or not."""
    other(manager)
    trigger_id = await triggerer.start(
        lock(cls, timeout=0 if cls is HiveLockSensor else timedelta(0)), logical_date=DAY
    )
    assert isinstance(await triggerer.event(trigger_id), TaskFailedEvent)
    assert triggerer.running(trigger_id)
    await triggerer.user_acts(trigger_id)


async def test_an_outage_keeps_the_place(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    step = MemoryAcquisition.step
    asked = iter(range(100))

    def answers_at_last(self: MemoryAcquisition) -> Any:
        if next(asked) < 3:
            raise StoreUnavailable("zk1 is down")
        return step(self)

    monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(MemoryAcquisition, "step", answers_at_last)
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
    assert lines().count("zk1 is down") == 1


async def test_an_outage_that_lasts_fails_the_task(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr(waiting, "OUTAGE_S", 0.1)
    monkeypatch.setattr(MemoryAcquisition, "step", Mock(side_effect=StoreUnavailable("zk1 is down")))
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    assert isinstance(await triggerer.event(trigger_id), TaskFailedEvent)
    assert "error: zk1 is down" in lines()
