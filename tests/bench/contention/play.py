"""A scene on a real Airflow."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockManager, connect
from tests.bench.contention import figures
from tests.bench.contention.figures import Job
from tests.bench.contention.scenes import ALTER, BUSY, CROWD, DAILY, POOL, SLOTS, URGENT, Scene
from tests.bench.rerun.figures import Span
from tests.bench.rerun.figures import jobs as read_notes
from tests.support.airflow_server import AirflowServer
from tests.support.servers import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tests.bench.contention.figures import Figures

STUCK_S = 3600.0
LATE_AFTER = 3
"""After how many jobs the daily run and the ALTER TABLE come."""

ALONE = 3
"""How many jobs run one after the other, with nobody beside them, to learn what a worker start takes."""


@dataclass
class Stage:
    """What all scenes share.

    :ivar start_s: from the moment when a task without rivals is queued for a slot to the begin of its work, in seconds.
    """

    airflow: AirflowServer
    locks: LockManager
    scratch: Path
    start_s: float = 0.0
    asked: dict[str, float] = field(default_factory=dict)

    def notes(self) -> list[str]:
        path = self.scratch / "notes"
        # The last line may be half written.
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def ended(self) -> set[str]:
        return set(read_notes(self.notes())[0])

    def reach(self, runs: set[str], count: int) -> None:
        """Wait until so many of the *runs* have worked; note meanwhile when each has asked first."""

        def reached() -> bool:
            for waiter in self.locks.waiters():
                self.asked.setdefault(_run_of(waiter.owner), waiter.since.timestamp())
            return len(runs & self.ended()) >= count

        self.airflow.wait(reached, STUCK_S, f"{count} jobs")

    def jobs(self, runs: set[str]) -> dict[str, Job]:
        worked, starts = read_notes(self.notes())
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
    scratch = workdir / "scratch"
    scratch.mkdir()
    with ZooKeeperServer(workdir, heap_mb=256) as zookeeper, connect(zookeeper.url) as locks:
        place = {"host": zookeeper.hosts, "schema": "hive_zookeeper_namespace", "extra": {"installation": "bench"}}
        with AirflowServer(
            workdir / "airflow",
            Path(__file__).parent / "dags",
            connections={"hivelock_default": {"conn_type": "hivelock", **place}},
            config={("core", "parallelism"): str(SLOTS), ("triggerer", "capacity"): "2000"},
            env={
                "CONTENTION_SCRATCH": str(scratch),
                "CONTENTION_JOB_S": str(job_s),
                "CONTENTION_BUSY_S": str(busy_s),
            },
        ) as airflow:
            airflow.api.call("POST", "pools", json={"name": POOL, "slots": SLOTS})
            for dag_id in (CROWD, DAILY, ALTER, BUSY):
                airflow.unpause(dag_id, 180)
            stage = Stage(airflow, locks, scratch)
            stage.start_s = _worker_start_s(stage)
            yield stage


def play(stage: Stage, scene: Scene) -> Figures:
    airflow = stage.airflow
    if scene.busy_s:
        _trigger(stage, scene, BUSY, range(SLOTS))
        busy = {scene.run_id(BUSY, number) for number in range(SLOTS)}
        airflow.wait(lambda: _states(stage, BUSY, busy) == {"running"}, STUCK_S, "full slots")
    airflow.api.pause(CROWD, True)
    _trigger(stage, scene, CROWD, range(scene.tasks))
    airflow.api.pause(CROWD, False)
    runs = {scene.run_id(CROWD, number) for number in range(scene.tasks)}
    late: set[str] = set()
    if scene.latecomers:
        stage.reach(runs, LATE_AFTER)
        for dag_id in (DAILY, ALTER):
            airflow.trigger(dag_id, scene.date(scene.tasks), run_id=scene.run_id(dag_id, 0))
            late.add(scene.run_id(dag_id, 0))
    stage.reach(runs | late, len(runs | late))
    airflow.wait(lambda: not stage.locks.leases(), STUCK_S, "the locks to be freed")
    return figures.figures(stage.jobs(runs | late), stage.start_s, scene.run_id(DAILY, 0), scene.run_id(ALTER, 0))


def _worker_start_s(stage: Stage) -> float:
    alone, took = Scene(0, "alone", "one task at a time", ALONE), []
    for number in range(ALONE):
        run = alone.run_id(CROWD, number)
        _trigger(stage, alone, CROWD, [number])
        stage.reach({run}, 1)
        queued = stage.airflow.task(CROWD, run, "job").queued_at
        assert queued is not None
        took.append(read_notes(stage.notes())[0][run].begun - queued.timestamp())
        stage.airflow.wait(lambda: not stage.locks.leases(), STUCK_S, "the lock to be freed")
    return statistics.median(took)


def _trigger(stage: Stage, scene: Scene, dag_id: str, numbers: range | list[int]) -> None:
    def one(number: int) -> str:
        date: datetime = scene.date(number) + timedelta(hours=dag_id == BUSY)
        return stage.airflow.trigger(dag_id, date, run_id=scene.run_id(dag_id, number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, numbers))


def _states(stage: Stage, dag_id: str, runs: set[str]) -> set[str | None]:
    return {task.state for task in stage.airflow.task_instances(dag_id) if task.run_id in runs}


def _run_of(owner: str) -> str:
    """The run of a task that is an owner in the lock store; "" for another owner."""
    parts = owner.split("/")
    return parts[2] if len(parts) > 2 else ""
