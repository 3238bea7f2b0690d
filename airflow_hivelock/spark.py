"""What a PySpark job asks about its lease; needs neither Airflow nor, to be imported, Spark.

A job that was stopped for longer than its lease does not know that others have written meanwhile. So it looks once more
before it makes its output visible::

    guard = Guard.of(spark)
    staged = …                  # the long part: nothing that a reader sees
    guard.check()               # LockLost: somebody else may have the partition
    spark.sql("INSERT OVERWRITE …")

The look and the write are two steps: what happens in between, it cannot see. Keep what follows it short.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager

URL = "AIRFLOW_HIVELOCK_URL"
"""In the environment of what HiveLockMixin's operators start: where the lease is kept. Spark's own page shows it nowhere."""


class Guard:
    """The lease that a job works under, by the token that it was started with.

    :param work: the job's name under the lease.
    """

    def __init__(self, manager: LockManager, lease_id: str, work: str, token: int) -> None:
        self.lease_id = lease_id
        self.work = work
        self.token = token
        self._manager = manager

    @classmethod
    def of(cls, spark: Any, url: str | None = None) -> Self:
        """The guard of a job that HiveLockedSparkSubmitOperator started.

        :param spark: the SparkSession; its configuration names the lease.
        :param url: the lock store, as ``connect`` takes it; needed in cluster mode, which passes no environment on.
        :raises InvalidRequest: the job was not started under a lease, or nothing says where that is kept.
        :raises StoreUnavailable: the lock store does not answer.
        """
        lease_id, work, token = (spark.conf.get(f"spark.hivelock.{name}", None) for name in ("lease", "work", "token"))
        if not (lease_id and work and token):
            raise InvalidRequest("this job has no lease; start it with HiveLockedSparkSubmitOperator")
        if not (url := url or os.environ.get(URL)):
            raise InvalidRequest(f"the lock store of lease {lease_id} is not known here: give its url, or set {URL}")
        return cls(connect(url), lease_id, work, int(token))

    def check(self) -> None:
        """The last look before the job publishes.

        :raises LockLost: it must not: its lease, or one of its locks, is gone, or a later try has started.
        :raises StoreUnavailable: nobody can tell; it must not publish either.
        """
        self._manager.check_token(self.lease_id, self.work, self.token)

    def close(self) -> None:
        """End the session with the lock store; the lease stands."""
        self._manager.close()
