"""Hive's own locks in ZooKeeper. Read :mod:`.acquisition` first; :mod:`.layout` lists the nodes."""

from airflow_hivelock.locks.backends.zookeeper.backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
