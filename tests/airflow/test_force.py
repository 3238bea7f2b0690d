"""The force release: it frees leases without a living owner, and keeps all others, each with a reason."""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DagRunStateResult, ErrorResponse, GetDagRunState, TaskStatesResult

from airflow_hivelock import HiveForceUnlockOperator, HiveLockOperator
from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.operators import force_unlock
from airflow_hivelock.spark.driver_work import work_name
from airflow_hivelock.work import hosts
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes
from airflow_hivelock.work.stale import judge, judge_driver
from tests.airflow.tasks import DAY, orphan
from tests.support.airflow_names import DagBag

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import Lease, LockManager
    from airflow_hivelock.work.stale import Verdict
    from tests.airflow.conftest import Lines, Run

NOW = timedelta(0)


class Line:
    """What Airflow says of run ``forced`` of DAG ``dag``: its state, None for unknown, or an error; and of its tasks."""

    def __init__(self, run: str | Exception | None, **tasks: str | None) -> None:
        self.run = run
        self.tasks = tasks

    def send(self, message: Any) -> Any:
        if not isinstance(message, GetDagRunState):
            return TaskStatesResult(task_states={"forced": self.tasks})
        if isinstance(self.run, Exception):
            raise self.run
        if self.run is None:
            raise api_error(404)
        return DagRunStateResult(state=self.run)  # type: ignore[arg-type]


def api_error(status: int) -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))


class Context(dict[str, Any]):
    """As much of a task's context as the operator looks at."""

    def __init__(self) -> None:
        ti = type("TI", (), {"dag_id": "force", "run_id": "today", "task_id": "force", "map_index": -1})
        super().__init__(ti=ti())


@pytest.fixture
def airflow_says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def say(run: str | Exception | None, **tasks: str | None) -> None:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Line(run, **tasks), raising=False)

    return say


def acquire(manager: LockManager, owner: str = "here/dag/forced/lock/-1", table: str = "dw.delays") -> Lease:
    return manager.acquire(owner=owner, writes=[table])


def force(**options: Any) -> dict[str, list[dict[str, str]]]:
    operator = HiveForceUnlockOperator(**{"task_id": "force", "min_age": NOW, **options})
    return HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("run", "tasks", "reason"),
    [
        ("failed", {"lock": "success", "job": "failed", "report": None}, "run forced of dag is failed"),
        ("success", {"lock": "success"}, "run forced of dag is success"),
        (None, {}, "run forced of dag is unknown to Airflow"),
    ],
)
def test_a_lease_whose_run_is_over_goes(
    run: str | None, tasks: dict[str, Any], reason: str, manager: LockManager, airflow_says: Callable[..., None]
) -> None:
    lease = acquire(manager)
    airflow_says(run, **tasks)
    report = force()
    assert not manager.show()
    (freed,) = report["freed"]
    assert (freed["lease"], freed["owner"]) == (lease.id, lease.owner)
    assert reason in freed["reason"]
    (audit,) = manager.audit()
    assert audit.user == "here/force/today/force/-1"
    assert reason in audit.reason


def test_what_was_released_before_it_could_be_freed_was_not_freed(
    manager: LockManager, airflow_says: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(manager)

    def judge_late(*given: Any) -> Verdict:
        verdict = judge(*given)
        manager.release(lease)
        return verdict

    monkeypatch.setattr(force_unlock, "judge", judge_late)
    airflow_says("failed", lock="success")
    report = force()
    assert report["freed"] == []
    assert [left["reason"] for left in report["left"]] == ["it was released or taken over in the meantime"]
    assert not manager.audit()


def test_the_audit_trail_has_who_triggered_the_run(manager: LockManager) -> None:
    lease = acquire(manager)
    context = Context()
    context["dag_run"] = type("DagRun", (), {"triggering_user_name": "ann"})()
    operator = HiveForceUnlockOperator(task_id="force", leases=[lease.id], stale=False)
    HiveForceUnlockOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]
    assert [entry.user for entry in manager.audit()] == ["ann by here/force/today/force/-1"]


