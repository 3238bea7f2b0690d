"""Clients that are outrun each time: a call goes on, or ends at its deadline, and keeps no server busy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Lease, LockManager, LockObject, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper import store as stores
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Names, Request
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.backends.zookeeper_rivals import deletes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import ZooKeeperServer


pytestmark = pytest.mark.integration


WAIT_S = 20


DAY = "dw.t/dt=2013-01-01"


class Outrun(KazooSession):
    """Before each of its removals another reader comes, and goes before the next look."""

    def __init__(self, hosts: str, path: str) -> None:
        super().__init__(hosts)
        self._path = path
        self.comes: Callable[[], Any] | None = None
        self.goes: Callable[[], object] | None = None
        self.tries = 0

    def submit(self, *requests: Request) -> list[Any]:
        if self.goes is not None and any(isinstance(r, Names) and r.path == self._path for r in requests):
            goes, self.goes = self.goes, None
            goes()
        if self.comes is not None and deletes(requests) and self.goes is None:
            self.tries += 1
            self.goes = self.comes()
        return super().submit(*requests)


def test_readers_that_come_without_a_break_do_not_keep_a_lease_from_its_release(
    zookeeper: ZooKeeperServer, connect_zookeeper: Callable[[], LockManager], layout: Layout
) -> None:
    session = Outrun(zookeeper.hosts, layout.object(LockObject.parse(DAY)))
    with connect_zookeeper() as readers, LockManager(ZooKeeperBackend(session, layout)) as manager:
        lease = manager.acquire(owner="reader", reads=[DAY])

        def comes() -> Callable[[], object]:
            held = readers.acquire(owner=f"reader {session.tries}", reads=[DAY])
            return partial(readers.release, held)

        session.comes = comes
        assert manager.release(lease)
        assert session.tries <= 5
        session.comes = None
        if session.goes:
            session.goes()
        assert readers.acquire(owner="writer", writes=[DAY])


class Restless(KazooSession):
    """Before each of its grants another client creates or removes the table's node."""

    def __init__(self, hosts: str, path: str) -> None:
        super().__init__(hosts)
        self._path = path
        self.tries, self.calm = 0, False

    def submit(self, *requests: Request) -> list[Any]:
        ops = [op for request in requests if isinstance(request, Commit) for op in request.ops]
        if not self.calm and any(f"{self._path}/LOCK-" in op.path for op in ops):
            self.tries += 1
            made = Create(self._path)
            super().submit(Commit((made if made in ops else Delete(self._path),)))
        return super().submit(*requests)


def test_a_request_that_is_outrun_each_time_ends_at_its_deadline(zookeeper: ZooKeeperServer) -> None:
    layout = Layout("/hive-restless", "/hivelock-restless")
    session = Restless(zookeeper.hosts, f"{layout.namespace}/dw/t")
    with LockManager(ZooKeeperBackend(session, layout)) as manager, ThreadPoolExecutor(1) as pool:
        manager.release(manager.acquire(owner="first", reads=["dw.u"]))  # makes the database's node
        asked = pool.submit(manager.acquire, owner="outrun", reads=["dw.t"], timeout_s=2.0)
        try:
            with pytest.raises(LockTimeout, match="quicker"):
                asked.result(WAIT_S)
        finally:
            session.calm = True
        assert session.tries < 50, "it has kept the server busy"
        assert manager.waiters() == []


class Outwritten(KazooSession):
    """Before each of its writes another client writes."""

    tries = 0
    other: Callable[[], None] | None = None

    def submit(self, *requests: Request) -> list[Any]:
        if self.other is not None and any(isinstance(request, Commit) for request in requests):
            self.tries += 1
            self.other()
        return super().submit(*requests)


@pytest.mark.parametrize(
    "call",
    [
        lambda manager, lease: manager.renew(lease),
        lambda manager, lease: manager.release(lease),
        lambda manager, lease: manager.force_release(lease.id, reason="test", user="test"),
        lambda manager, lease: manager.start_work(lease, "job", "application"),
    ],
    ids=["renew", "release", "force", "work"],
)
def test_a_call_that_is_outwritten_each_time_pauses_and_ends(
    zookeeper: ZooKeeperServer,
    connect_zookeeper: Callable[[], LockManager],
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[LockManager, Lease], object],
) -> None:
    monkeypatch.setattr(stores, "GIVE_UP_S", 1.0)
    with connect_zookeeper() as other:
        session = Outwritten(zookeeper.hosts)
        with LockManager(ZooKeeperBackend(session, layout)) as manager:
            lease = manager.acquire(owner="me", reads=["dw.t"])
            session.other = partial(other.renew, lease)
            with pytest.raises(StoreUnavailable, match="times in a row"):
                call(manager, lease)
            assert session.tries < 50, "it has kept the server busy"
            session.other = None
            assert manager.release(lease)
