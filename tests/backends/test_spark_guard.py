"""A job without its lease does not publish. The guard does not cover the time between its check and the write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, Lease, LockLost, LockManager, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete
from airflow_hivelock.spark import URL, Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

DAY = "dw.flights/dt=2013-01-01"


def spark(lease: Lease) -> Any:
    """As much of a SparkSession as the guard reads."""
    work = lease.work("delays")
    assert work
    conf = {"spark.hivelock.lease": lease.id, "spark.hivelock.work": work.name, "spark.hivelock.token": str(work.token)}
    return SimpleNamespace(conf=conf)


@pytest.fixture
def manager(zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockManager]:
    url = f"{zookeeper.url}?root=/hivelock-guard"
    monkeypatch.setenv(URL, url)
    with connect(url) as manager:
        yield manager
        manager.force_release_all(held_s=0, reason="the test is over", user="test")


@pytest.fixture
def lease(manager: LockManager, request: pytest.FixtureRequest) -> Lease:
    granted = manager.acquire(owner=request.node.name, writes=[DAY], attempt=1)
    return manager.start_work(granted, "delays", "spark-submit")


@pytest.fixture
def guard(lease: Lease) -> Iterator[Guard]:
    guard = Guard.of(spark(lease))
    guard.check()
    yield guard
    guard.close()


def test_a_renewed_and_taken_over_lease_still_covers_the_job(manager: LockManager, lease: Lease, guard: Guard) -> None:
    manager.renew(lease)
    manager.acquire(owner=lease.owner, writes=[DAY], attempt=2)  # a retry that reconnects to the job
    guard.check()


def test_a_forced_lease_does_not(manager: LockManager, lease: Lease, guard: Guard) -> None:
    manager.force_release(lease.id, reason="stopped for too long", user="ops")
    manager.release(manager.acquire(owner="somebody else", writes=[DAY]))
    with pytest.raises(LockLost, match="must not publish"):
        guard.check()


def test_a_job_that_was_started_again_shuts_out_the_first(manager: LockManager, lease: Lease, guard: Guard) -> None:
    again = manager.start_work(manager.acquire(owner=lease.owner, writes=[DAY], attempt=2), "delays", "spark-submit")
    with pytest.raises(LockLost, match="started again"):
        guard.check()
    later = Guard.of(spark(again))
    later.check()
    later.close()


def test_a_lock_that_hive_removed_is_noticed(manager: LockManager, lease: Lease, guard: Guard) -> None:
    backend = manager.backend
    assert isinstance(backend, ZooKeeperBackend)
    (node,) = backend.store.namespace.below(lease.locks[-1].object)
    backend.store.client.submit(Commit((Delete(node.path),)))
    with pytest.raises(LockLost, match="UNLOCK TABLE"):
        guard.check()


def test_only_what_the_lease_locks_can_be_overwritten(guard: Guard) -> None:
    with pytest.raises(InvalidRequest, match="Add it to writes"), guard.overwrite("dw.flights/dt=2013-01-02"):
        pytest.fail("it was let write")


def test_a_job_that_has_lost_its_lease_does_not_begin(manager: LockManager, lease: Lease, guard: Guard) -> None:
    manager.force_release(lease.id, reason="stopped for too long", user="ops")
    with pytest.raises(LockLost), guard.overwrite(DAY):
        pytest.fail("it was let write")


def test_a_job_without_a_lease_is_told_so(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="HiveLockedSparkSubmitOperator"):
        Guard.of(SimpleNamespace(conf={}))
    monkeypatch.delenv(URL)
    with pytest.raises(InvalidRequest, match=URL):
        Guard.of(spark(lease))
