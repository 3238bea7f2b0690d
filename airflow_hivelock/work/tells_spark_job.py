"""What SparkSubmitOperator has submitted, told as soon as it is known. It imports the Spark provider; :mod:`.spark_job` does not."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.url import secrets
from airflow_hivelock.spark import URL
from airflow_hivelock.work.spark_job import SparkJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SUBMITTED = re.compile(r"(?<![\w/])application_\d+_\d+")
"""An application that YARN knows: not one whose id it has given, and whose files are uploaded to a path of that name."""


class TellsItsJob(SparkSubmitOperator):
    """SparkSubmitOperator that calls HiveLockMixin as soon as its job has an id."""

    def submits(self) -> None:
        """Called before a job is submitted that outlives spark-submit."""

    def record_application(self, application: SparkJob) -> None:
        """Called once the cluster has given that job an id."""

    def _get_hook(self) -> Any:
        hook: Any = super()._get_hook()
        if hook._connection["deploy_mode"] == "cluster":
            if not (
                hook._should_track_driver_status
                or hook._should_track_driver_via_k8s_api()
                or hook._should_track_yarn_application_via_rm_api()
            ):
                raise InvalidRequest(
                    f"{self.task_id}: in cluster mode the job outlives spark-submit, and nobody could tell when it ends; "
                    "set yarn_track_via_rm_api=True or track_driver_via_k8s_api=True"
                )
            self.submits()
            hook._conf = _driver_environment(hook) | hook._conf
            hook._process_spark_submit_log = partial(self._record_from, hook, hook._process_spark_submit_log)
        return hook

    def _record_from(self, hook: Any, process: Callable[[Iterator[str]], None], lines: Iterator[str]) -> None:
        """Record the job as soon as spark-submit has said its id: it then goes on for seconds, and the job runs."""
        for line in lines:
            process(iter((line,)))
            job_id = hook._driver_id or (hook._yarn_application_id if _SUBMITTED.search(line) else None)
            if hook._kubernetes_driver_pod:
                job_id = f"{hook._connection['namespace']}:{hook._kubernetes_driver_pod}"
            if job_id:
                self.record_application(self.spark_job(job_id))

    def spark_job(self, job_id: str) -> SparkJob:
        """The job of that id, submitted as this operator does."""
        return SparkJob.submitted_by(self, job_id)


def _driver_environment(hook: Any) -> dict[str, str]:
    """The settings that tell a driver in a cluster, which inherits no environment, where its lease is kept.

    None where that would show a password, as Spark's own page shows all settings; nor on a standalone cluster.
    """
    prefix = "spark.yarn.appMasterEnv" if hook._is_yarn else "spark.kubernetes.driverEnv" if hook._is_kubernetes else ""
    url = os.environ.get(URL, "")
    return {f"{prefix}.{URL}": url} if prefix and url and not secrets(url) else {}
