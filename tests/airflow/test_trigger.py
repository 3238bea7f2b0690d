"""The trigger in Airflow's own runner: what it tells, what it keeps, and what it drops when its task is over."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from airflow.sdk import DAG
from airflow.sdk.execution_time.comms import GetDagRunState
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent

from airflow_hivelock import HiveLockOperator, HiveLockSensor, compat, waiting
from airflow_hivelock.locks import Lease, StoreUnavailable, pending, rules
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.triggers import keeper
from airflow_hivelock.triggers import lock as lock_trigger
from airflow_hivelock.triggers.lock import HiveLockTrigger
from airflow_hivelock.waiting import rounds
from airflow_hivelock.waiting.rounds import Round
from airflow_hivelock.work import hosts
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.hosts import declare_gone
from airflow_hivelock.work.processes import Processes
from tests.airflow.triggerer import CANCELLED_AGAIN_S, Triggerer, fails

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager

DAY = datetime(2013, 1, 15, tzinfo=UTC)
OBJECT = "dw.delays/dt=2013-01-15"
OWNER = "here/dag/run/lock/-1"
HOLDER = "here/other/dead/work/-1"


def lock(cls: Any = HiveLockOperator, **options: Any) -> Any:
    with DAG("dag", schedule=None, start_date=DAY):
        return cls(**{"task_id": "lock", "writes": ["dw.delays/dt={{ ds }}"], **options})


def trigger(**options: Any) -> HiveLockTrigger:
    """What a worker defers to."""
    given = {"hivelock_conn_id": "hivelock_default", "reads": [], "writes": [OBJECT], "lease_s": 60.0, "owner": OWNER}
    return HiveLockTrigger(**{**given, "attempt": 1, **options})


def other(manager: LockManager, owner: str = "somebody") -> Lease:
    return manager.acquire(owner=owner, writes=[OBJECT])


def test_it_ends_the_task_and_stores_the_whole_lease(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        task = lock(lease_duration=timedelta(minutes=5))
        event = await triggerer.event(await triggerer.start(task, logical_date=DAY))
        assert isinstance(event, TaskSuccessEvent)
        assert event.xcoms is None, "Airflow would store these as text"

    asyncio.run(body())
    (xcom,) = triggerer.xcoms
    assert (xcom.key, xcom.dag_id, xcom.run_id, xcom.task_id, xcom.map_index) == (
        "return_value",
        "dag",
        "run",
        "lock",
        -1,
    )
    lease = manager.lease_of(OWNER)
    assert lease is not None
    assert Lease.from_json(xcom.value) == lease
    assert [str(held) for held in lease.locks] == ["dw SHARED", "dw.delays SHARED", f"{OBJECT} EXCLUSIVE"]
    assert lease.lease_s == 300
    assert manager.show(OBJECT)[0].query == "dag dag run run task lock"


def test_it_waits_in_the_queue_and_says_once_for_whom(
    manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        held = other(manager)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(manager.waiters, "a waiter")
        manager.acquire(owner="unrelated", writes=["dw.planes"])
        manager.release(held)
        assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)

    asyncio.run(body())
    assert lines().count("In the way: somebody (lease memory-") == 1
    assert f"holds {OBJECT} EXCLUSIVE since 20" in lines()


def test_it_says_again_who_is_in_the_way_when_that_changes(manager: LockManager, lines: Callable[[], str]) -> None:
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
        self, timed: LockManager, clock: list[float], lines: Callable[[], str]
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

    def test_a_lock_store_that_is_away_is_not_asked_without_a_pause(
        self, timed: LockManager, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(_: Any) -> Any:
            raise StoreUnavailable("zk1 is down")

        other(timed)
        wait = waits(timed, clock)
        wait.poll()
        monkeypatch.setattr(MemoryAcquisition, "step", away)
        clock[0] = 61.0
        assert wait.poll() is None
        assert (wait.wait_s() or 0) > 0
        wait.give_up()

    def test_it_says_who_was_ahead_and_is_not_any_longer(
        self, timed: LockManager, clock: list[float], lines: Callable[[], str]
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

    def test_the_next_round_begins_with_what_the_rounds_before_waited_for(
        self, manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
    ) -> None:
        async def body() -> None:
            held = other(manager)
            late = {"ends_task": False, "round_number": 2, "waited_s": 723.0, "waited_for": ["first", "second"]}
            trigger_id = await triggerer.defer(trigger(**late))
            await triggerer.until(manager.waiters, "a waiter")
            assert "Round 2 of 3 of waiting; before it 12 min 3 s, for first and second" in lines()
            manager.release(held)
            event = await triggerer.event(trigger_id)
            told = Round.of(event.payload)
            assert told is not None
            assert told.waited_for == ("first", "second", "somebody")
            assert str(told) == "round 2 of 3"
            assert told.past == "12 min 3 s, for first and second and somebody"
            manager.forget_aside(OWNER, 1)

        asyncio.run(body())

    def test_the_worker_is_told_how_long_the_trigger_has_waited_for_its_lease(
        self, manager: LockManager, triggerer: Triggerer
    ) -> None:
        async def body() -> None:
            held = other(manager)
            trigger_id = await triggerer.defer(trigger(ends_task=False))
            await triggerer.until(manager.waiters, "a waiter")
            manager.release(held)
            event = await triggerer.event(trigger_id)
            assert Lease.from_json(event.payload) == manager.lease_of(OWNER)
            assert event.payload["waited_for"] == ["somebody"]

        asyncio.run(body())

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
        lines: Callable[[], str],
    ) -> None:
        """The holder has died. Its lease is held until nothing of it runs."""
        monkeypatch.setattr(waiting, "STILL_S", (0.1, 0.2))

        async def body() -> None:
            triggerer.runs["dead"], triggerer.states["work"] = run, task
            held = other(manager, HOLDER)
            trigger_id = await triggerer.start(lock(), logical_date=DAY)
            await triggerer.until(lambda: lines().count("Still waiting") == 2, "it to say so twice")
            assert said in lines()
            assert ("the keeper frees its locks" in lines()) is bool(said)
            manager.release(held)
            await triggerer.event(trigger_id)

        asyncio.run(body())

    def test_it_says_who_has_force_released_what_it_waited_for(
        self, manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
    ) -> None:
        async def body() -> None:
            held = other(manager)
            trigger_id = await triggerer.start(lock(), logical_date=DAY)
            await triggerer.until(lambda: "In the way: somebody" in lines(), "it to wait")
            manager.force_release(held.id, reason="its job is over", user="ann")
            await triggerer.event(trigger_id)

        asyncio.run(body())
        assert "ann force-released the lease of somebody: its job is over" in lines()

    def test_a_release_is_not_taken_for_a_force_release_of_before_or_for_a_word_on_a_host(
        self, manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
    ) -> None:
        async def body() -> None:
            manager.force_release(other(manager).id, reason="an earlier one", user="ann")
            held = manager.start_work(other(manager), "work", encode(Processes(host="worker-9")))
            trigger_id = await triggerer.start(lock(), logical_date=DAY)
            await triggerer.until(lambda: "In the way: somebody" in lines(), "it to wait")
            declare_gone(manager, hosts.on_host("worker-9", [held]), reason="burnt down", user="ann")
            manager.release(held)
            await triggerer.event(trigger_id)

        asyncio.run(body())
        assert "force-released" not in lines()

    @pytest.mark.parametrize("silent_s", [0.0, 3600.0])
    def test_an_audit_trail_that_cannot_be_read_delays_no_grant(
        self, silent_s: float, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        over = threading.Event()

        def audit() -> Any:
            over.wait(silent_s)
            raise StoreUnavailable("zk1 is down")

        async def body() -> None:
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

        asyncio.run(body())

    def test_many_waiters_read_the_audit_trail_together(
        self, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str]
    ) -> None:
        reads: list[float] = []
        audit = manager.backend.audit

        def counted() -> Any:
            reads.append(time.monotonic())
            return audit()

        async def body() -> None:
            monkeypatch.setattr(manager.backend, "audit", counted)
            held = other(manager)
            task = {"reads": [OBJECT], "writes": []}
            started = [await triggerer.start(lock(**task), logical_date=DAY, run_id=f"r{n}") for n in range(20)]
            await triggerer.until(lambda: lines().count("In the way: somebody") == 20, "all to wait")
            manager.force_release(held.id, reason="over", user="ann")
            for each in started:
                await triggerer.event(each)

        asyncio.run(body())
        assert lines().count("ann force-released the lease of somebody: over") == 20
        assert len(reads) < 10

    def test_an_airflow_that_does_not_answer_delays_no_grant(
        self, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asend = triggerer.asend

        async def silent(message: Any) -> Any:
            if isinstance(message, GetDagRunState):
                await asyncio.sleep(3600)
            return await asend(message)

        async def body() -> None:
            monkeypatch.setattr(triggerer, "asend", silent)
            held = other(manager, HOLDER)
            trigger_id = await triggerer.start(lock(), logical_date=DAY)
            await triggerer.until(manager.waiters, "a waiter")
            manager.release(held)
            begun = time.monotonic()
            assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
            assert time.monotonic() - begun < 5

        asyncio.run(body())


def test_waiters_come_in_their_order(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        held = other(manager)
        first = await triggerer.start(lock(), logical_date=DAY, run_id="first")
        await triggerer.until(lambda: len(manager.waiters()) == 1, "the first waiter")
        second = await triggerer.start(lock(), logical_date=DAY, run_id="second")
        await triggerer.until(lambda: len(manager.waiters()) == 2, "the second waiter")
        manager.release(held)
        await triggerer.event(first)
        assert [waiter.owner for waiter in manager.waiters()] == ["here/dag/second/lock/-1"]
        lease = manager.lease_of("here/dag/first/lock/-1")
        assert lease is not None
        manager.release(lease)
        await triggerer.event(second)

    asyncio.run(body())


def test_its_time_out_is_exact_and_a_clear_line(
    manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        other(manager)
        task = lock(timeout=timedelta(milliseconds=100))
        assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)

    asyncio.run(body())
    assert "error: here/dag/run/lock/-1 did not get" in lines()
    assert "somebody holds" in lines()


def test_without_patience_it_fails_at_once(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        other(manager)
        task = lock(timeout=timedelta(0))
        assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("name", "logical_date", "said"),
    [
        ("dw.delays/dt={{ nothing }}", DAY, "'nothing' is undefined"),
        ("dw.delays/dt={{ ds }}", None, "'ds' is undefined"),
        ("dw.delays/dt={{ dag_run.logical_date }}", None, "is None"),
        ("dw.delays/dt={{ params.get('day', '') }}", DAY, "'dt=' is not a partition level"),
        ("dw.delays/dt={{ ds | no_such_filter }}", DAY, "no_such_filter"),
        ("dw.delays/dt={{ 1 / 0 }}", DAY, "ZeroDivisionError"),
    ],
)
def test_a_name_that_cannot_be_rendered_locks_nothing(
    name: str,
    logical_date: datetime | None,
    said: str,
    manager: LockManager,
    triggerer: Triggerer,
    lines: Callable[[], str],
) -> None:
    async def body() -> None:
        task = lock(writes=["dw.planes", name])
        assert isinstance(
            await triggerer.event(await triggerer.start(task, logical_date=logical_date)), TaskFailedEvent
        )

    asyncio.run(body())
    assert said in lines()
    assert not manager.show()


def test_a_connection_that_does_not_exist_is_named(triggerer: Triggerer, lines: Callable[[], str]) -> None:
    async def body() -> None:
        task = lock(hivelock_conn_id="nowhere")
        assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)

    asyncio.run(body())
    assert "connection 'nowhere' does not exist" in lines()


@pytest.mark.parametrize("wrong", [{"reads": 7}, {"timeout_s": "soon"}, {"lease_s": None}, {"owner": "me"}])
def test_making_it_only_stores(wrong: dict[str, Any]) -> None:
    trigger(**wrong)  # whatever it raised would end the triggerer


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colour": "red"}, "colour: arguments of another version's trigger"),
        ({"reads": 7}, "reads=7 must be a list"),
        ({"timeout_s": "soon"}, "timeout_s='soon' must be seconds"),
    ],
)
def test_what_another_version_has_given_it_fails_the_task_with_a_word(
    given: dict[str, Any], said: str, manager: LockManager, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        await fails(trigger(**given).run())

    asyncio.run(body())
    assert said in lines()
    assert not manager.show()


def test_its_arguments_are_plain() -> None:
    classpath, kwargs = trigger(reads=("dw.flights",)).serialize()
    assert classpath == "airflow_hivelock.triggers.lock.HiveLockTrigger"
    assert json.loads(json.dumps(kwargs)) == kwargs


async def _waiting(triggerer: Triggerer, manager: LockManager) -> int:
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.until(manager.waiters, "a waiter")
    return trigger_id


async def _lingering(triggerer: Triggerer, manager: LockManager) -> int:
    trigger_id = await triggerer.start(lock(), logical_date=DAY)
    await triggerer.event(trigger_id)
    return trigger_id


OVER = ["failed", "skipped", "upstream_failed", "removed", None]
ALIVE = ["deferred", "running", "queued", "scheduled", "restarting", "up_for_retry", "up_for_reschedule"]


@pytest.mark.parametrize("state", [*OVER, "success"])
def test_a_waiter_whose_task_is_over_leaves_the_queue(
    state: str | None, manager: LockManager, triggerer: Triggerer
) -> None:
    async def body() -> None:
        held = other(manager)
        trigger_id = await _waiting(triggerer, manager)
        triggerer.states = {} if state is None else {"lock": state}
        await triggerer.user_acts(trigger_id)
        assert not manager.waiters()
        manager.release(held)

    asyncio.run(body())


@pytest.mark.parametrize("state", ALIVE)
def test_a_waiter_keeps_its_place_while_its_task_lives(state: str, manager: LockManager, triggerer: Triggerer) -> None:
    """A triggerer that was frozen, and a task that was cleared, come here with the task deferred again."""

    async def body() -> None:
        held = other(manager)
        trigger_id = await _waiting(triggerer, manager)
        triggerer.states = {"lock": state}
        await triggerer.user_acts(trigger_id)
        assert len(manager.waiters()) == 1
        again = await triggerer.start(lock(), logical_date=DAY, try_number=2)
        manager.release(held)
        await triggerer.event(again)

    asyncio.run(body())


def test_a_waiter_keeps_its_place_when_airflow_cannot_tell(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str]
) -> None:
    async def no_answer(_: Any) -> Any:
        raise ConnectionError("no line")

    async def body() -> None:
        held = other(manager)
        trigger_id = await _waiting(triggerer, manager)
        with monkeypatch.context() as patch:
            patch.setattr(triggerer, "asend", no_answer)
            await triggerer.user_acts(trigger_id)
        assert len(manager.waiters()) == 1
        assert "Keeping the place in the queue, or the lease: Airflow does not say" in lines()
        again = await triggerer.start(lock(), logical_date=DAY)
        manager.release(held)
        await triggerer.event(again)

    asyncio.run(body())


def test_a_place_that_nobody_takes_up_keeps_nobody_waiting(manager: LockManager, triggerer: Triggerer) -> None:
    """Airflow has given the task to another triggerer, and that one stands still; this one's session goes on."""

    async def body() -> None:
        held = other(manager)
        trigger_id = await _waiting(triggerer, manager)
        newcomer = await triggerer.start(lock(), logical_date=DAY, run_id="newcomer")
        await triggerer.until(lambda: len(manager.waiters()) == 2, "the newcomer")
        triggerer.states = {"lock": "deferred"}
        await triggerer.user_acts(trigger_id)
        manager.release(held)
        assert isinstance(await triggerer.event(newcomer), TaskSuccessEvent)

    asyncio.run(body())


