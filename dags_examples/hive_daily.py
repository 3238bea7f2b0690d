"""Compute the late flights of a day, by a job in Hive. It waits for its locks without a worker slot.

Needs ``apache-airflow-providers-apache-hive``, and a connection of type ``hiveserver2``. Hive locks each statement by itself. If it
locks in ZooKeeper, its session for this job takes no locks, because it would wait for the locks of its own task.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG

from airflow_hivelock import locked, release_locks

with DAG(
    "hive_daily",
    description=__doc__.partition("\n")[0],
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    max_active_runs=20,
    tags=["hivelock"],
) as works:
    locked(SQLExecuteQueryOperator)(
        task_id="late_flights",
        conn_id="hiveserver2_default",
        sql="""
            INSERT OVERWRITE TABLE dw.late_flights PARTITION (dt='{{ ds }}')
            SELECT carrier, count(*) FROM dw.flights WHERE dt = '{{ ds }}' AND dep_delay > 15 GROUP BY carrier
        """,
        lock_sql=True,
        on_failure_callback=release_locks,
    )
