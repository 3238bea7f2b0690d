"""The same day's job, capped in each of the ways."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG

from tests.bench.caps.ways import WAYS
from tests.bench.jobs import LockedJob, work

for _way in WAYS:
    _options: dict[str, Any] = {"max_active_runs": 100, "max_active_tasks": 100, **_way.dag}
    with DAG(_way.name, schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC), **_options):
        _day = f"{_way.table}/dt={{{{ ds }}}}"
        LockedJob(writes=[_day], **work(_way.name, "{{ ds }}", _day), **_way.task)