@pytest.mark.parametrize(
    ("run", "tasks", "reason"),
    [
        ("running", {"lock": "success"}, "is running"),
        ("queued", {}, "is queued"),
        ("failed", {"lock": "success", "job": "running"}, "not over: job"),
        ("failed", {"lock": "success", "job": "deferred"}, "not over: job"),
        (api_error(500), {}, "did not report"),
        (api_error(403), {}, "did not report"),
        (ConnectionError("no line"), {}, "did not report"),
    ],
)
def test_a_lease_whose_run_is_not_over_or_of_which_airflow_cannot_tell_stays(
    run: Any, tasks: dict[str, Any], reason: str, manager: LockManager, airflow_says: Callable[..., None]
) -> None:
    acquire(manager)
    airflow_says(run, **tasks)
    report = force()
    assert manager.show()
    assert not report["freed"]
    assert reason in report["left"][0]["reason"]


def test_a_lease_stays_while_something_runs_that_its_run_has_started(
    manager: LockManager, airflow_says: Callable[..., None]
) -> None:
    """A plain operator records nothing; what it has started has Airflow's marks."""
    acquire(manager)
    airflow_says("failed", lock="success", job="failed")
    with orphan("forced", "job"):
        assert "of job on this host" in force()["left"][0]["reason"]
        assert manager.show()


@pytest.mark.parametrize("owner", ["there/dag/forced/lock/-1", "cli:ann:1234", "flights/2013-01-01"])
def test_somebody_elses_lease_stays(owner: str, manager: LockManager, airflow_says: Callable[..., None]) -> None:
    acquire(manager, owner)
    airflow_says(None)
    assert "not a task of installation here" in force()["left"][0]["reason"]
    assert manager.show()


