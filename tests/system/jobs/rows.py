"""Events of a task whose work runs in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.work import applications
from airflow_hivelock.work.jobs.job import Job
from tests.system.deaths.play import running
from tests.system.deaths.row import FORCE, KEEPER, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.clusters import Cluster
    from tests.system.deaths.play import Play, Run

    Act = Callable[[Play, str], None]

CLUSTERS = {
    "livy": "Livy batch",
    "databricks": "Databricks run",
    "emr": "EMR step",
    "glue": "Glue job run",
    "dataproc": "Dataproc job",
    "kubernetes": "Kubernetes pod",
}
NO_ON_KILL = {"emr"}
"""Whose operators let their jobs go on."""

ACTS: list[tuple[str, tuple[str, ...], Act]] = []


def rows() -> Iterator[Row]:
    """Each event, of each cluster."""
    for event, by, act in ACTS:
        for kind, job in CLUSTERS.items():
            yield Row(f"{job}: {event}", by, _of(act, kind), f"{kind}_{act.__name__}")


def _of(act: Act, kind: str) -> Callable[[Play], None]:
    return lambda play: act(play, kind)


def _act(event: str, *by: str) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        ACTS.append((event, by, act))
        return act

    return add


@_act("task process killed; the job still writes", KEEPER)
def killed(play: Play, kind: str) -> None:
    run = _at_work(play, kind)
    run.kill()
    play.is_kept(run)


@_act("task process killed, with a retry: never two writers", "task")
def killed_again(play: Play, kind: str) -> None:
    run = _at_work(play, f"{kind}_again")
    run.kill()
    run.until(lambda: _attempt(play, run) == 2, "its next try to hold")
    # It has taken up the job, or has ended that and begun another.
    play.until(lambda: running(play.lives()[-1].pid) and run.state() == "running", "one that writes")
    play.until(lambda: sum(running(life.pid) for life in play.lives()) == 1, "one writer")


@_act("marked failed: the operator ends the job, if it can", "task", KEEPER)
def marked_failed(play: Play, kind: str) -> None:
    run = _at_work(play, kind)
    run.mark("failed")
    if kind in NO_ON_KILL:
        play.is_kept(run)
    else:
        play.await_end_of_work()


@_act("task process killed, and the cluster does not answer for a while", KEEPER)
def killed_silent(play: Play, kind: str) -> None:
    run = _at_work(play, kind)
    silent = _cluster(play, kind).silent
    silent.add(run.run_id)
    run.kill()
    play.is_kept(run)
    run.open()
    play.await_end_of_work()
    play.force_release()
    assert play.owners() == [run.owner()], "freed, and nobody knew"
    silent.discard(run.run_id)


@_act("task process killed between submission and id: a user frees the lease", FORCE)
def killed_unknown(play: Play, kind: str) -> None:
    held = _cluster(play, kind).held
    held.add(f"{play.name}-0")
    try:
        run = play.start(kind)
        play.writing()
        run.kill()
        play.is_kept(run)
        _goes_by_name(play, run)
    finally:
        held.discard(f"{play.name}-0")


# Airflow fails a task if its trigger fires before the executor has reported the deferral to the scheduler.
@_act("deferred: the job ends well", "task", KEEPER)
def deferred_success(play: Play, kind: str) -> None:
    _deferred(play, kind)


@_act("deferred: marked failed", KEEPER)
def deferred_marked_failed(play: Play, kind: str) -> None:
    run = _deferred(play, kind)
    run.mark("failed")
    run.await_end()


@_act("deferred: cleared; never two writers", "task")
def deferred_cleared(play: Play, kind: str) -> None:
    run = _deferred(play, kind)
    run.clear("job")
    run.until(lambda: _attempt(play, run) == 2, "its next try to hold")
    play.until(lambda: running(play.lives()[-1].pid), "one that writes")
    run.await_deferred()


@_act("deferred: its run marked failed and deleted", KEEPER)
def deferred_run_deleted(play: Play, kind: str) -> None:
    run = _deferred(play, kind)
    run.delete()


@_act("deferred: its trigger fails, because the cluster refuses to answer for a while", KEEPER)
def deferred_trigger_failed(play: Play, kind: str) -> None:
    run = _deferred(play, kind)
    refused = _cluster(play, kind).refused
    refused.add(run.run_id)
    play.is_kept(run)
    refused.discard(run.run_id)


def _cluster(play: Play, kind: str) -> Cluster:
    return play.stage.clusters[kind]


def _at_work(play: Play, dag_id: str) -> Run:
    """A new run with a job that writes, and whose id is known."""
    run = play.at_work(dag_id)
    play.until(lambda: _job(play, run), "its job to be recorded")
    return run


def _job(play: Play, run: Run) -> Job | None:
    lease = play.stage.manager.lease_of(run.owner())
    recorded = [applications.of(work) for work in lease.works if work.application] if lease else []
    return next((each for each in recorded if isinstance(each, Job)), None)


def _attempt(play: Play, run: Run) -> int:
    lease = play.stage.manager.lease_of(run.owner())
    return lease.attempt if lease else 0


def _deferred(play: Play, kind: str) -> Run:
    run = play.at_work(f"{kind}_deferred")
    run.await_deferred()
    return run


def _goes_by_name(play: Play, run: Run) -> None:
    run.open()
    play.await_end_of_work()
    play.force_release()
    assert play.owners() == [run.owner()], "freed, and nobody knew"
    play.start("named").await_end()
