"""The lock store is away when a task gets its worker slot: the task waits in the triggerer, and nothing is half acquired.

Each place is here that asks the store on a worker before work begins. What cannot defer waits in place.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG, task
from airflow.triggers.base import TaskFailedEvent

from airflow_hivelock import HiveLockOperator, HiveLockSensor, hold, hooks
from airflow_hivelock.compat import AirflowRescheduleException
from airflow_hivelock.locks import Lease, StoreUnavailable, pending, rules
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.locks.errors import AccessDenied
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.triggers.store import HiveLockStoreTrigger
from airflow_hivelock.waiting import rounds
from airflow_hivelock.waiting.rounds import MOST_UNANSWERED, Round, resume_s
from tests.airflow.tasks import DAY, OBJECT, OWNER, Acts, context

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run
    from tests.airflow.triggerer import Triggerer

FREE = {"free": 1, "waited_s": 0.0}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.02)


class Store:
    """A lock store that can be away, from the first connection on; *left* counts down: 0 means that it answers."""

    def __init__(self) -> None:
        self.left = 0
        self.error: type[StoreUnavailable] = StoreUnavailable
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise self.error("zk1 does not answer")


@pytest.fixture
def store(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    shared = hooks._shared_manager

    def connect(*given: Any) -> LockManager:
        store.ask()
        return shared(*given)

    monkeypatch.setattr(hooks, "_shared_manager", connect)
    return store


def deferred(call: Callable[[], Any]) -> Any:
    """The trigger that a worker defers to."""
    with pytest.raises(TaskDeferred) as raised:
        call()
    return raised.value.trigger


def event_of(triggerer: Triggerer, trigger: Any) -> Any:
    async def body() -> Any:
        trigger_id = await triggerer.defer(trigger)
        return (await triggerer.event(trigger_id)).payload

    return asyncio.run(body())


def work(**options: Any) -> Any:
    return Acts(**{"task_id": "lock", "writes": [OBJECT], **options})


BEGINS = {
    "the first worker": lambda: work().execute(context()),
    "found free": lambda: work().execute_locked(context(), FREE),
    "a lock task": lambda: HiveLockOperator(task_id="lock", writes=[OBJECT], waiting="defer").execute(context()),
}


@pytest.mark.parametrize("begin", BEGINS.values(), ids=BEGINS)
def test_a_task_that_cannot_connect_waits_in_the_triggerer_and_gets_its_locks(
    begin: Callable[[], Any], store: Store, triggerer: Triggerer, manager: LockManager
) -> None:
    store.left = 3
    trigger = deferred(begin)
    assert store.left == 2, "the worker asks once"
    event = event_of(triggerer, trigger)
    assert store.left == 0, "the triggerer has waited for it"
    if (found := Round.of_turn(event)) is not None:
        assert found.number == 1, "an outage is no round"
        work().execute_locked(context(), event)
    else:
        manager.release(Lease.from_json(event))
    assert not manager.show()
    assert not manager.waiters()


def test_a_lease_that_the_trigger_keeps_is_kept_until_a_worker_gets_an_answer(
    store: Store, triggerer: Triggerer, manager: LockManager
) -> None:
    given: dict[str, Any] = {"hivelock_conn_id": "hivelock_default", "reads": [], "writes": [OBJECT], "lease_s": 60.0}
    kept = event_of(triggerer, HiveLockTrigger(owner=OWNER, attempt=1, ends_task=False, **given))
    held: list[Any] = []
    store.left = 1
    trigger = deferred(lambda: work().execute_locked(context(), kept))
    assert manager.lease_of(OWNER) is not None
    again = event_of(triggerer, trigger)
    assert again["id"] == kept["id"]
    assert again["unanswered"] == 1
    work(act=lambda: held.append(manager.lease_of(OWNER))).execute_locked(context(), again)
    assert [lease.id for lease in held] == [kept["id"]]
    assert not manager.show()


def test_a_lock_task_whose_trigger_holds_its_locks_loses_them_to_no_outage(
    store: Store, triggerer: Triggerer, manager: LockManager
) -> None:
    lock = HiveLockOperator(task_id="lock", writes=[OBJECT], waiting="defer")
    other = manager.acquire(owner="other", writes=[OBJECT])
    trigger = deferred(lambda: lock.execute(context()))
    manager.release(other)
    kept = event_of(triggerer, trigger)
    store.left = 1
    trigger = deferred(lambda: lock.resume_execution("acquired", {"event": kept}, context()))
    assert manager.lease_of(OWNER) is not None
    again = event_of(triggerer, trigger)
    assert lock.resume_execution("acquired", {"event": again}, context())["id"] == kept["id"]


@pytest.mark.parametrize("withdraws", [True, False], ids=["the withdrawal is lost too", "the withdrawal arrives"])
@pytest.mark.parametrize("round_number", [0, 1])
def test_a_grant_whose_answer_is_lost_is_taken_up_or_given_back(
    round_number: int, withdraws: bool, triggerer: Triggerer, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes away after it has written the grant."""
    step, withdraw = MemoryAcquisition.step, MemoryAcquisition.withdraw
    left = {"step": 1, "withdraw": int(withdraws)}

    def lost(self: MemoryAcquisition) -> Any:
        outcome = step(self)
        if left["step"]:
            left["step"] = 0
            raise StoreUnavailable("zk1 does not answer")
        return outcome

    def lost_as_well(self: MemoryAcquisition) -> None:
        if left["withdraw"]:
            left["withdraw"] = 0
            raise StoreUnavailable("zk1 does not answer")
        withdraw(self)

    monkeypatch.setattr(MemoryAcquisition, "step", lost)
    monkeypatch.setattr(MemoryAcquisition, "withdraw", lost_as_well)
    event = {**FREE, "free": round_number} if round_number else None
    trigger = deferred(lambda: work().execute_locked(context(), event) if event else work().execute(context()))
    assert manager.lease_of(OWNER) is not None, "it was granted"
    held: list[Any] = []
    work(act=lambda: held.append(manager.lease_of(OWNER))).execute_locked(context(), event_of(triggerer, trigger))
    assert held != [None]
    assert not manager.show()
    assert not manager.waiters()