def test_a_triggerer_that_stops_keeps_places_and_another_goes_on(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        held = other(manager)
        await triggerer.shut_down(await _waiting(triggerer, manager))
        assert len(manager.waiters()) == 1
        assert not (triggerer.asked and compat.TRIGGERS_HEAR_OF_KILLS), "its line to the supervisor is dead"
        again = await triggerer.start(lock(), logical_date=DAY)
        manager.release(held)
        assert isinstance(await triggerer.event(again), TaskSuccessEvent)

    asyncio.run(body())


@pytest.mark.parametrize("state", OVER)
def test_a_lease_of_which_nobody_heard_is_released(
    state: str | None, manager: LockManager, triggerer: Triggerer
) -> None:
    """The task was marked failed after the grant and before its event was stored: Airflow drops the event."""

    async def body() -> None:
        trigger_id = await _lingering(triggerer, manager)
        triggerer.states = {} if state is None else {"lock": state}
        assert triggerer.running(trigger_id), "only a trigger that runs hears of it"
        await triggerer.user_acts(trigger_id)
        assert manager.lease_of(OWNER) is None

    asyncio.run(body())


@pytest.mark.parametrize("state", ["success", *ALIVE])
def test_the_normal_end_keeps_the_lease(state: str, manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        trigger_id = await _lingering(triggerer, manager)
        triggerer.states = {"lock": state}
        await triggerer.user_acts(trigger_id)
        assert manager.lease_of(OWNER) is not None

    asyncio.run(body())


def test_a_late_end_leaves_what_the_task_has_taken_over_and_says_nothing(
    manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        trigger_id = await _lingering(triggerer, manager)
        lease = manager.acquire(owner=OWNER, writes=[OBJECT], attempt=1)
        triggerer.states = {"lock": "failed"}
        await triggerer.user_acts(trigger_id)
        assert manager.lease_of(OWNER) == lease

    asyncio.run(body())
    assert "gave up" not in lines()


def test_a_task_killed_in_the_middle_of_the_grant_holds_nothing(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    step = MemoryAcquisition.step

    def slow(self: MemoryAcquisition) -> Any:
        entered.set()
        assert go_on.wait(10)
        return step(self)

    async def body() -> None:
        monkeypatch.setattr(MemoryAcquisition, "step", slow)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(entered.is_set, "the request to be on its way")
        triggerer.states = {"lock": "failed"}
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        await triggerer.user_acts(trigger_id)
        await triggerer.until(lambda: triggerer.asked, "on_kill")
        assert go_on.is_set(), "on_kill did not wait for the request that was on its way"
        await triggerer.until(lambda: manager.lease_of(OWNER) is None, "the lease to be released")

    asyncio.run(body())


def test_what_blocks_never_blocks_the_loop(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    begin, release = manager.begin, manager.release

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **options: Any) -> Any:
            threads.append(threading.current_thread().name)
            return call(*given, **options)

        return note

    async def body() -> None:
        monkeypatch.setattr(manager, "begin", noted(begin))
        monkeypatch.setattr(manager, "release", noted(release))
        trigger_id = await _lingering(triggerer, manager)
        triggerer.states = {"lock": "failed"}
        await triggerer.user_acts(trigger_id)

    asyncio.run(body())
    assert threads
    assert all(name.startswith("hivelock") for name in threads)


def test_a_superseded_trigger_says_nothing_and_ends_as_if_it_were_cancelled(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other end would fail the task, which another trigger now waits for."""

    async def body() -> None:
        monkeypatch.setattr(lock_trigger, "AGAIN_S", 0.0)
        held = other(manager)
        old = await _waiting(triggerer, manager)
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

    asyncio.run(body())


def test_a_task_that_airflow_gives_back_is_taken_up_again(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first triggerer stands still, the second gets its triggers, and stands still too; so the first gets them back."""

    async def body() -> None:
        monkeypatch.setattr(lock_trigger, "AGAIN_S", 0.0)
        held = other(manager)
        trigger_id = await _waiting(triggerer, manager)
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

    def _epoch(manager: LockManager) -> int:
        epoch: int = manager.backend._entries[OWNER].epoch  # type: ignore[attr-defined]
        return epoch

    asyncio.run(body())


@pytest.mark.parametrize("granted", [False, True])
def test_what_is_over_is_given_up_although_airflow_asks_for_the_end_again_meanwhile(
    granted: bool, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow cancels a trigger every second until it has ended; its answer may take longer."""
    asend = triggerer.asend

    async def slow(message: Any) -> Any:
        await asyncio.sleep(5 * CANCELLED_AGAIN_S)
        return await asend(message)

    async def body() -> None:
        held = None if granted else other(manager)
        trigger_id = await (_lingering if granted else _waiting)(triggerer, manager)
        triggerer.states = {"lock": "failed"}
        monkeypatch.setattr(triggerer, "asend", slow)
        await triggerer.user_acts(trigger_id)
        await triggerer.until(lambda: not manager.waiters() and not manager.lease_of(OWNER), "it to be given up")
        if held:
            manager.release(held)

    asyncio.run(body())


@pytest.mark.parametrize("options", [{}, {"timeout": timedelta(0)}])
def test_the_end_of_every_wait_is_not_called_a_users_action(
    options: dict[str, Any], manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
) -> None:
    async def body() -> None:
        held = other(manager) if options else None
        trigger_id = await triggerer.start(lock(**options), logical_date=DAY)
        event = await triggerer.event(trigger_id)
        assert isinstance(event, TaskFailedEvent if options else TaskSuccessEvent)
        triggerer.states = {"lock": event.task_instance_state}
        await triggerer.user_acts(trigger_id)
        assert (manager.lease_of(OWNER) is None) is bool(options)
        if held:
            manager.release(held)

    asyncio.run(body())
    assert "trigger completed" in lines()
    assert "user action" not in lines()


@pytest.mark.skipif(not compat.TRIGGERS_RETRY, reason="before Airflow 3.3 it raises, and a worker logs why")
@pytest.mark.parametrize("cls", [HiveLockOperator, HiveLockSensor])
def test_a_trigger_that_fails_stays_until_airflow_has_read_why(
    cls: Any, manager: LockManager, triggerer: Triggerer
) -> None:
    """Airflow closes a task's log as it hears of the trigger's end, be there lines to read or not."""

    async def body() -> None:
        other(manager)
        trigger_id = await triggerer.start(
            lock(cls, timeout=0 if cls is HiveLockSensor else timedelta(0)), logical_date=DAY
        )
        assert isinstance(await triggerer.event(trigger_id), TaskFailedEvent)
        assert triggerer.running(trigger_id)
        await triggerer.user_acts(trigger_id)

    asyncio.run(body())


def test_an_outage_keeps_the_place(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str]
) -> None:
    step = MemoryAcquisition.step
    asked = iter(range(100))

    def answers_at_last(self: MemoryAcquisition) -> Any:
        if next(asked) < 3:
            raise StoreUnavailable("zk1 is down")
        return step(self)

    async def body() -> None:
        monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.02)
        monkeypatch.setattr(MemoryAcquisition, "step", answers_at_last)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)

    asyncio.run(body())
    assert lines().count("zk1 is down") == 1


def test_an_outage_that_lasts_fails_the_task(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str]
) -> None:
    def down(_: MemoryAcquisition) -> Any:
        raise StoreUnavailable("zk1 is down")

    async def body() -> None:
        monkeypatch.setattr(waiting, "OUTAGE_S", 0.1)
        monkeypatch.setattr(MemoryAcquisition, "step", down)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        assert isinstance(await triggerer.event(trigger_id), TaskFailedEvent)

    asyncio.run(body())
    assert "error: zk1 is down" in lines()


def test_the_dag_that_came_along_is_forgotten(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(triggerer.runner, "create_runtime_ti"):
        pytest.skip("before Airflow 3.3 none comes along")
    create = triggerer.runner.create_runtime_ti
    dags: list[weakref.ref[Any]] = []

    def noted(*given: Any) -> Any:
        ti = create(*given)
        dags.append(weakref.ref(ti.task.dag))
        return ti

    async def body() -> None:
        monkeypatch.setattr(triggerer.runner, "create_runtime_ti", noted)
        held = other(manager)
        trigger_id = await _waiting(triggerer, manager)
        gc.collect()
        assert [dag() for dag in dags] == [None]
        triggerer.states = {"lock": "failed"}
        await triggerer.user_acts(trigger_id)
        manager.release(held)

    asyncio.run(body())


def test_many_that_start_together_look_the_connection_up_once(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hivelock import HiveLockHook

    looked_up = []
    load = HiveLockHook.load

    async def counted(self: HiveLockHook) -> None:
        looked_up.append(self.hivelock_conn_id)
        await asyncio.sleep(0.05)
        await load(self)

    async def body() -> None:
        monkeypatch.setattr(HiveLockHook, "load", counted)
        started = [
            await triggerer.start(lock(writes=["dw.delays/dt={{ run_id }}"]), logical_date=DAY, run_id=f"run{n}")
            for n in range(20)
        ]
        for trigger_id in started:
            await triggerer.event(trigger_id)

    asyncio.run(body())
    assert looked_up == ["hivelock_default"]


def test_where_a_task_waits_leases_are_renewed_even_after_an_error(
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

    async def body() -> None:
        held = other(manager)
        waiting_id = await triggerer.start(lock(), logical_date=DAY)
        async with asyncio.timeout(10):
            while manager.show("dw.kept")[0].expires == kept.since + timedelta(seconds=1):
                await asyncio.sleep(0.02)
        manager.release(held)
        await triggerer.event(waiting_id)

    asyncio.run(body())
    assert not errors


def test_a_task_that_goes_on_gets_its_lease_as_the_event(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        event = await triggerer.event(await triggerer.defer(trigger(ends_task=False)))
        lease = Lease.from_json(event.payload)
        assert lease == manager.lease_of(OWNER)
        assert not triggerer.xcoms

    asyncio.run(body())


def test_a_deferred_task_is_its_own_owner_and_is_not_rendered_again(manager: LockManager, triggerer: Triggerer) -> None:
    async def body() -> None:
        deferred = trigger(writes=["dw.delays/dt={{ ds }}"], owner="here/dag/run/lock/3", attempt=4)
        await triggerer.event(await triggerer.defer(deferred, map_index=3, try_number=4))

    asyncio.run(body())
    lease = manager.lease_of("here/dag/run/lock/3")
    assert lease is not None
    assert lease.attempt == 4
    assert lease.locks[-1].object.partition == (("dt", "{{ ds }}"),)


@pytest.mark.parametrize(("ends_task", "waits"), [(False, True), (True, False)])
def test_what_a_worker_has_deferred_is_not_resumed_within_seconds(
    ends_task: bool, waits: bool, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's scheduler would take the end of that worker for the resumed task's, and fail it."""

    async def body() -> None:
        begun = time.monotonic()
        await triggerer.event(await triggerer.defer(trigger(ends_task=ends_task)))
        assert (time.monotonic() - begun >= 1) is waits

    monkeypatch.setattr(rounds, "RESUME_S", 1.0)
    asyncio.run(body())


class TestSensor:
    def test_it_waits_until_the_data_is_free_and_takes_nothing(
        self, manager: LockManager, triggerer: Triggerer, lines: Callable[[], str]
    ) -> None:
        async def body() -> None:
            held = other(manager)
            trigger_id = await triggerer.start(lock(HiveLockSensor), logical_date=DAY)
            await triggerer.until(lambda: "In the way: somebody" in lines(), "the sensor to look")
            assert not manager.waiters()
            manager.release(held)
            assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)

        asyncio.run(body())
        assert not manager.show()

    @pytest.mark.parametrize(("soft_fail", "event"), [(False, TaskFailedEvent), (True, TaskSkippedEvent)])
    def test_its_time_out(self, soft_fail: bool, event: type, manager: LockManager, triggerer: Triggerer) -> None:
        async def body() -> None:
            other(manager)
            task = lock(HiveLockSensor, timeout=0.1, soft_fail=soft_fail)
            assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), event)

        asyncio.run(body())

    def test_a_wrong_name_fails_even_softly(self, manager: LockManager, triggerer: Triggerer) -> None:
        async def body() -> None:
            task = lock(HiveLockSensor, soft_fail=True, reads=["dw.delays/dt={{ nothing }}"])
            assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)

        asyncio.run(body())
