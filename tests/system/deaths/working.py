"""Events that meet a task at work under locks of its own."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from tests.system.deaths.play import DAY, Run, running
from tests.system.deaths.row import KEEPER, Row, row

if TYPE_CHECKING:
    from tests.system.deaths.play import Play

ROWS: list[Row] = []
_row = partial(row, ROWS)


@_row("the work ends well", "task")
def success(play: Play) -> None:
    play.at_work("own")


@_row("the work fails", "task")
def failure(play: Play) -> None:
    run = play.at_work("own")
    run.open(1)
    run.reach("failed")


@_row("the work skips its task", "task")
def skip(play: Play) -> None:
    run = play.at_work("own")
    run.open(99)
    run.reach("skipped")


@_row("the work fails, and its retry fails too", "task")
def retries_exhausted(play: Play) -> None:
    run = play.at_work("own_again")
    run.open(1)
    run.reach("failed")
    assert len(play.lives()) == 2


@_row("task process killed; its work still writes", KEEPER)
def killed(play: Play) -> None:
    run = play.at_work("own")
    run.kill()
    _is_kept_for_the_orphan(play)


@_row("task process killed, with release_locks in callbacks; its work still writes", KEEPER)
def killed_called(play: Play) -> None:
    run = play.at_work("own_called")
    run.kill()
    _is_kept_for_the_orphan(play)


@_row("task process and its work killed", KEEPER)
def killed_with_work(play: Play) -> None:
    _kill_with_work(play, "own")


@_row("task process and its work killed, release_locks as a task's callback", KEEPER, "DAG callback")
def killed_with_work_called(play: Play) -> None:
    _kill_with_work(play, "own_called")


@_row("task process and its work killed, release_locks in default_args", KEEPER, "DAG callback")
def killed_with_work_defaults(play: Play) -> None:
    _kill_with_work(play, "own_defaults")


@_row("task process and its work killed, release_locks as the DAG's callback", KEEPER, "DAG callback")
def killed_with_work_run_called(play: Play) -> None:
    _kill_with_work(play, "own_run_called")


@_row("task process killed, with a retry: it re-adopts the lease", "task")
def killed_again(play: Play) -> None:
    run = play.at_work("own_again")
    first = play.stage.manager.lease_of(run.owner())
    run.kill()
    play.writing(2)
    second = play.stage.manager.lease_of(run.owner())
    assert first
    assert second
    assert (second.id, second.attempt) == (first.id, 2), "somebody else could have come in between"
    assert not play.stage.manager.release(first), "the late release of a dead try"
    assert play.owners() == [run.owner()]


@_row("supervisor and task killed", KEEPER)
def supervisor_killed(play: Play) -> None:
    run = play.at_work("own")
    run.kill(supervisor=True)
    _is_kept_for_the_orphan(play)


@_row("supervisor and task killed, with a retry", "task")
def supervisor_killed_again(play: Play) -> None:
    run = play.at_work("own_again")
    run.kill(supervisor=True)
    play.writing(2)


@_row("supervisor killed; the task continues, without a log", "unlogged")
def supervisor_alone_killed(play: Play) -> None:
    run = play.at_work("own")
    run.kill(task=False, supervisor=True)
    _is_kept_for_the_orphan(play)


@_row("marked failed", "task")
def marked_failed(play: Play) -> None:
    run = play.at_work("own")
    run.mark("failed")
    _ends(play)


@_row("marked success", "task")
def marked_success(play: Play) -> None:
    run = play.at_work("own")
    run.mark("success")
    _ends(play)


@_row("its run marked failed", "task")
def run_marked_failed(play: Play) -> None:
    run = play.at_work("own")
    run.mark_run("failed")
    _ends(play)


@_row("its run marked failed and deleted", "task")
def run_deleted(play: Play) -> None:
    run = play.at_work("own")
    run.delete()
    _ends(play)


@_row("cleared", "task")
def cleared(play: Play) -> None:
    run = play.at_work("own")
    run.clear("job")
    play.writing(2)


@_row("dagrun_timeout", "task")
def run_timed_out(play: Play) -> None:
    run = play.at_work("own_run_timed")
    run.await_end()
    _ends(play)


@_row("execution_timeout", "task")
def timed_out(play: Play) -> None:
    run = play.at_work("own_timed")
    run.reach("failed")


@_row("one of three mapped tasks killed, the others end well", KEEPER, "task")
def mapped_killed(play: Play) -> None:
    run = play.start("mapped")
    for number in range(3):
        play.writing(1, f"dt={number}")
    run.kill(map_index=1)
    run.until(lambda: play.stage.af.task("mapped", run.run_id, "job", 1).state == "failed", "the killed one to fail")
    assert play.owners("dt=1") == [run.owner(map_index=1)]


@_row("a backfill with max_active_runs=2 on one partition, cleared at work", "task")
def backfill_cleared(play: Play) -> None:
    af = play.stage.af
    body = {"dag_id": "daily", "from_date": "2013-01-01T00:00:00Z", "to_date": "2013-01-04T00:00:00Z"}
    af.api.call("POST", "backfills", json={**body, "max_active_runs": 2, "dag_run_conf": {"table": play.table}})
    play.writing()
    play.await_waiters()
    play.runs += [Run(play.stage, "daily", run.run_id) for run in af.runs("daily")]
    for run in play.runs:
        run.clear("job")
    play.writing(2)


def _ends(play: Play, day: str = DAY) -> None:
    """Somebody ends the work, or it ends by itself."""
    play.until(lambda: not running(play.lives(day)[-1].pid), "the work to be ended")


def _kill_with_work(play: Play, dag_id: str) -> None:
    run = play.start(dag_id)
    pid = play.writing()
    run.kill()
    os.kill(pid, signal.SIGKILL)
    run.await_end()


def _is_kept_for_the_orphan(play: Play) -> None:
    """Its run is over, and the force release looks: who still writes still holds."""
    (run,) = play.runs
    run.await_end()
    assert running(play.lives()[-1].pid)
    play.force_release()
    assert play.owners() == [run.owner()], "freed under the hands of a writer"
