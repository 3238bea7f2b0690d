"""Helpers for the tests of ZooKeeper."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Get, Refused
from tests.support.patience import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from tests.support.servers import ZooKeeperServer

HANG_S = 60.0


@contextmanager
def kazoo(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A client that is not ours."""
    client = KazooClient(hosts, **options)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def store(manager: LockManager) -> ZooKeeperStore:
    assert isinstance(manager.backend, ZooKeeperBackend)
    return manager.backend.store


def commit(manager: LockManager, *ops: Op) -> Any:
    """Write in one transaction, without the protocol, as a foreign client would."""
    (done,) = store(manager).client.submit(Commit(ops))
    assert not isinstance(done, Refused), done
    return done


def data(manager: LockManager, path: str) -> bytes:
    (node,) = store(manager).client.submit(Get(path))
    return bytes(node.data)


def expire(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    """End the session of *manager*, as its expiry does, and wait for the next one."""
    client: Any = store(manager).client
    before = client.session
    with kazoo(zookeeper.hosts, client_id=client._zk.client_id):
        pass
    until(lambda: client.session != before, "a new session", HANG_S, pause_s=0.01)
