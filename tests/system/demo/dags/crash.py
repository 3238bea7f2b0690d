"""A DAG whose task is killed while it holds a lock without a release: it makes a stale lock."""

from __future__ import annotations

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

from airflow_hivelock import HiveLockOperator

with DAG("crash", schedule=None, params={"dt": Param("2013-01-31", type="string")}):
    lock = HiveLockOperator(task_id="lock", writes=["dw.delays/dt={{ params.dt }}"])
    lock >> BashOperator(task_id="work", bash_command="kill -KILL $PPID")
