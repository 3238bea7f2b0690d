"""The kinds of jobs, and the operators that submit each kind.

The names of classes identify operators, so that no provider is imported.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.job import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.work.jobs.job import Job

GROUP = "airflow_hivelock.jobs"
"""The group of entry points for other kinds of jobs. The name is the kind, and the object is its class."""

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
        "airflow.providers.common.compat._resumable_job_mixin.ResumableJobMixin",  # the substitute before Airflow 3.3
    }
)

ENDS_WITH_PROCESS = frozenset(
    {
        "airflow.providers.standard.operators.bash.BashOperator",
        "airflow.providers.standard.operators.empty.EmptyOperator",
        "airflow.providers.standard.operators.python.PythonOperator",
        "airflow.sdk.bases.sensor.BaseSensorOperator",
        # HiveServer2 and Impala can continue: operators.hive_jobs records that before it sends a statement. A server of
        # Spark Connect can, too: operators.connect_jobs knows whether a function uses one.
        "airflow.providers.apache.hive.operators.hive.HiveOperator",
        "airflow.providers.apache.spark.operators.spark_sql.SparkSqlOperator",
        "airflow.providers.common.sql.operators.sql.BaseSQLOperator",
    }
)
"""Operators whose work ends with their process and its child processes."""


@cache
def kind(name: str) -> type[Job]:
    """Return the class of the kind with that name.

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
    """Return the kind of an operator class's jobs, and the attribute that the operator sets after the submission.

    None if the operator is unknown. The attribute is empty if ``submit_job`` returns the job, or if the kind watches.

    :raises InvalidRequest: the kind is registered under another name, so no process could read it on a lease.
    """
    bases = paths(operator)
    kinds = {name: kind(name) for name in (*KINDS, *(entry.name for entry in entry_points(group=GROUP)))}
    for path in bases:
        for name, each in kinds.items():
            if path in each.operators:
                if each.kind != name:
                    raise InvalidRequest(
                        f"{each.__qualname__} has kind={each.kind!r}, but is registered as {name!r} in {GROUP}. Give both the "
                        "same name"
                    )
                return each, each.operators[path]
    return (kind("resumable"), "") if not RESUMABLE.isdisjoint(bases) else None


@cache
def ends_with_process(operator: type) -> bool:
    """Whether the work of an operator class certainly ends with its process and its child processes."""
    return kind_of(operator) is None and not ENDS_WITH_PROCESS.isdisjoint(paths(operator))


def job_of(operator: object) -> Job | None:
    """Return the job that *operator* has submitted, from its attributes. None if there is none."""
    cls: type = type(operator)
    if (found := kind_of(cls)) is None:
        return None
    trust.learn(found[0].names_of(operator))
    return found[0].of(operator)


def watch(operator: object, record: Callable[[Job], None]) -> None:
    """Make *operator* call *record* with each job that it submits: see :meth:`.Job.watch`."""
    cls: type = type(operator)
    if (found := kind_of(cls)) is not None:
        trust.learn(found[0].names_of(operator))
        found[0].watch(operator, record)
