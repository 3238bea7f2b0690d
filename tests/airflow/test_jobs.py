"""Work that a cluster does: its lock outlives its task, whatever becomes of that."""

from __future__ import annotations

import importlib.util
import json
import threading
from dataclasses import asdict, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, task

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator, release_locks
from airflow_hivelock.locks.errors import CannotTell, StoreUnavailable
from airflow_hivelock.work import applications, lease_holder
from airflow_hivelock.work.jobs import resumable, table, trust
from airflow_hivelock.work.jobs.resumable import Asking, ResumableJob
from airflow_hivelock.work.processes import Processes
from tests.airflow import batches
from tests.airflow.batches import CLUSTER, PATH, BatchOperator, LockedBatch, LockedTells, batch
from tests.airflow.tasks import DAY, NAMES, LockedWork, dag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Ran, Run


def test_the_work_of_an_operator_that_nobody_knows_is_not_over_with_its_process(manager: LockManager, run: Run) -> None:
    """As when the worker is killed: a process that checks the lease never counts the task's own process."""
    said: list[str] = []

    def killed() -> None:
        with pytest.raises(CannotTell) as caught:
            applications.running(manager.leases()[0].works)
        said.append(str(caught.value))

    with dag() as works:
        LockedWork(task_id="job", act=lambda _: killed(), **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "success"}
    assert "work_ends_with_process" in said[0]
    assert not manager.show(), "it says itself that it is over"


