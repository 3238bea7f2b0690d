"""A lock begins when its work begins: until a task has its worker slot it holds no lock, and keeps its queue position."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.triggers.base import TaskFailedEvent

from airflow_hivelock import HiveLockHook, HiveLockMixin
from airflow_hivelock.locks import Lease, LockTimeout, StoreUnavailable, invitations, rules
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.spec import OFF, LockSpec, Owner
from airflow_hivelock.waiting import rounds
from tests.airflow.tasks import ALIVE, DAY, NAMES, OBJECT, OWNER, Acts, away, dag, lock, on_worker, work_trigger
from tests.airflow.triggerer import Triggerer, fails

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import DAG

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import LockRequest
    from airflow_hivelock.waiting.rounds import Round
    from tests.airflow.conftest import Lines, Run


task = partial(lock, Acts)


def holders(manager: LockManager) -> list[str]:
    return [holder.owner.split("/")[-2] if "/" in holder.owner else holder.owner for holder in manager.show(OBJECT)]


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
        original = HiveLockMixin._acquire

        def both(self: HiveLockMixin, context: Any, given: Round = rounds.FIRST) -> Any:
            then = act(given.number)
            try:
                return original(self, context, given)
            finally:
                if callable(then):
                    then()

        monkeypatch.setattr(HiveLockMixin, "_acquire", both)

    return wrap


def locked(act: Callable[[], Any] = lambda: None, **options: Any) -> DAG:
    with dag() as works:
        Acts(**{"task_id": "work", "act": act, **NAMES, **options})
    return works


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
    manager: LockManager, run: Run, between: Any, lines: Lines
) -> None:
    seen: dict[int, tuple[list[str], int]] = {}
    first = FromTrigger(manager)

    def note(number: int) -> Any:
        seen[number] = holders(manager), len(away(manager))
        return first(number)

    between(note)
    during: list[str] = []
    ran = run(locked(lambda: during.extend(holders(manager))), logical_date=DAY)
    assert ran.state == "success"
    assert seen == {0: ([], 0), 1: ([], 1)}
    assert during == ["work"]
    assert not manager.show()
    assert re.search(
        rf"{OBJECT} EXCLUSIVE; waiting for a worker slot, with its position until ..:..:..Z \(round 1 of 3\)", lines()
    )
    assert "gives its slot back" not in lines()


def test_its_worker_and_its_trigger_ask_for_the_same_invitation(
    manager: LockManager, run: Run, between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gives its slot back may leave a new invitation: one of 0 s would be over at once."""
    asked: dict[bool, set[float]] = {}
    begin = type(manager).begin

    def noted(self: LockManager, request: LockRequest, *given: Any, **named: Any) -> Any:
        if request.deferred:
            asked.setdefault(request.has_slot, set()).add(request.deferred.invitation_s)
        return begin(self, request, *given, **named)

    monkeypatch.setattr(type(manager), "begin", noted)
    between(FromTrigger(manager))
    assert run(locked(), logical_date=DAY).state == "success"
    assert asked == {True: {HiveLockHook().settings.invitation_s}, False: {HiveLockHook().settings.invitation_s}}
    assert HiveLockHook().settings.invitation_s > 0


