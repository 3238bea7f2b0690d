"""Hive's locks as HiveServer2 lists them. This backend lists locks and takes none."""

from airflow_hivelock.locks.backends.hiveserver2.backend import HiveServer2Backend

__all__ = ["HiveServer2Backend"]
