"""The trigger in Airflow's own runner: its arguments, its grant, its time-out and its sensor."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent

from airflow_hivelock import HiveLockHook, HiveLockSensor
from airflow_hivelock.locks import Lease
from airflow_hivelock.triggers import keeper
from airflow_hivelock.waiting import rounds
from tests.airflow.tasks import DAY, OBJECT, OWNER, lock, other, start_granted, start_waiting, trigger
from tests.airflow.triggerer import Triggerer, fails

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines


async def test_it_ends_the_task_and_stores_the_whole_lease(manager: LockManager, triggerer: Triggerer) -> None:
    task = lock(lease_duration=timedelta(minutes=5))
    event = await triggerer.event(await triggerer.start(task, logical_date=DAY))
    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms is None, "Airflow would store these as text"
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


async def test_it_locks_what_the_dag_has_named_after_the_operator_was_made(
    manager: LockManager, triggerer: Triggerer
) -> None:
    task = lock()
    task.writes = [*task.writes, "dw.later"]
    task.resolve_template_files()  # as the DAG processor does
    await triggerer.event(await triggerer.start(task, logical_date=DAY))
    lease = manager.lease_of(OWNER)
    assert lease is not None
    assert "dw.later EXCLUSIVE" in map(str, lease.locks)


async def test_waiters_come_in_their_order(manager: LockManager, triggerer: Triggerer) -> None:
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


async def test_its_time_out_is_exact_and_a_clear_line(manager: LockManager, triggerer: Triggerer, lines: Lines) -> None:
    other(manager)
    task = lock(timeout=timedelta(milliseconds=100))
    assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)
    assert "error: here/dag/run/lock/-1 did not get" in lines()
    assert "somebody holds" in lines()


async def test_it_waits_while_airflow_cannot_read_its_connection(
    manager: LockManager, triggerer: Triggerer, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its database, Airflow reports that there is no such connection."""

    async def no_answer(_: Any) -> Any:
        raise ConnectionError("no database")

    with monkeypatch.context() as away:
        away.setattr(HiveLockHook, "aget_connection", AsyncMock(side_effect=AirflowNotFoundException("no such id")))
        away.setattr(triggerer, "asend", no_answer)
        trigger_id = await triggerer.start(lock(), logical_date=DAY)
        await triggerer.until(
            lambda: "Airflow did not return connection 'hivelock_default'. Asking again" in lines(), "it"
        )
    assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
    assert manager.lease_of(OWNER)


async def test_a_connection_that_does_not_exist_fails_the_task_at_once(
    manager: LockManager, triggerer: Triggerer, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HiveLockHook, "aget_connection", AsyncMock(side_effect=AirflowNotFoundException("no such id")))
    assert isinstance(await triggerer.event(await triggerer.start(lock(), logical_date=DAY)), TaskFailedEvent)
    assert "error: connection 'hivelock_default' does not exist" in lines()


async def test_without_patience_it_fails_at_once(manager: LockManager, triggerer: Triggerer) -> None:
    other(manager)
    task = lock(timeout=timedelta(0))
    assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)


@pytest.mark.parametrize(
    ("name", "logical_date", "said"),
    [
        ("dw.delays/dt={{ params.nothing }}", DAY, "has no attribute 'nothing'"),
        ("dw.delays/dt={{ ds }}", None, "'ds' is undefined. The run has no logical date. Trigger it with one"),
        ("dw.delays/dt={{ dag_run.logical_date }}", None, "is None"),
        ("dw.delays/dt={{ params.get('day', '') }}", DAY, "'dt=' is not a partition level"),
        ("{{ params.get('day', '') }}", DAY, "', '') }}\" renders to no name in this run"),
        ("dw.delays/dt={{ 1 / 0 }}", DAY, "ZeroDivisionError"),
    ],
)
async def test_a_name_that_cannot_be_rendered_locks_nothing(
    name: str, logical_date: datetime | None, said: str, manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    task = lock(writes=["dw.planes", name])
    assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=logical_date)), TaskFailedEvent)
    assert said in lines()
    assert not manager.show()


async def test_a_database_that_cannot_be_rendered_locks_nothing(
    manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    task = lock(lock_sql="DROP TABLE t", lock_database="{{ params.get('db', '') }}")
    assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)
    assert "', '') }}\" renders to no name in this run" in lines()
    assert not manager.show()


async def test_a_connection_that_does_not_exist_is_named(triggerer: Triggerer, lines: Lines) -> None:
    task = lock(hivelock_conn_id="nowhere")
    assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)
    assert "connection 'nowhere' does not exist" in lines()


@pytest.mark.parametrize("wrong", [{"reads": 7}, {"timeout_s": "soon"}, {"lease_s": None}, {"owner": "me"}])
def test_making_it_only_stores(wrong: dict[str, Any]) -> None:
    trigger(**wrong)  # whatever it raised would end the triggerer


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colour": "red", "format": 9, "min_reader": 8}, "for readers of format 8 and later"),
        ({"format": "red"}, "this trigger has no valid format"),
        ({"reads": 7}, "reads=7 must be a list"),
        ({"timeout_s": "soon"}, "timeout_s='soon' must be seconds"),
    ],
)
async def test_what_another_version_has_given_it_fails_the_task_with_a_word(
    given: dict[str, Any], said: str, manager: LockManager, lines: Lines
) -> None:
    await fails(trigger(**given).run())
    assert said in lines()
    assert not manager.show()


