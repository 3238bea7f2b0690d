"""The Hive lease in a database. Read :mod:`.tables` first, then :mod:`.acquisition`."""

from airflow_hivelock.locks.backends.database.backend import DatabaseBackend

__all__ = ["DatabaseBackend"]
