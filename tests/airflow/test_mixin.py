"""Locks around an operator: held exactly while its work is under way."""

from __future__ import annotations

import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import BaseOperator, get_current_context, task

from airflow_hivelock import HiveLockedSparkSubmitOperator, HiveLockMixin, HiveLockOperator, HiveUnlockOperator
from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.spec import Owner
from airflow_hivelock.work import lease_holder
from tests.airflow.tasks import DAY, NAMES, OBJECT, Acts, Defers, LockedWork, Work, dag, holders

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Lines, Ran, Run


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
def test_its_work_runs_under_locks_and_only_its_work(waiting: Any, manager: LockManager, run: Run) -> None:
    during: list[Any] = []
    with dag() as works:
        LockedWork(task_id="work", act=lambda _: during.extend(manager.show(OBJECT)), waiting=waiting, **NAMES)
    ran = run(works, logical_date=DAY)
    assert ran.state == "success"
    assert [holder.owner for holder in during] == [str(Owner("here", "works", ran.run_id, "work", -1))]
    assert not manager.show()


def test_its_locks_go_when_its_work_fails(manager: LockManager, run: Run) -> None:
    with dag() as works:
        LockedWork(task_id="work", act=Mock(side_effect=RuntimeError("no such table")), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert not manager.show()


def test_it_stays_locked_while_its_operator_defers(manager: LockManager, run: Run, before: Callable[..., None]) -> None:
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


def test_it_renews_its_lease_and_bears_an_outage(
    manager: LockManager, run: Run, before: Callable[..., None], lines: Lines
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
    assert "cannot be renewed or checked. Trying again" in lines()


@pytest.mark.parametrize("ends", ["raises", "returns"])
def test_a_kill_stops_the_work_and_frees_the_locks_once_the_tasks_own_code_has_ended(
    ends: str, manager: LockManager, run: Run, before: Callable[..., None]
) -> None:
    """What the operator waits for continues after the handler of SIGTERM, for example a statement."""
    order: list[str] = []

    def act(work: Work) -> None:
        work.on_kill()
        order.append("writes on")
        if ends == "raises":
            raise RuntimeError("killed")

    before("release", lambda _: order.append("released"))
    with dag() as works:
        LockedWork(task_id="work", act=act, at_stop=lambda: order.append("stopped"), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed" if ends == "raises" else "success"}
    assert order == ["stopped", "writes on", "released"]
    assert not manager.show()


def test_a_kill_ends_a_function_that_nothing_stops_and_frees_the_locks(
    manager: LockManager, run: Run, before: Callable[..., None]
) -> None:
    """Otherwise Airflow kills the process seconds later, and only its host can see that it has ended."""
    order: list[str] = []

    def act() -> None:
        try:
            get_current_context()["ti"].task.on_kill()
            order.append("writes on")
        except Exception:  # noqa: BLE001 - as a user's function may
            order.append("goes on after an error")
        finally:
            order.append("cleans up")

    before("release", lambda _: order.append("released"))
    with dag() as works:
        Acts(task_id="work", act=act, retries=1, retry_delay=timedelta(0), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert order == ["cleans up", "released"] * 2
    assert not manager.show()


@pytest.mark.parametrize("moment", ["its work is recorded", "its lease is passed on"])
def test_a_task_that_is_killed_before_its_work_begins_does_not_begin_it(
    moment: str, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow sends one SIGTERM, perhaps while the task takes its locks or ends the job of an earlier try."""
    start, works_on, killed = manager.start_work, Mock(), list[LockedWork]()

    class Killed(LockedWork):
        def get_ready(self) -> None:
            killed.append(self)
            super().get_ready()

        def use_lease(self, *_: Any) -> None:
            if moment == "its lease is passed on":
                self.on_kill()

    def while_it_starts(*given: Any) -> Lease:
        if moment == "its work is recorded":
            killed[0].on_kill()
        return start(*given)

    monkeypatch.setattr(manager, "start_work", while_it_starts)
    with dag() as works:
        Killed(task_id="work", act=works_on, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    works_on.assert_not_called()
    assert not manager.show()


def test_a_time_out_stops_the_work_before_it_frees_the_locks(manager: LockManager, run: Run) -> None:
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


def test_a_time_out_during_the_release_does_not_keep_the_locks(
    manager: LockManager, run: Run, before: Callable[..., None]
) -> None:
    """Airflow calls on_kill() after the time-out, and the lock store can answer by then."""
    asked: list[Any] = []

    def time_out_once(lease: Lease) -> None:
        asked.append(lease)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGALRM)

    before("release", time_out_once)
    with dag() as works:
        LockedWork(task_id="work", execution_timeout=timedelta(minutes=5), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"work": "failed"}
    assert len(asked) == 2
    assert not manager.show()


def test_a_kill_during_the_release_does_not_release_a_second_time(
    manager: LockManager, run: Run, before: Callable[..., None]
) -> None:
    """Its signal handler runs in the middle of the first call to the lock store."""
    works_seen: list[Work] = []
    asked: list[Any] = []

    def kill(lease: Lease) -> None:
        asked.append(lease)
        works_seen[0].on_kill()

    before("release", kill)
    with dag() as works:
        LockedWork(task_id="work", act=works_seen.append, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert len(asked) == 1
    assert not manager.show()


def test_a_failed_release_is_told_and_does_not_undo_the_work(
    manager: LockManager, run: Run, before: Callable[..., None], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "RELEASE_S", 0.0)
    before("release", Mock(side_effect=StoreUnavailable("zk1 is down")))
    with dag() as works:
        LockedWork(task_id="work", **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert "could not be released" in lines()


def test_a_release_waits_until_the_lock_store_answers_again(
    manager: LockManager, run: Run, before: Callable[..., None], monkeypatch: pytest.MonkeyPatch
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

    def run_under(self, run: Run, act: Callable[[Work], Any]) -> Ran:
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", lease_duration=timedelta(seconds=1), **NAMES)
            LockedWork(task_id="work", act=act, lease=lock.output)
        return run(works, logical_date=DAY)

    def test_it_neither_acquires_nor_releases(self, manager: LockManager, run: Run) -> None:
        during: list[str] = []
        ran = self.run_under(run, lambda _: during.extend(holders(manager)))
        assert ran.state == "success"
        assert during == holders(manager) == [f"here/works/{ran.run_id}/lock/-1"]

    def test_it_renews(self, manager: LockManager, run: Run, before: Callable[..., None]) -> None:
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
        self, manager: LockManager, run: Run, before: Callable[..., None]
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

    def test_it_adopts_the_lease_as_it_stands_now(self, manager: LockManager, run: Run) -> None:
        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)

            @task
            def take_over(lease: Any) -> None:
                manager.acquire(owner=lease["owner"], writes=[OBJECT], attempt=2)

            work = LockedWork(task_id="work", lease=lock.output)
            take_over(lock.output) >> work >> HiveUnlockOperator(task_id="unlock", lease=lock.output)
        assert run(works, logical_date=DAY).state == "success"
        assert not manager.show()

    def test_work_under_a_lease_that_is_gone_does_not_start(self, manager: LockManager, run: Run) -> None:
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
        assert "has ended. Clear the lock task too" in said[0]


def test_a_wrapped_operator_keeps_its_own_template_fields() -> None:
    class Locked(HiveLockMixin, BashOperator):
        pass

    class More(Locked):
        pass

    ours = {"lease", "reads", "writes", "lock_sql", "lock_database"}
    assert set(Locked.template_fields) == ours | {*BashOperator.template_fields}
    assert More.template_fields == Locked.template_fields
    assert set(HiveLockedSparkSubmitOperator.template_fields) == ours | {*SparkSubmitOperator.template_fields}


def test_default_args_and_mapping_reach_the_locks(manager: LockManager, run: Run) -> None:
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


def test_the_task_that_made_the_lock_may_be_written_with_taskflow(manager: LockManager, run: Run) -> None:
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
