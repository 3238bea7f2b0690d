"""The crowds that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SLOTS = 6
"""Of the pool that all tasks share."""

POOL = "work"
URGENT = 10
"""The daily run's ``priority_weight``; the others have 1."""

CROWD, DAILY, ALTER, BUSY = "crowd", "daily", "alter", "busy"
"""The DAGs. A run's logical date names the table that it wants."""


@dataclass(frozen=True)
class Scene:
    """Tasks that want the same tables.

    :param number: of the scene; it has tables of its own.
    :param tasks: how many, spread over the *tables*.
    :param latecomers: whether a daily run of higher weight and an ALTER TABLE come once three jobs have ended.
    :param busy_s: for how long other tasks take all slots first, in seconds.
    """

    number: int
    name: str
    title: str
    tasks: int
    tables: int = 1
    latecomers: bool = True
    busy_s: float = 0.0

    def date(self, number: int) -> datetime:
        """The logical date of the task of that number: a day for each table, a second for each task."""
        day = datetime(2013 + self.number, 1, 1, tzinfo=UTC) + timedelta(days=number % self.tables)
        return day + timedelta(seconds=number)

    def run_id(self, dag_id: str, number: int) -> str:
        return f"{self.name}-{dag_id}-{number}"


def scenes(*, quick: bool) -> list[Scene]:
    """
    :param quick: with few tasks, for a short time.
    """
    few, many, tables, busy_s = (6, 20, 2, 30.0) if quick else (16, 1_000, 50, 300.0)
    return [
        Scene(1, "16", f"{few} tasks, one table", few),
        Scene(2, "60", f"{min(60, many)} tasks, one table", min(60, many)),
        Scene(
            3, "busy", f"{few} tasks, one table; slots busy for {busy_s:.0f} s", few, latecomers=False, busy_s=busy_s
        ),
        Scene(4, "many", f"{many:,} tasks over {tables} tables", many, tables, latecomers=False),
    ]
