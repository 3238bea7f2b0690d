"""Real Hive and our locks, both ways: each sees and honours the other's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, LockObject, LockTimeout, connect
from tests.support.servers import HiveError, HiveSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

DAY = "dw.t/dt=2013-01-01"
HIVE_DAY = "dw.t partition (dt='2013-01-01')"


@pytest.fixture(scope="module")
def hive(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveSession]:
    retries = {"hive.lock.sleep.between.retries": "200ms"}
    with HiveSession(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, config=retries) as session:
        session.run("create database dw")
        for table in ("t", "u"):
            session.run(f"create table dw.{table} (x int) partitioned by (dt string)")
            for day in ("2013-01-01", "2013-01-02"):
                session.run(f"alter table dw.{table} add partition (dt='{day}')")
        session.run("create table dw.dropped (x int) partitioned by (dt string)")
        session.run("alter table dw.dropped add partition (dt='2013-01-01')")
        yield session


@pytest.fixture
def manager(zookeeper: ZooKeeperServer, hive: HiveSession) -> Iterator[LockManager]:
    with connect(zookeeper.url) as manager:
        yield manager
        for holder in manager.show():
            if holder.lease_id:
                manager.force_release(holder.lease_id, reason="the test is over", user="test")


def refused(hive: HiveSession, statement: str) -> None:
    with pytest.raises(HiveError):
        hive.run(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "select count(1) from dw.t where dt='2013-01-01'",
        f"insert overwrite table {HIVE_DAY} select 1",
        f"lock table {HIVE_DAY} shared",
        "lock table dw.t exclusive",
        "alter table dw.t drop partition (dt='2013-01-01')",
        "drop table dw.t",
    ],
)
def test_hive_is_refused_under_our_exclusive_lock(hive: HiveSession, manager: LockManager, statement: str) -> None:
    manager.acquire(owner="job", writes=[DAY])
    refused(hive, statement)
    assert [holder.owner for holder in manager.show(DAY)] == ["job"]


def test_a_hive_session_that_locks_nothing_works_under_our_lock(hive: HiveSession, manager: LockManager) -> None:
    """A task that runs its statements in Hive under locks of this package."""
    insert = "insert overwrite table dw.u partition (dt='2013-01-02') select 1"
    manager.acquire(owner="job", writes=["dw.u/dt=2013-01-02"])
    hive.run("set hive.support.concurrency=false")
    try:
        hive.run(insert)
    finally:
        hive.run("set hive.support.concurrency=true")
    refused(hive, insert)


def test_hive_reads_but_does_not_write_under_our_shared_lock(hive: HiveSession, manager: LockManager) -> None:
    lease = manager.acquire(owner="job", reads=[DAY])
    assert hive.run("select count(1) from dw.t where dt='2013-01-01'") == ["0"]
    refused(hive, f"insert overwrite table {HIVE_DAY} select 1")
    manager.release(lease)
    hive.run(f"insert overwrite table {HIVE_DAY} select 1")
    assert hive.run("select count(1) from dw.t where dt='2013-01-01'") == ["1"]


def test_drop_table_goes_through_once_our_lock_on_a_partition_is_released(
    hive: HiveSession, manager: LockManager
) -> None:
    lease = manager.acquire(owner="job", writes=["dw.dropped/dt=2013-01-01"])
    refused(hive, "drop table dw.dropped")
    manager.release(lease)
    hive.run("drop table dw.dropped")


def test_a_lock_of_hives_on_a_partition_keeps_us_from_locking_the_table(
    hive: HiveSession, manager: LockManager
) -> None:
    hive.run(f"lock table {HIVE_DAY} shared")  # Hive leaves the table itself unlocked
    try:
        with pytest.raises(LockTimeout, match=r"dw\.t/dt=2013-01-01 SHARED"):
            manager.acquire(owner="alter", writes=["dw.t"])
        assert not [holder for holder in manager.show() if holder.lease_id]
    finally:
        hive.run(f"unlock table {HIVE_DAY}")
    assert manager.acquire(owner="alter", writes=["dw.t"])


def test_hive_and_we_take_turns_on_one_partition(hive: HiveSession, manager: LockManager) -> None:
    """Hive inserts while writers here queue: every writer gets its turn, and no two write at once."""
    errors: list[BaseException] = []
    inside = threading.Semaphore(1)

    def ours(number: int) -> None:
        try:
            lease = manager.acquire(owner=f"job-{number}", writes=[DAY], timeout_s=60)
            assert inside.acquire(blocking=False), "two writers at once"
            # Hive's writer makes its node, sees ours before it, and takes it back: for a moment both are listed.
            first, *_ = manager.backend.store.namespace.below(LockObject.parse(DAY))  # type: ignore[attr-defined]
            assert first.node.ours, "Hive was there before"
            shown = {holder.owner for holder in manager.show(DAY)}
            assert {owner for owner in shown if owner.startswith("job-")} == {f"job-{number}"}
            inside.release()
            manager.release(lease)
        except BaseException as error:
            errors.append(error)
            raise

    jobs = [threading.Thread(target=ours, args=(number,)) for number in range(8)]
    for job in jobs:
        job.start()
    hive.run("set hive.lock.numretries=50")
    hive.run(f"insert overwrite table {HIVE_DAY} select 2")
    for job in jobs:
        job.join(60)
    assert not errors
    assert not manager.show()
