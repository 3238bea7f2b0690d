"""The figures of a rerun, from its notes and tenures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.samples import Samples
from tests.support.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_hivelock.locks import Tenure


@dataclass(frozen=True)
class Select:
    """A reader's look at a day."""

    day: str
    during: Span
    granted: bool


@dataclass(frozen=True)
class Wait:
    """How long one that came later waited, in seconds.

    :param reached: False for one that had not got its turn when the rerun was over.
    """

    seconds: float
    reached: bool = True


@dataclass(frozen=True)
class Held:
    """The days' leases, compared with their jobs.

    :param ratio: held ÷ worked, summed over the days.
    :param idle_before_s: for each day, how long it was locked before its job began.
    :param idle_s: for each day, how long it was locked while its job did not work.
    :param most: how many days were held at once.
    """

    ratio: float
    idle_before_s: Samples
    idle_s: Samples
    most: int

    @classmethod
    def of(cls, tenures: Mapping[str, Span], jobs: Mapping[str, Span]) -> Held:
        """*tenures* and *jobs* by day."""
        return cls(
            sum(held.seconds for held in tenures.values()) / sum(jobs[day].seconds for day in tenures),
            Samples.of(jobs[day].begun - held.begun for day, held in tenures.items()),
            Samples.of(held.seconds - jobs[day].seconds for day, held in tenures.items()),
            most_at_once(tenures.values()),
        )


@dataclass(frozen=True)
class Figures:
    """The figures of one way.

    :param makespan_s: from the start of the rerun to the end of its last job.
    :param starts: how many times a worker started a task, per day.
    :param refused: the share of the SELECTs that were refused.
    :param floor: the share of them whose day was really being written.
    :param longest_job_s: the longest of the jobs.
    :param between_s: for each day, from the end of the task before the job to the job: Airflow's own time for a step.
    """

    makespan_s: float
    starts: float
    refused: float
    floor: float
    selects: int
    longest_job_s: float
    held: Held | None = None
    alter: Wait | None = None
    daily: Wait | None = None
    between_s: Sequence[float] = ()


def most_at_once(spans: Iterable[Span]) -> int:
    """How many of them overlap at most; one that ends as another begins does not."""
    steps = sorted((at, step) for span in spans for at, step in ((span.begun, 1), (span.ended, -1)))
    count = most = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return most


def jobs(notes: Iterable[str]) -> tuple[dict[str, Span], Counter[str]]:
    """The jobs that have ended, and how many times a worker started one of their tasks, both by day.

    :param notes: lines as :func:`.job.note` writes them.
    """
    begun: dict[str, float] = {}
    ended: dict[str, Span] = {}
    starts: Counter[str] = Counter()
    for what, day, at in (line.split() for line in notes):
        if what == "start":
            starts[day] += 1
        elif what == "begin":
            begun[day] = float(at)
        elif what == "end":
            ended[day] = Span(begun[day], float(at))
    return ended, starts


def between(notes: Iterable[str], days: Iterable[str]) -> list[float]:
    """The seconds from the end of the task before the job to the job, of each of *days*.

    :param notes: as of :func:`jobs`.
    """
    at = {(what, day): float(when) for what, day, when in (line.split() for line in notes)}
    return [at["begin", day] - at["first", day] for day in days if ("first", day) in at]


def tenures(history: Iterable[Tenure], runs: Mapping[str, str]) -> dict[str, Span]:
    """The leases that have ended, by day.

    :param runs: the day of each run, by the run's id.
    """
    found = {}
    for tenure in history:
        parts = tenure.owner.split("/")
        if len(parts) > 2 and parts[2] in runs and tenure.ended:
            found[runs[parts[2]]] = Span(tenure.granted.timestamp(), tenure.ended.timestamp())
    return found


def shares(selects: Sequence[Select], written: Mapping[str, Sequence[Span]]) -> tuple[float, float]:
    """The share of the SELECTs that were refused, and the share whose day was being written."""
    refused = sum(not select.granted for select in selects)
    floor = sum(any(span.meets(select.during) for span in written.get(select.day, ())) for select in selects)
    return refused / len(selects), floor / len(selects)
