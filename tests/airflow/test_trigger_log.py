"""What a trigger logs while its task waits."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
import structlog
from airflow.sdk.execution_time.comms import GetDagRunState
from airflow.triggers.base import TaskSuccessEvent

from airflow_hivelock import waiting
from airflow_hivelock.locks import Lease, StoreUnavailable, rules
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.waiting import outlook
from airflow_hivelock.waiting.rounds import Round
from airflow_hivelock.work import hosts
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.hosts import declare_gone
from airflow_hivelock.work.processes import Processes
from tests.airflow.tasks import DAY, OBJECT, OWNER, lock, other, trigger

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines
    from tests.airflow.triggerer import Triggerer


HOLDER = "here/other/dead/job/-1"


async def test_it_waits_in_the_queue_and_says_once_for_whom(
    manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    held = other(manager)
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.until(manager.waiters, "a waiter")
    manager.acquire(owner="unrelated", writes=["dw.planes"])
    manager.release(held)
    assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
    assert lines().count("In the way: somebody (lease memory-") == 1
    assert f"holds {OBJECT} EXCLUSIVE since 20" in lines()


def test_it_says_again_who_is_in_the_way_when_that_changes(manager: LockManager, lines: Lines) -> None:
    first = manager.acquire(owner="first", reads=[OBJECT])
    request = rules.request(OWNER, writes=[OBJECT])
    wait = waiting.Wait(lambda: (manager, request), None, lambda: None, structlog.get_logger())
    for _ in range(3):
        assert wait.poll() is None
    assert lines().count("Waiting for") == 1
    wait.give_up()
    manager.acquire(owner="second", reads=[OBJECT])
    assert wait.poll() is None
    manager.release(first)
    assert wait.poll() is None
    assert lines().count("Waiting for") == 3
    assert lines().count("In the way: second") == 2
    wait.give_up()


def waits(manager: LockManager, clock: list[float]) -> waiting.Wait:
    request = rules.request(OWNER, writes=[OBJECT])
    log = structlog.get_logger()
    return waiting.Wait(lambda: (manager, request), None, lambda: None, log, clock=lambda: clock[0])


class TestTheLogOfAWait:
    """Airflow reopens a trigger's log at each deferral: each step repeats what the earlier ones waited for."""

    @pytest.fixture
    def clock(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def timed(self, manager: LockManager, clock: list[float]) -> LockManager:
        return type(manager)(manager.backend, lambda: clock[0])

    def test_it_says_at_growing_intervals_that_it_still_waits(
        self, timed: LockManager, clock: list[float], lines: Lines
    ) -> None:
        held = other(timed)
        wait = waits(timed, clock)
        said = []
        for minute in [*range(61), 60 * 24]:
            clock[0] = minute * 60.0
            before = lines().count("Still waiting")
            assert wait.poll() is None
            if lines().count("Still waiting") > before:
                said.append(minute)
            left_s = wait.wait_s()
            assert left_s is not None
            assert 0 < left_s <= 15 * 60, "it is woken for the next line, and not before"
        assert said == [1, 5, 20, 35, 50, 60 * 24]
        assert f"Still waiting for dw SHARED, dw.delays SHARED, {OBJECT} EXCLUSIVE after 5 min" in lines()
        assert "after 1 d 0 h: somebody holds" in lines()
        timed.release(held)
        assert isinstance(wait.poll(), Lease)
        assert "after waiting 1 d 0 h, for somebody: " in lines()

    def test_it_says_how_long_it_will_probably_wait(
        self, timed: LockManager, clock: list[float], lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timed.backend, "now", lambda: DAY + timedelta(seconds=clock[0]))
        for name in ("FRESH_S", "PAST_S", "REST"):
            monkeypatch.setattr(outlook, name, 0.0)
        for minutes in (10, 20, 30, 40, 50):
            held = other(timed, f"here/other/run {minutes}/job/-1")
            clock[0] += minutes * 60
            timed.release(held)
        held = other(timed, HOLDER)
        began_s = clock[0]
        wait = waits(timed, clock)
        for minute in (0, 1, 5, 20):
            clock[0] = began_s + minute * 60
            wait.poll()
        still = [line for line in lines().splitlines() if "Still waiting" in line]
        assert ["; probably 9 to 49 min more" in still[0], "probably" in still[-1]] == [True, False], (
            "after 20 min only three earlier holds were longer"
        )
        timed.release(held)
        assert isinstance(wait.poll(), Lease)
        wait.give_up()

    def test_a_lock_store_that_is_away_is_not_asked_without_a_pause(
        self, timed: LockManager, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other(timed)
        wait = waits(timed, clock)
        wait.poll()
        monkeypatch.setattr(MemoryAcquisition, "step", Mock(side_effect=StoreUnavailable("zk1 is down")))
        clock[0] = 61.0
        assert wait.poll() is None
        assert (wait.wait_s() or 0) > 0
        wait.give_up()

    def test_it_says_who_was_ahead_and_is_not_any_longer(
        self, timed: LockManager, clock: list[float], lines: Lines
    ) -> None:
        held, ahead = other(timed), rules.request("ahead", writes=[OBJECT])
        first = timed.begin(ahead, lambda: None)
        first.poll()
        wait = waits(timed, clock)
        assert wait.poll() is None
        timed.release(held)
        lease = first.poll()
        assert isinstance(lease, Lease)
        assert wait.poll() is None
        assert "No longer in the way: somebody, which held" in lines()
        assert "No longer in the way: ahead" not in lines(), "it holds now what it waited for"
        timed.release(lease)
        assert isinstance(wait.poll(), Lease)
        assert ", for ahead and somebody: " in lines()

    async def test_the_next_round_begins_with_what_the_rounds_before_waited_for(
        self, manager: LockManager, triggerer: Triggerer, lines: Lines
    ) -> None:
        held = other(manager)
        late = {"ends_task": False, "round_number": 2, "waited_s": 723.0, "waited_for": ["first", "second"]}
        trigger_id = await triggerer.defer(trigger(**late))
        await triggerer.until(manager.waiters, "a waiter")
        assert "Round 2 of 3 of waiting. Before it: 12 min 3 s, for first and second" in lines()
        manager.release(held)
        event = await triggerer.event(trigger_id)
        told = Round.of_turn(event.payload)
        assert told is not None
        assert told.waited_for == ("first", "second", "somebody")
        assert str(told) == "round 2 of 3"
        assert told.past == "12 min 3 s, for first and second and somebody"
        manager.forget_deferred(OWNER, 1)

    async def test_the_worker_is_told_how_long_the_trigger_has_waited_for_its_lease(
        self, manager: LockManager, triggerer: Triggerer
    ) -> None:
        held = other(manager)
        trigger_id = await triggerer.defer(trigger(ends_task=False))
        await triggerer.until(manager.waiters, "a waiter")
        manager.release(held)
        event = await triggerer.event(trigger_id)
        assert Lease.from_json(event.payload) == manager.lease_of(OWNER)
        assert event.payload["waited_for"] == ["somebody"]

    @pytest.mark.parametrize(
        ("run", "task", "said"),
        [
            ("failed", "failed", f"{HOLDER}: its run has failed"),
            ("running", "failed", f"{HOLDER}: its task is failed"),
            ("success", "success", f"{HOLDER}: its run has ended, with success"),
            ("running", "success", ""),
        ],
    )
    def test_it_says_what_became_of_the_run_that_holds(
        self,
        run: str,
        task: str,
        said: str,
        manager: LockManager,
        triggerer: Triggerer,
        monkeypatch: pytest.MonkeyPatch,
        lines: Lines,
    ) -> None:
        """The holder has died. Its lease is held until nothing of it runs."""
        monkeypatch.setattr(waiting, "STILL_S", (0.1, 0.2))

        async def body() -> None:
            triggerer.runs["dead"], triggerer.states["job"] = run, task
            held = other(manager, HOLDER)
            trigger_id = await triggerer.start(lock(), logical_date=DAY)
            await triggerer.until(lambda: lines().count("Still waiting") == 2, "it to say so twice")
            assert said in lines()
            assert ("the keeper frees its lease" in lines()) is bool(said)
            manager.release(held)
            await triggerer.event(trigger_id)

        asyncio.run(body())

    async def test_it_says_that_a_task_of_its_own_run_holds(
        self, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Lines
    ) -> None:
        """Its lock task holds the locks until it has ended, because its lease was not passed."""
        monkeypatch.setattr(waiting, "STILL_S", (0.1,))
        held = other(manager, OWNER.replace("/lock/", "/days.lock/"))
        trigger_id = await triggerer.defer(trigger())
        await triggerer.until(lambda: "it needs lease=days.lock.output" in lines(), "the hint")
        manager.release(held)
        await triggerer.event(trigger_id)

    async def test_it_says_who_has_force_released_what_it_waited_for(
        self, manager: LockManager, triggerer: Triggerer, lines: Lines
    ) -> None:
        held = other(manager)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(lambda: "In the way: somebody" in lines(), "it to wait")
        manager.force_release(held.id, reason="its job is over", user="ann")
        await triggerer.event(trigger_id)
        assert "ann force-released the lease of somebody: its job is over" in lines()

    async def test_a_release_is_not_taken_for_a_force_release_of_before_or_for_a_word_on_a_host(
        self, manager: LockManager, triggerer: Triggerer, lines: Lines
    ) -> None:
        manager.force_release(other(manager).id, reason="an earlier one", user="ann")
        held = manager.start_work(other(manager), "work", encode(Processes(host="worker-9")))
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(lambda: "In the way: somebody" in lines(), "it to wait")
        declare_gone(manager, hosts.on_host("worker-9", [held]), reason="burnt down", user="ann")
        manager.release(held)
        await triggerer.event(trigger_id)
        assert "force-released" not in lines()

    @pytest.mark.parametrize("silent_s", [0.0, 3600.0])
    async def test_an_audit_trail_that_cannot_be_read_delays_no_grant(
        self, silent_s: float, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        over = threading.Event()

        def audit() -> Any:
            over.wait(silent_s)
            raise StoreUnavailable("zk1 is down")

        monkeypatch.setattr(manager.backend, "audit", audit)
        held = other(manager)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(manager.waiters, "a waiter")
        manager.release(held)
        begun = time.monotonic()
        assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
        waited_s = time.monotonic() - begun
        over.set()
        assert waited_s < 5

    async def test_many_waiters_read_the_audit_trail_together(
        self, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Lines
    ) -> None:
        reads: list[float] = []
        audit = manager.backend.audit

        def counted() -> Any:
            reads.append(time.monotonic())
            return audit()

        monkeypatch.setattr(manager.backend, "audit", counted)
        held = other(manager)
        task = {"reads": [OBJECT], "writes": []}
        started = [await triggerer.start(lock(**task), logical_date=DAY, run_id=f"r{n}") for n in range(20)]
        await triggerer.until(lambda: lines().count("In the way: somebody") == 20, "all to wait")
        manager.force_release(held.id, reason="over", user="ann")
        for each in started:
            await triggerer.event(each)
        assert lines().count("ann force-released the lease of somebody: over") == 20
        assert len(reads) < 10

    async def test_an_airflow_that_does_not_answer_delays_no_grant(
        self, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asend = triggerer.asend

        async def silent(message: Any) -> Any:
            if isinstance(message, GetDagRunState):
                await asyncio.sleep(3600)
            return await asend(message)

        monkeypatch.setattr(triggerer, "asend", silent)
        held = other(manager, HOLDER)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(manager.waiters, "a waiter")
        manager.release(held)
        begun = time.monotonic()
        assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
        assert time.monotonic() - begun < 5
