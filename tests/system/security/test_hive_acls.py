"""Real Hive's lock manager, which has no credentials, next to guarded nodes of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockTimeout, connect
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.security
DAY = "dw.flights/dt=2013-01-01"


def test_real_hive_locks_and_unlocks_under_our_acls(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    url = f"zookeeper://airflow:hush-hush@{zookeeper.hosts}/guarded?root=/guarded_root"
    with HiveLockManagers(tmp_path, zookeeper=zookeeper) as hives, connect(url) as manager:
        hive = hives.session("hive", "guarded")
        table, partition = ["dw", "flights"], ["dw", "flights", "dt=2013-01-01"]
        lease = manager.acquire(owner="me", writes=[DAY])
        assert not hive.lock([(partition, "SHARED")]).granted, "Hive honours a lock of ours"
        assert hive.lock([(table, "SHARED")]).granted, "Hive locks below a node of ours"
        hive.unlock()
        assert manager.release(lease)
        assert hive.lock([(partition, "EXCLUSIVE")]).granted
        with pytest.raises(LockTimeout):
            manager.acquire(owner="me", writes=[DAY])
        hive.unlock()
        lease = manager.acquire(owner="me", writes=[DAY])
        assert manager.release(lease)
