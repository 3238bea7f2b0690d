"""Two DAGs that overwrite the same partition: over each lock store, and where each has one of its own. And two of one table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_hivelock import HiveLockedSparkSubmitOperator
from airflow_hivelock.spark.guard import SAFE_INSERT

JOB = Path(__file__).parents[1] / "halfway.py"

for _store in ("zookeeper", "postgresql", "metastore", "apart"):
    for _name in ("nightly", "backfill"):
        with DAG(f"{_name}_{_store}", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
            HiveLockedSparkSubmitOperator(
                task_id="overwrite",
                hivelock_conn_id=_store if _store != "apart" else f"apart_{_name}",
                writes=[f"race.{_store}/dt=2013-01-15"],
                application=str(JOB),
                application_args=[f"race.{_store}", _name, f"{{{{ var.value.notes }}}}/{_store}", "2013-01-15"],
                # Hive's writer would spare most of the harm: here it is the locks that must.
                conf={SAFE_INSERT: "true"},
            )

for _name, _day in (("nightly", "2013-01-15"), ("backfill", "2013-01-16")):
    with DAG(f"{_name}_two_partitions", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
        HiveLockedSparkSubmitOperator(
            task_id="overwrite",
            hivelock_conn_id="zookeeper",
            writes=[f"race.two_partitions/dt={_day}"],
            application=str(JOB),
            application_args=["race.two_partitions", _name, "{{ var.value.notes }}/two_partitions", _day],
        )
