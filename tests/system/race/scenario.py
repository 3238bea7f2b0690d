"""The jobs of each race, their locks, and the check whether one job has harmed another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dags_examples.jobs import load_flights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BASE = "base"
COLUMNS = ", ".join(column.split()[0] for column in load_flights.COLUMNS.split(","))
"""All columns except the day. Spark 3.5 has no ``* EXCEPT (dt)``."""

FLIGHTS = {
    "2013-01-12": 690,
    "2013-01-13": 828,
    "2013-01-14": 928,
    "2013-01-15": 894,
    "2013-01-16": 901,
    "2013-01-17": 927,
    "2013-01-18": 924,
}
"""The days of the loaded week, each with its number of flights in the CSV."""

WEEK = f"dt={min(FLIGHTS)}..{max(FLIGHTS)}"
ROWS = (
    "SELECT dt, job, count(*), count(tailnum) FROM {table} "
    f"WHERE dt BETWEEN '{min(FLIGHTS)}' AND '{max(FLIGHTS)}' GROUP BY dt, job"
)
"""The job that wrote the rows of each day, and their number. It reads every row."""

REPORT = ROWS.replace(
    "count(tailnum)",
    "count_if(distance >= (SELECT avg(distance) FROM {table} "
    f"WHERE dt BETWEEN '{min(FLIGHTS)}' AND '{max(FLIGHTS)}'))",
)
"""The same as a report, with the number of long flights. It reads the week twice."""


@dataclass(frozen=True)
class Job:
    """One job of a race. It overwrites one day with its own rows, or reads the week.

    :param name: the value of the column ``job`` in its rows.
    :param day: the day that it overwrites. None: it reads the week.
    """

    name: str
    day: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Templates of the data that it locks SHARED."""
        return () if self.day else (f"{{table}}/{WEEK}",)

    @property
    def writes(self) -> tuple[str, ...]:
        """Templates of the data that it locks EXCLUSIVE."""
        return (f"{{table}}/dt={self.day}",) if self.day else ()

    @property
    def statement(self) -> str:
        """Template of its SQL. It writes four files, like four tasks of a larger job."""
        if self.day is None:
            return REPORT
        return (
            f"INSERT OVERWRITE TABLE {{table}} PARTITION (dt = '{self.day}') SELECT /*+ REPARTITION(4) */ "
            f"{COLUMNS}, '{self.name}' AS job FROM dw.flights WHERE dt = '{self.day}'"
        )

    @property
    def hive_statement(self) -> str:
        """Template of its SQL for Hive, which does not have that hint and ``count_if``."""
        return ROWS if self.day is None else self.statement.replace("/*+ REPARTITION(4) */ ", "")


@dataclass(frozen=True)
class Scenario:
    """Two jobs that start together.

    :param hive: the job of real Hive, if Hive takes part.
    """

    name: str
    jobs: tuple[Job, ...]
    hive: Job = Job("hive")

    def with_hive(self) -> Scenario:
        """The same scenario with the job of real Hive, which starts together with the others."""
        return replace(self, jobs=(*self.jobs, self.hive))

    def wrong(self, rows: Iterable[tuple[Any, ...]], *, finished: bool) -> str | None:
        """The error in *rows*, the answer of :data:`ROWS`. None if there is no error.

        Every day must have all its rows from one job.

        :param finished: all jobs have ended, so each day that a job overwrites must have the rows of such a job.
        """
        found: dict[str, dict[str, int]] = {day: {} for day in FLIGHTS}
        for day, job, count, _ in rows:
            found[day][job] = count
        bad = [
            f"{day}: {_counts(jobs)} of {FLIGHTS[day]}"
            for day, jobs in found.items()
            if not any(jobs == {job: FLIGHTS[day]} for job in self._writers(day, finished=finished))
        ]
        return "; ".join(bad) or None

    def _writers(self, day: str, *, finished: bool) -> list[str]:
        writers = [job.name for job in self.jobs if job.day == day]
        return writers if finished and writers else [*writers, BASE]


def _counts(jobs: Mapping[str, int]) -> str:
    return " + ".join(f"{count} by {job}" for job, count in sorted(jobs.items())) or "none"


SAME_PARTITION = Scenario("two overwrites of one partition", (Job("a", "2013-01-15"), Job("b", "2013-01-15")))
TWO_PARTITIONS = Scenario(
    "overwrites of two partitions", (Job("a", "2013-01-15"), Job("b", "2013-01-16")), Job("hive", "2013-01-17")
)
WEEK_READ = Scenario("a week read, a day overwritten", (Job("a", "2013-01-15"), Job("b")), Job("hive", "2013-01-16"))
SCENARIOS = (SAME_PARTITION, TWO_PARTITIONS, WEEK_READ)
