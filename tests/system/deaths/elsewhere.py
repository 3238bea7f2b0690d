"""Events that meet a task that is deferred, under locks of its own, while its work goes on elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.deaths.play import running
from tests.system.deaths.row import FORCE, TASK, Rows
from tests.system.deaths.steps import at_work, deleted, marked, over, reached

if TYPE_CHECKING:
    from tests.system.deaths.play import Play, Run
    from tests.system.deaths.steps import Step

ROWS = Rows()


def _unknown(name: str, event: str, dag_id: str, *steps: Step) -> None:
    """The state of what the task had started elsewhere is unknown until a user reports it."""
    act = at_work(dag_id, reached("deferred"), *steps, _goes_by_name)
    ROWS.add(f"elsewhere_{name}", f"deferred during its work: {event}", FORCE, act)


def _goes_by_name(play: Play, run: Run) -> None:
    play.force_release()
    assert play.owners() == [run.owner()], "freed, and nobody knew"
    run.open()
    play.await_end_of_work()
    play.start("named").await_end()


def _next_try_fails(play: Play, run: Run) -> None:
    run.clear("job")
    run.until(lambda: run.try_number() == 2 and run.state() == "failed", "the next try to fail")


def _trigger_fails(play: Play, run: Run) -> None:
    (play.stage.gates / f"{run.run_id}.fails").touch()


def _over_and_still_at_work(play: Play, run: Run) -> None:
    run.await_end()
    assert running(play.lives()[0].pid)


ROWS.add(
    "elsewhere_success",
    "deferred during its work: the work ends well",
    TASK,
    at_work("elsewhere", reached("deferred")),
)
_unknown(
    "cleared",
    "cleared; the next try does not start, because the state of the work is unknown",
    "elsewhere",
    _next_try_fails,
)
_unknown("marked_failed", "marked failed", "elsewhere", marked("failed"))
_unknown("run_deleted", "its run marked failed and deleted", "elsewhere", deleted)
_unknown("run_timed_out", "dagrun_timeout", "elsewhere_run_timed", over)
_unknown("timed_out", "defer(timeout=…)", "elsewhere_timed", _over_and_still_at_work)
_unknown(
    "trigger_failed",
    "its trigger fails, with release_locks in callbacks",
    "elsewhere_called",
    _trigger_fails,
    _over_and_still_at_work,
)
