"""Drains: what keeps a release from being outrun for ever, and nobody waiting for longer than it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Lease, LockManager, StoreUnavailable, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, places, retry
from airflow_hivelock.locks.backends.zookeeper.client import Check, Children, Commit, Delete, Exists, Request, SetData
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.removal import TRIES_BEFORE_DRAIN
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.locks.testing import Polling
from tests.backends.test_zookeeper_protocol import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

DAY = "dw.flights/dt=2013-01-01"


class Outrun(KazooSession):
    """A session before each of whose removals somebody bumps the guard, unless a ticket stands that keeps all out."""

    def __init__(self, hosts: str, queue: str) -> None:
        super().__init__(hosts, 5)
        self._queue = queue
        self.bumps = 0

    def submit(self, *requests: Request) -> list[Any]:
        tickets = len(super().submit(Children(self._queue))[0].names) if self._removes(requests) else 2
        if tickets == 1:
            super().submit(Commit((SetData(self._queue, b"", -1),)))
            self.bumps += 1
        return super().submit(*requests)

    def _removes(self, requests: tuple[Request, ...]) -> bool:
        checks = [op for r in requests if isinstance(r, Commit) for op in r.ops if isinstance(op, Check)]
        return any(check.path == self._queue for check in checks)


def test_readers_that_come_without_a_break_do_not_keep_a_lease_from_its_release(zookeeper: ZooKeeperServer) -> None:
    layout = Layout("/hive-drained", "/hivelock-drained")
    session = Outrun(zookeeper.hosts, layout.queue("dw.flights"))
    with LockManager(ZooKeeperBackend(session, layout)) as manager:
        lease = manager.acquire(owner="reader", reads=[DAY])
        assert manager.release(lease)
        assert session.bumps == TRIES_BEFORE_DRAIN
        assert manager.acquire(owner="writer", writes=[DAY]), "the drain outlived the release"


def test_a_drain_that_was_left_behind_is_void(zookeeper: ZooKeeperServer) -> None:
    """Its removal's reply was lost, and its process lives on: nobody else would ever take the ticket away."""
    layout = Layout("/hive-void", "/hivelock-void")
    backend = ZooKeeperBackend(KazooSession(zookeeper.hosts, 5), layout)
    with LockManager(backend) as manager:
        lease = manager.acquire(owner="reader", reads=[DAY])
        record = backend.store.standing(lease)
        assert record
        backend.store.queues.drain(record)
        waiting = Polling(manager, "writer", writes=["dw.flights/dt=2013-01-02"])
        assert waiting.blocked().by[0].owner == "reader", "a drain keeps everybody out"
        assert manager.release(lease)
        manager.release(waiting.granted())
        assert manager.acquire(owner="reader", reads=[DAY])


def test_a_ticket_whose_record_was_swept_blocks_nobody(connect_zookeeper: Callable[[], LockManager]) -> None:
    """A drain whose reply was lost stands while its session lives, and the record of its owner is gone after some days."""
    with connect_zookeeper() as gone, connect_zookeeper() as manager:
        lease = gone.acquire(owner="gone", reads=["dw.t"])
        drains(gone, lease)
        assert gone.release(lease)
        store: Any = gone.backend.store  # type: ignore[attr-defined]
        store.client.submit(Commit((Delete(store.layout.record(owner_key("gone"))),)))
        request = rules.request("next", writes=["dw.t"])
        assert isinstance(outcome_of(manager, request), Lease)


def test_a_dead_waiter_behind_a_void_drain_is_passed(connect_zookeeper: Callable[[], LockManager]) -> None:
    with connect_zookeeper() as ours, connect_zookeeper() as manager:
        dying = connect_zookeeper()
        lease = ours.acquire(owner="reader", reads=["dw.t"])
        drains(ours, lease)
        Polling(dying, "dead", writes=["dw.t"]).blocked()
        dying.close()
        assert ours.release(lease)  # and so the drain is void
        request = rules.request("next", writes=["dw.t"])
        assert isinstance(outcome_of(manager, request), Lease), "nobody holds, and nobody is granted"


class FailsDraining(Outrun):
    """Its connection is lost once, as it removes what it has drained the queue for."""

    failed = False

    def submit(self, *requests: Request) -> list[Any]:
        if not self.failed and self._removes(requests) and self.bumps == TRIES_BEFORE_DRAIN:
            self.failed = True
            raise StoreUnavailable("connection lost while it drains")
        return super().submit(*requests)


def test_a_release_that_fails_while_it_drains_blocks_nobody(
    zookeeper: ZooKeeperServer, connect_zookeeper: Callable[[], LockManager]
) -> None:
    with connect_zookeeper() as manager:
        store: Any = manager.backend.store  # type: ignore[attr-defined]
        session = FailsDraining(zookeeper.hosts, store.layout.queue("dw.t"))
        with LockManager(ZooKeeperBackend(session, store.layout)) as ours:
            lease = ours.acquire(owner="reader", reads=["dw.t"])
            with pytest.raises(StoreUnavailable, match="while it drains"):
                ours.release(lease)
            assert manager.acquire(owner="elsewhere in the database", writes=["dw.u"])


def test_a_drain_that_nobody_gives_back_ends(
    connect_zookeeper: Callable[[], LockManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its making was not heard of, and the release is not tried again: only the end of its session would take it away."""
    monkeypatch.setattr(places, "DRAIN_S", 1.0)
    with connect_zookeeper() as ours, connect_zookeeper() as manager:
        lease = ours.acquire(owner="reader", reads=["dw.t"])
        drains(ours, lease)
        waiter = Polling(manager, "elsewhere in the database", writes=["dw.u"])
        assert waiter.blocked().recheck_s, "nobody tells it when the drain ends"
        waiter.granted()


class LosesDrains(Outrun):
    """The session ends, and with it all drains, right before what they were taken for is removed."""

    lost = 0

    def submit(self, *requests: Request) -> list[Any]:
        if not self.lost and self._removes(requests) and self.bumps == TRIES_BEFORE_DRAIN:
            drained = [op.path for r in requests if isinstance(r, Commit) for op in r.ops if "/queue/dw" in op.path]
            drains = [
                path for path in drained if (found := super(Outrun, self).submit(Exists(path))[0]) and found.ephemeral
            ]
            super(Outrun, self).submit(Commit(tuple(map(Delete, drains))))
            self.lost = len(drains)
        return super().submit(*requests)


def test_drains_of_many_tables_that_are_gone_do_not_hold_a_release_up(
    zookeeper: ZooKeeperServer, connect_zookeeper: Callable[[], LockManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "GIVE_UP_S", 3.0)
    with connect_zookeeper() as manager:
        store: Any = manager.backend.store  # type: ignore[attr-defined]
        session = LosesDrains(zookeeper.hosts, store.layout.queue("dw.t0"))
        with LockManager(ZooKeeperBackend(session, store.layout)) as ours:
            lease = ours.acquire(owner="reader", reads=[f"dw.t{number}" for number in range(60)])
            assert ours.release(lease)
            assert session.lost == 61


def drains(manager: LockManager, lease: Lease) -> None:
    """Take the drains of a release that goes no further."""
    store: Any = manager.backend.store  # type: ignore[attr-defined]
    store.queues.drain(store.standing(lease))
