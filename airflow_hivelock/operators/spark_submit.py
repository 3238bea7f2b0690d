"""HiveLockedSparkSubmitOperator: Spark jobs under locks."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import Lease, LockMode
from airflow_hivelock.locks.url import secrets
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.spark.guard import SAFE_INSERT, URL
from airflow_hivelock.work.spark_job import SparkJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.model import Work
    from airflow_hivelock.work.applications import Application

_SUBMITTED = re.compile(r"(?<![\w/])application_\d+_\d+")
"""The id in the log line of an accepted application. An earlier line has the id in the path of uploaded files."""


class HiveLockedSparkSubmitOperator(HiveLockMixin, SparkSubmitOperator):
    """SparkSubmitOperator under locks. It takes the arguments of SparkSubmitOperator and of HiveLockMixin.

    The job finds its lease in ``spark.hivelock.lease`` and ``spark.hivelock.token``. If it writes single partitions,
    ``spark.sql.hive.convertInsertingPartitionedTable`` is false unless ``conf`` sets it.
    """

    # This is true in client mode. In cluster mode the operator records a submission before it submits.
    work_ends_with_process = True

    def use_lease(self, lease: Lease, work: Work) -> None:
        conf = {
            "spark.hivelock.lease": lease.id,
            "spark.hivelock.work": work.name,
            "spark.hivelock.token": str(work.token),
        }
        if any(lock.mode is LockMode.EXCLUSIVE and lock.object.partition for lock in lease.locks):
            conf[SAFE_INSERT] = "false"
        self.conf = {**conf, **(self.conf or {})}

    def reconnects(self, context: Any, earlier: Application) -> SparkJob | None:
        """The job of an earlier try that SparkSubmitOperator continues. None if the cluster does not run it."""
        store = context.get("task_state_store") if self.durable else None
        if store is None:
            return None
        if isinstance(earlier, SparkJob) and store.get(self.external_id_key) != earlier.job_id:
            # The earlier try was killed after the lease recorded the job, but before Airflow did.
            store.set(self.external_id_key, earlier.job_id)
        job_id = store.get(self.external_id_key)
        job = SparkJob.submitted_by(self, job_id) if job_id else None
        return job if job and job.running() else None

    def _get_hook(self) -> Any:
        hook: Any = super()._get_hook()
        if hook._connection["deploy_mode"] == "cluster":
            if not (
                hook._should_track_driver_status
                or hook._should_track_driver_via_k8s_api()
                or hook._should_track_yarn_application_via_rm_api()
            ):
                raise InvalidRequest(
                    f"{self.task_id}: in cluster mode the job can outlive spark-submit, and its end would be unknown. "
                    "Set yarn_track_via_rm_api=True or track_driver_via_k8s_api=True"
                )
            self.record_submission()
            hook._conf = _driver_environment(hook) | hook._conf
            hook._process_spark_submit_log = partial(self._record_from, hook, hook._process_spark_submit_log)
        return hook

    def _record_from(self, hook: Any, process: Callable[[Iterator[str]], None], lines: Iterator[str]) -> None:
        """Record the job as soon as spark-submit prints its id. spark-submit runs for some more seconds."""
        recorded = ""
        for line in lines:
            process(iter((line,)))
            job_id = hook._driver_id or (hook._yarn_application_id if _SUBMITTED.search(line) else None)
            if hook._kubernetes_driver_pod:
                job_id = f"{hook._connection['namespace']}:{hook._kubernetes_driver_pod}"
            if job_id and job_id != recorded:  # its cluster is looked up once, not for each line
                self.record_application(SparkJob.submitted_by(self, job_id))
                recorded = job_id


def _driver_environment(hook: Any) -> dict[str, str]:
    """The settings with the lock store's URL for a driver in a cluster, which inherits no environment.

    Empty on a standalone cluster, and for a URL with a password, because Spark's own page shows all settings.
    """
    prefix = "spark.yarn.appMasterEnv" if hook._is_yarn else "spark.kubernetes.driverEnv" if hook._is_kubernetes else ""
    url = os.environ.get(URL, "")
    return {f"{prefix}.{URL}": url} if prefix and url and not secrets(url) else {}
