"""The figures of a scene, from its notes and leases."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.spans import Span


@dataclass(frozen=True)
class Job:
    """One task that has worked. Times are in seconds since 1970.

    :param asked: when it asked for its lock first.
    :param worked: from the begin of its work to its end.
    :param held: from the grant of its lock to the release.
    :param starts: how many times a worker started it.
    """

    table: str
    weight: int
    asked: float
    worked: Span
    held: Span
    starts: int


@dataclass(frozen=True)
class Figures:
    """The figures of one scene.

    :param by_priority: pairs in which the job of lower weight began first, although the other had already asked.
    :param by_arrival: pairs of equal weight in which the later job began first.
    :param starts: worker starts per task.
    :param idle_s: for how long a requested table had no work: the median of the gaps, and the longest.
    :param makespan: of a table, from the first work to the end of the last, as a multiple of its jobs with a worker
        start each; the median over the tables.
    """

    tasks: int
    by_priority: int
    by_arrival: int
    starts: float
    idle_s: tuple[float, float]
    makespan: float
    daily_s: float | None = None
    alter_s: float | None = None


def inversions(jobs: Sequence[Job]) -> tuple[int, int]:
    """The inversions by priority, and by arrival, of the jobs on one table."""
    by_priority = by_arrival = 0
    for first in jobs:
        for later in jobs:
            if not first.worked.begun < later.worked.begun or first.table != later.table:
                continue
            if first.weight < later.weight:
                by_priority += later.asked < first.held.begun
            elif first.weight == later.weight:
                by_arrival += later.asked < first.asked
    return by_priority, by_arrival


def gaps(jobs: Sequence[Job]) -> list[float]:
    """For how long a requested table had no work between two of its jobs, in seconds."""
    found = []
    for table in {job.table for job in jobs}:
        there = sorted((job for job in jobs if job.table == table), key=lambda job: job.worked.begun)
        for number, (before, after) in enumerate(pairwise(there)):
            waiting_since = min(job.asked for job in there[number + 1 :])
            found.append(max(0.0, after.worked.begun - max(before.worked.ended, waiting_since)))
    return found


def figures(jobs: Mapping[str, Job], start_s: float, daily: str, alter: str) -> Figures:
    """
    :param jobs: by run.
    :param start_s: how long a worker start takes, measured in the same run.
    :param daily: the daily run's id; it and the ALTER TABLE's need not have been.
    """
    every = list(jobs.values())
    by_priority, by_arrival = inversions(every)
    idle = gaps(every) or [0.0]
    multiples = []
    for table in {job.table for job in every}:
        there = [job for job in every if job.table == table]
        whole = max(job.worked.ended for job in there) - min(job.worked.begun for job in there)
        multiples.append(whole / sum(job.worked.seconds + start_s for job in there))
    return Figures(
        len(every),
        by_priority,
        by_arrival,
        sum(job.starts for job in every) / len(every),
        (statistics.median(idle), max(idle)),
        statistics.median(multiples),
        *(jobs[name].worked.begun - jobs[name].asked if name in jobs else None for name in (daily, alter)),
    )
