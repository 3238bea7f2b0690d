"""The common parts of the rows' DAGs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_hivelock import HiveForceUnlockOperator
from tests.system.deaths import writer
from tests.system.deaths.play import DAY

AT_ONCE: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(0)}


def options(**more: Any) -> dict[str, Any]:
    started = {"schedule": None, "start_date": datetime(2013, 1, 1, tzinfo=UTC), "params": {"table": "dw.delays"}}
    return {**started, "catchup": False, **more}


def names(day: str = DAY) -> dict[str, Any]:
    """Two tables, as a job that reads one and writes another has."""
    return {"reads": [f"dw.flights/{day}"], "writes": [f"{{{{ params.table }}}}/{day}"]}


def words(day: str = DAY) -> list[str]:
    """The command that runs a writer of the partition."""
    gates = "{{ var.value.gates }}/{{ run_id }}"
    beats = f"{{{{ var.value.gates }}}}/{{{{ params.table }}}}@{day}.beats"
    return [
        sys.executable,
        "-IS",
        writer.__file__,
        beats,
        gates,
        f"{gates}.{{{{ ti.task_id }}}}.{{{{ ti.try_number }}}}",
    ]


def command(day: str = DAY) -> str:
    return " ".join(words(day))


def look() -> list[DAG]:
    """DAGs that free what is stale, and that free by name."""
    with DAG("named", **options()) as named:
        HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["{{ params.table }}"], stale=False)
    with DAG("look", **options()) as stale:
        HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["{{ params.table }}"])
    return [named, stale]
