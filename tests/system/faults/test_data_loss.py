"""A ZooKeeper that has lost its data, or was restored to an earlier state."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockLost, connect
from tests.support.servers import ZooKeeperServer
from tests.system.faults.conftest import DAY, WHOLE, again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), WHOLE]

SESSION_S = 2


@contextmanager
def stopped(server: ZooKeeperServer) -> Iterator[Path]:
    """The folder of its data, while it does not run."""
    server.kill()
    yield server.home / "data" / "version-2"
    server.start()


def until_lost(call: Callable[[], object]) -> LockLost:
    """The holder's error, after its session has reconnected to the store."""
    with pytest.raises(LockLost) as told:
        again(call)
    return told.value


def test_a_store_that_was_emptied_tells_its_holders_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ZooKeeperServer(tmp_path) as server:
        url = f"{server.url}?timeout_s={SESSION_S}"
        with connect(url) as manager:
            lease = manager.acquire(owner="first", writes=[DAY])
            for _ in range(50):
                manager.renew(lease)
            started = manager.start_work(lease, "job", "application")
            with stopped(server) as data:
                shutil.rmtree(data)
            with connect(url) as other:
                second = other.acquire(owner="second", writes=[DAY])
                assert second.token < started.token, "nobody outside the store could know"
                print(until_lost(lambda: manager.verify(started)))
                assert "went back from zxid" in caplog.text
                with pytest.raises(LockLost):
                    manager.check_token(lease.id, "job", started.token)
                with pytest.raises(LockLost):
                    manager.renew(started)
                assert not manager.release(started)
                other.verify(second)
                assert other.release(second)
                assert [*other.show(), *other.waiters()] == []


def test_a_store_that_was_restored_tells_who_was_granted_since_and_keeps_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        url = f"{server.url}?timeout_s={SESSION_S}"
        with connect(url) as manager:
            early = manager.acquire(owner="early", writes=[DAY])
            with stopped(server) as data:
                shutil.copytree(data, tmp_path / "backup")
            again(lambda: manager.release(early))
            late = manager.acquire(owner="late", writes=[DAY])
            for _ in range(20):
                manager.renew(late)
            with stopped(server) as data:
                shutil.rmtree(data)
                shutil.copytree(tmp_path / "backup", data)
            print(until_lost(lambda: manager.verify(late)))
            assert "went back from zxid" in caplog.text
            assert {holder.owner for holder in manager.show()} == {"early"}, "as it was"
            assert not manager.release(late)
            (back,) = manager.leases()
            assert manager.force_release(back.id, reason="back from a backup", user="nobody")
            assert [*manager.show(), *manager.waiters()] == []


def test_a_late_release_frees_nothing_of_a_retry_that_began_after_the_loss(tmp_path: Path) -> None:
    """The retry's record goes through the same versions as the first try's did."""
    with ZooKeeperServer(tmp_path) as server:
        url = f"{server.url}?timeout_s={SESSION_S}"
        with connect(url) as manager:
            for _ in range(50):
                manager.now()
            first = manager.acquire(owner="task", writes=[DAY], attempt=1)
            with stopped(server) as data:
                shutil.rmtree(data)
            with connect(url) as other:
                second = other.acquire(owner="task", writes=[DAY], attempt=2)
                for _ in range(100):
                    other.now()  # so that the store takes the old session for one that has seen less
                again(manager.now)
                assert not manager.release(first)
                other.verify(second)
                assert other.release(second)
