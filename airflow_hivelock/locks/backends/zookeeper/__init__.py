"""Hive's own locks in ZooKeeper. Read :mod:`.acquisition` first; :mod:`.layout` shows what lies where."""

from airflow_hivelock.locks.backends.zookeeper.backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
