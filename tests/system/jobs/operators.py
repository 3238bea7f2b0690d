"""The operators of the clusters, under locks, with what has each of them run a writer: a row of data for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
from airflow.providers.google.cloud.operators.dataproc import DataprocSubmitJobOperator

from airflow_hivelock import locked
from tests.support.clusters import Glue
from tests.support.clusters.dataproc import REGION
from tests.support.clusters.rest import SUBMIT
from tests.system.deaths.shape import words

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM, *ARGUMENTS = words()

OPERATORS: Mapping[str, tuple[type[Any], Mapping[str, Any], Mapping[str, Any]]] = {
    "livy": (LivyOperator, {"file": PROGRAM, "args": ARGUMENTS, "polling_interval": 1}, {}),
    "databricks": (
        DatabricksSubmitRunOperator,
        {
            "spark_python_task": {"python_file": PROGRAM, "parameters": ARGUMENTS},
            "existing_cluster_id": "writers",
            "polling_period_seconds": 1,
        },
        {},
    ),
    "emr": (
        EmrAddStepsOperator,
        {
            "job_flow_id": "j-WRITERS",
            "steps": [
                {
                    "Name": "writer",
                    "HadoopJarStep": {"Jar": "command-runner.jar", "Args": [*SUBMIT, PROGRAM, *ARGUMENTS]},
                }
            ],
            "waiter_delay": 1,
            "waiter_max_attempts": 600,
        },
        {"wait_for_completion": True},
    ),
    "glue": (
        GlueJobOperator,
        {
            "job_name": "writer",
            "script_args": {"--command": " ".join([PROGRAM, *ARGUMENTS])},
            "aws_conn_id": Glue.conn_id,
            "stop_job_run_on_kill": True,
            "job_poll_interval": 1,
            "waiter_delay": 1,
            "waiter_max_attempts": 600,
        },
        {},
    ),
    "dataproc": (
        DataprocSubmitJobOperator,
        {
            "project_id": "writers",
            "region": REGION,
            "job": {
                "placement": {"cluster_name": "writers"},
                "pyspark_job": {"main_python_file_uri": PROGRAM, "args": ARGUMENTS},
            },
            "polling_interval_seconds": 1,
        },
        {},
    ),
    "kubernetes": (
        KubernetesPodOperator,
        {
            "name": "writer",
            "namespace": "jobs",
            "image": "writer",
            "cmds": [PROGRAM],
            "arguments": ARGUMENTS,
            "kubernetes_conn_id": "kubernetes_default",
            "poll_interval": 1,
        },
        {},
    ),
}
"""By kind of cluster: the operator, its arguments, and those that only the waiting one has."""

LOCKED = {kind: locked(operator) for kind, (operator, _, _) in OPERATORS.items()}


def waiting(kind: str, **more: Any) -> None:
    """A task whose process waits for its job."""
    _, given, waits = OPERATORS[kind]
    LOCKED[kind](task_id="job", **given, **waits, **more)


def deferring(kind: str, **more: Any) -> None:
    """A task that is deferred until its job has ended."""
    _, given, _ = OPERATORS[kind]
    LOCKED[kind](task_id="job", deferrable=True, **given, **more)