def test_arguments_of_a_later_version_are_ignored_logged_and_written_back(manager: LockManager, lines: Lines) -> None:
    later = trigger(colour="red", format=9, min_reader=4, ends_task=False)

    async def body() -> Any:
        return await asyncio.wait_for(anext(later.run()), 30)

    assert asyncio.run(body()).payload["owner"] == OWNER
    assert "Ignoring the arguments colour, which a later version wrote" in lines()
    assert later.serialize()[1].items() >= {"colour": "red", "format": 9, "min_reader": 4}.items()


def test_arguments_with_default_values_are_omitted() -> None:
    """An earlier version's triggerer gets nothing that it does not know, unless a task uses it."""
    assert trigger().serialize()[1].keys() == {
        *("hivelock_conn_id", "reads", "writes", "lease_s", "owner", "attempt"),
    }
    assert keeper.HiveLockKeeper("c").serialize()[1] == {"hivelock_conn_id": "c"}


def test_its_arguments_are_plain() -> None:
    classpath, kwargs = trigger(reads=("dw.flights",)).serialize()
    assert classpath == "airflow_hivelock.triggers.lock.HiveLockTrigger"
    assert json.loads(json.dumps(kwargs)) == kwargs


async def test_what_blocks_never_blocks_the_loop(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    begin, release = manager.begin, manager.release

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **options: Any) -> Any:
            threads.append(threading.current_thread().name)
            return call(*given, **options)

        return note

    monkeypatch.setattr(manager, "begin", noted(begin))
    monkeypatch.setattr(manager, "release", noted(release))
    trigger_id = await start_granted(triggerer, manager)
    triggerer.states = {"lock": "failed"}
    await triggerer.user_acts(trigger_id)
    assert threads
    assert all(name.startswith("hivelock") for name in threads)


async def test_the_dag_that_came_along_is_forgotten(
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

    monkeypatch.setattr(triggerer.runner, "create_runtime_ti", noted)
    held = other(manager)
    trigger_id = await start_waiting(triggerer, manager)
    gc.collect()
    assert [dag() for dag in dags] == [None]
    triggerer.states = {"lock": "failed"}
    await triggerer.user_acts(trigger_id)
    manager.release(held)


async def test_many_that_start_together_look_the_connection_up_once(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hivelock import HiveLockHook

    looked_up = []
    load = HiveLockHook.load

    async def counted(self: HiveLockHook) -> None:
        looked_up.append(self.hivelock_conn_id)
        await asyncio.sleep(0.05)
        await load(self)

    monkeypatch.setattr(HiveLockHook, "load", counted)
    started = [
        await triggerer.start(lock(writes=["dw.delays/dt={{ run_id }}"]), logical_date=DAY, run_id=f"run{n}")
        for n in range(20)
    ]
    for trigger_id in started:
        await triggerer.event(trigger_id)
    assert looked_up == ["hivelock_default"]


async def test_a_task_that_goes_on_gets_its_lease_as_the_event(manager: LockManager, triggerer: Triggerer) -> None:
    event = await triggerer.event(await triggerer.defer(trigger(ends_task=False)))
    lease = Lease.from_json(event.payload)
    assert lease == manager.lease_of(OWNER)
    assert not triggerer.xcoms


async def test_a_deferred_task_is_its_own_owner_and_is_not_rendered_again(
    manager: LockManager, triggerer: Triggerer
) -> None:
    deferred = trigger(writes=["dw.delays/dt={{ ds }}"], owner="here/dag/run/lock/3", attempt=4)
    await triggerer.event(await triggerer.defer(deferred, map_index=3, try_number=4))
    lease = manager.lease_of("here/dag/run/lock/3")
    assert lease is not None
    assert lease.attempt == 4
    assert lease.locks[-1].object.partition == (("dt", "{{ ds }}"),)


@pytest.mark.parametrize(("ends_task", "waits"), [(False, True), (True, False)])
async def test_what_a_worker_has_deferred_is_not_resumed_within_seconds(
    ends_task: bool, waits: bool, manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's scheduler would take the end of that worker for the resumed task's, and fail it."""
    monkeypatch.setattr(rounds, "RESUME_S", 1.0)
    begun = time.monotonic()
    await triggerer.event(await triggerer.defer(trigger(ends_task=ends_task)))
    assert (time.monotonic() - begun >= 1) is waits


class TestSensor:
    async def test_it_waits_until_the_data_is_free_and_takes_nothing(
        self, manager: LockManager, triggerer: Triggerer, lines: Lines
    ) -> None:
        held = other(manager)
        trigger_id = await triggerer.start(lock(HiveLockSensor), logical_date=DAY)
        await triggerer.until(lambda: "In the way: somebody" in lines(), "the sensor to look")
        assert not manager.waiters()
        manager.release(held)
        assert isinstance(await triggerer.event(trigger_id), TaskSuccessEvent)
        assert not manager.show()

    @pytest.mark.parametrize(("soft_fail", "event"), [(False, TaskFailedEvent), (True, TaskSkippedEvent)])
    async def test_its_time_out(self, soft_fail: bool, event: type, manager: LockManager, triggerer: Triggerer) -> None:
        other(manager)
        task = lock(HiveLockSensor, timeout=0.1, soft_fail=soft_fail)
        assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), event)

    async def test_a_wrong_name_fails_even_softly(self, manager: LockManager, triggerer: Triggerer) -> None:
        task = lock(HiveLockSensor, soft_fail=True, reads=["dw.delays/dt={{ params.nothing }}"])
        assert isinstance(await triggerer.event(await triggerer.start(task, logical_date=DAY)), TaskFailedEvent)
