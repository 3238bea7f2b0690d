"""Locks around an operator: held exactly while its work is under way."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, BaseOperator, task
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hivelock import (
    HiveLockedSparkSubmitOperator,
    HiveLockMixin,
    HiveLockOperator,
    HiveUnlockOperator,
    release_locks,
    waiting,
)
from airflow_hivelock.locks import LockLost, StoreUnavailable
from airflow_hivelock.spec import Owner
from airflow_hivelock.waiting import Wait
from airflow_hivelock.work import lease_holder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from airflow_hivelock.locks import Lease, LockManager
    from airflow_hivelock.locks.backend import Free
    from tests.airflow.conftest import Ran

DAY = datetime(2013, 1, 15, tzinfo=UTC)
OBJECT = "dw.delays/dt=2013-01-15"
NAMES: dict[str, Any] = {"writes": ["dw.delays/dt={{ ds }}"]}


class Work(BaseOperator):
    """Does what the test says; ``on_kill`` stops it."""

    def __init__(
        self,
        *,
        act: Callable[[Work], Any] = lambda _: None,
        at_stop: Callable[[], Any] = lambda: None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.act = act
        self.at_stop = at_stop
        self.stopped = threading.Event()
        self.kills: list[str] = []

    def execute(self, context: Any) -> Any:
        return self.act(self)

    def on_kill(self) -> None:
        self.at_stop()
        self.kills.append(threading.current_thread().name)
        self.stopped.set()


class LockedWork(HiveLockMixin, Work):
    pass


class Defers(BaseTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Defers", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent("go on")  # type: ignore[no-untyped-call]


def dag(name: str = "works", **options: Any) -> DAG:
    return DAG(name, schedule=None, start_date=DAY, **options)


def holders(manager: LockManager) -> list[str]:
    return [holder.owner for holder in manager.show(OBJECT)]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch, manager: LockManager) -> Callable[[str, Callable[[Any], object]], None]:
    """``before(method, note)``: have *note* called with the lease before each call of that method of the manager."""

    def wrap(method: str, note: Callable[[Any], object]) -> None:
        original = getattr(manager, method)

        def both(lease: Any) -> Any:
            note(lease)
            return original(lease)

        monkeypatch.setattr(manager, method, both)

    return wrap


@pytest.mark.parametrize("waiting", ["trigger", "defer", "reschedule", "poke"])
def test_its_work_runs_under_locks_and_only_its_work(
    waiting: Any, manager: LockManager, run: Callable[..., Ran]
) -> None:
    during: list[Any] = []
    with dag() as works:
        LockedWork(task_id="work", act=lambda _: during.extend(manager.show(OBJECT)), waiting=waiting, **NAMES)
    ran = run(works, logical_date=DAY)
    assert ran.state == "success"
    assert [holder.owner for holder in during] == [str(Owner("here", "works", ran.run_id, "work", -1))]
    assert not manager.show()


def test_its_locks_go_when_its_work_fails(manager: LockManager, run: Callable[..., Ran]) -> None:
    def fail(_: Work) -> None:
        raise RuntimeError("no such table")

    with dag() as works:
        LockedWork(task_id="work", act=fail, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert not manager.show()


def test_it_stays_locked_while_its_operator_defers(
    manager: LockManager, run: Callable[..., Ran], before: Callable[..., None]
) -> None:
    seen: list[list[str]] = []
    released: list[int] = []

    class Deferring(BaseOperator):
        def execute(self, context: Any) -> None:
            seen.append(holders(manager))
            self.defer(trigger=Defers(), method_name="finish")  # type: ignore[no-untyped-call]

        def finish(self, context: Any, event: str) -> None:
            seen.append(holders(manager))

    class Locked(HiveLockMixin, Deferring):
        pass

    before("release", lambda _: released.append(len(seen)))
    with dag() as works:
        Locked(task_id="work", **NAMES)
    ran = run(works, logical_date=DAY)
    assert ran.state == "success"
    assert seen == [[str(Owner("here", "works", ran.run_id, "work", -1))]] * 2
    assert released == [2], "released once, at the end"
    assert not manager.show()


def test_a_lease_lost_while_it_was_deferred_fails_the_task(manager: LockManager, run: Callable[..., Ran]) -> None:
    went_on: list[str] = []

    class Deferring(BaseOperator):
        def execute(self, context: Any) -> None:
            (holder,) = manager.show(OBJECT)
            manager.force_release(str(holder.lease_id), reason="test", user="test")
            self.defer(trigger=Defers(), method_name="finish")  # type: ignore[no-untyped-call]

        def finish(self, context: Any, event: str) -> None:
            went_on.append(event)

    class Locked(HiveLockMixin, Deferring):
        pass

    with dag() as works:
        Locked(task_id="work", **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert not went_on


def test_it_renews_its_lease_and_bears_an_outage(
    manager: LockManager, run: Callable[..., Ran], before: Callable[..., None], lines: Callable[[], str]
) -> None:
    renewals: list[Any] = []
    enough = threading.Event()

    def note(lease: Any) -> None:
        renewals.append(lease)
        if len(renewals) == 1:
            raise StoreUnavailable("zk1 is down")
        if len(renewals) == 3:
            enough.set()

    before("renew", note)
    with dag() as works:
        LockedWork(task_id="work", act=lambda _: enough.wait(10), lease_duration=timedelta(seconds=1), **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert len(renewals) == 3
    assert "cannot be kept; trying again" in lines()


@pytest.mark.parametrize("breaks", [True, False], ids=["work breaks", "work returns"])
@pytest.mark.parametrize("told", [True, False], ids=["told of it", "looking itself"])
def test_a_lost_lease_stops_the_work_and_fails_the_task(
    told: bool,
    breaks: bool,
    manager: LockManager,
    run: Callable[..., Ran],
    lines: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not told:
        verify = manager.verify
        monkeypatch.setattr(manager, "verify", lambda lease, _: verify(lease))
        monkeypatch.setattr(lease_holder, "CHECK_S", 0.1)
    works_seen: list[Work] = []
    said: list[Any] = []

    def act(work: Work) -> None:
        works_seen.append(work)
        (holder,) = manager.show(OBJECT)
        manager.force_release(str(holder.lease_id), reason="test", user="test")
        assert work.stopped.wait(10), "nobody stopped the work"
        if breaks:
            raise RuntimeError("spark-submit ended with 137")

    with dag() as works:
        LockedWork(task_id="work", act=act, on_failure_callback=lambda it: said.append(it["exception"]), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert isinstance(said[0], LockLost)
    assert works_seen[0].kills == ["hivelock-renewal"]
    assert "Stopping the work" in lines()


def test_a_kill_stops_the_work_first_and_then_frees_the_locks(
    manager: LockManager, run: Callable[..., Ran], before: Callable[..., None]
) -> None:
    order: list[str] = []
    held: list[str] = []

    def act(work: Work) -> None:
        work.on_kill()
        held.extend(holders(manager))
        order.append("ended")
        raise RuntimeError("killed")

    before("release", lambda _: order.append("released"))
    with dag() as works:
        LockedWork(task_id="work", act=act, at_stop=lambda: order.append("stopped"), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert order == ["stopped", "released", "ended"]
    assert not held


def test_a_time_out_stops_the_work_before_it_frees_the_locks(manager: LockManager, run: Callable[..., Ran]) -> None:
    held: list[int] = []
    with dag() as works:
        LockedWork(
            task_id="work",
            act=lambda _: threading.Event().wait(10),
            at_stop=lambda: held.append(len(holders(manager))),
            execution_timeout=timedelta(seconds=1),
            **NAMES,
        )
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert held[0] == 1
    assert not manager.show()


@pytest.mark.parametrize("rounds", [0, 3], ids=["keeps the locks", "steps aside"])
def test_what_a_trigger_does_late_does_not_touch_a_task_that_has_gone_on(
    rounds: int, manager: LockManager, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of the end of its wait only after the task may have failed, and then gives up what it acquired."""
    waits: list[Wait] = []
    polled: set[str] = set()
    begin, poll = Wait.__init__, Wait.poll

    def noted(self: Wait, *given: Any) -> None:
        begin(self, *given)
        waits.append(self)

    def taken_at_first(self: Wait) -> Lease | Free | None:
        """So that the worker defers."""
        owner = self._ask()[1].owner
        if owner not in polled:
            polled.add(owner)
            return None
        return poll(self)

    held: list[list[str]] = []

    def act(_: Work) -> None:
        for wait in waits[:4]:
            wait.give_up()
        held.append(sorted({holder.owner.split("/")[3] for holder in manager.show()}))

    monkeypatch.setattr(waiting.rounds, "ROUNDS", rounds)
    monkeypatch.setattr(Wait, "__init__", noted)
    monkeypatch.setattr(Wait, "poll", taken_at_first)
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", waiting="defer", writes=["dw.other"])
        lock >> LockedWork(task_id="work", act=act, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert len(waits) == (5 if rounds else 4), "for each task one on a worker, and one in the triggerer"
    assert held == [["lock", "work"]]


def test_a_retry_takes_over_the_lease_of_the_try_before(manager: LockManager, run: Callable[..., Ran]) -> None:
    """As when the worker died: its lock stands, and the job may still run."""
    attempts: list[tuple[str, int]] = []

    def act(work: Work) -> None:
        (holder,) = manager.show(OBJECT)
        lease = manager.find(str(holder.lease_id))
        assert lease is not None
        attempts.append((lease.id, lease.attempt))
        if len(attempts) == 1:
            raise RuntimeError("lost contact")

    class Lasting(LockedWork):
        def work_is_over(self, context: Any) -> bool:
            return False

        def reconnects(self, context: Any, earlier: Any) -> Any:
            return earlier

    with dag() as works:
        Lasting(task_id="work", act=act, retries=1, retry_delay=timedelta(0), **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    (first, one), (second, two) = attempts
    assert first == second
    assert (one, two) == (1, 2)
    assert not manager.show()


def test_a_failed_release_is_told_and_does_not_undo_the_work(
    manager: LockManager,
    run: Callable[..., Ran],
    before: Callable[..., None],
    lines: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def down(_: Any) -> None:
        raise StoreUnavailable("zk1 is down")

    monkeypatch.setattr(lease_holder, "RELEASE_S", 0.0)
    before("release", down)
    with dag() as works:
        LockedWork(task_id="work", **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert "could not be released" in lines()


def test_a_release_waits_until_the_lock_store_answers_again(
    manager: LockManager, run: Callable[..., Ran], before: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = iter(range(2))

    def down(_: Any) -> None:
        if next(outage, None) is not None:
            raise StoreUnavailable("zk1 is down")

    monkeypatch.setattr(lease_holder, "RETRY_S", 0.01)
    before("release", down)
    with dag() as works:
        LockedWork(task_id="work", **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert not manager.show(), "held until somebody frees it by force"


class TestAdopted:
    """``lease=lock.output``."""

    def run_under(self, run: Callable[..., Ran], act: Callable[[Work], Any]) -> Ran:
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", lease_duration=timedelta(seconds=1), **NAMES)
            LockedWork(task_id="work", act=act, lease=lock.output)
        return run(works, logical_date=DAY)

    def test_it_neither_acquires_nor_releases(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        during: list[str] = []
        ran = self.run_under(run, lambda _: during.extend(holders(manager)))
        assert ran.state == "success"
        assert during == holders(manager) == [f"here/works/{ran.run_id}/lock/-1"]

    def test_it_renews(self, manager: LockManager, run: Callable[..., Ran], before: Callable[..., None]) -> None:
        renewed = threading.Event()
        calls: list[Any] = []

        def note(lease: Any) -> None:
            calls.append(lease)
            if len(calls) > 1:  # the first is made before the work starts
                renewed.set()

        before("renew", note)
        assert self.run_under(run, lambda _: renewed.wait(10)).state == "success"
        assert renewed.is_set()

    def test_it_works_on_when_the_lock_tasks_next_try_takes_the_lease_over(
        self, manager: LockManager, run: Callable[..., Ran], before: Callable[..., None]
    ) -> None:
        renewed_under: list[int] = []
        taken_over, renewed = threading.Event(), threading.Event()

        def act(_: Work) -> None:
            (owner,) = holders(manager)
            again = manager.acquire(owner=owner, writes=[OBJECT], attempt=2)
            renewed_under.append(again.epoch)
            taken_over.set()
            assert renewed.wait(10)

        def note(lease: Any) -> None:
            if taken_over.is_set():
                renewed_under.append(lease.epoch)
                renewed.set()

        before("renew", note)
        assert self.run_under(run, act).state == "success"
        assert len(set(renewed_under)) == 1

    def test_it_adopts_the_lease_as_it_stands_now(self, manager: LockManager, run: Callable[..., Ran]) -> None:
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task
            def take_over(lease: Any) -> None:
                manager.acquire(owner=lease["owner"], writes=[OBJECT], attempt=2)

            work = LockedWork(task_id="work", lease=lock.output)
            take_over(lock.output) >> work >> HiveUnlockOperator(task_id="unlock", lease=lock.output)
        assert run(works, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_work_under_a_lease_that_is_gone_does_not_start(
        self, manager: LockManager, run: Callable[..., Ran]
    ) -> None:
        started: list[Work] = []
        said: list[str] = []
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            unlock = HiveUnlockOperator(task_id="unlock")
            tell = [lambda context: said.append(str(context["exception"]))]
            work = LockedWork(task_id="work", act=started.append, lease=lock.output, on_failure_callback=tell)
            lock >> unlock >> work
        ran = run(works, logical_date=DAY)
        assert ran.tasks == {"lock": "success", "unlock": "success", "work": "failed"}
        assert not started
        assert "is over; clear the lock task as well" in said[0]


def test_a_wrapped_operator_keeps_its_own_template_fields() -> None:
    class Locked(HiveLockMixin, BashOperator):
        pass

    class More(Locked):
        pass

    assert set(Locked.template_fields) == {"lease", "reads", "writes", "lock_sql", *BashOperator.template_fields}
    assert More.template_fields == Locked.template_fields
    assert set(HiveLockedSparkSubmitOperator.template_fields) == {
        "lease",
        "reads",
        "writes",
        "lock_sql",
        *SparkSubmitOperator.template_fields,
    }


def test_default_args_and_mapping_reach_the_locks(manager: LockManager, run: Callable[..., Ran]) -> None:
    held: list[str] = []
    with dag(default_args={"timeout": timedelta(0)}) as works:

        class Mapped(LockedWork):
            def execute(self, context: Any) -> Any:
                held.extend(str(holder.object) for holder in manager.show("dw") if holder.object.partition)
                return super().execute(context)

        days = [["dw.delays/dt=2013-01-01"], ["dw.delays/dt=2013-01-02"]]
        Mapped.partial(task_id="work", act=lambda _: held.append("worked")).expand(writes=days)
        single = LockedWork(task_id="single", **NAMES)
    assert single.lock_timeout == timedelta(0)
    assert run(works, logical_date=DAY).state == "success"
    assert held.count("worked") == 2
    assert not manager.show()


class TestSpark:
    @pytest.fixture(autouse=True)
    def spark_submit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A spark-submit that only writes down how it was called."""
        binary = tmp_path / "spark-submit"
        binary.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\n')
        binary.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local"}')
        return tmp_path / "called"

    def submit(self, run: Callable[..., Ran], **options: Any) -> None:
        with dag() as works:
            HiveLockedSparkSubmitOperator(task_id="job", application="job.py", **options)
        assert run(works, logical_date=DAY).state == "success"

    def test_the_job_is_told_its_lease(self, manager: LockManager, run: Callable[..., Ran], spark_submit: Path) -> None:
        self.submit(run, **NAMES)
        called = spark_submit.read_text()
        assert "spark.hivelock.lease=memory-" in called
        assert "spark.hivelock.token=" in called

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (NAMES, "=false"),
            ({**NAMES, "conf": {"spark.sql.hive.convertInsertingPartitionedTable": "true"}}, "=true"),
            ({"reads": ["dw.delays/dt={{ ds }}"]}, None),
            ({"writes": ["dw.delays"]}, None),
        ],
    )
    def test_spark_writes_single_partitions_safely(
        self,
        options: dict[str, Any],
        wanted: str | None,
        manager: LockManager,
        run: Callable[..., Ran],
        spark_submit: Path,
    ) -> None:
        self.submit(run, **options)
        setting = "spark.sql.hive.convertInsertingPartitionedTable"
        assert [
            line.removeprefix(setting) for line in spark_submit.read_text().split() if line.startswith(setting)
        ] == ([wanted] if wanted else [])

    def test_spark_writes_safely_under_an_adopted_lease_too(
        self, manager: LockManager, run: Callable[..., Ran], spark_submit: Path
    ) -> None:
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            HiveLockedSparkSubmitOperator(task_id="job", application="job.py", lease=lock.output)
        assert run(works, logical_date=DAY).state == "success"
        assert "spark.sql.hive.convertInsertingPartitionedTable=false" in spark_submit.read_text()

    @pytest.mark.parametrize(("status", "stays"), [("RUNNING", True), ("FAILED", False), ("unknown", True)])
    def test_the_locks_of_a_job_that_may_still_run_stay(
        self, status: str, stays: bool, manager: LockManager, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In cluster mode a task can fail while its application goes on; a durable retry finds it again."""

        def execute(self: Any, context: Any) -> None:
            self.record_application(self.spark_job("driver-1"))
            raise RuntimeError("lost contact")

        def ask(self: Any, job_id: str, context: Any) -> str:
            assert job_id == "driver-1"
            if status == "unknown":
                raise ConnectionError("no master answers")
            return status

        monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
        monkeypatch.setattr(SparkSubmitOperator, "get_job_status", ask)
        monkeypatch.setattr(SparkSubmitOperator, "is_job_active", lambda _, now: now == "RUNNING")
        with dag() as works:
            HiveLockedSparkSubmitOperator(
                task_id="job", application="job.py", on_failure_callback=release_locks, **NAMES
            )
        assert run(works, logical_date=DAY).tasks == {"job": "failed"}
        assert bool(manager.show()) == stays, "the task's end"


def test_the_task_that_made_the_lock_may_be_written_with_taskflow(
    manager: LockManager, run: Callable[..., Ran]
) -> None:
    seen: list[list[str]] = []
    with dag() as works:
        lock = HiveLockOperator(task_id="lock", **NAMES)

        @task
        def look() -> None:
            seen.append(holders(manager))

        lock >> look() >> HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    ran = run(works, logical_date=DAY)
    assert ran.state == "success"
    assert seen == [[f"here/works/{ran.run_id}/lock/-1"]]
    assert not manager.show()
