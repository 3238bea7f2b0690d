"""Events that meet jobs between a lock task and what frees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.deaths.play import running
from tests.system.deaths.row import KEEPER, UNLOCK, Rows
from tests.system.deaths.steps import (
    cleared,
    ends,
    held,
    killed,
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
BY_KEEPER_TOO = (UNLOCK, KEEPER)
ORPHANED = (killed, reached("running", "unlock"), held("lock"))

ROWS.at_work(
    "chain_success", "lock, job, unlock: all ends well (TaskSuccessEvent ends the lock task)", UNLOCK, "chained"
)
ROWS.at_work("chain_failure", "the job fails", UNLOCK, "chained", opened(1), reached("failed"))
ROWS.at_work(
    "chain_two_jobs",
    "two jobs, one after the other, under one lease",
    UNLOCK,
    "chain_two",
    opened(0, "job", 1),
    writers(2),
)
ROWS.at_work("chain_killed", "the job's process killed; its work still writes", UNLOCK, "chained", *ORPHANED)
ROWS.at_work("chain_killed_again", "the job's process killed, with a retry", UNLOCK, "chain_again", killed, writers(2))
ROWS.at_work("chain_marked_failed", "the job marked failed", UNLOCK, "chained", marked("failed"), ends)
ROWS.at_work("chain_marked_success", "the job marked success", UNLOCK, "chained", marked("success"), ends)
ROWS.at_work("chain_run_marked_failed", "the run marked failed", BY_KEEPER_TOO, "chained", run_marked("failed"), ends)
ROWS.at_work(
    "chain_run_marked_success", "the run marked success", BY_KEEPER_TOO, "chained", run_marked("success"), ends
)
ROWS.at_work("chain_run_timed_out", "dagrun_timeout", BY_KEEPER_TOO, "chain_run_timed", over, ends)
ROWS.at_work("chain_cleared", "the job cleared at work", UNLOCK, "chained", cleared("job"), writers(2))
ROWS.at_work(
    "chain_cleared_late",
    "the job cleared after the end: lock and unlock run again",
    UNLOCK,
    "chained",
    opened(0, "job", 1),
    over,
    cleared("job"),
    writers(2),
)


@ROWS.of(
    "the lock task cleared, the job at work: its next try re-adopts, and the late release of the first frees nothing",
    UNLOCK,
)
def chain_lock_cleared(play: Play) -> None:
    run = play.at_work("chained")
    manager = play.stage.manager
    first = manager.lease_of(run.owner("lock"))
    assert first
    run.clear("lock")
    run.until(lambda: (lease := manager.lease_of(run.owner("lock"))) and lease.attempt > 1, "its next try to hold")
    assert not manager.release(first)
    assert play.owners() == [run.owner("lock")]
    assert running(play.lives()[0].pid)


@ROWS.of("the unlock task killed while it waits for the work of a killed job", KEEPER)
def chain_unlock_killed(play: Play) -> None:
    run = play.at_work("chained")
    run.kill()
    run.reach("running", "unlock")
    run.kill("unlock")
    run.await_end()
    play.force_release()
    assert play.owners() == [run.owner("lock")]


ROWS.at_work(
    "open_defaults",
    "no unlock task, release_locks in default_args: the last job's callback",
    "task callback",
    "open_defaults",
)
ROWS.at_work(
    "open_run_called", "no unlock task, release_locks as the DAG's callback", "DAG callback", "open_run_called"
)
ROWS.at_work("open_alone", "no unlock task and no callback", KEEPER, "open")


@ROWS.of("two leases in one run; the job under one of them killed", UNLOCK)
def several_killed(play: Play) -> None:
    run = play.start("several")
    for number in range(2):
        play.writing(1, f"dt={number}")
    run.kill("job1")
    run.until(lambda: run.state("job1") == "failed", "it to fail")
    assert play.owners("dt=1") == [run.owner("lock1")]


ROWS.at_work("plain_success", "a plain operator between lock and unlock ends well", UNLOCK, "chain_plain")
ROWS.at_work(
    "plain_killed", "a plain operator's process and its work killed", UNLOCK, "chain_plain", killed, work_killed, over
)
ROWS.at_work("plain_marked_failed", "a plain operator marked failed", UNLOCK, "chain_plain", marked("failed"), ends)
ROWS.at_work("plain_marked_success", "a plain operator marked success", UNLOCK, "chain_plain", marked("success"), ends)
ROWS.at_work(
    "plain_run_marked_failed",
    "a plain operator's run marked failed",
    BY_KEEPER_TOO,
    "chain_plain",
    run_marked("failed"),
    ends,
)
ROWS.at_work(
    "plain_orphan", "a plain operator's process killed; its work still writes", UNLOCK, "chain_plain", *ORPHANED
)
