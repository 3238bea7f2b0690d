"""The cache of ZooKeeper's records."""

from __future__ import annotations

import gc
import weakref

from airflow_hivelock.locks.backends.zookeeper.client import Node, Stat
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.model import owner_key


def node(version: int) -> Node:
    record = Record("me", State.FREE, "process", epoch=1, attempt=0, begin=1)
    return Node(record.encode(), Stat(1, version, version, 0, 0, ephemeral=False, created=0))


def test_only_the_latest_version_of_a_record_is_cached() -> None:
    path = f"/requests/{owner_key('me')}"
    old = weakref.ref(Record.decode(node(1), path))
    latest = Record.decode(node(2), path)
    gc.collect()
    assert old() is None, "a lease that is renewed for weeks would fill the memory"
    assert Record.decode(node(2), path) is latest
