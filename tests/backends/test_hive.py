"""Real Hive and our locks, both ways: each sees and honours the other's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockLost, LockManager, LockObject, LockTimeout, connect
from tests.conformance import Polling
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


def test_hive_lists_our_locks_as_its_own(hive: HiveSession, manager: LockManager) -> None:
    manager.acquire(
        owner="flights/2013-01-01: daily", reads=["dw.u/dt=2013-01-02"], writes=[DAY], query="insert\n: overwrite"
    )
    assert {"dw@t@dt=2013-01-01\tEXCLUSIVE", "dw@t\tSHARED", "dw@u@dt=2013-01-02\tSHARED"} <= set(
        hive.run("show locks")
    )
    rows = hive.run(f"show locks {HIVE_DAY} extended")
    assert rows[0] == "dw@t@dt=2013-01-01\tEXCLUSIVE"
    assert [row.partition(":")[0] for row in rows[1:5]] == [
        "LOCK_QUERYID",
        "LOCK_TIME",
        "LOCK_MODE",
        "LOCK_QUERYSTRING",
    ]
    assert "LOCK_QUERYID:flights/2013-01-01 daily" in rows[1]
    assert "LOCK_MODE:EXPLICIT" in rows[3]
    assert "LOCK_QUERYSTRING:insert overwrite" in rows[4]


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


def test_we_wait_for_hives_lock_and_go_on_the_moment_it_is_freed(hive: HiveSession, manager: LockManager) -> None:
    hive.run(f"lock table {HIVE_DAY} exclusive")
    with pytest.raises(LockTimeout, match=r"dw\.t/dt=2013-01-01 EXCLUSIVE"):
        manager.acquire(owner="hasty", reads=[DAY])
    waiting = Polling(manager, "job", writes=[DAY])
    assert waiting.blocked().by[0].object.table == "t"
    assert not manager.show("dw.u"), "what waits holds nothing in Hive's namespace"
    (waiter,) = manager.waiters()
    assert [str(blocker.object) for blocker in waiter.blocked_by] == [DAY], "nobody would know whom it waits for"
    hive.run(f"unlock table {HIVE_DAY}")
    assert waiting.granted(within_s=10)


def test_a_hive_reader_is_let_in_beside_our_reader_but_not_beside_our_waiting_writer_s_turn(
    hive: HiveSession, manager: LockManager
) -> None:
    hive.run(f"lock table {HIVE_DAY} shared")
    assert manager.acquire(owner="reader", reads=[DAY])
    with pytest.raises(LockTimeout, match=r"dw\.t/dt=2013-01-01 SHARED"):
        manager.acquire(owner="writer in a hurry", writes=[DAY, "dw.u/dt=2013-01-01"])
    hive.run(f"unlock table {HIVE_DAY}")


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


def test_our_release_never_takes_the_lock_of_whoever_came_after_hives_unlock_table(
    hive: HiveSession, manager: LockManager
) -> None:
    """UNLOCK TABLE removes our node as well, its clean-up resets the numbers, and the next lock has the same path."""
    lease = manager.acquire(owner="robbed", writes=[DAY])
    hive.run(f"unlock table {HIVE_DAY}")
    assert not manager.show(DAY)
    hive.run(f"lock table {HIVE_DAY} exclusive")
    assert manager.release(lease)
    assert hive.run(f"show locks {HIVE_DAY}") == ["dw@t@dt=2013-01-01\tEXCLUSIVE"]
    hive.run(f"unlock table {HIVE_DAY}")


def test_a_holder_notices_that_hives_unlock_table_has_taken_its_lock(hive: HiveSession, manager: LockManager) -> None:
    lease = manager.acquire(owner="robbed", reads=["dw.u/dt=2013-01-01"], writes=[DAY])
    changed = threading.Event()
    manager.verify(lease, changed.set)
    hive.run(f"unlock table {HIVE_DAY}")
    assert changed.wait(10)
    with pytest.raises(LockLost, match=r"dw\.t/dt=2013-01-01"):
        manager.verify(lease)
    with pytest.raises(LockLost):
        manager.renew(lease)
    with pytest.raises(LockTimeout):
        manager.acquire(owner="successor", writes=[DAY])  # among ours it still holds, until it is released
    assert manager.release(lease)
    assert manager.acquire(owner="successor", writes=[DAY])


def test_partition_values_lie_where_hive_looks_for_them(hive: HiveSession, manager: LockManager) -> None:
    value = "10:00/x=y%z {a} ü"
    hive.run("create table dw.odd (x int) partitioned by (ds string, hr int)")
    hive.run(f"alter table dw.odd add partition (ds='{value}', hr=5)")
    (partition,) = hive.run("show partitions dw.odd")
    hive.run(f"lock table dw.odd partition (ds='{value}', hr=5) exclusive")
    name = f"dw.odd/{partition}"
    with pytest.raises(LockTimeout):
        manager.acquire(owner="job", reads=[name])
    assert [str(holder.object) for holder in manager.show("dw.odd")] == [name]
    hive.run(f"unlock table dw.odd partition (ds='{value}', hr=5)")
    manager.acquire(owner="job", writes=[name])
    refused(hive, f"lock table dw.odd partition (ds='{value}', hr=5) shared")


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
