"""A run that was deleted and created again under its id: Airflow counts its tries from 1 again, the lock store does not."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from airflow.sdk import DAG, task
from airflow.triggers.base import TaskSuccessEvent

from airflow_hivelock import HiveLockOperator, hold
from airflow_hivelock.locks import Superseded
from airflow_hivelock.operators.arguments import Waiting
from airflow_hivelock.triggers import lock as lock_trigger
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes
from tests.airflow.tasks import DAY, OBJECT, OWNER, Acts, lock, work_trigger

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines, Run
    from tests.airflow.triggerer import Triggerer

OTHER = "dw.delays/dt=2013-01-16"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_trigger, "AGAIN_S", 0.0)


def leave(manager: LockManager, owner: str = OWNER, attempt: int = 2) -> None:
    """The last try of the deleted run has released its lease."""
    assert manager.release(manager.acquire(owner=owner, writes=[OBJECT], attempt=attempt))


async def given_back(triggerer: Triggerer, trigger_id: int) -> Any:
    """The event of a trigger that Airflow starts again whenever it has ended without one."""
    workload = triggerer.workloads[trigger_id]
    async with asyncio.timeout(10):
        while trigger_id not in triggerer._events():
            await triggerer.give(workload)
            await asyncio.sleep(0.01)
    return await triggerer.event(trigger_id)


@pytest.mark.parametrize("held", [False, True])
async def test_a_trigger_of_a_run_that_was_created_again_gets_its_locks(
    held: bool, manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    if held:
        await triggerer.event(await triggerer.start(lock(), logical_date=DAY, try_number=2))
        triggerer.runner.events.clear()
    else:
        leave(manager)
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    assert isinstance(await given_back(triggerer, trigger_id), TaskSuccessEvent)
    lease = manager.lease_of(OWNER)
    assert lease is not None
    assert lease.attempt == 2
    assert "This try continues after attempt 2" in lines()


async def test_a_trigger_of_an_earlier_try_is_refused_after_the_later_try_has_ended(
    manager: LockManager, triggerer: Triggerer
) -> None:
    """Airflow does not start it again, so nothing confirms it. Another trigger with its number gets nothing from that."""
    leave(manager)
    for _ in range(2):
        late = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(partial(_ended, triggerer, late), "the late trigger to end")
    assert not triggerer._events()
    assert manager.lease_of(OWNER) is None


@pytest.mark.parametrize("waiting", get_args(Waiting))
def test_a_worker_of_a_run_that_was_created_again_gets_its_locks(waiting: str, manager: LockManager, run: Run) -> None:
    with DAG(f"again_{waiting}", schedule=None, start_date=DAY) as dag:

        @task
        def delete_the_run(run_id: Any = None) -> None:
            leave(manager, f"here/{dag.dag_id}/{run_id}/lock/-1")

        delete_the_run() >> HiveLockOperator(task_id="lock", writes=[OBJECT], waiting=waiting)
    assert run(dag, logical_date=DAY).state == "success"
    (lease,) = manager.leases()
    assert lease.attempt == 2


@pytest.mark.parametrize("given_back", [[OBJECT, OTHER], [OBJECT]])
def test_hold_in_a_run_that_was_created_again_gets_its_locks(
    given_back: list[str], manager: LockManager, run: Run
) -> None:
    attempts = []

    def work() -> None:
        for _ in range(2):
            with hold(writes=[OBJECT, OTHER]) as held:
                assert held.lease is not None
                assert not held.lease.released
                attempts.append(held.lease.attempt)
            died = manager.acquire(owner=held.lease.owner, writes=[OBJECT, OTHER], attempt=2)
            manager.release(died, objects=given_back)

    with DAG("again_hold", schedule=None, start_date=DAY) as dag:
        task(task_id="work")(work)()
    assert run(dag, logical_date=DAY).state == "success"
    assert attempts == [1, 2]


async def test_the_worker_goes_on_with_the_lease_that_its_trigger_got(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(manager)
    trigger_id = await triggerer.defer(work_trigger(), "lock")
    event = (await given_back(triggerer, trigger_id)).payload
    seen: list[Any] = []
    job = Acts(task_id="lock", writes=[OBJECT], act=lambda: seen.extend(manager.leases()))
    monkeypatch.setattr("airflow_hivelock.comms.is_current", lambda _: True)
    job.execute_locked(_context(), event)
    assert [lease.attempt for lease in seen] == [2]


@pytest.mark.parametrize("waiting", ["poke", "defer"])
def test_a_worker_that_airflow_does_not_confirm_is_refused(
    waiting: Waiting, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow has given the task a new id, or does not answer. The worker can be a slow process of an earlier try."""
    leave(manager)
    job = HiveLockOperator(task_id="lock", writes=[OBJECT], waiting=waiting)
    with pytest.raises(Superseded, match="attempt 2 has taken over"):
        job.execute(_context())
    monkeypatch.setattr("airflow_hivelock.comms.is_current", lambda _: False)
    with pytest.raises(Superseded, match="attempt 2 has taken over"):
        job.execute(_context())
    assert not manager.leases()


class TestResumed:
    """The worker that resumes a deferred task. The lease of its owner can be that of a later try by then."""

    @pytest.fixture
    def later(self, manager: LockManager) -> Lease:
        """The lease of try 2, which works on another host."""
        lease = manager.acquire(owner=OWNER, writes=[OBJECT], attempt=2)
        return manager.start_work(lease, "lock", applications.encode(Processes(host="worker-2")))

    @pytest.mark.parametrize("next_method", ["finish", "__fail__"])
    def test_a_stale_try_leaves_the_lease_of_the_later_try_alone(
        self, next_method: str, later: Lease, manager: LockManager
    ) -> None:
        went_on: list[str] = []
        with pytest.raises(
            Superseded, match=rf"attempt 2 has taken over lease \S+ on {OBJECT} EXCLUSIVE\. This try \(attempt 1\)"
        ):
            _deferred(went_on).resume_execution(next_method, {}, _context())
        assert not went_on
        assert manager.lease_of(OWNER) == later

    def test_a_run_that_was_created_again_goes_on(
        self, later: Lease, manager: LockManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        went_on: list[str] = []
        monkeypatch.setattr("airflow_hivelock.comms.is_current", lambda _: True)
        _deferred(went_on).resume_execution("finish", {}, _context())
        assert went_on == [later.id]
        assert not manager.leases()


def _deferred(went_on: list[str]) -> Any:
    class Deferred(Acts):
        def finish(self, context: Any) -> None:
            assert self._held is not None
            went_on.append(self._held._lease.id)

    return Deferred(task_id="lock", writes=[OBJECT])


def _context() -> Any:
    ti = SimpleNamespace(id=uuid.uuid4(), dag_id="dag", run_id="run", task_id="lock", map_index=-1, try_number=1)
    return {"ti": ti}


def _ended(triggerer: Triggerer, trigger_id: int) -> bool:
    return not triggerer.running(trigger_id)
