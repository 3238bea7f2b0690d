"""What older Airflows lack, taken from the one that is here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time import task_runner

from airflow_hivelock import comms, compat
from airflow_hivelock.cli.command import main_in_airflow
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.operators.lock import HiveLockOperator
from tests.airflow.tasks import DAY, lock, other, trigger
from tests.airflow.triggerer import Triggerer, fails

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager


def test_a_task_begins_on_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "TRIGGERS_RENDER", False)
    assert not HiveLockOperator(task_id="lock", writes=["dw.t"]).start_from_trigger


@pytest.mark.parametrize("state", ["failed", "success", None])
async def test_a_trigger_that_is_only_cancelled_leaves_the_queue_for_a_task_that_is_over(
    state: str | None, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "TRIGGERS_HEAR_OF_KILLS", False)
    other(manager)
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.until(manager.waiters, "a waiter")
    triggerer.states.pop("lock")
    if state:
        triggerer.states["lock"] = state
    await triggerer.shut_down(trigger_id)  # which is how any end comes there
    assert not manager.waiters()


async def test_a_trigger_that_is_only_cancelled_frees_what_nobody_has_heard_of(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "TRIGGERS_HEAR_OF_KILLS", False)
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.event(trigger_id)
    assert manager.show()
    triggerer.states["lock"] = "failed"  # and so Airflow has dropped the event
    await triggerer.shut_down(trigger_id)
    assert not manager.show()


async def test_a_trigger_that_is_only_cancelled_keeps_the_lease_of_a_task_that_goes_on(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "TRIGGERS_HEAR_OF_KILLS", False)
    for state in ("deferred", "scheduled", "success"):
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.event(trigger_id)
        triggerer.states["lock"] = state
        await triggerer.shut_down(trigger_id)
        assert manager.show(), state


def test_a_trigger_that_gives_up_raises_so_that_its_task_is_retried(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "TRIGGERS_RETRY", False)
    asyncio.run(fails(trigger(colour="red").run()))


def test_what_this_airflow_lacks_is_what_it_is_not_used_for() -> None:
    assert bool(compat.lacks()) is not compat.TRIGGERS_RENDER


def test_check_says_what_this_airflow_lacks(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compat, "lacks", lambda: ["Here a task starts on a worker"])
    monkeypatch.setattr(comms, "read_metadata", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main_in_airflow(["check"])
    assert ended.value.code == 0
    assert "lacks: Here a task starts on a worker" in capsys.readouterr().out


class Line:
    """As Airflow 3.1's to its supervisor: what a thread asks is asked from an event loop of its own."""

    def __init__(self) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()

    async def asend(self, question: Any) -> Any:
        self.loops.add(asyncio.get_running_loop())

    def send(self, question: Any) -> Any:
        return asyncio.run(self.asend(question))


async def test_what_a_trigger_runs_in_threads_asks_through_its_event_loop(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line()
    monkeypatch.setattr(compat, "TRIGGERS_ASK_FROM_THREADS", False)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", line, raising=False)
    await comms.load(HiveLockHook())
    await asyncio.to_thread(line.send, "what a cluster's hook asks for")
    assert line.loops == {asyncio.get_running_loop()}
