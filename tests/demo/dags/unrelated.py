"""A DAG that has nothing to do with the locks: it must not notice that others wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

with DAG("unrelated", schedule=timedelta(seconds=20), start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    PythonOperator(task_id="work", python_callable=str) >> EmptyOperator(task_id="done")
