"""The contents of the metadata database, read without Airflow's models. It never writes.

SQLite runs in WAL mode: readers and the writer do not block each other. The file stores the mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class TaskState:
    """A task instance. Times are UTC; `trigger_id` is set while it is deferred, `pid` while it runs."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    state: str | None
    queued_at: datetime | None
    start: datetime | None
    end: datetime | None
    trigger_id: int | None
    pool: str
    pid: int | None


@dataclass(frozen=True)
class RunState:
    """A DAG run. Times are UTC; `backfill_id` is set on runs that a backfill made."""

    dag_id: str
    run_id: str
    state: str
    run_type: str
    logical_date: datetime | None
    queued_at: datetime | None
    start: datetime | None
    end: datetime | None
    backfill_id: int | None


def _columns(names: str, times: dict[str, str]) -> list[sa.ColumnElement[Any]]:
    """Columns by name, and those that hold times under the names that the states give them."""
    plain: list[sa.ColumnElement[Any]] = [sa.column(name) for name in names.split()]
    return plain + [sa.column(name, sa.DateTime(timezone=True)).label(label) for name, label in times.items()]


_TASKS = sa.select(
    *_columns(
        "dag_id run_id task_id map_index try_number state trigger_id pool pid",
        {"queued_dttm": "queued_at", "start_date": "start", "end_date": "end"},
    )
).select_from(sa.table("task_instance"))

_RUNS = sa.select(
    *_columns(
        "dag_id run_id state run_type backfill_id",
        {"logical_date": "logical_date", "queued_at": "queued_at", "start_date": "start", "end_date": "end"},
    )
).select_from(sa.table("dag_run"))


class Metadata:
    """A read-only view of Airflow's database."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)

    def tasks(self, **equal: Any) -> list[TaskState]:
        """Task instances with these column values; None matches any value. In order of run and task."""
        return [TaskState(**row) for row in self._rows(_TASKS, "run_id task_id map_index", equal)]

    def runs(self, **equal: Any) -> list[RunState]:
        """DAG runs with these column values; None matches any value. In order of run id."""
        return [RunState(**row) for row in self._rows(_RUNS, "run_id", equal)]

    def last_job(self, job_type: str) -> int:
        """The id of the newest component of that type, 0 when there was none."""
        job: sa.Select[Any] = sa.select(sa.func.max(sa.column("id"))).select_from(sa.table("job"))
        with self._engine.connect() as connection:
            return connection.scalar(job.where(sa.column("job_type") == job_type)) or 0

    def triggerers(self, trigger_ids: Sequence[int]) -> set[int | None]:
        """The triggerers that Airflow has given those triggers to, by the ids of their jobs; None if it has not yet."""
        given: sa.Select[Any] = sa.select(sa.column("triggerer_id")).select_from(sa.table("trigger"))
        with self._engine.connect() as connection:
            return set(connection.scalars(given.where(sa.column("id").in_(trigger_ids))))

    def _rows(self, query: sa.Select[Any], order: str, equal: dict[str, Any]) -> list[dict[str, Any]]:
        for name, value in equal.items():
            if value is not None:
                query = query.where(sa.column(name) == value)
        with self._engine.connect() as connection:
            rows = connection.execute(query.order_by("dag_id", *order.split())).mappings().all()
        return [{name: _utc(value) for name, value in row.items()} for row in rows]


def _utc(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
