"""Hive's own transactional lock manager: the locks of ``DbTxnManager``, over the metastore's Thrift."""

from airflow_hivelock.locks.backends.metastore.backend import MetastoreBackend

__all__ = ["MetastoreBackend"]