def test_a_young_lease_stays_and_so_does_one_renewed_just_now(
    manager: LockManager, airflow_says: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(manager)
    airflow_says("failed")
    assert not force(min_age=timedelta(minutes=5))["freed"]
    later = manager.now() + timedelta(minutes=6)
    monkeypatch.setattr(manager.backend, "now", lambda: later)
    manager.renew(lease)
    assert not force(min_age=timedelta(minutes=5))["freed"]
    monkeypatch.setattr(manager.backend, "now", lambda: later + timedelta(minutes=6))
    assert force(min_age=timedelta(minutes=5))["freed"]


def test_a_dry_run_only_says_so(manager: LockManager, airflow_says: Callable[..., None]) -> None:
    acquire(manager)
    airflow_says("failed")
    assert force(dry_run=True)["freed"]
    assert manager.show()
    assert not manager.audit()


def test_what_a_person_names_goes_whoevers_it_is(manager: LockManager) -> None:
    named = acquire(manager, "cli:ann:1234", "dw.a")
    acquire(manager, "there/dag/forced/lock/-1", "dw.b")
    acquire(manager, "here/dag/forced/lock/-1", "dw.c")
    assert force(leases=[named.id, "no-such-lease"], stale=False, reason="ann left")["freed"][0]["reason"] == "ann left"
    force(objects=["dw.b"], stale=False, reason="a mistake")
    assert {str(holder.object) for holder in manager.show()} == {"dw", "dw.c"}
    assert [entry.reason for entry in manager.audit()] == ["ann left", "a mistake"]


def test_a_long_reason_keeps_no_lease(manager: LockManager, airflow_says: Callable[..., None]) -> None:
    """The audit trail refused the reason and the verdict together, so a dry run succeeded and the task failed."""
    named, stale = acquire(manager, "cli:ann:1234", "dw.a"), acquire(manager)
    airflow_says("failed")
    reason = "because " * 249
    assert force(leases=[named.id], stale=False, reason=reason)["freed"]
    assert [freed["lease"] for freed in force(reason=reason)["freed"]] == [stale.id]
    assert not manager.leases()


def test_a_driver_with_many_works_does_not_keep_its_lease(manager: LockManager) -> None:
    """The verdict names each work with its declaration, and was longer than the audit trail allows."""
    lease = acquire(manager, "spark:ann")
    for name in (work_name("here"), *map(str, range(9))):
        lease = manager.start_work(lease, name, encode(Processes(host="worker-7")))
    hosts.declare_gone(manager, hosts.recorded([lease]), reason="burnt down " * 40, user="ann")
    verdict = judge_driver(manager.leases()[0])
    assert verdict.reason.startswith("its driver has ended")
    assert manager.force_release(lease.id, reason=verdict.reason, user="keeper of here")


def test_a_lease_that_is_not_held_is_named(manager: LockManager, lines: Lines) -> None:
    """A person who mistypes an id does not believe that the lease is free."""
    acquire(manager)
    assert force(leases=["no-such-lease"], stale=False, reason="typo") == {"freed": [], "left": []}
    assert lines() == (
        "warning: no lease no-such-lease is held. SHOW LEASE * lists the leases\ninfo: there is no lease to check"
    )


def test_a_held_lease_on_another_object_is_not_called_free(manager: LockManager, lines: Lines) -> None:
    lease = acquire(manager)
    assert force(leases=[lease.id], objects=["dw.other"], stale=False, reason="typo") == {"freed": [], "left": []}
    assert f"warning: lease {lease.id} is held, but locks nothing in objects, so it is not checked" in lines()
    assert manager.leases()


def test_objects_choose_what_is_judged(manager: LockManager, airflow_says: Callable[..., None]) -> None:
    acquire(manager, "here/dag/forced/a/-1", "dw.a")
    acquire(manager, "here/dag/forced/b/-1", "dw.b/dt=1")
    airflow_says("failed")
    force(objects=["dw.b/dt=1..2"])
    assert {str(holder.object) for holder in manager.show()} == {"dw", "dw.a"}


def test_everybodys_is_never_freed_at_once() -> None:
    with pytest.raises(InvalidRequest, match="Pass leases or objects"):
        HiveForceUnlockOperator(task_id="force", stale=False)


@pytest.mark.parametrize("wrong", [{"dry_run": "False"}, {"min_age": "0:05:00"}])
def test_what_a_template_did_not_turn_into_a_value_is_refused(wrong: dict[str, Any], manager: LockManager) -> None:
    operator = HiveForceUnlockOperator(task_id="force", dry_run="{{ dry }}", min_age="{{ age }}")
    operator.only_report, operator.min_age = {"dry_run": False, "min_age": NOW, **wrong}.values()
    with pytest.raises(InvalidRequest, match="render_template_as_native_obj"):
        HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [{"leases": "12"}, {"objects": "['dw.a']"}, {"leases": {"id": "1"}}, {"leases": [1]}])
def test_a_template_that_became_no_list_of_names_frees_nothing(wrong: dict[str, Any], manager: LockManager) -> None:
    acquire(manager)
    operator = HiveForceUnlockOperator(
        task_id="force", leases="{{ id }}", objects="{{ name }}", min_age=NOW, stale=False
    )
    operator.leases, operator.objects = wrong.get("leases"), wrong.get("objects")
    with pytest.raises(InvalidRequest, match=f"{next(iter(wrong))} is .*, not a list of names. If it is a template"):
        HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined]
    assert manager.leases()


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_id_of_a_lease_is_refused(empty: str, manager: LockManager) -> None:
    """The log had "no lease  is held", with a gap in place of the id."""
    said = f"^force: leases has an empty id, {empty!r}. SHOW LEASE \\* lists the ids"
    with pytest.raises(InvalidRequest, match=said):
        HiveForceUnlockOperator(task_id="force", leases=["12", empty])
    operator = HiveForceUnlockOperator(task_id="force", leases=["{{ id }}"])
    operator.leases = [empty]
    with pytest.raises(InvalidRequest, match=said):
        HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["leases", "objects"])
