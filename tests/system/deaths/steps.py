"""Steps of the rows: what happens to a run, and what is waited for. A row's act is often a run at work and some of these."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.system.deaths.play import Play, Run
    from tests.system.deaths.row import Act

    Step = Callable[[Play, Run], None]


def at_work(dag_id: str, *steps: Step) -> Act:
    """A run of the DAG writes under its lock. Then the *steps* happen to it."""

    def act(play: Play) -> None:
        run = play.at_work(dag_id)
        for step in steps:
            step(play, run)

    return act


def waiting(dag_id: str, *steps: Step) -> Act:
    """A run of the DAG waits for a lock that another owner holds. Then the *steps* happen to it."""

    def act(play: Play) -> None:
        play.hold()
        run = play.start(dag_id)
        play.await_waiters()
        for step in steps:
            step(play, run)

    return act


def killed(play: Play, run: Run) -> None:
    """Its task's process."""
    run.kill()


def work_killed(play: Play, run: Run) -> None:
    os.kill(play.lives()[0].pid, signal.SIGKILL)


def killed_with_supervisor(play: Play, run: Run) -> None:
    run.kill(supervisor=True)


def deleted(play: Play, run: Run) -> None:
    run.delete()


def marked(state: str, task_id: str = "job") -> Step:
    return lambda play, run: run.mark(state, task_id)


def run_marked(state: str) -> Step:
    return lambda play, run: run.mark_run(state)


def cleared(*task_ids: str) -> Step:
    return lambda play, run: run.clear(*task_ids)


def opened(*how: Any) -> Step:
    """Its writers may end, as in :meth:`.Run.open`."""
    return lambda play, run: run.open(*how)


def reached(state: str, task_id: str = "job") -> Step:
    return lambda play, run: run.reach(state, task_id)


def over(play: Play, run: Run) -> None:
    run.await_end()


def ends(play: Play, run: Run) -> None:
    """Somebody ends the work, or it ends by itself."""
    play.await_end_of_work()


def writers(count: int) -> Step:
    def step(play: Play, run: Run) -> None:
        play.writing(count)

    return step


def waiters(count: int) -> Step:
    return lambda play, run: play.await_waiters(count)


def freed_by_rival(play: Play, run: Run) -> None:
    """The owner that the run waits for releases its lock."""
    play.stage.manager.release(play.rivals[0])


def held(task_id: str = "job") -> Step:
    """The run's task holds the lock, and no other owner."""

    def step(play: Play, run: Run) -> None:
        assert play.owners() == [run.owner(task_id)]

    return step


def kept(play: Play, run: Run) -> None:
    play.is_kept(run)
