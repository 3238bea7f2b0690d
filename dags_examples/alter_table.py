"""Change a big table under EXCLUSIVE. It waits for the earlier requests, and the later ones wait for it."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_hivelock import HiveLockedSparkSubmitOperator, release_locks

JOBS = Path(__file__).parent / "jobs"

with DAG(
    "alter_table",
    description=__doc__,
    schedule=None,
    params={
        "table": Param("dw.delays", type="string"),
        "column": Param("cancelled BIGINT", type="string", description="name and type of the column to add"),
    },
    tags=["hivelock"],
):
    HiveLockedSparkSubmitOperator(
        task_id="add_column",
        writes=["{{ params.table }}"],
        application=str(JOBS / "alter_table.py"),
        application_args=["{{ params.table }}", "--column", "{{ params.column }}"],
        on_failure_callback=release_locks,
    )
