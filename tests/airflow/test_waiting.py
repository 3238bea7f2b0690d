"""The four ways to wait: one function behind them, and one test before them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import jinja2
import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from airflow_hivelock import HiveLockHook, HiveLockMixin, HiveLockOperator, HiveLockSensor
from airflow_hivelock.compat import AirflowRescheduleException, TaskDeferralError, TaskDeferralTimeout
from airflow_hivelock.locks import Lease
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.operators import acquiring
from airflow_hivelock.operators.arguments import Waiting
from airflow_hivelock.spec import LockSpec, Owner
from airflow_hivelock.waiting import Wait
from airflow_hivelock.work.applications import running
from tests.airflow.tasks import DAY, OBJECT, context, lock
from tests.airflow.triggerer import starts_in_triggerer
from tests.backends.databases import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines, Run

STYLES = get_args(Waiting)


@pytest.fixture(autouse=True)
def short_reschedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquiring, "RESCHEDULE", timedelta(milliseconds=200))


def locking(waiting: str, seen: list[Any], **options: Any) -> DAG:
    with DAG(f"waits_{waiting}", schedule=None, start_date=DAY) as dag:
        lock = HiveLockOperator(
            **{"task_id": "lock", "writes": ["dw.delays/dt={{ ds }}"], "waiting": waiting, **options}
        )

        @task
        def job(lease: Any) -> None:
            seen.append(lease)

        job(lock.output)
    return dag


def when_it_waits(manager: LockManager, lines: Lines, act: Callable[[], object]) -> threading.Thread:
    """Act after the run has logged its blocker."""

    def watch() -> None:
        wait_until(lambda: "In the way: somebody" in lines())
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.parametrize("waiting", STYLES)
def test_a_task_waits_gets_its_lease_and_returns_it(waiting: str, manager: LockManager, run: Run, lines: Lines) -> None:
    seen: list[Any] = []
    held = manager.acquire(owner="somebody", writes=[OBJECT])
    releasing = when_it_waits(manager, lines, lambda: manager.release(held))
    ran = run(locking(waiting, seen), logical_date=DAY)
    releasing.join()
    assert ran.tasks == {"lock": "success", "job": "success"}
    (lease,) = seen
    assert Lease.from_json(lease) == manager.lease_of(f"here/waits_{waiting}/{ran.run_id}/lock/-1")
    assert lease["attempt"] == 1
    assert f"somebody (lease {held.id}) holds {OBJECT} EXCLUSIVE" in lines()


def test_the_worker_s_log_repeats_how_long_the_triggerer_has_waited_and_for_whom(
    manager: LockManager, run: Run, lines: Lines
) -> None:
    """Airflow's triggerer may have overwritten its own log of the wait."""
    with DAG("waits_and_works", schedule=None, start_date=DAY) as dag:
        LockedWork(task_id="work", writes=[OBJECT])
        HiveLockOperator(task_id="lock", writes=["dw.other"], waiting="defer")
    held = {name: manager.acquire(owner=name, writes=[what]) for name, what in (("one", OBJECT), ("two", "dw.other"))}

    def release() -> bool:
        for name in [name for name in held if lines().count(f"In the way: {name} ") == 2]:  # worker, then trigger
            manager.release(held.pop(name))
        return not held

    def watch() -> None:
        wait_until(release)

    releasing = threading.Thread(target=watch)
    releasing.start()
    assert run(dag, logical_date=DAY).tasks == {"work": "success", "lock": "success"}
    releasing.join()
    (work,) = [line for line in lines().splitlines() if "Found free in round 1 of 3, after waiting" in line]
    assert work.endswith(", for one. Taking the locks now")
    (lock,) = [line for line in lines().splitlines() if "The triggerer has acquired lease" in line]
    assert lock.endswith(", for two")


def on_worker(task_id: str, waiting: Waiting = "defer") -> Any:
    """The return value of a task that starts on a worker."""
    return HiveLockOperator(task_id=task_id, writes=[OBJECT], waiting=waiting).execute(context(task_id))


