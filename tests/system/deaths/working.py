"""Events that meet a task at work under locks of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.deaths.play import Run
from tests.system.deaths.row import KEEPER, TASK, Rows
from tests.system.deaths.steps import (
    cleared,
    deleted,
    ends,
    kept,
    killed,
    killed_with_supervisor,
    marked,
    opened,
    over,
    reached,
    run_marked,
    work_killed,
    writers,
)

if TYPE_CHECKING:
    from tests.system.deaths.play import Play

ROWS = Rows()
ALL_KILLED = (killed, work_killed, over)
BY_CALLBACK = (KEEPER, "DAG callback")

ROWS.at_work("success", "the work ends well", TASK, "own")
ROWS.at_work("failure", "the work fails", TASK, "own", opened(1), reached("failed"))
ROWS.at_work("skip", "the work skips its task", TASK, "own", opened(99), reached("skipped"))


@ROWS.of("the work fails, and its retry fails too", TASK)
def retries_exhausted(play: Play) -> None:
    run = play.at_work("own_again")
    run.open(1)
    run.reach("failed")
    assert len(play.lives()) == 2


ROWS.at_work("killed", "task process killed; its work still writes", KEEPER, "own", killed, kept)
ROWS.at_work(
    "killed_called",
    "task process killed, with release_locks in callbacks; its work still writes",
    KEEPER,
    "own_called",
    killed,
    kept,
)
ROWS.at_work("killed_with_work", "task process and its work killed", KEEPER, "own", *ALL_KILLED)
ROWS.at_work(
    "killed_with_work_called",
    "task process and its work killed, release_locks as a task's callback",
    BY_CALLBACK,
    "own_called",
    *ALL_KILLED,
)
ROWS.at_work(
    "killed_with_work_defaults",
    "task process and its work killed, release_locks in default_args",
    BY_CALLBACK,
    "own_defaults",
    *ALL_KILLED,
)
ROWS.at_work(
    "killed_with_work_run_called",
    "task process and its work killed, release_locks as the DAG's callback",
    BY_CALLBACK,
    "own_run_called",
    *ALL_KILLED,
)


@ROWS.of("task process killed, with a retry: it re-adopts the lease", TASK)
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


ROWS.at_work("supervisor_killed", "supervisor and task killed", KEEPER, "own", killed_with_supervisor, kept)
ROWS.at_work(
    "supervisor_killed_again",
    "supervisor and task killed, with a retry",
    TASK,
    "own_again",
    killed_with_supervisor,
    writers(2),
)


@ROWS.of("supervisor killed; the task continues, without a log", "unlogged")
def supervisor_alone_killed(play: Play) -> None:
    run = play.at_work("own")
    run.kill(task=False, supervisor=True)
    play.is_kept(run)


ROWS.at_work("marked_failed", "marked failed", TASK, "own", marked("failed"), ends)
ROWS.at_work("marked_success", "marked success", TASK, "own", marked("success"), ends)
ROWS.at_work("run_marked_failed", "its run marked failed", TASK, "own", run_marked("failed"), ends)
ROWS.at_work("run_deleted", "its run marked failed and deleted", TASK, "own", deleted, ends)
ROWS.at_work("cleared", "cleared", TASK, "own", cleared("job"), writers(2))
ROWS.at_work(
    "function_marked_failed", "a function on another host marked failed", TASK, "own_function", marked("failed"), ends
)
ROWS.at_work(
    "held_marked_failed",
    "a function with hold() on another host marked failed",
    TASK,
    "held_function",
    marked("failed"),
    ends,
)
ROWS.at_work("run_timed_out", "dagrun_timeout", TASK, "own_run_timed", over, ends)
ROWS.at_work("timed_out", "execution_timeout", TASK, "own_timed", reached("failed"))


@ROWS.of("one of three mapped tasks killed, the others end well", KEEPER, TASK)
def mapped_killed(play: Play) -> None:
    run = play.start("mapped")
    for number in range(3):
        play.writing(1, f"dt={number}")
    run.kill(map_index=1)
    run.until(lambda: play.stage.af.task("mapped", run.run_id, "job", 1).state == "failed", "the killed one to fail")
    assert play.owners("dt=1") == [run.owner(map_index=1)]


@ROWS.of("a backfill with max_active_runs=2 on one partition, cleared at work", TASK)
def backfill_cleared(play: Play) -> None:
    af = play.stage.af
    body = {"dag_id": "daily", "from_date": "2013-01-01T00:00:00Z", "to_date": "2013-01-04T00:00:00Z"}
    af.api.call("POST", "backfills", json={**body, "max_active_runs": 2, "dag_run_conf": {"table": play.table}})
    play.writing()
    play.await_waiters()
    play.runs += [Run(af, "daily", run.run_id, play.stage.gates) for run in af.runs("daily")]
    for run in play.runs:
        run.clear("job")
    play.writing(2)
