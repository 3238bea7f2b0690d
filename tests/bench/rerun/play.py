"""A rerun in one of the ways, with others who want its table: a reader every second, an ALTER TABLE, a daily run."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import Lease, LockTimeout, rules
from tests.bench.rerun import figures
from tests.bench.rerun.figures import Figures, Held, Select, Wait
from tests.bench.rerun.ways import HIVES_SLEEP_S, Kind
from tests.support.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rerun.stage import Stage
    from tests.bench.rerun.ways import Way

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
ALTERS = "an ALTER TABLE"
ALTER_S = 2.0
"""How long the ALTER TABLE itself takes."""

SELECT_EVERY_S = 1.0
POLL_S = 0.2
OVER = {"success", "failed"}
STUCK_S = 900.0
"""In which each rerun is over, or hangs."""


@dataclass
class Rerun:
    """One rerun under way.

    :param days: the logical dates that are run again.
    """

    stage: Stage
    way: Way
    days: list[datetime]
    over: threading.Event = field(default_factory=threading.Event)
    failed: threading.Event = field(default_factory=threading.Event)
    selects: list[Select] = field(default_factory=list)
    alters: list[Span] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [f"{day:%Y-%m-%d}" for day in self.days]

    def run_id(self, day: datetime) -> str:
        return f"{self.way.name}-{day:%Y-%m-%d}"

    def begin(self) -> float:
        """Make the runs while the DAG is paused, and start them all at once: when that was."""
        self.stage.trigger_at_once(self.way.name, {self.run_id(day): day for day in self.days})
        return time.time()

    def jobs(self) -> dict[str, Span]:
        """The days whose job has ended."""
        return figures.jobs(self.notes())[0]

    def notes(self) -> list[str]:
        return self.stage.notes(self.way.name)

    def reach(self, count: int) -> None:
        """Wait until so many of the days are done."""
        days = set(self.names)
        self.stage.wait(lambda: len(days & set(self.jobs())) >= count, f"{count} days of {self.way}")

    def reach_midst(self, count: int) -> None:
        """The same, and until those after them are half done: jobs that began together leave gaps, where nothing is locked."""
        self.reach(count)
        time.sleep(self.stage.job_s / 2)

    def finish(self) -> None:
        """Wait until no task is left, and nothing is held."""
        stage = self.stage
        stage.wait(lambda: self._states() <= OVER, f"{self.way.name} to be over")
        assert self._states() == {"success"}, f"runs of {self.way.name} have failed"
        stage.wait(lambda: not stage.locks.show(self.way.table), f"the locks of {self.way.name} to be freed")

    def _states(self) -> set[str]:
        """The states of its runs, the daily one included."""
        dag_ids = (self.way.name, f"{self.way.name}_daily")
        return {run.state for dag_id in dag_ids for run in self.stage.airflow.runs(dag_id)}

    @contextmanager
    def read(self) -> Iterator[None]:
        """A reader who SELECTs one of the days every second."""
        with ThreadPoolExecutor(1, "reader") as reader:
            reading = reader.submit(self._read)
            try:
                yield
            except BaseException:
                self.failed.set()
                raise
            finally:
                self.over.set()
            reading.result(STUCK_S)

    def _read(self) -> None:
        picks, due = random.Random(1), time.monotonic()
        while not self.over.wait(max(0.0, due - time.monotonic())):
            due += SELECT_EVERY_S
            day, begun = picks.choice(self.names), time.time()
            granted = self.stage.reader.select(f"{self.way.table}/dt={day}")
            self.selects.append(Select(day, Span(begun, time.time()), granted))

    def alter(self) -> Wait:
        """An ALTER TABLE by a client without Airflow. It waits in the queue, or as Hive does if the rerun does that."""
        asked = time.time()
        lease = self._asked_again() if self.way.kind is Kind.SLEEP else self._queued()
        if lease is None:
            return Wait(time.time() - asked, reached=False)
        granted = time.time()
        time.sleep(ALTER_S)
        self.stage.locks.release(lease)
        self.alters.append(Span(granted, time.time()))
        return Wait(granted - asked)

    def _queued(self) -> Lease | None:
        changed = threading.Event()
        wanted = rules.request(ALTERS, writes=[self.way.table])
        pending = self.stage.locks.begin(wanted, changed.set, STUCK_S)
        while not isinstance(found := pending.poll(), Lease):
            if self.failed.is_set():
                pending.withdraw()
                return None
            changed.wait(min(pending.wait_s() or POLL_S, POLL_S))
            changed.clear()
        return found

    def _asked_again(self) -> Lease | None:
        while not self.over.is_set():
            try:
                return self.stage.locks.acquire(owner=ALTERS, writes=[self.way.table])
            except LockTimeout:
                self.over.wait(HIVES_SLEEP_S)
        return None


def rerun(stage: Stage, way: Way, count: int) -> Figures:
    """All *count* days, an ALTER TABLE when a third of them is done, and a daily run when half is."""
    play = Rerun(stage, way, [FIRST + timedelta(days=number) for number in range(count)])
    today = FIRST + timedelta(days=count + 10)
    with ThreadPoolExecutor(1, "alter") as pool, play.read():
        begun = play.begin()
        play.reach_midst(count // 3)
        altering = None if way.kind in (Kind.UNLOCKED, Kind.STEPS) else pool.submit(play.alter)
        play.reach_midst(count // 2)
        asked = time.time()
        stage.airflow.trigger(f"{way.name}_daily", today, run_id=f"{way.name}-today")
        play.reach(count)
        play.over.set()
    alter = altering.result(STUCK_S) if altering else None
    play.finish()
    daily = Wait(play.jobs()[f"{today:%Y-%m-%d}"].begun - asked)
    return _figures(play, begun, alter, daily)


def blocked(stage: Stage, way: Way, count: int) -> Figures:
    """The same, undisturbed, but one day is held by a session of Hive's: the figures of the others."""
    play = Rerun(stage, way, [FIRST + timedelta(days=number) for number in range(count)])
    stage.writer.write(f"{way.table}/dt={play.names[count // 2]}")
    with play.read():
        begun = play.begin()
        play.reach(count - 1)
        stage.writer.finish()
        play.reach(count)
    play.finish()
    del play.days[count // 2]
    return _figures(play, begun, None, None)


def clear(stage: Stage, way: Way) -> None:
    """End what a rerun has left that came to no end, so that it is not in the way of the next."""
    airflow, locks = stage.airflow, stage.locks
    for dag_id in (way.name, f"{way.name}_daily"):
        airflow.api.pause(dag_id, True)
        for run in airflow.runs(dag_id):
            if run.state not in OVER:
                airflow.set_run_state(dag_id, run.run_id, "failed")
    for lease in locks.leases():
        locks.force_release(lease.id, reason="its rerun came to no end", user="the benchmark")


def _figures(play: Rerun, begun: float, alter: Wait | None, daily: Wait | None) -> Figures:
    jobs, starts = figures.jobs(play.notes())
    mine = {day: jobs[day] for day in play.names}
    runs = {play.run_id(day): name for day, name in zip(play.days, play.names, strict=True)}
    tenures = figures.tenures(play.stage.locks.history(play.way.table), runs)
    whole = Span(begun, max(span.ended for span in mine.values()))
    selects = [select for select in play.selects if select.day in mine and select.during.meets(whole)]
    written = {day: [span, *play.alters] for day, span in mine.items()}
    refused, floor = figures.shares(selects, written)
    return Figures(
        makespan_s=whole.seconds,
        starts=sum(starts[day] for day in mine) / len(mine),
        refused=refused,
        floor=floor,
        selects=len(selects),
        longest_job_s=max(span.seconds for span in jobs.values()),
        held=Held.of(tenures, mine) if tenures else None,
        alter=alter,
        daily=daily,
        between_s=figures.between(play.notes(), mine),
    )
