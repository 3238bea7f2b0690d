"""The ways to lock a rerun's days that are compared."""

from __future__ import annotations

import enum
from dataclasses import dataclass

SLOTS = 4
"""For the jobs: of a pool, for LocalExecutor's own parallelism bounds what runs, not what it has taken off the scheduler
(Airflow 3.3.2), so that without a pool no task of higher weight passes those that are due as well."""

MORE_SLOTS = 2
"""For what is no job: the unlock tasks."""

POOL = "work"

HIVES_SLEEP_S = 60.0
"""``hive.lock.sleep.between.retries``, by default."""

URGENT = 10
"""The daily run's ``priority_weight``; a day of the rerun has 1, as by default."""


class Kind(enum.Enum):
    """The tasks of a day's DAG."""

    UNLOCKED = enum.auto()
    ONE_TASK = enum.auto()
    CHAIN = enum.auto()
    STEPS = enum.auto()
    SLEEP = enum.auto()


@dataclass(frozen=True)
class Way:
    """One way, which has a table and two DAGs of its own.

    :param name: of its DAG; that of its daily run is ``<name>_daily``.
    :param title: what the report calls it.
    :param most_held: the aim for held ÷ worked; None where nothing is aimed at.
    :param max_leases: of its lock tasks.
    """

    name: str
    kind: Kind
    title: str
    most_held: float | None = None
    max_leases: int | None = None

    @property
    def table(self) -> str:
        return f"dw.{self.name}"


UNLOCKED = Way("unlocked", Kind.UNLOCKED, "without locks")
STEPS = Way("steps", Kind.STEPS, "two tasks in a row, without locks: from the first one's end to the job")
BEFORE = Way("before", Kind.CHAIN, "lock, job, unlock, without a bound")
LATE = Way("late", Kind.ONE_TASK, "one task, HiveLockMixin", most_held=1.2)
BOUNDED = Way("bounded", Kind.CHAIN, f"lock, job, unlock, max_leases={SLOTS}", most_held=1.5, max_leases=SLOTS)
SLEEP = Way("sleep", Kind.SLEEP, "sleep and retry in the task, as Hive does")
BLOCKED = Way("blocked", Kind.ONE_TASK, "one task, HiveLockMixin; Hive holds one of the days", most_held=1.2)
WAYS = (UNLOCKED, STEPS, BEFORE, LATE, BOUNDED, SLEEP, BLOCKED)
