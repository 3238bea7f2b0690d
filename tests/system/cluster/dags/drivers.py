"""Jobs on a cluster that run until their gate opens. The gate is a file with the name of the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Variable

from airflow_hivelock import HiveForceUnlockOperator, HiveLockedSparkSubmitOperator

OPTIONS: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2013, 1, 1, tzinfo=UTC),
    "params": {"table": "dw.delays"},
}
JOB: dict[str, Any] = {
    "task_id": "job",
    "conn_id": "cluster",
    "writes": ["{{ params.table }}/dt=2013-01-15"],
    "retry_delay": timedelta(0),
    **Variable.get("job", deserialize_json=True),
}

with DAG("driver", **OPTIONS):
    HiveLockedSparkSubmitOperator(**JOB)

with DAG("driver_again", **OPTIONS):
    HiveLockedSparkSubmitOperator(retries=1, **JOB)

with DAG("driver_anew", **OPTIONS):
    HiveLockedSparkSubmitOperator(retries=1, durable=False, **JOB)

with DAG("client", **OPTIONS):
    HiveLockedSparkSubmitOperator(**JOB | {"conn_id": "spark_default", "yarn_track_via_rm_api": False})

with DAG("force", **OPTIONS):
    HiveForceUnlockOperator(task_id="force", min_age=timedelta(0), objects=["{{ params.table }}"])
