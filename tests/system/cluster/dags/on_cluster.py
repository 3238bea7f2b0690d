"""Jobs on a standalone cluster that run until their gate opens. The gate is a file with the name of the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_hivelock import HiveForceUnlockOperator, HiveLockedSparkSubmitOperator

OPTIONS: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2013, 1, 1, tzinfo=UTC),
    "params": {"table": "dw.delays"},
}
JOB: dict[str, Any] = {
    "task_id": "job",
    "conn_id": "spark_cluster",
    "application": "{{ var.value.jar }}",
    "java_class": "servers.ClusterJob",
    "application_args": ["{{ var.value.gates }}/{{ run_id }}.log", "{{ var.value.gates }}/{{ run_id }}"],
    "driver_memory": "128m",
    "writes": ["{{ params.table }}/dt=2013-01-15"],
    "retry_delay": timedelta(0),
}

with DAG("driver", **OPTIONS):
    HiveLockedSparkSubmitOperator(**JOB)

with DAG("driver_again", **OPTIONS):
    HiveLockedSparkSubmitOperator(retries=1, **JOB)

with DAG("driver_anew", **OPTIONS):
    HiveLockedSparkSubmitOperator(retries=1, durable=False, **JOB)

with DAG("force", **OPTIONS):
    HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["{{ params.table }}"])
