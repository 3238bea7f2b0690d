"""A scene on a real Airflow."""

from __future__ import annotations

import statistics
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.contention import figures
from tests.bench.contention.figures import Job
from tests.bench.contention.scenes import ALTER, BUSY, CROWD, DAILY, POOL, SLOTS, URGENT, Scene
from tests.bench.rerun.figures import jobs as read_notes
from tests.bench.site import Site
from tests.support.spans import Span

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from tests.bench.contention.figures import Figures

LATE_AFTER = 3
"""After how many jobs the daily run and the ALTER TABLE come."""

ALONE = 3
"""How many jobs run one after the other, with nobody beside them, to learn what a worker start takes."""


@dataclass
class Stage(Site):
    """What all scenes share.

    :ivar start_s: from the moment when a task without rivals is queued for a slot to the begin of its work, in seconds.
    """

    start_s: float = 0.0
    asked: dict[str, float] = field(default_factory=dict)

    def worked(self) -> tuple[dict[str, Span], Counter[str]]:
        """The jobs that have ended, and how many times a worker started each."""
        return read_notes(self.notes("all"))

    def reach(self, runs: set[str], count: int) -> None:
        """Wait until so many of the *runs* have worked; note meanwhile when each has asked first."""

        def reached() -> bool:
            for waiter in self.locks.waiters():
                self.asked.setdefault(_run_of(waiter.owner), waiter.since.timestamp())
            return len(runs & self.worked()[0].keys()) >= count

        self.wait(reached, f"{count} jobs")

    def jobs(self, runs: set[str]) -> dict[str, Job]:
        worked, starts = self.worked()
        found = {}
        for tenure in self.locks.history():
            run = _run_of(tenure.owner)
            if run in runs and tenure.ended:
                held = Span(tenure.granted.timestamp(), tenure.ended.timestamp())
                asked = min(tenure.asked.timestamp(), self.asked.get(run, held.begun))
                weight = URGENT if f"-{DAILY}-" in run else 1
                found[run] = Job(str(tenure.locks[-1].object), weight, asked, worked[run], held, starts[run])
        return found


@contextmanager
def staged(workdir: Path, job_s: float, busy_s: float) -> Iterator[Stage]:
    with Stage.up(
        workdir,
        Path(__file__).parent / "dags",
        slots=SLOTS,
        pools=[{"name": POOL, "slots": SLOTS}],
        unpaused=(CROWD, DAILY, ALTER, BUSY),
        env={"BENCH_JOB_S": str(job_s), "BENCH_BUSY_S": str(busy_s)},
    ) as stage:
        stage.start_s = _worker_start_s(stage)
        yield stage


def play(stage: Stage, scene: Scene) -> Figures:
    airflow = stage.airflow
    if scene.busy_s:
        busy = {scene.run_id(BUSY, number): scene.date(number) + timedelta(hours=1) for number in range(SLOTS)}
        stage.trigger(BUSY, busy)
        stage.wait(lambda: _states(stage, BUSY, set(busy)) == {"running"}, "full slots")
    crowd = {scene.run_id(CROWD, number): scene.date(number) for number in range(scene.tasks)}
    stage.trigger_at_once(CROWD, crowd)
    runs, late = set(crowd), set()
    if scene.latecomers:
        stage.reach(runs, LATE_AFTER)
        for dag_id in (DAILY, ALTER):
            airflow.trigger(dag_id, scene.date(scene.tasks), run_id=scene.run_id(dag_id, 0))
            late.add(scene.run_id(dag_id, 0))
    stage.reach(runs | late, len(runs | late))
    stage.wait(lambda: not stage.locks.leases(), "the locks to be freed")
    return figures.figures(stage.jobs(runs | late), stage.start_s, scene.run_id(DAILY, 0), scene.run_id(ALTER, 0))


def _worker_start_s(stage: Stage) -> float:
    alone, took = Scene(0, "alone", "one task at a time", ALONE), []
    for number in range(ALONE):
        run = alone.run_id(CROWD, number)
        stage.trigger(CROWD, {run: alone.date(number)})
        stage.reach({run}, 1)
        queued = stage.airflow.task(CROWD, run, "job").queued_at
        assert queued is not None
        took.append(stage.worked()[0][run].begun - queued.timestamp())
        stage.wait(lambda: not stage.locks.leases(), "the lock to be freed")
    return statistics.median(took)


def _states(stage: Stage, dag_id: str, runs: set[str]) -> set[str | None]:
    return {task.state for task in stage.airflow.task_instances(dag_id) if task.run_id in runs}


def _run_of(owner: str) -> str:
    """The run of a task that is an owner in the lock store; "" for another owner."""
    parts = owner.split("/")
    return parts[2] if len(parts) > 2 else ""
