"""Events that meet a task while it waits for locks: its place in the queue has to go with it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.system.deaths.row import NOBODY, Row, row

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS: list[Row] = []
_row = partial(row, ROWS)


def _waiting(play: Play, dag_id: str = "own") -> Run:
    play.hold()
    run = play.start(dag_id)
    play.await_waiters()
    return run


@_row("waiting in the triggerer: marked failed", NOBODY)
def waiter_marked_failed(play: Play) -> None:
    _waiting(play).mark("failed")
    play.await_waiters(0)


@_row("waiting: its run marked failed", NOBODY)
def waiter_run_marked_failed(play: Play) -> None:
    _waiting(play).mark_run("failed")
    play.await_waiters(0)


@_row("waiting: its run marked failed and deleted", NOBODY)
def waiter_run_deleted(play: Play) -> None:
    _waiting(play).delete()
    play.await_waiters(0)


@_row("waiting: a lock task marked failed", NOBODY)
def waiting_lock_marked_failed(play: Play) -> None:
    _waiting(play, "chained").mark("failed", "lock")
    play.await_waiters(0)


@_row("waiting: cleared; the next try continues to wait, and both work in turn", "task")
def waiter_cleared(play: Play) -> None:
    run = _waiting(play)
    second = play.start("own")
    _cleared(play, run, "job")
    play.writing()
    for one in (run, second):
        one.open()
    play.until(lambda: len(play.lives()) == 2, "the other to write")


@_row("waiting: a lock task cleared; the next try keeps its queue position", "unlock task")
def waiting_lock_cleared(play: Play) -> None:
    run = _waiting(play, "chained")
    second = play.start("chained")
    _cleared(play, run, "lock")
    play.writing()
    assert play.owners() == [run.owner("lock")]
    assert play.waiters() == [second.owner("lock")]
    run.open()
    play.writing(2)


def _cleared(play: Play, run: Run, task_id: str) -> None:
    """Clear what waits, with one behind it, and free the lock once the next try waits."""
    play.await_waiters(2)
    run.clear(task_id)
    run.until(
        lambda: (task := play.stage.af.task(run.dag_id, run.run_id, task_id)).try_number == 2 and task.trigger_id,
        "try 2",
    )
    play.stage.manager.release(play.rivals[0])


@_row("waiting: dagrun_timeout", NOBODY)
def waiter_run_timed_out(play: Play) -> None:
    _waiting(play, "own_run_timed").await_end()
    play.await_waiters(0)


@_row("waiting: execution_timeout", NOBODY)
def waiter_timed_out(play: Play) -> None:
    _waiting(play, "own_timed").await_end()
    play.await_waiters(0)


@_row("waiting: execution_timeout of a lock task", NOBODY)
def waiting_lock_timed_out(play: Play) -> None:
    _waiting(play, "chain_timed").await_end()
    play.await_waiters(0)


@_row("waiting: its own timeout", NOBODY)
def waiter_late(play: Play) -> None:
    play.hold()
    play.start("own_late").await_end()
    play.await_waiters(0)


@_row("waiting, started on a worker: marked failed", NOBODY)
def waiter_deferred_marked_failed(play: Play) -> None:
    run = _waiting(play, "own_defer")
    run.reach("deferred")
    play.await_waiters()  # the trigger: the worker has left the queue as it deferred
    run.mark("failed")
    play.await_waiters(0)


@_row("waiting in its slot: marked failed", NOBODY)
def waiter_in_slot_marked_failed(play: Play) -> None:
    _waiting(play, "own_poke").mark("failed")
    play.await_waiters(0)


@_row("waiting in its slot: killed; its queue position blocks no request", "task")
def waiter_in_slot_killed(play: Play) -> None:
    run = _waiting(play, "own_poke")
    run.kill()
    run.await_end()
    play.start("own")
    play.stage.manager.release(play.rivals[0])
    play.writing()


@_row("marked failed at its turn", "task")
def granted_marked_failed(play: Play) -> None:
    run = _waiting(play)
    run.mark("failed")
    play.stage.manager.release(play.rivals[0])
    play.await_waiters(0)


@_row("a lock task marked failed at its grant", "trigger", "unlock task")
def granted_lock_marked_failed(play: Play) -> None:
    run = _waiting(play, "chained")
    run.mark("failed", "lock")
    play.stage.manager.release(play.rivals[0])
    play.await_waiters(0)
