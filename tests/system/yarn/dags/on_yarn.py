"""Jobs on YARN that run until their gate opens. The gate is a file with the name of the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_hivelock import HiveForceUnlockOperator, HiveLockedSparkSubmitOperator

PARTITION = "{{ params.table }}/dt=2013-01-15"
OPTIONS: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2013, 1, 1, tzinfo=UTC),
    "params": {"table": "dw.delays"},
}
JOB: dict[str, Any] = {
    "task_id": "job",
    "conn_id": "yarn_cluster",
    "yarn_track_via_rm_api": True,
    "application": "{{ var.value.job }}",
    "application_args": [
        "{{ var.value.gates }}/{{ run_id }}.log",
        "{{ var.value.gates }}/{{ run_id }}",
        PARTITION,
        "{{ var.value.fs }}",
    ],
    "driver_memory": "512m",
    "writes": [PARTITION],
    "retry_delay": timedelta(0),
}

with DAG("driver", **OPTIONS):
    HiveLockedSparkSubmitOperator(**JOB)

with DAG("driver_again", **OPTIONS):
    HiveLockedSparkSubmitOperator(retries=1, **JOB)

with DAG("driver_anew", **OPTIONS):
    HiveLockedSparkSubmitOperator(retries=1, durable=False, **JOB)

with DAG("client", **OPTIONS):
    HiveLockedSparkSubmitOperator(**JOB | {"conn_id": "yarn_client", "yarn_track_via_rm_api": False})

with DAG("force", **OPTIONS):
    HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["{{ params.table }}"])