def test_a_list_that_another_task_has_not_returned_frees_nothing(name: str, manager: LockManager, lines: Lines) -> None:
    """None means all, so it freed the leases of every owner."""
    acquire(manager, "cli:ann:1234")
    given: dict[str, Any] = {name: "{{ names }}"}
    operator = HiveForceUnlockOperator(task_id="force", stale=False, **given)
    setattr(operator, name, None)
    with pytest.raises(InvalidRequest, match=f"^force: {name} is None in this run, so nothing is released"):
        HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined]
    setattr(operator, name, [])
    report = HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined]
    assert report == {"freed": [], "left": []}
    assert lines() == f"info: Nothing to release: {name} is empty in this run"
    assert manager.leases()


def test_the_reason_can_come_from_another_task(manager: LockManager, run: Run) -> None:
    """The DAG could not be imported: 'PlainXComArg' object has no attribute 'strip'."""
    lease = acquire(manager)
    with DAG("force", schedule=None, start_date=DAY) as forces:

        @task
        def why() -> str:
            return "ticket 42"

        HiveForceUnlockOperator(task_id="force", leases=[lease.id], stale=False, reason=why())  # type: ignore[arg-type]
    assert run(forces, logical_date=DAY).state == "success"
    assert "ticket 42" in manager.audit()[0].reason


@pytest.mark.parametrize("rendered", [None, " "])
def test_a_reason_that_a_template_left_empty_frees_nothing(rendered: str | None, manager: LockManager) -> None:
    lease = acquire(manager)
    operator = HiveForceUnlockOperator(task_id="force", leases=[lease.id], stale=False, reason="{{ why }}")
    operator.reason = rendered  # type: ignore[assignment]
    with pytest.raises(InvalidRequest, match="the reason is empty"):
        HiveForceUnlockOperator.execute.__wrapped__(operator, Context())  # type: ignore[attr-defined]
    assert manager.leases()


def test_in_a_run_it_frees_what_an_earlier_run_left(manager: LockManager, run: Run) -> None:
    with DAG("leaves", schedule=None, start_date=DAY) as leaves:
        HiveLockOperator(task_id="lock", writes=["dw.delays"])
    with DAG(
        "force", schedule=None, start_date=DAY, params={"dry": False}, render_template_as_native_obj=True
    ) as forces:
        HiveForceUnlockOperator(
            task_id="force", dry_run="{{ params.dry }}", min_age="{{ macros.timedelta(minutes=0) }}"
        )
        own = HiveLockOperator(task_id="own", writes=["dw.own"])
        own >> forces.get_task("force")
    assert run(leaves, logical_date=DAY).state == "success"
    assert run(forces, logical_date=DAY).state == "success"
    assert {str(holder.object) for holder in manager.show()} == {"dw", "dw.own"}


@pytest.mark.parametrize(("conf", "left"), [({}, []), ({"dry_run": True}, ["dw", "dw.delays"])])
def test_the_example_frees_what_is_stale_unless_it_is_told_only_to_say_so(
    conf: dict[str, Any], left: list[str], manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DAG("leaves", schedule=None, start_date=DAY) as leaves:
        HiveLockOperator(task_id="lock", writes=["dw.delays"])
    assert run(leaves, logical_date=DAY).state == "success"
    later = manager.now() + timedelta(minutes=6)
    monkeypatch.setattr(manager.backend, "now", lambda: later)
    examples = Path(__file__).parents[2] / "dags_examples"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bag = DagBag(examples / "force_release_stale_locks.py", bundle_path=examples, bundle_name="dags-folder")
    frees = bag.dags["force_release_stale_locks"]
    assert frees.is_paused_upon_creation is False, "Airflow starts no keeper for a paused DAG"
    assert run(frees, run_conf=conf).state == "success"
    assert [str(holder.object) for holder in manager.show()] == left
