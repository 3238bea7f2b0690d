"""A deferred task, and a mapped task behind it."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag, task

from tests.support.airflow_server.gate import Gate


@dag(schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC), catchup=False)
def gated() -> None:
    @task
    def square(number: int) -> int:
        print(f"{number} squared is {number * number}")
        return number * number

    Gate(task_id="gate", path="{{ var.value.gates }}/{{ run_id }}") >> square.expand(number=[2, 3])


gated()
