"""The guard: checks a job's lease and token before the job publishes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import InvalidRequest, LockLost
from airflow_hivelock.locks.model import LockMode, LockObject
from airflow_hivelock.spark.publication import Publication
from airflow_hivelock.spark.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.manager import LockManager

URL = "AIRFLOW_HIVELOCK_URL"
"""The environment variable with the URL of the lock store.

HiveLockMixin's operators set it for their processes, and in cluster mode for the driver. In cluster mode Spark's own
page shows it. So a URL with a password is not passed on there.
"""

SAFE_INSERT = "spark.sql.hive.convertInsertingPartitionedTable"
"""False makes Spark write with Hive's writer. With Spark's own writer, writers of different partitions share a
directory, and silently lose each other's files."""


@dataclass(frozen=True)
class TaskLease:
    """The lease of the Airflow task that started this job, and the fencing token of that start."""

    lease_id: str
    work: str
    token: int


def task_lease(spark: Any) -> TaskLease | None:
    """The lease in the configuration of the session *spark*. None if no Airflow task started the job under a lease."""
    lease_id, work, token = (spark.conf.get(f"spark.hivelock.{name}", None) for name in ("lease", "work", "token"))
    return TaskLease(lease_id, work, int(token)) if lease_id and work and token else None


class Guard:
    """The lease of a job, with the token from the job's start.

    :param work: the job's name under the lease.
    :param spark: the job's SparkSession, if it publishes.
    """

    def __init__(self, manager: LockManager, lease_id: str, work: str, token: int, spark: Any = None) -> None:
        self.lease_id = lease_id
        self.work = work
        self.token = token
        self._manager = manager
        self._spark = spark

    @classmethod
    def of(cls, spark: Any, url: str | None = None) -> Self:
        """The guard of a job that HiveLockedSparkSubmitOperator started.

        :param spark: the SparkSession. Its configuration contains the lease.
        :param url: the lock store's URL, as for ``connect``. Needed in cluster mode if the URL has a password.
        :raises InvalidRequest: the job was not started under a lease, or the lock store is unknown.
        :raises StoreUnavailable: the lock store does not answer.
        """
        if (found := task_lease(spark)) is None:
            raise InvalidRequest("this job has no lease. Start it with HiveLockedSparkSubmitOperator")
        if not (url := url or os.environ.get(URL)):
            raise InvalidRequest(
                f"the lock store of lease {found.lease_id} is unknown here. Pass its url, or set {URL}"
            )
        return cls(connect(url), found.lease_id, found.work, found.token, spark)

    def check(self) -> None:
        """Check the lease and the token. This is the last check before the job publishes.

        :raises LockLost: the job must not publish, because it lost its lease or a lock, or a later try has started.
        :raises StoreUnavailable: the lock store does not answer. The job must not publish.
        """
        self._manager.check_token(self.lease_id, self.work, self.token)

    @contextmanager
    def overwrite(self, name: str) -> Iterator[str]:
        """Replace a partition or an unpartitioned table. The body writes to the yielded path, in the table's format.

        Until the body has ended, readers see all of the old data. From one moment on they see all of the new data. The
        old data stays on disk until the next publication. If the body raises, nothing is published.

        :param name: the object, as in the task's ``writes``: ``dw.delays/dt=2013-01-01``.
        :raises LockLost: the lease is gone, or a later try or another owner has published. Nothing was published.
        :raises InvalidRequest: the lease does not hold EXCLUSIVE on that object, or the table cannot be published.
        :raises StoreUnavailable: the lock store or the metastore does not answer.
        :raises Unsupported: Spark's client does not support this version of the metastore, or the session has no
            metastore, because it is of Spark Connect or was built without ``enableHiveSupport()``.
        """
        self.check()
        publication = Publication(self._target(self._locked(name)), self.token, self.check)
        try:
            yield publication.begin()
            publication.publish()
        finally:
            publication.end()

    def close(self) -> None:
        """End the session with the lock store. The lease stays held."""
        self._manager.close()

    def _target(self, written: LockObject) -> Target:
        return Target(self._spark, written)

    def _locked(self, name: str) -> LockObject:
        """The object with that *name*, after a check that the lease holds EXCLUSIVE on it."""
        written, lease = LockObject.parse(name), self._manager.find(self.lease_id)
        if lease is None:
            raise LockLost(
                f"lease {self.lease_id} is no longer held, so {self.work} must not write {written}. Clear the task"
            )
        exclusive = {lock.object for lock in lease.locks if lock.mode is LockMode.EXCLUSIVE}
        if not exclusive & {written, *written.parents}:
            raise InvalidRequest(f"lease {self.lease_id} does not hold {written} EXCLUSIVE. Add it to writes")
        return written