def test_a_task_under_a_lease_that_it_was_given_waits_in_the_triggerer(
    store: Store, triggerer: Triggerer, manager: LockManager
) -> None:
    lease = manager.acquire(owner="here/dag/run/first/-1", writes=[OBJECT])
    works: list[int] = []
    under = {"writes": [], "lease": lease.to_json(), "act": lambda: works.append(1)}
    store.left = 3
    trigger = deferred(lambda: work(**under).execute(context()))
    assert isinstance(trigger, HiveLockStoreTrigger)
    event = event_of(triggerer, trigger)
    assert store.left == 0
    store.left = 1
    trigger = deferred(lambda: work(**under).execute_locked(context(), event))
    assert trigger.unanswered == 2, "the next pause is longer"
    work(**under).execute_locked(context(), event_of(triggerer, trigger))
    assert works == [1]
    assert manager.find(lease.id) is not None, "it is the lock task's"


def test_a_start_of_work_whose_answer_is_lost_is_repeated_in_place(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record names this very process: a worker on another host could not tell that nothing runs."""
    start, left = manager.start_work, [2]
    held: list[Any] = []

    def lost(*given: Any) -> Lease:
        lease = start(*given)
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable("zk1 does not answer")
        return lease

    monkeypatch.setattr(manager, "start_work", lost)
    work(act=lambda: held.append(manager.lease_of(OWNER))).execute(context())
    assert [len(lease.works) for lease in held] == [1]
    assert not manager.show()


def test_a_killed_task_does_not_wait_on_for_the_store(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = work()

    def away(*_: Any) -> Lease:
        killed.on_kill()
        raise StoreUnavailable("zk1 does not answer")

    monkeypatch.setattr(manager, "start_work", away)
    with pytest.raises(Exception, match="was killed while it waited for the lock store"):
        killed.execute(context())
    held = manager.lease_of(OWNER)
    assert held is not None, "the next try, or the keeper, decides"
    manager.release(held)


@pytest.mark.parametrize("resumes", ["with its own lease", "under a given lease"])
def test_work_that_was_deferred_waits_in_place(resumes: str, store: Store, manager: LockManager) -> None:
    class Resumes(Acts):
        def back(self, context: Any, event: Any) -> str:
            return "back"

    lease = manager.acquire(owner=OWNER if "own" in resumes else "here/dag/run/first/-1", writes=[OBJECT], attempt=1)
    given: dict[str, Any] = {"lease": lease.to_json(), "writes": []} if "given" in resumes else {}
    store.left = 2
    resumed = Resumes(**{"task_id": "lock", "writes": [OBJECT], **given})
    assert resumed.resume_execution("back", {"event": None}, context()) == "back"
    assert store.left == 0


@pytest.mark.parametrize("waiting", ["poke", "reschedule"])
def test_the_other_ways_to_wait_have_the_same_patience(waiting: Any, store: Store, manager: LockManager) -> None:
    lock = HiveLockOperator(task_id="lock", writes=[OBJECT], waiting=waiting)
    store.left = 1
    if waiting == "reschedule":
        with pytest.raises(AirflowRescheduleException):
            lock.execute(context())
    assert lock.execute(context())["owner"] == OWNER


def test_a_poke_that_cannot_leave_the_queue_reschedules_its_task(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Mock(side_effect=StoreUnavailable("zk1 does not answer"))
    for name in ("step", "withdraw"):
        monkeypatch.setattr(MemoryAcquisition, name, away)
    with pytest.raises(AirflowRescheduleException):
        HiveLockOperator(task_id="lock", writes=[OBJECT], waiting="reschedule").execute(context())
    assert away.call_count == 2


def test_a_sensor_on_a_worker_pokes_again(store: Store) -> None:
    sensor = HiveLockSensor(task_id="lock", writes=[OBJECT], deferrable=False)
    store.left = 1
    assert not sensor.poke(context())
    assert sensor.poke(context())


def test_a_part_of_a_python_task_waits_in_place(
    store: Store, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = manager.start_work, [1]

    def lost(*given: Any) -> Lease:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable("zk1 does not answer")
        return start(*given)

    monkeypatch.setattr(manager, "start_work", lost)
    with DAG("holds", schedule=None, start_date=DAY) as dag:

        @task
        def works() -> None:
            store.left = 2
            with hold(writes=[OBJECT]) as held:
                assert held.lease is not None

        works()
    assert run(dag, logical_date=DAY).state == "success"
    assert not manager.show()


def test_without_patience_it_fails_at_once(store: Store) -> None:
    store.left = 1
    with pytest.raises(StoreUnavailable):
        work(timeout=timedelta(0)).execute(context())


def test_a_store_that_refuses_who_asks_fails_the_task_at_once(store: Store) -> None:
    store.left, store.error = 9, AccessDenied
    locks = rules.request(OWNER, writes=[OBJECT]).locks
    lease = Lease("l", 1, 0, 1, "here/dag/run/first/-1", locks, 60.0, DAY).to_json()
    for begins in (work(), work(writes=[], lease=lease)):
        with pytest.raises(AccessDenied):
            begins.execute(context())
    with pytest.raises(AccessDenied):
        work().execute_locked(context(), lease)


def test_workers_that_never_reach_the_store_do_not_go_round_for_ever(
    store: Store, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer reaches it, and no worker does."""
    event: Any = FREE
    for trips in range(MOST_UNANSWERED):
        store.left = 1
        trigger = deferred(partial(work().execute_locked, context(), event))
        assert trigger.unanswered == trips + 1
        event = event_of(triggerer, trigger)
    store.left = 1
    with pytest.raises(StoreUnavailable, match="8 workers in a row"):
        work().execute_locked(context(), event)
    manager.forget_deferred(OWNER, 1)
    monkeypatch.setattr(rounds, "RESUME_S", 10.0)
    assert sum(resume_s(trip) for trip in range(1, MOST_UNANSWERED + 1)) >= 600


def test_an_answer_ends_the_count(store: Store, manager: LockManager, triggerer: Triggerer) -> None:
    held = manager.acquire(owner="other", writes=[OBJECT])
    trigger = deferred(lambda: work().execute_locked(context(), FREE | {"unanswered": 5}))
    assert (trigger.round_number, trigger.unanswered) == (2, 0)
    manager.release(held)


def test_an_outage_without_end_fails_the_task_in_the_triggerer(
    store: Store, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hivelock import waiting
    from airflow_hivelock.triggers import store as store_trigger

    async def body(trigger: Any) -> None:
        event = await triggerer.event(await triggerer.defer(trigger))
        assert isinstance(event, TaskFailedEvent)

    store.left = 10_000
    trigger = deferred(lambda: work().execute(context()))
    monkeypatch.setattr(waiting, "OUTAGE_S", 0.1)
    monkeypatch.setattr(store_trigger, "OUTAGE_S", 0.1)
    asyncio.run(body(trigger))
    asyncio.run(body(HiveLockStoreTrigger(hivelock_conn_id="hivelock_default")))
