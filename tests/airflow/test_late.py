"""A lock begins when its work begins: a task steps aside until it has its worker slot, and holds nothing till then."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG
from airflow.triggers.base import TaskFailedEvent

from airflow_hivelock import HiveLockHook, HiveLockMixin, HiveLockOperator, compat
from airflow_hivelock.locks import Lease, LockTimeout, StoreUnavailable, rules
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.spec import OFF, LockSpec, Owner
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.waiting import rounds
from airflow_hivelock.waiting.rounds import ROUNDS, Round
from tests.airflow.acts import Acts
from tests.airflow.triggerer import Triggerer, fails

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import LockRequest
    from tests.airflow.conftest import Ran

DAY = datetime(2013, 1, 15, tzinfo=UTC)
OBJECT = "dw.delays/dt=2013-01-15"
OWNER = "here/dag/run/lock/-1"
ALIVE = ["deferred", "running", "queued", "scheduled", "up_for_retry"]


def task(cls: Any = Acts, **options: Any) -> Any:
    with DAG("dag", schedule=None, start_date=DAY):
        return cls(**{"task_id": "lock", "writes": ["dw.delays/dt={{ ds }}"], **options})


def on_worker(event: Any, **options: Any) -> Any:
    """What becomes of a task that its trigger has resumed with *event*."""
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="lock", map_index=-1, try_number=1)
    return Acts(task_id="lock", writes=[OBJECT], **options).execute_locked({"ti": ti}, event)


def trigger(**options: Any) -> HiveLockTrigger:
    """What a worker defers to for the first time."""
    given = {"hivelock_conn_id": "hivelock_default", "reads": [], "writes": [OBJECT], "lease_s": 60.0, "owner": OWNER}
    return HiveLockTrigger(**{**given, "attempt": 1, "ends_task": False, "round_number": 1, **options})


def holders(manager: LockManager) -> list[str]:
    return [holder.owner.split("/")[-2] if "/" in holder.owner else holder.owner for holder in manager.show(OBJECT)]


def aside(manager: LockManager) -> list[str]:
    """Who has stepped aside."""
    return [waiter.owner for waiter in manager.waiters() if waiter.waits_for is WaitsFor.SLOT]


def forget(manager: LockManager) -> None:
    """Take away what a living task has left for its worker."""
    pending = manager.begin(rules.request(OWNER, writes=[OBJECT], attempt=1), lambda: None)
    pending.poll()
    if lease := manager.lease_of(OWNER):
        manager.release(lease)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Any]], None]:
    """``between(act)``: have *act* called with the round each time that a worker, its slot in hand, asks for the locks.

    What *act* returns is called as soon as the worker has asked.
    """

    def wrap(act: Callable[[int], Any]) -> None:
        original = HiveLockMixin._acquire_late

        def both(self: HiveLockMixin, context: Any, given: Round) -> Any:
            then = act(given.number)
            try:
                return original(self, context, given)
            finally:
                if callable(then):
                    then()

        monkeypatch.setattr(HiveLockMixin, "_acquire_late", both)

    return wrap


def locked(act: Callable[[], Any] = lambda: None, **options: Any) -> DAG:
    with DAG("works", schedule=None, start_date=DAY) as dag:
        Acts(**{"task_id": "work", "act": act, "writes": ["dw.delays/dt={{ ds }}"], **options})
    return dag


class FromTrigger:
    """Makes ``dag.test()`` begin in the trigger, as a scheduler does: its first worker finds the locks taken."""

    def __init__(self, manager: LockManager) -> None:
        self.manager = manager

    def __call__(self, number: int) -> Any:
        if number:
            return None
        held = self.manager.acquire(owner="somebody", writes=[OBJECT])
        return lambda: self.manager.release(held)


def test_nobody_is_locked_out_by_a_task_that_waits_for_its_slot(
    manager: LockManager, run: Callable[..., Ran], between: Any, lines: Callable[[], str]
) -> None:
    seen: dict[int, tuple[list[str], int]] = {}
    first = FromTrigger(manager)

    def note(number: int) -> Any:
        seen[number] = holders(manager), len(aside(manager))
        return first(number)

    between(note)
    during: list[str] = []
    ran = run(locked(lambda: during.extend(holders(manager))), logical_date=DAY)
    assert ran.state == "success"
    assert seen == {0: ([], 0), 1: ([], 1)}
    assert during == ["work"]
    assert not manager.show()
    assert f"{OBJECT} EXCLUSIVE; waiting for a worker slot, holding nothing (round 1 of 3)" in lines()
    assert "Outrun" not in lines()


def test_a_task_that_is_outrun_each_time_has_its_locks_kept_for_it_at_last(
    manager: LockManager,
    run: Callable[..., Ran],
    between: Any,
    lines: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[list[str]] = []
    retake = HiveLockMixin._retake

    def noted(self: Any, context: Any, event: Any, **options: Any) -> Lease:
        kept.append(holders(manager))
        return retake(self, context, event, **options)

    def outrun(number: int) -> Any:
        held = manager.acquire(owner=f"quick-{number}", writes=[OBJECT])
        return lambda: manager.release(held)

    monkeypatch.setattr(HiveLockMixin, "_retake", noted)
    between(outrun)
    assert run(locked(), logical_date=DAY).state == "success"
    assert kept == [["work"]]
    said = lines()
    for number in range(1, ROUNDS + 1):
        assert f"waiting for a worker slot, holding nothing (round {number} of 3)" in said
    assert "Outrun by quick-0" not in said, "it had not been told that anything was free"
    assert "Outrun by quick-1; back to waiting in the triggerer (round 2 of 3)" in said
    assert "Outrun by quick-2; back to waiting in the triggerer (round 3 of 3)" in said
    assert "Outrun by quick-3; back to waiting in the triggerer, which now takes the locks and keeps them" in said
    assert "Keeping the locks until there is a worker slot" in said


def test_the_second_try_begins_anew(manager: LockManager, run: Callable[..., Ran], between: Any) -> None:
    tries: list[list[str]] = []

    def act() -> None:
        tries.append(holders(manager))
        if len(tries) == 1:
            raise RuntimeError("no such table")

    between(FromTrigger(manager))
    assert run(locked(act, retries=1, retry_delay=timedelta(0)), logical_date=DAY).state == "success"
    assert tries == [["work"], ["work"]]
    assert not manager.show()


def test_where_nobody_is_in_the_way_it_costs_two_requests_as_a_trigger_does_that_keeps_its_locks(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    step = MemoryAcquisition.step

    def counted(self: MemoryAcquisition) -> Any:
        outcome = step(self)
        steps.append(type(outcome).__name__)
        return outcome

    async def body() -> Any:
        return (await triggerer.event(await triggerer.start(task(), logical_date=DAY))).payload

    monkeypatch.setattr(MemoryAcquisition, "step", counted)
    on_worker(asyncio.run(body()))
    assert steps == ["Free", "Lease"], "one write each"
    monkeypatch.setattr(rounds, "ROUNDS", 0)
    steps.clear()
    on_worker(asyncio.run(body()))
    assert steps == ["Lease", "Lease"], "granted, and taken over"


def test_its_trigger_tells_how_long_it_has_waited_in_all(
    manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        held = manager.acquire(owner="somebody", writes=[OBJECT])
        trigger_id = await triggerer.defer(trigger(round_number=2, waited_s=40.0))
        await triggerer.until(manager.waiters, "a waiter")
        await asyncio.sleep(0.05)
        manager.release(held)
        event = await triggerer.event(trigger_id)
        assert event.payload["free"] == 2
        assert 40.05 <= event.payload["waited_s"] < 50
        assert not triggerer.xcoms

    asyncio.run(body())
    assert aside(manager) == [OWNER]
    assert on_worker({"free": 2, "waited_s": 40.1}) is None
    assert not manager.show()
    assert "Found free in round 2 of 3, after waiting 40 s" in lines()


def test_the_whole_wait_is_told_over_two_rounds(
    manager: LockManager, triggerer: Triggerer, lines: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log, the metric, the listing and the history: the time for a worker slot too, which no time-out counts."""
    sent: dict[str, float] = {}
    monkeypatch.setattr(compat.stats, "timing", lambda name, value: sent.__setitem__(name, value))

    async def frees(deferred: Any, held: Lease) -> Any:
        trigger_id = await triggerer.defer(deferred)
        await triggerer.until(lambda: manager.waiters() and not aside(manager), "a waiter")
        listed.append(manager.waiters()[0].since)
        await asyncio.sleep(0.3)
        manager.release(held)
        return (await triggerer.event(trigger_id)).payload

    listed: list[datetime] = []
    first = asyncio.run(frees(trigger(), manager.acquire(owner="first", writes=[OBJECT])))
    time.sleep(0.5)  # for a worker slot
    outrun = manager.acquire(owner="second", writes=[OBJECT])
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


