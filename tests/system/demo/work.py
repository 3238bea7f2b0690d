"""What worked under each lease, and for how long each lease was held while nothing did."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_hivelock.locks import Tenure

    Stretch = tuple[datetime, datetime]
    Jobs = Mapping[str, Sequence[tuple[datetime, datetime | None]]]


def jobs(notes: Iterable[str]) -> Jobs:
    """When the jobs of each lease began and ended, by lease id; None for one that was killed.

    :param notes: lines as :mod:`tests.system.demo.spark_submit` writes them.
    """
    found: defaultdict[str, list[tuple[datetime, datetime | None]]] = defaultdict(list)
    for what, lease_id, seconds in (line.split() for line in notes):
        at = datetime.fromtimestamp(float(seconds), UTC)
        if what == "begin":
            found[lease_id].append((at, None))
        else:
            found[lease_id][-1] = (found[lease_id][-1][0], at)
    return found


def worked(tenure: Tenure, done: Jobs, last: datetime) -> list[Stretch]:
    """The times of work under the lease of *tenure*, in order; for a lease that is still held, up to *last*."""
    end = tenure.ended or last
    return [
        (max(begun, tenure.granted), min(ended or end, end))
        for begun, ended in sorted(done.get(tenure.lease_id, ()), key=lambda job: job[0])
        if begun < end
    ]


@dataclass(frozen=True)
class Holds:
    """How long the leases of a run were held, compared with their work; in seconds, for all leases with a job that have
    ended without force.

    :param idle_s: the longest time for which one of them was held without work.
    :param idle: the owner of that lease.
    """

    held_s: float
    worked_s: float
    idle_s: float
    idle: str

    @classmethod
    def of(cls, tenures: Iterable[Tenure], done: Jobs) -> Holds:
        held_s = worked_s = 0.0
        idle: list[tuple[float, str]] = []
        for tenure in tenures:
            if tenure.ended is None or tenure.lease_id not in done:
                continue
            stretches = worked(tenure, done, tenure.ended)
            held_s += (tenure.ended - tenure.granted).total_seconds()
            worked_s += sum((ended - begun).total_seconds() for begun, ended in stretches)
            edges = [tenure.granted, *(at for stretch in stretches for at in stretch), tenure.ended]
            idle += [((after - before).total_seconds(), tenure.owner) for before, after in list(pairwise(edges))[::2]]
        return cls(held_s, worked_s, *max(idle))

    @property
    def ratio(self) -> float:
        """Held ÷ worked."""
        return self.held_s / self.worked_s
