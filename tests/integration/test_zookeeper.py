"""What is ZooKeeper's own: lost connections, dead waiters, and requests that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import InvalidRequest, LockManager, RequestTooLarge, StoreUnavailable, connect
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