@pytest.mark.parametrize("waiting", ["trigger", "defer"])
def test_what_is_free_is_taken_on_the_worker_where_the_task_begins(waiting: Waiting, manager: LockManager) -> None:
    """Airflow may fail a task that defers and resumes within seconds: it takes the deferral for the end of the resumed."""
    assert Lease.from_json(on_worker("lock", waiting)) == manager.lease_of("here/dag/run/lock/-1")


def test_a_task_that_defers_leaves_no_place_that_nobody_would_give_up(manager: LockManager) -> None:
    """If the task is marked failed before its trigger starts, its request would stay in the queue for a day."""
    manager.acquire(owner="somebody", writes=[OBJECT])
    with pytest.raises(TaskDeferred):
        on_worker("lock")
    assert not manager.waiters()


def test_a_task_between_two_pokes_delays_no_other_task(manager: LockManager) -> None:
    held = manager.acquire(owner="somebody", writes=[OBJECT])
    with pytest.raises(AirflowRescheduleException):
        on_worker("lock", "reschedule")
    assert not manager.waiters()
    manager.release(held)
    assert manager.acquire(owner="next", writes=[OBJECT], timeout_s=0)


@pytest.mark.parametrize("waiting", STYLES)
def test_a_task_that_waits_too_long_fails_and_leaves_the_queue(
    waiting: str, manager: LockManager, run: Run, lines: Lines
) -> None:
    manager.acquire(owner="somebody", writes=[OBJECT])
    ran = run(locking(waiting, [], timeout=timedelta(milliseconds=300)), logical_date=DAY)
    assert ran.tasks["lock"] == "failed"
    assert not manager.waiters()
    assert "somebody" in lines(), "while it waits, or in the error where the first look was too late already"


@pytest.mark.parametrize("waiting", STYLES)
def test_a_task_without_patience_fails_at_once(waiting: str, manager: LockManager, run: Run) -> None:
    manager.acquire(owner="somebody", writes=[OBJECT])
    assert run(locking(waiting, [], timeout=timedelta(0)), logical_date=DAY).tasks["lock"] == "failed"


@pytest.mark.parametrize("waiting", STYLES)
def test_a_name_that_cannot_be_rendered_locks_nothing(waiting: str, manager: LockManager, run: Run) -> None:
    dag = locking(waiting, [], writes=["dw.delays/dt=before_{{ ds }}"])
    dag.template_undefined = jinja2.Undefined  # type: ignore[assignment]  # as a DAG may choose for its other templates
    assert run(dag, logical_date=None).tasks["lock"] == "failed"
    assert not manager.show()


