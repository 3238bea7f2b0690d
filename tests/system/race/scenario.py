"""Which two jobs race, what they would lock, and how to see that one has harmed the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dags_examples.jobs import load_flights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BASE = "base"
COLUMNS = ", ".join(column.split()[0] for column in load_flights.COLUMNS.split(","))
"""All but the day: Spark 3.5 has no ``* EXCEPT (dt)``."""

FLIGHTS = {
    "2013-01-12": 690,
    "2013-01-13": 828,
    "2013-01-14": 928,
    "2013-01-15": 894,
    "2013-01-16": 901,
    "2013-01-17": 927,
    "2013-01-18": 924,
}
"""The week that is loaded, and how many flights the CSV has on each of its days."""

WEEK = f"dt={min(FLIGHTS)}..{max(FLIGHTS)}"
ROWS = (
    "SELECT dt, job, count(*), count(tailnum) FROM {table} "
    f"WHERE dt BETWEEN '{min(FLIGHTS)}' AND '{max(FLIGHTS)}' GROUP BY dt, job"
)
"""Who wrote each day's rows, and how many there are; it looks at every row."""

REPORT = ROWS.replace(
    "count(tailnum)",
    "count_if(distance >= (SELECT avg(distance) FROM {table} "
    f"WHERE dt BETWEEN '{min(FLIGHTS)}' AND '{max(FLIGHTS)}'))",
)
"""The same as a report asks it, with the share of long flights: it goes over the week twice."""


@dataclass(frozen=True)
class Job:
    """One of the two: it overwrites one day with rows of its own, or else reads the week.

    :param name: what its rows have in the column ``job``.
    """

    name: str
    day: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Templates of what it locks to read."""
        return () if self.day else (f"{{table}}/{WEEK}",)

    @property
    def writes(self) -> tuple[str, ...]:
        """Templates of what it locks to write."""
        return (f"{{table}}/dt={self.day}",) if self.day else ()

    @property
    def statement(self) -> str:
        """Template of its SQL. Four files, as the four tasks of a larger job would write."""
        if self.day is None:
            return REPORT
        return (
            f"INSERT OVERWRITE TABLE {{table}} PARTITION (dt = '{self.day}') SELECT /*+ REPARTITION(4) */ "
            f"{COLUMNS}, '{self.name}' AS job FROM dw.flights WHERE dt = '{self.day}'"
        )

    @property
    def hive_statement(self) -> str:
        """Template of its SQL for Hive, which has no such hint and no conditional count."""
        return ROWS if self.day is None else self.statement.replace("/*+ REPARTITION(4) */ ", "")


@dataclass(frozen=True)
class Scenario:
    """Two jobs that start at the same moment.

    :param hive: the job of real Hive, if it takes part.
    """

    name: str
    jobs: tuple[Job, ...]
    hive: Job = Job("hive")

    def with_hive(self) -> Scenario:
        """The same, and real Hive runs its job at that moment, too."""
        return replace(self, jobs=(*self.jobs, self.hive))

    def wrong(self, rows: Iterable[tuple[Any, ...]], *, finished: bool) -> str | None:
        """The error in the answer of :data:`ROWS`, or None.

        Every day must have all its rows from one job. ``finished``: both jobs are over, and a day that was to be
        overwritten has been.
        """
        found: dict[str, dict[str, int]] = {day: {} for day in FLIGHTS}
        for day, job, count, _ in rows:
            found[day][job] = count
        bad = [
            f"{day}: {_told(jobs)} of {FLIGHTS[day]}"
            for day, jobs in found.items()
            if not any(jobs == {job: FLIGHTS[day]} for job in self._writers(day, finished=finished))
        ]
        return "; ".join(bad) or None

    def _writers(self, day: str, *, finished: bool) -> list[str]:
        writers = [job.name for job in self.jobs if job.day == day]
        return writers if finished and writers else [*writers, BASE]


def _told(jobs: Mapping[str, int]) -> str:
    return " + ".join(f"{count} by {job}" for job, count in sorted(jobs.items())) or "none"


SAME_PARTITION = Scenario("two overwrites of one partition", (Job("a", "2013-01-15"), Job("b", "2013-01-15")))
TWO_PARTITIONS = Scenario(
    "overwrites of two partitions", (Job("a", "2013-01-15"), Job("b", "2013-01-16")), Job("hive", "2013-01-17")
)
WEEK_READ = Scenario("a week read, a day overwritten", (Job("a", "2013-01-15"), Job("b")), Job("hive", "2013-01-16"))
SCENARIOS = (SAME_PARTITION, TWO_PARTITIONS, WEEK_READ)
