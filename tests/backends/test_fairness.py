"""A stream of readers does not starve a writer: ours queue behind it, Hive's are held back once its patience is spent."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from airflow_hivelock.locks import LockManager, LockTimeout
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

DAY = "dw.flights/dt=2013-01-01"
READERS = 8
HANG_S = 60.0


class Readers:
    """Threads that each read over and over, so that the partition is never free."""

    def __init__(self, count: int, reading: Callable[[threading.Event], Iterator[None]]) -> None:
        self.over = threading.Event()
        self.begun = [0] * count
        self._threads = [threading.Thread(target=self._read, args=(n, reading)) for n in range(count)]

    def _read(self, number: int, reading: Callable[[threading.Event], Iterator[None]]) -> None:
        for _ in reading(self.over):
            self.begun[number] += 1

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + HANG_S
        while min(self.begun) < 2:
            assert time.monotonic() < deadline, f"nobody reads: {self.begun}"
            time.sleep(0.01)
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(HANG_S)


def ours(connect: Callable[[], LockManager]) -> Callable[[threading.Event], Iterator[None]]:
    """Reads with leases of ours. None waits while it holds: behind a writer that would be a deadlock of its own making."""
    numbers = itertools.count()

    def reading(over: threading.Event) -> Iterator[None]:
        with connect() as manager:
            while not over.is_set():
                lease = manager.acquire(owner=f"reader {next(numbers)}", reads=[DAY], timeout_s=HANG_S)
                yield
                manager.release(lease)

    return reading


def hives(hosts: str, path: str) -> Callable[[threading.Event], Iterator[None]]:
    """Reads as Hive's sessions do: a lock node, taken back when a writer's is before it; each read outlasts the next's begin."""

    def reading(over: threading.Event) -> Iterator[None]:
        zk = KazooClient(hosts)
        zk.start()
        mine = None
        while not over.is_set():
            after = zk.create(
                f"{path}/LOCK-SHARED-", b"q:1:IMPLICIT:select:h", ephemeral=True, sequence=True, makepath=True
            )
            number = int(after.rpartition("-")[2])
            writers = (int(name.rpartition("-")[2]) for name in zk.get_children(path) if "EXCLUSIVE" in name)
            if mine:
                zk.delete(mine)
            mine = after
            if min(writers, default=number) < number:
                zk.delete(mine)
                mine = None
                over.wait(0.05)
            else:
                yield
        zk.stop()
        zk.close()

    return reading


def test_our_readers_let_a_writer_in_after_those_who_came_before_it(
    connect_zookeeper: Callable[[], LockManager],
) -> None:
    """The bound: after the writer has asked, each of their threads starts at most one more read."""
    with connect_zookeeper() as manager, Readers(READERS, ours(connect_zookeeper)) as readers:
        long = manager.acquire(
            owner="long reader", reads=[DAY], timeout_s=HANG_S
        )  # the others are too short to rely on
        writer = Polling.queued(manager, "writer", writes=[DAY])
        asked = list(readers.begun)
        manager.release(long)
        lease = writer.granted(HANG_S)
        granted = list(readers.begun)
        manager.release(lease)
    assert all(after <= before + 1 for before, after in zip(asked, granted, strict=True))


def test_hives_readers_let_a_writer_in_once_its_patience_is_spent(zookeeper: ZooKeeperServer) -> None:
    """The bound: its patience, and then as long as the reads last that were there before it."""
    backend = ZooKeeperBackend.connect(zookeeper.hosts, "hive-starved", root="/hivelock-starved", patience_s=0.5)
    reading = hives(zookeeper.hosts, "/hive-starved/dw/flights/dt=2013-01-01")
    with LockManager(backend) as manager, Readers(READERS, reading) as readers:
        with pytest.raises(LockTimeout, match="SHARED"):
            manager.acquire(owner="hasty", writes=[DAY])
        lease = manager.acquire(owner="writer", writes=[DAY], timeout_s=HANG_S)
        assert [holder.owner for holder in manager.show(DAY) if holder.lease_id] == ["writer"]
        begun = list(readers.begun)
        manager.verify(lease)
        assert readers.begun == begun, "Hive reads beside our writer"
        assert manager.release(lease)
