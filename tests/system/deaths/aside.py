"""Events that meet a task that has stepped aside: it could have had its lock, and its worker has not asked for it yet."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock import compat
from tests.system.deaths.row import Row, row

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS: list[Row] = []
_row = partial(row, ROWS)


def before_it_asks(play: Play, dag_id: str = "own_held_up") -> Run:
    """A task whose worker has been started, and is held up before it asks."""
    run = _aside(play, dag_id)
    run.reach("running")
    return run


def _aside(play: Play, dag_id: str) -> Run:
    if compat.TRIGGERS_RENDER:
        run = play.start(dag_id)
    else:  # it begins on a worker, which steps aside only for what is not free
        play.hold()
        run = play.start(dag_id)
        run.let_ask()
        run.reach("deferred")
        run.hold_up()
        play.stage.manager.release(play.rivals[0])
    play.until(lambda: run.owner() in play.aside(), "it to step aside")
    assert not play.owners()
    return run


@_row("stepped aside, its worker killed before it asks: another goes before it", "task")
def aside_killed(play: Play) -> None:
    run = before_it_asks(play)
    run.kill()
    run.await_end()
    second = play.start("own")
    play.writing()
    assert play.owners() == [second.owner()]


@_row("stepped aside, its worker killed before it asks, with a retry", "task")
def aside_killed_again(play: Play) -> None:
    run = before_it_asks(play, "own_held_up_again")
    run.kill()
    run.until(lambda: run.try_number() == 2, "try 2")
    run.let_ask()
    play.writing()
    assert play.owners() == [run.owner()]
    assert not play.aside()


# A worker that is let go on before it is killed may still ask; it then gives back what it gets.
@_row("stepped aside, its worker marked failed before it asks", "task")
def aside_marked_failed(play: Play) -> None:
    run = before_it_asks(play)
    run.mark("failed")
    run.await_end()
    assert not play.owners()


@_row("stepped aside, marked failed while it waits for a worker slot: another goes before it", "task")
def aside_without_slot_marked_failed(play: Play) -> None:
    run = _aside(play, "own_without_slot")
    run.reach("scheduled")
    run.mark("failed")
    run.await_end()
    play.until(lambda: not play.aside(), "the keeper to forget it")
    play.start("own")
    play.writing()


@_row("stepped aside, cleared before its worker asks", "task")
def aside_cleared(play: Play) -> None:
    # At once: on Airflow 3.1 a task that is cleared at work waits as for a retry.
    run = before_it_asks(play, "own_held_up_again")
    run.clear("job")
    run.until(lambda: run.try_number() == 2, "try 2")
    run.let_ask()
    play.writing()
    assert play.owners() == [run.owner()]


@_row("stepped aside; another is quicker, and it waits behind that", "task")
def aside_outrun(play: Play) -> None:
    first = before_it_asks(play)
    second = play.at_work("own")
    first.let_ask()
    play.await_waiters()
    assert play.waiters() == [first.owner()]
    second.open()
    play.writing(2)