def test_a_place_that_was_lost_between_pokes_does_not_wait_for_ever(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:

    poll = Wait.poll

    def and_lose_the_place(self: Wait) -> Any:
        try:
            return poll(self)
        finally:
            self.give_up()

    monkeypatch.setattr(Wait, "poll", and_lose_the_place)
    manager.acquire(owner="somebody", writes=[OBJECT])
    ran = run(locking("reschedule", [], timeout=timedelta(seconds=1)), logical_date=DAY)
    assert ran.tasks["lock"] == "failed"


def test_a_worker_that_is_killed_while_it_pokes_leaves_the_queue(
    manager: LockManager, run: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[HiveLockOperator] = []
    acquire = HiveLockOperator._acquire

    def noted(self: HiveLockOperator, context: Any, **options: Any) -> Lease | None:
        tasks.append(self)
        return acquire(self, context, **options)

    monkeypatch.setattr(HiveLockOperator, "_acquire", noted)
    manager.acquire(owner="somebody", writes=[OBJECT])
    killing = when_it_waits(manager, lines, lambda: tasks[0].on_kill())
    ran = run(locking("poke", []), logical_date=DAY)
    killing.join()
    assert ran.tasks["lock"] == "failed"
    assert not manager.waiters()


@pytest.mark.parametrize("waiting", ["poke", "defer"])
def test_a_worker_that_is_killed_at_its_grant_holds_no_locks(
    waiting: Any, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, poll = lock(waiting=waiting, writes=[OBJECT]), Wait.poll

    def granted(wait: Wait) -> Any:
        lease = poll(wait)
        job.on_kill()
        return lease

    monkeypatch.setattr(Wait, "poll", granted)
    with pytest.raises(AirflowException, match="was killed while it waited for locks"):
        job.execute(context())
    assert not manager.leases()


def test_an_execution_time_out_while_it_pokes_leaves_the_queue(manager: LockManager, run: Run) -> None:
    manager.acquire(owner="somebody", writes=[OBJECT])
    ran = run(locking("poke", [], execution_timeout=timedelta(seconds=1)), logical_date=DAY)
    assert ran.tasks["lock"] == "failed"
    assert not manager.waiters()


class LockedWork(HiveLockMixin, EmptyOperator):
    pass


@pytest.mark.parametrize("cls", [HiveLockOperator, LockedWork])
@pytest.mark.parametrize("granted", [True, False])
def test_a_task_whose_trigger_failed_or_ran_out_of_time_leaves_nothing(
    cls: Any, granted: bool, manager: LockManager
) -> None:
    """Airflow then cancels the trigger without a word to it, and has a worker fail the task."""
    held = None if granted else manager.acquire(owner="somebody", writes=[OBJECT])
    owner = Owner("here", "dag", "run", "lock")
    manager.begin(LockSpec([], [OBJECT]).request(HiveLockHook(), owner, 1), lambda: None).poll()
    with pytest.raises(TaskDeferralTimeout):
        cls(task_id="lock", writes=[OBJECT]).resume_execution("__fail__", {"error": "Trigger timeout"}, context())
    assert not manager.waiters()
    assert manager.lease_of(str(owner)) is None
    assert held is None or manager.find(held.id)


@pytest.mark.parametrize("why", ["Trigger timeout", "Trigger failure"])
def test_what_a_task_was_deferred_over_keeps_its_locks_when_nobody_watches_it_any_more(
    why: str, manager: LockManager
) -> None:
    request = LockSpec([], [OBJECT]).request(HiveLockHook(), Owner("here", "dag", "run", "lock"), 1)
    lease = manager.begin(request, lambda: None).poll()
    assert isinstance(lease, Lease)
    manager.record_work(manager.start_work(lease, "lock", "what deferred"), "lock", "")
    task = LockedWork(task_id="lock", writes=[OBJECT])
    with pytest.raises((TaskDeferralError, TaskDeferralTimeout)):
        task.resume_execution("__fail__", {"error": why}, context())
    left = manager.find(lease.id)
    assert left, "what it has started in a cluster may write on"
    with pytest.raises(CannotTell, match="was deferred"):
        running(left.works)


class TestWhereItBegins:
    """In the triggerer only where that can render the names; see facts about ``start_from_trigger``."""

    def dag(self, **options: Any) -> DAG:
        return DAG("begins", schedule=None, start_date=DAY, **options)

    @starts_in_triggerer
    def test_in_the_triggerer(self) -> None:
        with self.dag():
            lock = HiveLockOperator(task_id="lock", reads=("dw.flights",), writes=["dw.delays/dt={{ ds }}"])
        assert lock.start_from_trigger
        assert lock.start_trigger_args is not None
        assert (lock.start_trigger_args.trigger_kwargs or {})["reads"] == ["dw.flights"]

    @pytest.mark.parametrize("waiting", ["defer", "reschedule", "poke"])
    def test_on_a_worker_as_told(self, waiting: Waiting) -> None:
        with self.dag():
            lock = HiveLockOperator(task_id="lock", writes=["dw.delays"], waiting=waiting)
        assert not lock.start_from_trigger

    @pytest.mark.parametrize(
        "options", [{"user_defined_macros": {"day": "2013-01-15"}}, {"user_defined_filters": {"day": str}}]
    )
    def test_on_a_worker_where_the_dag_has_macros_of_its_own(self, options: dict[str, Any]) -> None:
        with self.dag(**options):
            assert not HiveLockOperator(task_id="lock", writes=["dw.delays/dt={{ ds }}"]).start_from_trigger

    def test_on_a_worker_where_the_dag_changes_jinja(self, manager: LockManager, run: Run) -> None:
        """The serialized DAG does not have these settings. The triggerer would lock ``dt=[[ ds ]]``."""
        brackets = {"variable_start_string": "[[", "variable_end_string": "]]"}
        with self.dag(jinja_environment_kwargs=brackets) as dag:
            lock = HiveLockOperator(task_id="lock", writes=["dw.delays/dt=[[ ds ]]"])
        assert not lock.start_from_trigger
        assert run(dag, logical_date=DAY).state == "success"
        assert manager.show(OBJECT)

    def test_on_a_worker_where_an_xcom_is_pulled(self) -> None:
        with self.dag():
            pulled = ["dw.delays/dt={{ ti.xcom_pull('up') }}"]
            assert not HiveLockOperator(task_id="lock", writes=pulled).start_from_trigger

    def test_on_a_worker_where_one_template_gives_the_list(self) -> None:
        with self.dag(render_template_as_native_obj=True):
            lock = HiveLockOperator(task_id="lock", writes="{{ params.writes }}")
            assert not lock.start_from_trigger

    def test_with_an_xcom_as_argument(self, manager: LockManager, run: Run) -> None:
        seen: list[Any] = []
        with self.dag() as dag:

            @task
            def days() -> list[str]:
                return ["dw.delays/dt=2013-01-01", "dw.delays/dt=2013-01-02"]

            @task
            def job(lease: Any) -> None:
                seen.append(lease)

            lock = HiveLockOperator(task_id="lock", writes=days())
            assert not lock.start_from_trigger
            job(lock.output)
        assert run(dag, logical_date=DAY).state == "success"
        assert sorted(seen[0]["locks"]) == ["dw", "dw.delays", "dw.delays/dt=2013-01-01", "dw.delays/dt=2013-01-02"]

    def test_of_each_mapped_task_with_its_own_arguments(self, manager: LockManager, run: Run) -> None:
        seen: list[Any] = []
        with self.dag() as dag:
            days = [["dw.delays/dt=2013-01-01"], ["dw.delays/dt=2013-01-02"], ["dw.delays/dt={{ ds }}"]]
            lock = HiveLockOperator.partial(task_id="lock").expand(writes=days)

            @task
            def job(lease: Any) -> None:
                seen.append(lease)

            job.expand(lease=lock.output)
        ran = run(dag, logical_date=DAY)
        assert ran.state == "success"
        seen.sort(key=lambda lease: str(lease["owner"]))
        assert [lease["owner"].rpartition("/")[2] for lease in seen] == ["0", "1", "2"]
        assert [max(lease["locks"]) for lease in seen] == [*(day for (day,) in days[:2]), OBJECT]


@pytest.mark.parametrize("options", [{}, {"deferrable": False}, {"deferrable": False, "mode": "reschedule"}])
def test_the_sensor_waits_until_the_data_is_free(
    options: dict[str, Any], manager: LockManager, run: Run, lines: Lines
) -> None:
    held = manager.acquire(owner="somebody", writes=[OBJECT])
    with DAG("senses", schedule=None, start_date=DAY) as dag:
        HiveLockSensor(task_id="free", reads=["dw.delays/dt={{ ds }}"], poke_interval=0.2, **options)
    releasing = when_it_waits(manager, lines, lambda: manager.release(held))
    assert run(dag, logical_date=DAY).tasks == {"free": "success"}
    releasing.join()
    assert not manager.show()


def test_the_sensor_skips_softly_on_a_worker(manager: LockManager, run: Run) -> None:
    manager.acquire(owner="somebody", writes=[OBJECT])
    with DAG("senses", schedule=None, start_date=DAY) as dag:
        HiveLockSensor(task_id="free", reads=[OBJECT], deferrable=False, poke_interval=0.1, timeout=0.2, soft_fail=True)
    assert run(dag, logical_date=DAY).tasks == {"free": "skipped"}


@pytest.mark.parametrize(
    ("cls", "options", "said"),
    [
        (HiveLockOperator, {}, "asks for no locks"),
        (HiveLockSensor, {}, "asks for no locks"),
        (HiveLockOperator, {"writes": ["dw"], "lease_duration": 60}, "Use a timedelta"),
        (HiveLockMixin, {}, "pass one of lease, lock_sql, or reads and writes"),
        (HiveLockMixin, {"lease": {}, "writes": ["dw"]}, "pass one of lease, lock_sql, or reads and writes"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_dag_is_parsed(cls: type, options: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        cls(task_id="t", **options)
