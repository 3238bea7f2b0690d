"""A task that locks and works in one has its lease, and no process: between two pokes, or before it has a worker slot."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time import task_runner

from airflow_hivelock.compat import AirflowRescheduleException, TaskDeferralError
from airflow_hivelock.locks import InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.triggers import keeper
from airflow_hivelock.work import applications, hosts
from airflow_hivelock.work.processes import Processes
from tests.airflow.tasks import OBJECT, OWNER, Acts, context, on_worker, trigger, work_trigger
from tests.airflow.test_keeper_frees import Airflow, keep

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines

LAST_ROUND = 4
"""In which the trigger takes the locks, and keeps them for the worker."""


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    played = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", played, raising=False)
    monkeypatch.setattr(keeper, "SETTLE_S", 0.0)
    return played


def poke(again: bool = False) -> None:
    def act() -> None:
        if again:
            raise AirflowRescheduleException(datetime.now(UTC))  # type: ignore[no-untyped-call]

    Acts(task_id="lock", writes=[OBJECT], act=act).execute(context())


def granted(**options: Any) -> Any:
    """The event of a trigger that has taken the locks."""

    async def event() -> Any:
        events: Any = (trigger if "round_number" in options else work_trigger)(
            **{"ends_task": False, "round_number": LAST_ROUND, **options}
        ).run()
        found = await anext(events)
        await events.aclose()
        return found.payload

    return asyncio.run(event())


def test_a_sensor_that_is_failed_between_two_pokes_leaves_no_lease(airflow: Airflow, manager: LockManager) -> None:
    with pytest.raises(AirflowRescheduleException):
        poke(again=True)
    airflow.knows("run", "running", lock="up_for_reschedule", report="running")
    assert not keep(2)
    assert manager.lease_of(OWNER), "the sensor lost its locks between two pokes"
    airflow.knows("run", "running", lock="failed", report="running")
    assert not keep()
    assert not manager.leases()


def test_the_next_poke_can_be_on_another_host(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowRescheduleException):
        poke(again=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-8")
    poke()
    assert not manager.leases()


def test_a_task_that_is_failed_while_its_trigger_keeps_its_locks_leaves_no_lease(
    airflow: Airflow, manager: LockManager
) -> None:
    granted()
    airflow.knows("run", "running", lock="queued", report="running")
    assert not keep(2)
    assert manager.lease_of(OWNER)
    airflow.knows("run", "running", lock="failed", report="running")
    assert not keep()
    assert not manager.leases()


def test_the_worker_takes_up_the_lease_that_its_trigger_has_kept(airflow: Airflow, manager: LockManager) -> None:
    seen: list[Any] = []
    on_worker(granted(), act=lambda: seen.extend(manager.leases()))
    assert not manager.leases()
    (work,) = seen[0].works
    assert str(applications.of(work)) == str(Processes()), "its work is not recorded"


def test_a_task_whose_trigger_has_failed_after_the_grant_releases_its_lease(
    airflow: Airflow, manager: LockManager
) -> None:
    """Its work has not begun, whatever the lease records."""
    granted()
    job = Acts(task_id="lock", writes=[OBJECT])
    with pytest.raises(TaskDeferralError):
        job.resume_execution("__fail__", {"error": "Trigger failure", "traceback": None}, context())
    assert not manager.leases()


def test_work_of_an_earlier_try_stays_recorded(airflow: Airflow, manager: LockManager) -> None:
    granted()
    (lease,) = manager.leases()
    running = applications.encode(Processes(pid=2**30, started=1))
    manager.start_work(lease, "lock", running)
    granted(attempt=2)
    (found,) = manager.leases()
    assert [work.application for work in found.works] == [running]


def test_a_lease_for_later_tasks_does_not_end_with_its_lock_task(airflow: Airflow, manager: LockManager) -> None:
    """That task also defers without its end in the triggerer, with waiting="defer"."""
    granted(round_number=0)
    airflow.knows("run", "running", lock="success", job="running")
    assert not keep(2)
    assert manager.lease_of(OWNER)


def test_a_store_that_records_nothing_now_still_gives_the_lease(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(manager, "record_work", away)
        event = granted()
    assert "its locks stay until its run ends: away" in lines()
    on_worker(event)
    assert not manager.leases()


def test_every_version_reads_the_record_as_processes_that_have_ended(manager: LockManager) -> None:
    text = applications.encode(Processes.none())
    assert json.loads(text) == {
        **{"kind": "processes", "pid": 0, "started": 0, "host": "", "boot": "", "mark": "0" * 32, "submits": False},
        **{"pod": None, "queue": "", "gone": "its task, which waits", "user_id": os.geteuid()},
    }
    lease = manager.acquire(owner=OWNER, writes=[OBJECT])
    lease = manager.record_work(lease, "lock", text)
    assert not applications.running(lease.works)
    assert str(applications.of(lease.works[0])) == "no process"
    assert not hosts.recorded([lease])
    with pytest.raises(InvalidRequest, match="Hosts with recorded work: none"):
        hosts.on_host("", [lease])
    assert applications.begun(lease, "lock") is None
    unreadable = manager.record_work(lease, "lock", "{}")
    assert applications.begun(unreadable, "lock")
    with pytest.raises(CannotTell):
        applications.of(unreadable.works[0])
    manager.release(lease)