def test_the_time_out_spans_all_rounds(manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]) -> None:
    manager.acquire(owner="somebody", writes=[OBJECT])
    with pytest.raises(TaskDeferred) as deferred:
        on_worker({"free": 1, "waited_s": 59.5}, timeout=timedelta(minutes=1))
    assert not manager.waiters()
    _, kwargs = deferred.value.trigger.serialize()
    assert (kwargs["round_number"], kwargs["timeout_s"]) == (2, 60)
    assert 59.5 <= kwargs["waited_s"] < 60

    async def body() -> None:
        begun = asyncio.get_running_loop().time()
        assert isinstance(await triggerer.event(await triggerer.defer(deferred.value.trigger)), TaskFailedEvent)
        assert asyncio.get_running_loop().time() - begun < 30

    asyncio.run(body())
    assert "within 60 s: somebody holds" in lines()


def test_a_worker_that_comes_too_late_fails_and_leaves_nothing(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        await triggerer.event(await triggerer.defer(trigger()))

    asyncio.run(body())
    assert aside(manager) == [OWNER]
    manager.acquire(owner="somebody", writes=[OBJECT])
    with pytest.raises(LockTimeout, match="within 60 s"):
        on_worker({"free": 1, "waited_s": 60.0}, timeout=timedelta(minutes=1))
    assert not manager.waiters()


def test_a_task_without_patience_takes_what_is_free(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        event = await triggerer.event(await triggerer.start(task(timeout=timedelta(0)), logical_date=DAY))
        assert on_worker(event.payload, timeout=timedelta(0)) is None

    asyncio.run(body())
    assert not manager.show()


def test_it_works_unlocked_where_locking_was_turned_off(manager: LockManager) -> None:
    held: list[str] = []
    on_worker(OFF, act=lambda: held.extend(holders(manager)))
    assert not held


@pytest.mark.parametrize("state", ["failed", "skipped", "removed", None])
@pytest.mark.parametrize("told", [True, False], ids=["told", "not yet told"])
def test_a_task_that_ends_while_it_has_stepped_aside_leaves_nothing(
    state: str | None, told: bool, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        monkeypatch.setattr(rounds, "RESUME_S", 0.0 if told else 60.0)
        trigger_id = await triggerer.defer(trigger())
        await triggerer.until(lambda: aside(manager), "it to step aside")
        if told:
            await triggerer.event(trigger_id)
        triggerer.states = {} if state is None else {"lock": state}
        await triggerer.user_acts(trigger_id)

    asyncio.run(body())
    assert not manager.waiters()


@pytest.mark.parametrize("state", ALIVE)
def test_what_has_stepped_aside_stays_known_while_its_task_lives(
    state: str, manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        trigger_id = await triggerer.defer(trigger())
        await triggerer.event(trigger_id)
        triggerer.states = {"lock": state}
        await triggerer.user_acts(trigger_id)

    asyncio.run(body())
    assert aside(manager) == [OWNER]
    assert "Left the place" not in lines(), "it has none"
    forget(manager)


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_trigger_that_hears_late_of_the_end_leaves_the_worker_s_lease_alone(
    state: str, manager: LockManager, triggerer: Triggerer
) -> None:
    held: list[list[str]] = []

    async def body() -> None:
        trigger_id = await triggerer.defer(trigger())
        event = await triggerer.event(trigger_id)
        lease = manager.begin(rules.request(OWNER, writes=[OBJECT], attempt=1), lambda: None).poll()
        assert isinstance(lease, Lease), event
        triggerer.states = {"lock": state}
        await triggerer.user_acts(trigger_id)
        held.append(holders(manager))
        manager.release(lease)

    asyncio.run(body())
    assert held == [["lock"]]


def test_it_holds_nothing_while_airflow_hears_of_the_worker_s_end(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        monkeypatch.setattr(rounds, "RESUME_S", 1.0)
        trigger_id = await triggerer.defer(trigger())
        await triggerer.until(lambda: aside(manager), "it to step aside")
        assert not triggerer.runner.events
        manager.release(manager.acquire(owner="somebody", writes=[OBJECT]))
        await triggerer.event(trigger_id)

    asyncio.run(body())
    forget(manager)


def test_a_store_that_is_away_sends_it_back_to_wait(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str]
) -> None:
    def down(_: MemoryAcquisition) -> Any:
        raise StoreUnavailable("zk1 is down")

    monkeypatch.setattr(MemoryAcquisition, "step", down)
    with pytest.raises(TaskDeferred):
        on_worker({"free": 1, "waited_s": 0.0})
    assert "The lock store does not answer; back to waiting in the triggerer (round 1 of 3)" in lines()


def test_a_lease_that_an_earlier_try_has_left_is_what_the_worker_gets(
    manager: LockManager, triggerer: Triggerer
) -> None:
    """Its work may still run: there is nothing to step aside from."""
    request = LockSpec([], [OBJECT]).request(HiveLockHook(), Owner("here", "dag", "run", "lock"), 1)
    lease = manager.begin(request, lambda: None).poll()
    assert isinstance(lease, Lease)

    async def body() -> None:
        event = await triggerer.event(await triggerer.defer(trigger(attempt=2)))
        assert Lease.from_json(event.payload).id == lease.id

    asyncio.run(body())
    assert holders(manager) == ["lock"]


@pytest.mark.parametrize("wrong", [{"round_number": "two"}, {"waited_s": "long"}, {"max_leases": 0}])
def test_what_another_version_has_given_its_trigger_fails_the_task_with_a_word(
    wrong: dict[str, Any], manager: LockManager, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        await fails(trigger(**wrong).run())

    asyncio.run(body())
    assert "error: " in lines()
    assert not manager.waiters()


class TestTerms:
    """Priority and limits go the same way as the names: from the operator to the store, by the trigger or a worker."""

    def test_a_trigger_comes_back_with_them(self) -> None:
        given = {"max_leases": 4, "lease_group": "rerun", "lock_priority": 10, "round_number": 2, "waited_s": 7.5}
        _, kwargs = trigger(**given).serialize()
        assert given.items() <= kwargs.items()
        assert HiveLockTrigger(**kwargs).serialize()[1] == kwargs

    @pytest.mark.parametrize("cls", [Acts, HiveLockOperator])
    @pytest.mark.parametrize(
        ("options", "priority"),
        [({}, 1), ({"priority_weight": 10}, 10), ({"priority_weight": 10, "lock_priority": 2}, 2)],
    )
    def test_the_store_is_told_of_the_task_s_own_weight(
        self, cls: Any, options: dict[str, Any], priority: int, manager: LockManager, triggerer: Triggerer
    ) -> None:
        async def body() -> None:
            held = manager.acquire(owner="somebody", writes=[OBJECT])
            trigger_id = await triggerer.start(task(cls, **options), logical_date=DAY)
            await triggerer.until(manager.waiters, "a waiter")
            assert [waiter.priority for waiter in manager.waiters()] == [priority]
            triggerer.states = {"lock": "failed"}
            await triggerer.user_acts(trigger_id)
            manager.release(held)

        asyncio.run(body())

    def test_a_mapped_task_has_them_too(
        self, manager: LockManager, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
    ) -> None:
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
        assert {(request.priority, str(request.limit)) for request in asked} == {(7, "one of the 4 leases of 'works'")}

    def test_no_more_leases_of_a_group_are_out_than_it_may_have(
        self, manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
    ) -> None:
        async def body() -> None:
            options = {"max_leases": 1, "lease_group": "rerun"}
            first = await triggerer.start(task(HiveLockOperator, **options), logical_date=DAY, run_id="first")
            await triggerer.event(first)
            second = await triggerer.start(
                task(HiveLockOperator, writes=["dw.other"], **options), logical_date=DAY, run_id="second"
            )
            await triggerer.until(manager.waiters, "a waiter")
            assert [waiter.waits_for for waiter in manager.waiters()] == [WaitsFor.LEASE]
            manager.acquire(owner="unrelated", writes=["dw.other"])
            lease = manager.lease_of("here/dag/first/lock/-1")
            assert lease is not None
            manager.release(lease)
            await triggerer.until(lambda: manager.waiters()[0].waits_for is WaitsFor.LOCK, "it to ask for its locks")
            triggerer.states = {"lock": "failed"}
            await triggerer.user_acts(second)

        asyncio.run(body())
        assert "Waiting for one of the 1 leases of 'rerun'" in lines()
        assert "In the way: here/dag/first/lock/-1 holds a lease of 'rerun'" in lines()
        assert "In the way: unrelated (lease" in lines()
