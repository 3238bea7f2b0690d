"""The terms of a request whose grant is deferred: its weight and its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG

from airflow_hivelock import HiveLockOperator
from airflow_hivelock.locks.model import LeaseLimit, WaitsFor
from airflow_hivelock.triggers.lock import HiveLockTrigger
from tests.airflow.tasks import DAY, OBJECT, Acts, lock, work_trigger

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import LockRequest
    from tests.airflow.conftest import Lines, Run
    from tests.airflow.triggerer import Triggerer


class TestTerms:
    """Priority and limits go the same way as the names: from the operator to the store, by the trigger or a worker."""

    def test_a_trigger_comes_back_with_them(self) -> None:
        given = {
            "max_leases": 4,
            "lease_group": "rerun",
            "weight": 2,
            "lock_priority": 10,
            "round_number": 2,
            "waited_s": 7.5,
        }
        _, kwargs = work_trigger(**given).serialize()
        assert given.items() <= kwargs.items()
        assert HiveLockTrigger(**kwargs).serialize()[1] == kwargs

    @pytest.mark.parametrize("cls", [Acts, HiveLockOperator])
    @pytest.mark.parametrize(
        ("options", "priority"),
        [({}, 1), ({"priority_weight": 10}, 10), ({"priority_weight": 10, "lock_priority": 2}, 2)],
    )
    async def test_the_store_is_told_of_the_task_s_own_weight(
        self, cls: Any, options: dict[str, Any], priority: int, manager: LockManager, triggerer: Triggerer
    ) -> None:
        held = manager.acquire(owner="somebody", writes=[OBJECT])
        trigger_id = await triggerer.start(lock(cls, **options), logical_date=DAY)
        await triggerer.until(manager.waiters, "a waiter")
        assert [waiter.priority for waiter in manager.waiters()] == [priority]
        triggerer.states = {"lock": "failed"}
        await triggerer.user_acts(trigger_id)
        manager.release(held)

    def test_a_mapped_task_has_them_too(self, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []
        begin = manager.begin

        def noted(request: LockRequest, *given: Any, **more: Any) -> Any:
            asked.append(request)
            return begin(request, *given, **more)

        monkeypatch.setattr(manager, "begin", noted)
        with DAG("works", schedule=None, start_date=DAY) as dag:
            days = [["dw.delays/dt=2013-01-01"], ["dw.delays/dt=2013-01-02"]]
            HiveLockOperator.partial(task_id="lock", priority_weight=7, max_leases=4).expand(writes=days)
        assert run(dag, logical_date=DAY).state == "success"
        assert {(request.priority, request.limit) for request in asked} == {(7, LeaseLimit("works", 4))}

    async def test_no_more_leases_of_a_group_are_out_than_it_may_have(
        self, manager: LockManager, triggerer: Triggerer, lines: Lines
    ) -> None:
        options = {"max_leases": 1, "lease_group": "rerun"}
        first = await triggerer.start(lock(**options), logical_date=DAY, run_id="first")
        await triggerer.event(first)
        second = await triggerer.start(lock(writes=["dw.other"], **options), logical_date=DAY, run_id="second")
        await triggerer.until(manager.waiters, "a waiter")
        assert [waiter.waits_for for waiter in manager.waiters()] == [WaitsFor.LEASE]
        manager.acquire(owner="unrelated", writes=["dw.other"])
        lease = manager.lease_of("here/dag/first/lock/-1")
        assert lease is not None
        manager.release(lease)
        await triggerer.until(lambda: manager.waiters()[0].waits_for is WaitsFor.LOCK, "it to ask for its locks")
        triggerer.states = {"lock": "failed"}
        await triggerer.user_acts(second)
        assert "Waiting for one of the leases of 'rerun'" in lines()
        assert "In the way: here/dag/first/lock/-1 holds a lease of 'rerun'" in lines()
        assert "In the way: unrelated (lease" in lines()
