"""Hive's locks as HiveServer2 lists them: to look, not to take."""

from airflow_hivelock.locks.backends.hiveserver2.backend import HiveServer2Backend

__all__ = ["HiveServer2Backend"]