@pytest.fixture(params=["listed", "unlisted"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whether the table contains the operator with its attribute; or it is known only by its ``submit_job``."""
    CLUSTER.clear()
    if request.param == "listed":
        row = Asking("batch_id", "batches", ("batch_conn_id",))
        monkeypatch.setitem(resumable.ASKING, PATH, row)
        monkeypatch.setattr(ResumableJob, "operators", {PATH: "batch_id"})
    table.kind_of.cache_clear()
    yield request.param
    table.kind_of.cache_clear()


def recorded(manager: LockManager) -> Any:
    (lease,) = manager.leases()
    return applications.of(lease.works[0])


def said_if_killed_now(manager: LockManager) -> str:
    """What other processes would find out about the lease: the process of the asker does not count."""
    try:
        return str(applications.running(manager.leases()[0].works))
    except CannotTell as error:
        return f"cannot tell: {error}"


@pytest.mark.parametrize("deferrable", [False, True], ids=["waits", "defers"])
def test_its_job_counts_from_the_moment_of_its_submission(
    deferrable: bool, known: str, manager: LockManager, run: Run
) -> None:
    said: dict[str, str] = {}
    with dag() as works:
        batch(lambda moment: said.update({moment: said_if_killed_now(manager)}), deferrable=deferrable, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert not manager.show()
    assert "cannot tell" in said["submits"]
    assert "cannot tell" in said["submitted"]
    if known == "listed":
        assert said["knows"] == "['job 1 of BatchOperator of job']"
    if deferrable:
        assert said["defers"] == "['job 1 of BatchOperator of job']"
        assert said["resumed"] == "[]", "it has ended, by its cluster's word"
    else:
        assert said["polls"] == "['job 1 of BatchOperator of job']"


def test_a_task_that_does_not_wait_leaves_its_locks_to_its_job(known: str, manager: LockManager, run: Run) -> None:
    with dag() as works:
        LockedBatch(task_id="job", wait=False, on_success_callback=release_locks, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert manager.show(), "its job writes"
    assert recorded(manager).running()
    CLUSTER[1] = "FAILED"
    assert applications.running(manager.leases()[0].works) == []
    manager.force_release(manager.leases()[0].id, reason="test", user="test")


@pytest.mark.parametrize("status", ["RUNNING", "FAILED"])
def test_the_locks_of_a_task_that_fails_go_with_its_job(
    status: str, known: str, manager: LockManager, run: Run
) -> None:
    def fail(moment: str) -> None:
        if moment == "polls":
            CLUSTER[1] = status
            raise RuntimeError("lost contact")

    with dag() as works:
        batch(fail, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert bool(manager.show()) == (status == "RUNNING")


@pytest.mark.parametrize("cancels", [True, False])
def test_a_kill_frees_the_locks_once_the_cluster_has_ended_the_job(
    cancels: bool, known: str, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "STOP_S", 0.0)
    held: list[bool] = []
    with dag() as works:
        batch(lambda moment: act() if moment == "polls" else None, **NAMES)

    def cancel(self: Any) -> None:
        CLUSTER[1] = "KILLED" if cancels else "RUNNING"

    monkeypatch.setattr(BatchOperator, "on_kill", cancel)

    def act() -> None:
        running[-1].on_kill()
        held.append(bool(manager.show()))
        raise RuntimeError("killed")

    running: list[Any] = []
    monkeypatch.setattr(LockedBatch, "use_lease", lambda self, *_: running.append(self))
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert held == [not cancels]


@pytest.mark.parametrize("moment", ["submits", "submitted"])
def test_killed_before_it_knows_its_job_it_keeps_its_locks(
    moment: str, known: str, manager: LockManager, run: Run
) -> None:
    def kill(now: str) -> None:
        if now == moment:
            raise AirflowTaskTimeout("its time is up")

    with dag() as works:
        batch(kill, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert manager.show()


@pytest.mark.parametrize(
    ("error", "stays"),
    [(TimeoutError("read timed out"), True), (ConnectionRefusedError("down"), False), (ValueError("bad file"), False)],
)
def test_a_submission_whose_answer_is_lost_may_have_been_made(
    error: Exception, stays: bool, known: str, manager: LockManager, run: Run
) -> None:
    def fail(now: str) -> None:
        if now == "submitted":
            raise RuntimeError("no batch") from error

    with dag() as works:
        batch(fail, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert bool(manager.show()) == stays


class TestLaterTry:
    """A task after its earlier try was killed."""

    def again(self, manager: LockManager, run: Run, earlier: Any, **options: Any) -> Ran:
        @task
        def crash(given: Any) -> None:
            lease = manager.find(given["id"])
            assert lease
            manager.start_work(lease, "job", applications.encode(earlier))

        with dag() as works:
            lock = HiveLockOperator(task_id="lock", **NAMES)
            job = LockedBatch(task_id="job", lease=lock.output, **options)
            crash(lock.output) >> job >> HiveUnlockOperator(task_id="unlock", work_timeout=timedelta(0))
        return run(works, logical_date=DAY)

    @pytest.fixture
    def earlier(self, known: str) -> ResumableJob:
        CLUSTER[1] = "RUNNING"
        return ResumableJob(PATH, 1, {"batch_conn_id": "batch_default"}, "batch_id")

    def test_goes_on_with_its_job(self, earlier: Any, manager: LockManager, run: Run) -> None:
        assert self.again(manager, run, earlier).state == "success"
        assert CLUSTER == {1: "SUCCESS"}, "two writers"

    @pytest.mark.parametrize("options", [{"durable": False}, {"deferrable": True}, {"wait": False}])
    def test_that_submits_anew_ends_it_first(
        self, options: Any, earlier: Any, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone: list[dict[int, str]] = []
        monkeypatch.setattr(
            BatchOperator, "at", lambda _, moment: alone.append(dict(CLUSTER)) if moment == "submits" else None
        )
        self.again(manager, run, earlier, **options)
        assert alone in ([{}], []), "two writers"

    def test_whose_submission_nobody_knows_of_does_not_start(self, known: str, manager: LockManager, run: Run) -> None:
        assert self.again(manager, run, Processes(pid=0, submits=True)).tasks["job"] == "failed"
        assert not CLUSTER
        assert manager.show()

    def test_does_not_start_where_the_cluster_does_not_answer(
        self, earlier: Any, known: str, manager: LockManager, run: Run
    ) -> None:
        away = replace(earlier, arguments={"batch_conn_id": "away"})
        assert self.again(manager, run, away).tasks["job"] == "failed"
        assert CLUSTER == {1: "RUNNING"}
        assert manager.show()


def test_a_job_is_recorded_once_the_lock_store_answers_again(
    known: str, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "RETRY_S", 0.01)
    original, outage, written = manager.record_work, iter(range(2)), threading.Event()

    def record_work(lease: Any, name: str, application: str | None) -> Any:
        if next(outage, None) is not None:
            raise StoreUnavailable("zk1 is down")
        made = original(lease, name, application)
        written.set()
        return made

    monkeypatch.setattr(manager, "record_work", record_work)
    seen: list[Any] = []

    def look(moment: str) -> None:
        if moment == "polls":
            assert written.wait(30)
            seen.append(recorded(manager).job_id)

    with dag() as works:
        batch(look, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert seen == [1]


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch) -> None:
    """This module is one of operators of an installed provider, and no task of its has run in this process."""
    monkeypatch.setattr(trust, "_providers", lambda: {batches.__name__: frozenset({"batch"})})
    monkeypatch.setattr(resumable, "_own_classes", {})
    monkeypatch.setattr(trust, "_own", set())


class TestRecord:
    JOB = ResumableJob(PATH, 7, {"batch_conn_id": "batch_default"}, "batch_id")

    def test_another_process_reads_it(self) -> None:
        assert applications.decode(applications.encode(self.JOB)) == self.JOB

    @pytest.mark.parametrize(
        "damage",
        [
            {"operator": "os"},
            {"operator": "os.path; x"},
            {"operator": f"os.{'x' * 300}"},
            {"job_id": -1},
            {"job_id": "../1"},
            {"job_id": None},
            {"arguments": {"file": ["a"]}},
            {"arguments": None},
            {"attribute": "a.b"},
        ],
    )
    def test_what_is_none_is_refused(self, damage: Any) -> None:
        with pytest.raises(CannotTell):
            applications.decode(json.dumps({"kind": "resumable", **asdict(self.JOB), **damage}))

    @pytest.mark.parametrize("name", ["Waits", "CLUSTER", "batch", "nothing"])
    def test_nothing_but_resumable_operators_is_made(self, name: str, provided: None) -> None:
        with pytest.raises(CannotTell, match="not a ResumableJobMixin"):
            replace(self.JOB, operator=f"{batches.__name__}.{name}").running()

    def test_nothing_of_another_module_is_made(self, provided: None) -> None:
        with pytest.raises(CannotTell, match=r"not imported, because only a record names it"):
            replace(self.JOB, operator="subprocess.Popen", arguments={}).running()

    def test_a_job_that_its_cluster_does_not_know_is_not_over(self, provided: None) -> None:
        CLUSTER.clear()
        with pytest.raises(CannotTell, match="does not know"):
            self.JOB.running()
        assert self.JOB.ends(0, cancelled=True), "the cluster was told to end it, and has forgotten it"

    @pytest.mark.parametrize("status", ["NOT_FOUND:", "NotFound", "Missing", "UNKNOWN"])
    def test_a_job_that_its_cluster_does_not_know_is_not_taken_for_ended(self, status: str, provided: None) -> None:
        CLUSTER[7] = status
        with pytest.raises(CannotTell, match="does not know"):
            self.JOB.running()

    @pytest.mark.parametrize("status", ["Canceling", "STOPPING", "TERMINATING:"])
    def test_a_job_that_is_ending_has_not_ended(self, status: str, provided: None) -> None:
        """Its operator counts only RUNNING as active."""
        CLUSTER[7] = status
        assert self.JOB.running()

    def test_a_status_can_be_a_member_of_an_enum(self, provided: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in the provider of Airbyte. The text of such a member has the name of its class."""

        class Status(str, Enum):  # noqa: UP042 - the text of a StrEnum is its value
            INCOMPLETE, MISSING, FAILED = "incomplete", "missing", "failed"

        monkeypatch.setattr(BatchOperator, "is_job_active", lambda _, found: found in (Status.INCOMPLETE,))
        CLUSTER[7] = Status.INCOMPLETE
        assert self.JOB.running()
        CLUSTER[7] = Status.FAILED
        assert not self.JOB.running()
        CLUSTER[7] = Status.MISSING
        with pytest.raises(CannotTell, match="does not know"):
            self.JOB.running()

    def test_a_missing_provider_is_named(self) -> None:
        livy = "airflow.providers.apache.livy.operators.livy.LivyOperator"
        if importlib.util.find_spec("airflow.providers.apache.livy"):
            pytest.skip("installed")
        with pytest.raises(CannotTell, match="install apache-airflow-providers-apache-livy"):
            ResumableJob(livy, 7, {"livy_conn_id": "livy_default"}).running()

    def test_secrets_stay_where_they_are(self, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        CLUSTER.clear()
        texts: list[str] = []

        def look(moment: str) -> None:
            if moment == "polls":
                texts.extend(str(work.application) for work in manager.leases()[0].works)
                with monkeypatch.context() as elsewhere:
                    elsewhere.setattr(resumable, "_last", [])
                    with pytest.raises(CannotTell, match="'password' is not recorded"):
                        recorded(manager).running()

        with dag() as works:
            LockedTells(task_id="job", password="tiger", **NAMES).at = look
        assert run(works, logical_date=DAY).tasks == {"job": "success"}
        assert len(texts) == 1
        assert "tiger" not in texts[0]
        assert not manager.show(), "its own task knows the password, and has seen the end"


def test_a_batch_that_its_cluster_has_forgotten_since_it_ended_keeps_no_locks(
    known: str, manager: LockManager, run: Run
) -> None:
    with dag() as works:
        batch(lambda moment: CLUSTER.clear() if moment == "resumed" else None, deferrable=True, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert not manager.show()


def test_a_class_says_itself_that_its_work_ends_with_its_process(manager: LockManager, run: Run) -> None:
    class LockedLocal(LockedWork):
        work_ends_with_process = True

    said: list[str] = []
    with dag() as works:
        LockedLocal(task_id="job", act=lambda _: said.append(said_if_killed_now(manager)), **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert said == ["[]"]
