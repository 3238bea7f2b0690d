"""A DAG that has nothing to do with the locks: it must not notice that others wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task


@dag(schedule=timedelta(seconds=20), start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
def unrelated() -> None:
    @task
    def work() -> int:
        return 42

    work()


unrelated()
