"""Which kinds of jobs there are, and which operators' work is what.

Operators are told by the names of their classes, so that no provider is imported for it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from airflow_hivelock.work.jobs import trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.work.jobs.job import Job

GROUP = "airflow_hivelock.jobs"
"""Entry points of it are kinds of jobs: their name is the kind, and what they load its class."""

KINDS = {
    "spark": "airflow_hivelock.work.spark_job:SparkJob",
    "resumable": "airflow_hivelock.work.jobs.resumable:ResumableJob",
    "emr-steps": "airflow_hivelock.work.jobs.emr:EmrSteps",
    "emr-job-flow": "airflow_hivelock.work.jobs.emr:EmrJobFlow",
    "emr-serverless": "airflow_hivelock.work.jobs.emr:EmrServerlessRun",
    "emr-on-eks": "airflow_hivelock.work.jobs.emr:EmrOnEksRun",
    "dataproc-job": "airflow_hivelock.work.jobs.dataproc:DataprocJob",
    "dataproc-batch": "airflow_hivelock.work.jobs.dataproc:DataprocBatch",
    "pod": "airflow_hivelock.work.jobs.kubernetes:KubernetesPod",
    "kubernetes-job": "airflow_hivelock.work.jobs.kubernetes:KubernetesJob",
    "spark-application": "airflow_hivelock.work.jobs.kubernetes:SparkApplication",
}

RESUMABLE = frozenset(
    {
        "airflow.sdk.bases.resumablejobmixin.ResumableJobMixin",
        "airflow.providers.common.compat._resumable_job_mixin.ResumableJobMixin",  # its stand-in before Airflow 3.3
    }
)

ENDS_WITH_PROCESS = frozenset(
    {
        "airflow.providers.standard.operators.bash.BashOperator",
        "airflow.providers.standard.operators.empty.EmptyOperator",
        "airflow.providers.standard.operators.python.PythonOperator",
        "airflow.sdk.bases.sensor.BaseSensorOperator",
        # HiveServer2 goes on: operators.hive_jobs says so before a statement is sent there.
        "airflow.providers.apache.hive.operators.hive.HiveOperator",
        "airflow.providers.apache.spark.operators.spark_sql.SparkSqlOperator",
        "airflow.providers.common.sql.operators.sql.BaseSQLOperator",
    }
)
"""Operators whose work has ended once their process, and what that has started on its host, has."""


@cache
def kind(name: str) -> type[Job]:
    """
    :raises KeyError: there is no such kind here.
    """
    if (path := KINDS.get(name)) is not None:
        module, _, attribute = path.partition(":")
        found: type[Job] = getattr(import_module(module), attribute)
        return found
    (entry,) = entry_points(group=GROUP, name=name) or [None]
    if entry is None:
        raise KeyError(name)
    loaded: type[Job] = entry.load()
    return loaded


@cache
def kind_of(operator: type) -> tuple[type[Job], str] | None:
    """The kind of an operator class's jobs, and the attribute which that sets once it has submitted; None for no known one.

    That attribute is ``""`` for what the operator's ``submit_job`` returns, or the kind watches for.
    """
    paths = _paths(operator)
    kinds = [kind(name) for name in (*KINDS, *(entry.name for entry in entry_points(group=GROUP)))]
    for path in paths:
        for each in kinds:
            if path in each.operators:
                return each, each.operators[path]
    return (kind("resumable"), "") if not RESUMABLE.isdisjoint(paths) else None


@cache
def ends_with_process(operator: type) -> bool:
    """Whether the work of an operator class is known to end with its process and with what that starts on its host."""
    return kind_of(operator) is None and not ENDS_WITH_PROCESS.isdisjoint(_paths(operator))


def job_of(operator: object) -> Job | None:
    """What *operator* has submitted, by what it has set on itself."""
    cls: type = type(operator)
    if (found := kind_of(cls)) is None:
        return None
    trust.learn(found[0].names_of(operator))
    return found[0].of(operator)


def watch(operator: object, record: Callable[[Job], None]) -> None:
    """Have *record* called with what *operator* submits, where what it sets on itself tells that late or never."""
    cls: type = type(operator)
    if (found := kind_of(cls)) is not None:
        trust.learn(found[0].names_of(operator))
        found[0].watch(operator, record)


def _paths(operator: type) -> list[str]:
    return [f"{base.__module__}.{base.__qualname__}" for base in operator.__mro__]
