"""Events that meet a task while it waits for locks: its place in the queue has to go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.deaths.row import NOBODY, TASK, UNLOCK, Rows
from tests.system.deaths.steps import (
    deleted,
    freed_by_rival,
    marked,
    over,
    reached,
    run_marked,
    waiters,
)

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS = Rows()
GONE = waiters(0)

ROWS.waiting("waiter_marked_failed", "waiting in the triggerer: marked failed", NOBODY, "own", marked("failed"), GONE)
ROWS.waiting("waiter_run_marked_failed", "waiting: its run marked failed", NOBODY, "own", run_marked("failed"), GONE)
ROWS.waiting("waiter_run_deleted", "waiting: its run marked failed and deleted", NOBODY, "own", deleted, GONE)
ROWS.waiting(
    "waiting_lock_marked_failed",
    "waiting: a lock task marked failed",
    NOBODY,
    "chained",
    marked("failed", "lock"),
    GONE,
)


@ROWS.of("waiting: cleared; the next try continues to wait, and both work in turn", TASK)
def waiter_cleared(play: Play) -> None:
    run, second = _cleared(play, "own", "job")
    play.writing()
    for one in (run, second):
        one.open()
    play.until(lambda: len(play.lives()) == 2, "the other to write")


@ROWS.of("waiting: a lock task cleared; the next try keeps its queue position", UNLOCK)
def waiting_lock_cleared(play: Play) -> None:
    run, second = _cleared(play, "chained", "lock")
    play.writing()
    assert play.owners() == [run.owner("lock")]
    assert play.waiters() == [second.owner("lock")]
    run.open()
    play.writing(2)


def _cleared(play: Play, dag_id: str, task_id: str) -> tuple[Run, Run]:
    """Clear what waits, with one behind it, and free the lock once the next try waits."""
    play.hold()
    run = play.start(dag_id)
    play.await_waiters()
    second = play.start(dag_id)
    play.await_waiters(2)
    run.clear(task_id)
    run.until(
        lambda: (task := play.stage.af.task(run.dag_id, run.run_id, task_id)).try_number == 2 and task.trigger_id,
        "try 2",
    )
    play.stage.manager.release(play.rivals[0])
    return run, second


ROWS.waiting("waiter_run_timed_out", "waiting: dagrun_timeout", NOBODY, "own_run_timed", over, GONE)
ROWS.waiting("waiter_timed_out", "waiting: execution_timeout", NOBODY, "own_timed", over, GONE)
ROWS.waiting("waiting_lock_timed_out", "waiting: execution_timeout of a lock task", NOBODY, "chain_timed", over, GONE)


@ROWS.of("waiting: its own timeout", NOBODY)
def waiter_late(play: Play) -> None:
    play.hold()
    play.start("own_late").await_end()
    play.await_waiters(0)


# Once it is deferred, its trigger waits: the worker has left the queue.
ROWS.waiting(
    "waiter_deferred_marked_failed",
    "waiting, started on a worker: marked failed",
    NOBODY,
    "own_defer",
    reached("deferred"),
    waiters(1),
    marked("failed"),
    GONE,
)
ROWS.waiting(
    "waiter_in_slot_marked_failed",
    "waiting in its slot: marked failed",
    NOBODY,
    "own_poke",
    marked("failed"),
    GONE,
)


@ROWS.of("waiting in its slot: killed; its queue position blocks no request", TASK)
def waiter_in_slot_killed(play: Play) -> None:
    play.hold()
    run = play.start("own_poke")
    play.await_waiters()
    run.kill()
    run.await_end()
    play.start("own")
    play.stage.manager.release(play.rivals[0])
    play.writing()


ROWS.waiting("granted_marked_failed", "marked failed at its turn", TASK, "own", marked("failed"), freed_by_rival, GONE)
ROWS.waiting(
    "granted_lock_marked_failed",
    "a lock task marked failed at its grant",
    ("trigger", UNLOCK),
    "chained",
    marked("failed", "lock"),
    freed_by_rival,
    GONE,
)
