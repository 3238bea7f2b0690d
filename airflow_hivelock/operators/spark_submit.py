"""HiveLockedSparkSubmitOperator: Spark under locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.model import Lease, LockMode
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.work.spark_job import SparkJob
from airflow_hivelock.work.tells_spark_job import TellsItsJob

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import Work
    from airflow_hivelock.work.applications import Application


SAFE_INSERT = "spark.sql.hive.convertInsertingPartitionedTable"
"""False makes Spark write with Hive's writer. Its own shares a directory among the writers of different partitions,
who then lose each other's files without a word."""


class HiveLockedSparkSubmitOperator(HiveLockMixin, TellsItsJob):
    """SparkSubmitOperator under locks; all that SparkSubmitOperator takes, and all that HiveLockMixin takes.

    The job finds its lease in ``spark.hivelock.lease`` and ``spark.hivelock.token``. Where it writes single partitions,
    ``spark.sql.hive.convertInsertingPartitionedTable`` is false unless ``conf`` says otherwise.
    """

    # In client mode. In cluster mode it says so itself before it submits.
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
        """What an earlier try submitted, if the cluster still runs it: SparkSubmitOperator goes on with that."""
        store = context.get("task_state_store") if self.durable else None
        if store is None:
            return None
        if isinstance(earlier, SparkJob) and store.get(self.external_id_key) != earlier.job_id:
            store.set(self.external_id_key, earlier.job_id)  # it was killed between the lease's record and Airflow's
        job_id = store.get(self.external_id_key)
        job = self.spark_job(job_id) if job_id else None
        return job if job and job.running() else None
