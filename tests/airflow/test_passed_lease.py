"""``lease=``: what an XCom names is used only if this run has acquired it, or if the task names the DAG that has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator, locked
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY
from tests.airflow.tasks import dag as dag_named

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

dag = partial(dag_named, "uses")

VICTIM = "here/payroll/manual/lock/-1"
LockedEmpty = locked(EmptyOperator)

UNLOCKS = "unlocks"
WORKS = "works under it"
USES = pytest.mark.parametrize("kind", [UNLOCKS, WORKS])


def held(manager: LockManager) -> set[str]:
    return {lease.owner for lease in manager.leases()}


class Use:
    """A task that is given a lease, and what comes of it."""

    def __init__(self, kind: str, run: Run) -> None:
        self.errors: list[str] = []
        self._operator: Any = {UNLOCKS: HiveUnlockOperator, WORKS: LockedEmpty}[kind]
        self._run = run

    def task(self, lease: Any, **options: Any) -> Any:
        return self._operator(
            task_id="use",
            lease=lease,
            on_failure_callback=lambda context: self.errors.append(str(context["exception"])),
            **options,
        )

    def state(self, uses: DAG) -> str | None:
        return self._run(uses, logical_date=DAY).tasks["use"]


@pytest.fixture
def use(kind: str, run: Run) -> Use:
    return Use(kind, run)


@USES
@pytest.mark.parametrize("owner", [VICTIM, "here/uses/another_run/lock/-1"])
def test_a_lease_of_another_dag_or_run_is_refused(manager: LockManager, use: Use, owner: str) -> None:
    lease = manager.acquire(owner=owner, writes=["dw.pay"])
    with dag() as uses:
        use.task(lease.to_json())
    assert use.state(uses) == "failed"
    dag_id = owner.split("/")[1]
    assert f"lease {lease.id} belongs to {owner}" in use.errors[0]
    assert f"lease_dag_id={dag_id!r}" in use.errors[0]
    assert held(manager) == {owner}


@USES
def test_an_xcom_that_names_its_own_lock_task_and_another_id_is_refused(manager: LockManager, use: Use) -> None:
    victim = manager.acquire(owner=VICTIM, writes=["dw.pay"])
    with dag() as uses:
        lock = HiveLockOperator(task_id="lock", writes=["dw.a"])

        @task
        def forge(lease: Any) -> Any:
            return {**lease, "id": victim.id}

        use.task(forge(lock.output))
    assert use.state(uses) == "failed"
    assert f"lease {victim.id} belongs to {VICTIM}" in use.errors[0]
    assert VICTIM in held(manager)
    assert manager.find(victim.id) == victim


@USES
@pytest.mark.parametrize("owner", ["elsewhere/uses/manual/lock/-1", "cli:ann:1"])
@pytest.mark.parametrize("named", [None, "uses"])
def test_what_is_of_no_task_of_this_airflow_is_always_refused(
    manager: LockManager, use: Use, owner: str, named: str | None
) -> None:
    lease = manager.acquire(owner=owner, writes=["dw.pay"])
    with dag() as uses:
        use.task(lease.to_json(), lease_dag_id=named)
    assert use.state(uses) == "failed"
    assert f"HiveForceUnlockOperator(leases=['{lease.id}'], stale=False" in use.errors[0]
    assert held(manager) == {owner}


@USES
def test_naming_one_dag_admits_no_other(manager: LockManager, use: Use) -> None:
    lease = manager.acquire(owner=VICTIM, writes=["dw.pay"])
    with dag() as uses:
        use.task(lease.to_json(), lease_dag_id="nightly")
    assert use.state(uses) == "failed"
    assert "lease_dag_id='payroll'" in use.errors[0]
    assert held(manager) == {VICTIM}


@USES
def test_a_template_that_rendered_to_no_text_is_no_lease(manager: LockManager, use: Use) -> None:
    """The unlock task succeeded, and freed nothing."""
    with dag(params={"lease": ""}) as uses:
        use.task("{{ params.lease }}", lease_dag_id="payroll")
    assert use.state(uses) == "failed"
    assert "is not a lease (it is of type str)" in use.errors[0]


@pytest.mark.parametrize("kind", [WORKS])
@pytest.mark.parametrize("name", ["lease", "writes"])
def test_a_task_gets_nothing_from_a_task_that_a_user_marked_as_success(
    manager: LockManager, use: Use, name: str
) -> None:
    """The message was: name at least one object in reads or writes."""
    with dag() as uses:

        @task
        def marked() -> None:
            """Leave no XCom."""

        use.task(**{"lease": None, name: marked()})
    assert use.state(uses) == "failed"
    assert "has no lease and nothing to lock" in use.errors[0]
    assert "Clear that task" in use.errors[0]
    assert "If a template of this task rendered to nothing, correct it" in use.errors[0]


@pytest.mark.parametrize("task_id", ["own", "python/-1/0a1b2c3d"])
def test_an_xcom_does_not_free_the_lease_of_work_that_runs(manager: LockManager, run: Run, task_id: str) -> None:
    """For a task under locks, and for one with ``hold()``."""
    use = Use(UNLOCKS, run)
    with dag() as uses:

        @task
        def forge(run_id: str | None = None) -> Any:
            owner = f"here/uses/{run_id}/{task_id}" if "/" in task_id else f"here/uses/{run_id}/{task_id}/-1"
            return manager.acquire(owner=owner, writes=["dw.c"]).to_json()

        use.task(forge()) >> LockedEmpty(task_id="own", writes=["dw.d"])
    assert use.state(uses) == "failed"
    assert "own lease of" in use.errors[0]
    assert held(manager)


def test_a_dag_frees_another_ones_lease_that_it_names_and_the_audit_trail_shows_it(
    manager: LockManager, run: Run
) -> None:
    lease = manager.acquire(owner=VICTIM, writes=["dw.pay"])
    with dag() as uses:
        HiveUnlockOperator(task_id="unlock", lease=lease.to_json(), lease_dag_id="payroll")
    ran = run(uses, logical_date=DAY)
    assert ran.state == "success"
    assert not manager.leases()
    (entry,) = manager.audit()
    assert (entry.lease_id, entry.owner) == (lease.id, VICTIM)
    assert entry.user.endswith(f"here/uses/{ran.run_id}/unlock/-1")
    assert "lease_dag_id='payroll'" in entry.reason


def test_a_run_frees_its_own_lease_without_an_entry(manager: LockManager, run: Run) -> None:
    with dag() as uses:
        lock = HiveLockOperator(task_id="lock", writes=["dw.a"])
        HiveUnlockOperator(task_id="unlock", lease=lock.output, lease_dag_id="uses")
    assert run(uses, logical_date=DAY).state == "success"
    assert not manager.leases()
    assert not manager.audit()


def test_work_under_another_dags_lease_does_not_pass_for_that_dags_task(manager: LockManager, run: Run) -> None:
    """They have the same task id, and what an earlier try has left is ended."""
    theirs = manager.acquire(owner=VICTIM, writes=["dw.pay"])
    theirs = manager.start_work(theirs, "load", "something that runs")
    during: list[list[str]] = []
    with dag() as uses:
        work: Any = LockedEmpty(task_id="load", lease=theirs.to_json(), lease_dag_id="payroll")
        work.use_lease = lambda lease, _: during.append([each.name for each in lease.works])
    ran = run(uses, logical_date=DAY)
    assert ran.state == "success"
    assert during == [["load", f"uses/{ran.run_id}/load"]]
    stands = manager.find(theirs.id)
    assert stands
    assert [each.name for each in stands.works] == ["load"]


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        (HiveUnlockOperator, {"lease_dag_id": "payroll"}),
        (HiveUnlockOperator, {"lease": {"id": "1"}, "lease_dag_id": "payroll", "objects": ["dw.a"]}),
        (LockedEmpty, {"writes": ["dw.a"], "lease_dag_id": "payroll"}),
        (LockedEmpty, {"lease": {"id": "1"}, "lease_dag_id": "{{ dag_run.conf['dag'] }}"}),
        (HiveUnlockOperator, {"lease": {"id": "1"}, "lease_dag_id": 7}),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_dag_is_parsed(operator: Any, options: dict[str, Any]) -> None:
    with dag(), pytest.raises(InvalidRequest, match=r"use: .*lease_dag_id"):
        operator(task_id="use", **options)


def test_the_leases_of_a_mapped_lock_are_for_a_mapped_task(manager: LockManager, run: Run) -> None:
    days: Any = [["dw.t/dt=1"], ["dw.t/dt=2"]]
    with dag():
        mapped = HiveLockOperator.partial(task_id="lock").expand(writes=days)
        with pytest.raises(
            InvalidRequest, match=r"work: lock is mapped.*a list of leases.*expand\(lease=lock\.output\)"
        ):
            LockedEmpty(task_id="work", lease=mapped.output)
    with dag() as uses:
        lock: Any = HiveLockOperator.partial(task_id="lock").expand(writes=days)
        work = LockedEmpty.partial(task_id="work").expand(lease=lock.output)
        work >> HiveUnlockOperator(task_id="unlock", lease=lock.output).as_teardown(setups=lock)
    assert run(uses, logical_date=DAY).state == "success"
    assert not held(manager)
