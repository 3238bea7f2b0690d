"""Locks for PySpark jobs. The import needs neither Airflow nor Spark. You can ship it as ``--py-files``, with kazoo.

Each statement of a job can take Hive's locks, wherever the job runs::

    enable_hive_locks(spark, "zookeeper://zk1:2181/hive_zookeeper_namespace")

A job that paused for longer than its lease does not know that other jobs have written in that time. So it stages its
output, and publishes it only if its token is current::

    guard = Guard.of(spark)
    with guard.overwrite("dw.delays/dt=2013-01-01") as path:
        delays.write.parquet(path)        # the long part: readers do not see it

``publication`` describes the protocol, and the remaining window between the check and the write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.spark.guard import URL, Guard

if TYPE_CHECKING:
    from airflow_hivelock.spark.hive_locks import HiveLocks, enable_hive_locks

__all__ = ["URL", "Guard", "HiveLocks", "enable_hive_locks"]


def __getattr__(name: str) -> Any:
    # The planner and py4j are loaded only when needed, because an Airflow worker needs only the guard's names.
    if name in ("HiveLocks", "enable_hive_locks"):
        from airflow_hivelock.spark import hive_locks

        return getattr(hive_locks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
