"""Events that meet jobs between a lock task and what frees it."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from tests.system.deaths.play import running
from tests.system.deaths.row import KEEPER, Row, row
from tests.system.deaths.working import _ends

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS: list[Row] = []
_row = partial(row, ROWS)


def _started(play: Play, dag_id: str = "chained") -> Run:
    return play.at_work(dag_id)


@_row("lock, job, unlock: all ends well (TaskSuccessEvent ends the lock task)", "unlock task")
def chain_success(play: Play) -> None:
    _started(play)


@_row("the job fails", "unlock task")
def chain_failure(play: Play) -> None:
    run = _started(play)
    run.open(1)
    run.reach("failed")


@_row("two jobs, one after the other, under one lease", "unlock task")
def chain_two_jobs(play: Play) -> None:
    run = _started(play, "chain_two")
    run.open(0, "job", 1)
    play.writing(2)


@_row("the job's process killed; its work still writes", "unlock task")
def chain_killed(play: Play) -> None:
    run = _started(play)
    run.kill()
    run.reach("running", "unlock")
    assert play.owners() == [run.owner("lock")]


@_row("the job's process killed, with a retry", "unlock task")
def chain_killed_again(play: Play) -> None:
    run = _started(play, "chain_again")
    run.kill()
    play.writing(2)


@_row("the job marked failed", "unlock task")
def chain_marked_failed(play: Play) -> None:
    _started(play).mark("failed")
    _ends(play)


@_row("the job marked success", "unlock task")
def chain_marked_success(play: Play) -> None:
    _started(play).mark("success")
    _ends(play)


@_row("the run marked failed", "unlock task", KEEPER)
def chain_run_marked_failed(play: Play) -> None:
    _started(play).mark_run("failed")
    _ends(play)


@_row("the run marked success", "unlock task", KEEPER)
def chain_run_marked_success(play: Play) -> None:
    _started(play).mark_run("success")
    _ends(play)


@_row("dagrun_timeout", "unlock task", KEEPER)
def chain_run_timed_out(play: Play) -> None:
    run = _started(play, "chain_run_timed")
    run.await_end()
    _ends(play)


@_row("the job cleared at work", "unlock task")
def chain_cleared(play: Play) -> None:
    _started(play).clear("job")
    play.writing(2)


@_row("the job cleared after the end: lock and unlock run again", "unlock task")
def chain_cleared_late(play: Play) -> None:
    run = _started(play)
    run.open(0, "job", 1)
    run.await_end()
    run.clear("job")
    play.writing(2)


@_row(
    "the lock task cleared, the job at work: its next try re-adopts, and the late release of the first frees nothing",
    "unlock task",
)
def chain_lock_cleared(play: Play) -> None:
    run = _started(play)
    manager = play.stage.manager
    first = manager.lease_of(run.owner("lock"))
    assert first
    run.clear("lock")
    run.until(lambda: (lease := manager.lease_of(run.owner("lock"))) and lease.attempt > 1, "its next try to hold")
    assert not manager.release(first)
    assert play.owners() == [run.owner("lock")]
    assert running(play.lives()[0].pid)


@_row("the unlock task killed while it waits for the work of a killed job", KEEPER)
def chain_unlock_killed(play: Play) -> None:
    run = _started(play)
    run.kill()
    run.reach("running", "unlock")
    run.kill("unlock")
    run.await_end()
    play.force_release()
    assert play.owners() == [run.owner("lock")]


@_row("no unlock task, release_locks in default_args: the last job's callback", "task callback")
def open_defaults(play: Play) -> None:
    _started(play, "open_defaults")


@_row("no unlock task, release_locks as the DAG's callback", "DAG callback")
def open_run_called(play: Play) -> None:
    _started(play, "open_run_called")


@_row("no unlock task and no callback", KEEPER)
def open_alone(play: Play) -> None:
    _started(play, "open")


@_row("two leases in one run; the job under one of them killed", "unlock task")
def several_killed(play: Play) -> None:
    run = play.start("several")
    for number in range(2):
        play.writing(1, f"dt={number}")
    run.kill("job1")
    run.until(lambda: run.state("job1") == "failed", "it to fail")
    assert play.owners("dt=1") == [run.owner("lock1")]


@_row("a plain operator between lock and unlock ends well", "unlock task")
def plain_success(play: Play) -> None:
    _started(play, "chain_plain")


@_row("a plain operator's process and its work killed", "unlock task")
def plain_killed(play: Play) -> None:
    run = _started(play, "chain_plain")
    run.kill()
    os.kill(play.lives()[0].pid, signal.SIGKILL)
    run.await_end()


@_row("a plain operator marked failed", "unlock task")
def plain_marked_failed(play: Play) -> None:
    _started(play, "chain_plain").mark("failed")
    _ends(play)


@_row("a plain operator marked success", "unlock task")
def plain_marked_success(play: Play) -> None:
    _started(play, "chain_plain").mark("success")
    _ends(play)


@_row("a plain operator's run marked failed", "unlock task", KEEPER)
def plain_run_marked_failed(play: Play) -> None:
    _started(play, "chain_plain").mark_run("failed")
    _ends(play)


@_row("a plain operator's process killed; its work still writes", "unlock task")
def plain_orphan(play: Play) -> None:
    run = _started(play, "chain_plain")
    run.kill()
    run.reach("running", "unlock")
    assert play.owners() == [run.owner("lock")]
