"""What is ZooKeeper's own: lost connections, dead waiters, and requests that do not fit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from airflow_hivelock.locks import InvalidRequest, LockManager, LockTimeout, RequestTooLarge, StoreUnavailable, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, KazooSession, Request
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.testing import Polling
from tests.servers import ZooKeeperServer, free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.integration

DAY = "dw.flights/dt=2013-01-01"


@pytest.fixture
def manager(connect_zookeeper: Callable[[], LockManager]) -> LockManager:
    return connect_zookeeper()


def test_a_year_of_partitions_is_one_request(manager: LockManager) -> None:
    with manager:
        lease = manager.acquire(owner="rerun", writes=["dw.delays/dt=2013-01-01..2013-12-31"])
        assert len(manager.show("dw.delays")) == 366
        assert manager.release(lease)
        assert manager.show() == []


def test_more_than_a_transaction_can_carry_is_refused_before_anything_is_done(manager: LockManager) -> None:
    with manager:
        with pytest.raises(RequestTooLarge, match="Lock the table"):
            manager.acquire(owner="greedy", writes=["dw.delays/n=1000..9999"])
        assert manager.waiters() == []
        assert manager.show() == []


def test_a_dead_waiter_blocks_nobody(connect_zookeeper: Callable[[], LockManager]) -> None:
    """Its session ends, as with a process that is killed; its ticket stays, and is broken by who comes behind."""
    holder, dying, living = connect_zookeeper(), connect_zookeeper(), connect_zookeeper()
    lease = holder.acquire(owner="holder", writes=[DAY])
    Polling(dying, "dead", writes=[DAY]).blocked()
    behind = Polling(living, "alive", writes=[DAY])
    behind.blocked()
    dying.close()
    holder.release(lease)
    living.release(behind.granted())
    assert holder.waiters() == []
    holder.close()
    living.close()


class Dying(KazooSession):
    """A session whose process dies right after its lock nodes are made, before it can verify or take them back."""

    def submit(self, *requests: Request) -> list[Any]:
        replies = super().submit(*requests)
        if any(isinstance(request, Commit) and b'"state":"trying"' in request.ops[0].data for request in requests):  # type: ignore[union-attr]
            self.close()
            raise StoreUnavailable("dead")
        return replies


def test_what_dies_in_the_middle_of_its_try_is_swept_and_blocks_hive_no_longer(zookeeper: ZooKeeperServer) -> None:
    layout = Layout("/hive-swept", "/hivelock-swept")
    dying = LockManager(ZooKeeperBackend(Dying(zookeeper.hosts, 5), layout))
    with pytest.raises(StoreUnavailable):
        dying.acquire(owner="dead", writes=[DAY])
    with LockManager(ZooKeeperBackend(KazooSession(zookeeper.hosts, 5), layout)) as manager:
        nodes = manager.backend.namespace.below(None)  # type: ignore[attr-defined]
        assert len(nodes) == 3
        assert manager.show() == [], "granted to nobody"
        assert manager.sweep() == 1
        assert manager.backend.namespace.below(None) == []  # type: ignore[attr-defined]
        assert manager.waiters() == []
        assert manager.sweep() == 0
        assert manager.acquire(owner="dead", writes=[DAY])


def test_waiters_and_holders_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, connect(server.url) as manager, connect(server.url) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        waiting = Polling(other, "waiter", writes=[DAY])
        waiting.blocked()
        server.stop()
        server.start()
        waiting.blocked()
        assert [holder.owner for holder in other.show(DAY)] == ["holder"]
        manager.renew(lease)
        manager.release(lease)
        assert waiting.granted()


class HiveReader(threading.Thread):
    """Reads a partition over and over as Hive's sessions do, each time before the one before has ended."""

    def __init__(self, hosts: str, path: str, over: threading.Event) -> None:
        super().__init__()
        self._zk = KazooClient(hosts)
        self._path, self._over = path, over
        self.reads = 0

    def run(self) -> None:
        self._zk.start()
        mine = None
        while not self._over.is_set():
            after = self._zk.create(
                f"{self._path}/LOCK-SHARED-", b"q:1:IMPLICIT:select:h", ephemeral=True, sequence=True
            )
            number = int(after.rpartition("-")[2])
            writers = (
                int(name.rpartition("-")[2]) for name in self._zk.get_children(self._path) if "EXCLUSIVE" in name
            )
            if mine:
                self._zk.delete(mine)
            mine = after
            if min(writers, default=number) < number:  # refused: Hive takes its node back, and tries again later
                self._zk.delete(mine)
                mine = None
                self._over.wait(0.05)
            else:
                self.reads += 1
        self._zk.stop()
        self._zk.close()


def test_hives_readers_that_come_without_a_break_do_not_starve_a_writer(zookeeper: ZooKeeperServer) -> None:
    backend = ZooKeeperBackend.connect(zookeeper.hosts, "hive-starved", root="/hivelock-starved", patience_s=0.5)
    over = threading.Event()
    with LockManager(backend) as manager:
        manager.release(manager.acquire(owner="to make the nodes", reads=[DAY]))
        backend.client.submit(Commit((Create("/hive-starved/dw/flights/dt=2013-01-01"),)))
        readers = [HiveReader(zookeeper.hosts, "/hive-starved/dw/flights/dt=2013-01-01", over) for _ in range(8)]
        try:
            for reader in readers:
                reader.start()
            with pytest.raises(LockTimeout, match="SHARED"):
                manager.acquire(owner="hasty", writes=[DAY])
            lease = manager.acquire(owner="writer", writes=[DAY], timeout_s=20)
            assert [holder.owner for holder in manager.show(DAY) if holder.lease_id] == ["writer"]
            assert sum(reader.reads for reader in readers) > 8
            manager.verify(lease)
            assert manager.release(lease)
        finally:
            over.set()
            for reader in readers:
                reader.join(30)
        assert manager.show() == []


def test_patience_for_a_lock_of_hives_below_the_table_ends_in_waiting_on(zookeeper: ZooKeeperServer) -> None:
    """It was a KeyError: the partition is none of the objects that the request locks."""
    backend = ZooKeeperBackend.connect(zookeeper.hosts, "hive-below", root="/hivelock-below", patience_s=0)
    with LockManager(backend) as manager:
        manager.release(manager.acquire(owner="to make the nodes", reads=["dw.flights"]))
        partition = "/hive-below/dw/flights/dt=2013-01-01"
        lock = f"{partition}/LOCK-SHARED-0000000000"
        backend.client.submit(Commit((Create(partition), Create(lock, b"q:1:EXPLICIT:lock table:h"))))
        waiting = Polling(manager, "alter", writes=["dw.flights"])
        for _ in range(3):
            assert str(waiting.blocked().by[0].object) == DAY
        backend.client.submit(Commit((Delete(lock),)))
        assert manager.release(waiting.granted())


def test_a_server_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+ did not answer within 1 s"):
        connect(f"zookeeper://127.0.0.1:{free_port()}/hive?timeout_s=1")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("zookeeper:///hive", "needs hosts"),
        ("zookeeper://127.0.0.1:1/../x", "is not a ZooKeeper path"),
        ("zookeeper://127.0.0.1:1/hive?root=/hive/locks", "under Hive's namespace"),
        ("zookeeper://127.0.0.1:1/hive?timeout_s=soon", "not a number"),
        ("zookeeper://127.0.0.1:1/hive?colour=blue", "colour"),
        ("mysql://127.0.0.1/locks", "'mysql' is not a lock store"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_before_anything_is_connected(url: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        connect(url)
