"""Events that meet an invited task: its turn has come, and its worker has not asked for the lock yet."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_hivelock import compat
from tests.system.deaths.row import TASK, Rows

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS = Rows()

BEFORE_THE_END_S = (1.0, 0.5, 0.0)
"""How long before the end of the invitation the worker may ask. It takes up to a second to connect and ask."""


def before_it_asks(play: Play, dag_id: str = "own_held_up", behind: str = "") -> Run:
    """A task on a started worker that is delayed before it asks.

    :param behind: the DAG of a task that waits behind it, before it is invited: on a busy machine the invitation could
        end before that task asks.
    """
    run = _invited(play, dag_id, behind)
    run.reach("running")
    return run


def _invited(play: Play, dag_id: str, behind: str = "") -> Run:
    if compat.TRIGGERS_RENDER and not behind:
        run = play.start(dag_id)
    else:
        play.hold()
        run = play.start(dag_id)
        if not compat.TRIGGERS_RENDER:  # it begins on a worker, which takes at once what is free
            run.let_ask()
            run.reach("deferred")
            run.hold_up()
        play.await_waiters()
        if behind:
            play.start(behind)
            play.await_waiters(2)
        play.stage.manager.release(play.rivals[-1])
    play.until(lambda: run.owner() in play.invited(), "it to be invited")
    assert not play.owners()
    return run


@ROWS.of("invited, its worker killed before it asks: the next task gets the locks", TASK)
def invited_killed(play: Play) -> None:
    run = before_it_asks(play)
    run.kill()
    run.await_end()
    second = play.start("own")
    play.writing()
    assert play.owners() == [second.owner()]


@ROWS.of("invited, its worker killed before it asks, with a retry", TASK)
def invited_killed_again(play: Play) -> None:
    run = before_it_asks(play, "own_held_up_again")
    run.kill()
    run.until(lambda: run.try_number() == 2, "try 2")
    run.let_ask()
    play.writing()
    assert play.owners() == [run.owner()]
    assert not play.invited()


# A worker that is let go on before it is killed may still ask; it then gives back what it gets.
@ROWS.of("invited, its worker marked failed before it asks", TASK)
def invited_marked_failed(play: Play) -> None:
    run = before_it_asks(play)
    run.mark("failed")
    run.await_end()
    assert not play.owners()


@ROWS.of("invited, marked failed while it waits for a worker slot: the next task gets the locks", TASK)
def invited_without_slot_marked_failed(play: Play) -> None:
    run = _invited(play, "own_without_slot")
    run.reach("scheduled")
    run.mark("failed")
    run.await_end()
    play.until(lambda: not play.invited(), "the keeper to free its place")
    play.start("own")
    play.writing()


@ROWS.of("invited, cleared before its worker asks", TASK)
def invited_cleared(play: Play) -> None:
    # At once: on Airflow 3.1 a task that is cleared at work waits as for a retry.
    run = before_it_asks(play, "own_held_up_again")
    run.clear("job")
    run.until(lambda: run.try_number() == 2, "try 2")
    run.let_ask()
    play.writing()
    assert play.owners() == [run.owner()]


@ROWS.of("invited, its run deleted before its worker asks: the next task gets the locks", TASK)
def invited_deleted(play: Play) -> None:
    run = before_it_asks(play)
    run.delete()
    play.until(lambda: not play.invited(), "its place to be free")
    play.start("own")
    play.writing()


@ROWS.of("invited; its worker asks when the invitation ends, and another task waits for that end", TASK)
def invited_until_it_asks(play: Play) -> None:
    for number, before_s in enumerate(BEFORE_THE_END_S):
        first = before_it_asks(play)
        second = play.start("own")
        # On a busy machine the invitation may be over by now.
        play.until(lambda: play.waiters() or play.owners(), "the second to wait")
        _await_end_of_invitation(play, first, before_s)
        first.let_ask()
        play.writing(2 * number + 1)
        for run in (first, second):
            run.open()
        for run in (first, second):
            run.reach("success")
    assert len(play.lives()) == 2 * len(BEFORE_THE_END_S)


def _await_end_of_invitation(play: Play, run: Run, before_s: float) -> None:
    """Wait until *before_s* before it, by the lock store's clock. On a busy machine it may be over by now."""
    manager = play.stage.manager
    until = next((one.until for one in manager.waiters(play.table) if one.owner == run.owner()), None)
    if until:
        left_s = (until - timedelta(seconds=before_s) - manager.now()).total_seconds()
        time.sleep(max(0.0, left_s))


@ROWS.of("invited; its worker asks after the end: the next task goes first", TASK)
def invited_too_late(play: Play) -> None:
    first = before_it_asks(play)
    second = play.at_work("own")  # it waits until the invitation is over
    first.let_ask()
    play.await_waiters()
    assert play.waiters() == [first.owner()]
    second.open()
    play.writing(2)