def test_a_task_that_more_urgent_ones_pass_each_time_has_its_locks_kept_for_it_at_last(
    manager: LockManager, run: Run, between: Any, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[list[str]] = []
    retake = HiveLockMixin._retake

    def noted(self: Any, context: Any, event: Any, **options: Any) -> Lease:
        kept.append(holders(manager))
        return retake(self, context, event, **options)

    def outrun(number: int) -> Any:
        held = manager.acquire(owner=f"quick-{number}", writes=[OBJECT], priority=10)
        return lambda: manager.release(held)

    monkeypatch.setattr(HiveLockMixin, "_retake", noted)
    between(outrun)
    assert run(locked(), logical_date=DAY).state == "success"
    assert kept == [["work"]]
    said = lines()
    for number in range(1, invitations.ROUNDS + 1):
        assert re.search(rf"waiting for a worker slot, with its position until ..:..:..Z \(round {number} of 3\)", said)
    then = "EXCLUSIVE. This worker gives its slot back, and the triggerer waits"
    for number, what in ((1, " (round 2 of 3)"), (2, " (round 3 of 3)"), (3, ", takes the locks, and keeps them")):
        assert f"In the way: quick-{number} holds {OBJECT} {then}{what}" in said
    assert "Keeping the locks until the task has a worker slot" in said


def test_the_second_try_begins_anew(manager: LockManager, run: Run, between: Any) -> None:
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
    assert steps == ["NeedsSlot", "Lease"], "one write each"
    monkeypatch.setattr(invitations, "ROUNDS", 0)
    steps.clear()
    on_worker(asyncio.run(body()))
    assert steps == ["Lease", "Lease"], "granted, and taken over"


async def test_a_worker_that_comes_too_late_fails_and_leaves_nothing(
    manager: LockManager, triggerer: Triggerer
) -> None:
    await triggerer.event(await triggerer.defer(work_trigger()))
    assert away(manager) == [OWNER]
    manager.acquire(owner="somebody", writes=[OBJECT], priority=10)
    with pytest.raises(LockTimeout, match="within 60 s"):
        on_worker({"free": 1, "waited_s": 60.0}, timeout=timedelta(minutes=1))
    assert not manager.waiters()


async def test_a_waiting_task_that_a_person_withdraws_fails_with_the_reason(
    manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    holder = manager.acquire(owner="somebody", writes=[OBJECT])
    started = await triggerer.defer(work_trigger())
    await triggerer.until(lambda: bool(manager.waiters()), "it to wait")
    assert manager.force_withdraw(OWNER, reason="wrong week", user="ann")
    assert isinstance(await triggerer.event(started), TaskFailedEvent)
    assert "was withdrawn while it waited" in lines()
    assert "(ann: wrong week)" in lines()
    assert not manager.waiters()
    manager.verify(holder)


def test_a_waiting_task_keeps_the_priority_that_a_person_gave_it_until_its_worker_works(
    manager: LockManager, triggerer: Triggerer
) -> None:
    """Neither the next triggerer nor the worker gives the DAG's weight back to it."""
    holder = manager.acquire(owner="somebody", writes=[OBJECT])
    other = manager.begin(rules.request("other", writes=[OBJECT], priority=3), lambda: None)
    other.poll()

    def priorities() -> list[tuple[str, int]]:
        return [(waiter.owner, waiter.priority) for waiter in manager.waiters()]

    async def body() -> Any:
        first = await triggerer.defer(work_trigger())
        await triggerer.until(lambda: len(manager.waiters()) == 2, "it to wait")
        assert priorities() == [("other", 3), (OWNER, 1)]
        assert manager.force_priority(OWNER, 5, reason="due at 7", user="ann")
        assert priorities() == [(OWNER, 5), ("other", 3)]
        await triggerer.shut_down(first)
        started = await triggerer.defer(work_trigger())
        manager.release(holder)
        event = await triggerer.event(started)
        assert priorities() == [(OWNER, 5), ("other", 3)]
        return event.payload

    assert on_worker(asyncio.run(body())) is None
    other.withdraw()
    assert not manager.show()


async def test_a_task_without_patience_takes_what_is_free(manager: LockManager, triggerer: Triggerer) -> None:
    event = await triggerer.event(await triggerer.start(task(timeout=timedelta(0)), logical_date=DAY))
    assert on_worker(event.payload, timeout=timedelta(0)) is None
    assert not manager.show()


def test_it_works_unlocked_where_locking_was_turned_off(manager: LockManager) -> None:
    held: list[str] = []
    on_worker(OFF, act=lambda: held.extend(holders(manager)))
    assert not held


@pytest.mark.parametrize("state", ["failed", "skipped", "removed", None])
@pytest.mark.parametrize("told", [True, False], ids=["told", "not yet told"])
async def test_a_task_that_ends_while_its_grant_is_deferred_leaves_nothing(
    state: str | None, told: bool, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "RESUME_S", 0.0 if told else 60.0)
    trigger_id = await triggerer.defer(work_trigger())
    await triggerer.until(lambda: away(manager), "its deferred grant")
    if told:
        await triggerer.event(trigger_id)
    triggerer.states = {} if state is None else {"lock": state}
    await triggerer.user_acts(trigger_id)
    assert not manager.waiters()


@pytest.mark.parametrize("state", ALIVE)
async def test_a_deferred_request_stays_known_while_its_task_lives(
    state: str, manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    trigger_id = await triggerer.defer(work_trigger())
    await triggerer.event(trigger_id)
    triggerer.states = {"lock": state}
    await triggerer.user_acts(trigger_id)
    assert away(manager) == [OWNER]
    assert "The queue position is kept" not in lines(), "it has none"
    forget(manager)


@pytest.mark.parametrize("state", ["success", "failed"])
async def test_a_trigger_that_hears_late_of_the_end_leaves_the_worker_s_lease_alone(
    state: str, manager: LockManager, triggerer: Triggerer
) -> None:
    held: list[list[str]] = []
    trigger_id = await triggerer.defer(work_trigger())
    event = await triggerer.event(trigger_id)
    lease = manager.begin(rules.request(OWNER, writes=[OBJECT], attempt=1), lambda: None).poll()
    assert isinstance(lease, Lease), event
    triggerer.states = {"lock": state}
    await triggerer.user_acts(trigger_id)
    held.append(holders(manager))
    manager.release(lease)
    assert held == [["lock"]]


async def test_it_holds_nothing_while_airflow_hears_of_the_worker_s_end(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "RESUME_S", 1.0)
    trigger_id = await triggerer.defer(work_trigger())
    await triggerer.until(lambda: away(manager), "its deferred grant")
    assert not triggerer.runner.events
    manager.release(manager.acquire(owner="somebody", writes=[OBJECT], priority=10))
    await triggerer.event(trigger_id)
    forget(manager)


def test_a_store_that_is_away_sends_it_back_to_wait(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr(MemoryAcquisition, "step", Mock(side_effect=StoreUnavailable("zk1 is down")))
    with pytest.raises(TaskDeferred):
        on_worker({"free": 1, "waited_s": 0.0})
    assert (
        "The lock store does not answer. This worker gives its slot back, and the triggerer waits (round 1 of 3)"
        in lines()
    )


async def test_a_lease_that_an_earlier_try_has_left_is_what_the_worker_gets(
    manager: LockManager, triggerer: Triggerer
) -> None:
    """Its work may still run: no grant to defer."""
    request = LockSpec([], [OBJECT]).request(HiveLockHook(), Owner("here", "dag", "run", "lock"), 1)
    lease = manager.begin(request, lambda: None).poll()
    assert isinstance(lease, Lease)
    event = await triggerer.event(await triggerer.defer(work_trigger(attempt=2)))
    assert Lease.from_json(event.payload).id == lease.id
    assert holders(manager) == ["lock"]


@pytest.mark.parametrize("wrong", [{"round_number": "two"}, {"waited_s": "long"}, {"max_leases": 0}])
async def test_what_another_version_has_given_its_trigger_fails_the_task_with_a_word(
    wrong: dict[str, Any], manager: LockManager, lines: Lines
) -> None:
    await fails(work_trigger(**wrong).run())
    assert "error: " in lines()
    assert not manager.waiters()
