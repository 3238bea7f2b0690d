"""Events that meet a task that is deferred, under locks of its own, while its work goes on elsewhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.system.deaths.play import running
from tests.system.deaths.row import FORCE, Row, row
from tests.system.deaths.working import _ends

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run

ROWS: list[Row] = []
_row = partial(row, ROWS)


def _deferred(play: Play, dag_id: str = "elsewhere") -> Run:
    run = play.at_work(dag_id)
    run.reach("deferred")
    return run


@_row("deferred during its work: the work ends well", "task")
def elsewhere_success(play: Play) -> None:
    _deferred(play)


@_row("deferred during its work: cleared; the next try does not start, because the state of the work is unknown", FORCE)
def elsewhere_cleared(play: Play) -> None:
    run = _deferred(play)
    run.clear("job")
    run.until(lambda: run.try_number() == 2 and run.state() == "failed", "the next try to fail")
    _goes_by_name(play, run)


@_row("deferred during its work: marked failed", FORCE)
def elsewhere_marked_failed(play: Play) -> None:
    run = _deferred(play)
    run.mark("failed")
    _goes_by_name(play, run)


@_row("deferred during its work: its run marked failed and deleted", FORCE)
def elsewhere_run_deleted(play: Play) -> None:
    run = _deferred(play)
    run.delete()
    _goes_by_name(play, run)


@_row("deferred during its work: dagrun_timeout", FORCE)
def elsewhere_run_timed_out(play: Play) -> None:
    run = _deferred(play, "elsewhere_run_timed")
    run.await_end()
    _goes_by_name(play, run)


@_row("deferred during its work: defer(timeout=…)", FORCE)
def elsewhere_timed_out(play: Play) -> None:
    run = _deferred(play, "elsewhere_timed")
    run.await_end()
    assert running(play.lives()[0].pid)
    _goes_by_name(play, run)


@_row("deferred during its work: its trigger fails, with release_locks in callbacks", FORCE)
def elsewhere_trigger_failed(play: Play) -> None:
    run = _deferred(play, "elsewhere_called")
    (play.stage.gates / f"{run.run_id}.fails").touch()
    run.await_end()
    assert running(play.lives()[0].pid)
    _goes_by_name(play, run)


def _goes_by_name(play: Play, run: Run) -> None:
    """The state of what the task had started elsewhere is unknown until a user reports it."""
    play.force_release()
    assert play.owners() == [run.owner()], "freed, and nobody knew"
    run.open()
    _ends(play)
    play.start("named").await_end()
