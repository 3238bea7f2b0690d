"""What once broke the protocol on a real ZooKeeper, each named for its symptom."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockLost, LockManager, LockObject, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, queue
from airflow_hivelock.locks.backends.zookeeper.client import Exists
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.nodes import FEW
from tests.backends.zookeeper_rivals import Dying, HeldUp, Overtaken, Verifying
from tests.backends.zookeepers import store
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient

    from tests.support.servers import ZooKeeperServer
    from tests.support.servers.lock_manager import HiveLockManagers

pytestmark = pytest.mark.integration

WAIT_S = 20
DAY = "dw.t/dt=2013-01-01"
DAY_PATH = ["dw", "t", "dt=2013-01-01"]


def test_a_table_is_not_locked_beside_hives_lock_below_it_when_news_of_a_removal_come_late(
    zookeeper: ZooKeeperServer, hive: KazooClient
) -> None:
    layout, session = Layout("/hive-late-news", "/hivelock-late-news"), HeldUp(zookeeper.hosts)
    day = "dw.t/p=1"
    with LockManager(ZooKeeperBackend(session, layout)) as manager:
        for _ in range(3):
            manager.release(manager.acquire(owner="before", reads=[day]))
        first = manager.acquire(owner="first", reads=[day])
        session.thread = threading.Thread(target=manager.release, args=(first,))
        session.thread.start()
        assert session.answered.wait(WAIT_S), "the partition's node is gone, and its remover has not noticed"
        second = manager.acquire(owner="second", reads=[day])
        hive.create(f"{layout.namespace}/dw/t/p=1/LOCK-SHARED-", b"q:0:EXPLICIT:lock:host", sequence=True)
        session.may_go_on.set()
        session.thread.join(WAIT_S)
        assert manager.release(second)
        with pytest.raises(LockTimeout, match="p=1 SHARED"):
            manager.acquire(owner="of the whole table", writes=["dw.t"])


def test_the_oldest_lease_still_excludes_others_once_more_tickets_were_seen_than_are_remembered(
    connect_zookeeper: Callable[[], LockManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "CACHED_TICKETS", 4)
    with connect_zookeeper() as holders, connect_zookeeper() as manager:
        holders.acquire(owner="the oldest", writes=["dw.t"])
        with pytest.raises(LockTimeout, match="the oldest"):
            manager.acquire(owner="writer", writes=["dw.t"])
        for number in range(10):
            holders.acquire(owner=f"elsewhere {number}", writes=[f"dw.t{number}"])
        manager.waiters()  # has seen them all
        with pytest.raises(LockTimeout, match="the oldest"):
            manager.acquire(owner="writer", writes=["dw.t"])


UNLOCKED = [(DAY, DAY_PATH), ("dw.t", DAY_PATH[:2]), ("dw", DAY_PATH[:1])]


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "unnoticed"])
@pytest.mark.parametrize(("name", "path"), UNLOCKED, ids=["partition", "table", "database"])
def test_a_release_leaves_the_node_that_got_its_path_after_unlock_table(
    connect_zookeeper: Callable[[], LockManager],
    layout: Layout,
    hives: HiveLockManagers,
    hive: KazooClient,
    name: str,
    path: list[str],
    noticed: bool,
) -> None:
    with connect_zookeeper() as one, connect_zookeeper() as two:
        robbed = one.acquire(owner="robbed", reads=[name])
        (before,) = nodes_on(one, name)
        unlock(hives, hive, layout, path)
        assert store(one).client.submit(Exists(layout.object(LockObject.parse(name)))) == [None]
        second = two.acquire(owner="second", reads=[name])
        assert nodes_on(two, name) == [before], "it has not got the same path"
        for look in (one.verify, one.renew) if noticed else ():
            with pytest.raises(LockLost):
                look(robbed)
        assert one.release(robbed)
        assert nodes_on(two, name) == [before]
        two.verify(second)
        assert two.release(second)
        assert [holder for manager in (one, two) for holder in manager.show()] == []


@pytest.mark.parametrize("more", [0, FEW + 1], ids=["alone", "among many"])
@pytest.mark.parametrize(("name", "path"), UNLOCKED, ids=["partition", "table", "database"])
def test_a_lease_is_not_returned_without_the_node_that_an_older_release_has_deleted(
    zookeeper: ZooKeeperServer,
    connect_zookeeper: Callable[[], LockManager],
    layout: Layout,
    hives: HiveLockManagers,
    hive: KazooClient,
    name: str,
    path: list[str],
    more: int,
) -> None:
    session = Verifying(zookeeper.hosts)
    with connect_zookeeper() as one, LockManager(ZooKeeperBackend(session, layout)) as two:
        robbed = one.acquire(owner="robbed", reads=[name])
        unlock(hives, hive, layout, path)
        session.other = partial(one.release, robbed)
        others = [f"dw.t/n={number}" for number in range(more)]
        second = two.acquire(owner="second", reads=[name, *others], timeout_s=WAIT_S)
        assert session.overtaken
        two.verify(second)
        assert len(nodes_on(two, name)) == 1
        assert two.release(second)


def test_a_grant_whose_process_died_before_its_verification_is_verified_by_the_next_of_its_owner(
    zookeeper: ZooKeeperServer, connect_zookeeper: Callable[[], LockManager], layout: Layout, at_once: bool
) -> None:
    with pytest.raises(StoreUnavailable, match="dead"):
        LockManager(ZooKeeperBackend(Dying(zookeeper.hosts), layout)).acquire(owner="task", writes=[DAY])
    with connect_zookeeper() as manager, connect_zookeeper() as other:
        waiter = Polling(other, "other", writes=[DAY])
        assert waiter.blocked().by[0].owner == "task"
        lease = manager.acquire(owner="task", writes=[DAY])
        manager.verify(lease)
        assert len(nodes_on(manager, DAY)) == 1
        waiter.blocked()
        assert manager.release(lease)
        assert waiter.granted()


def test_a_grant_that_died_beside_a_lock_of_hives_is_given_back_by_the_next_process(
    zookeeper: ZooKeeperServer,
    connect_zookeeper: Callable[[], LockManager],
    layout: Layout,
    hives: HiveLockManagers,
    hive: KazooClient,
    at_once: bool,
) -> None:
    """Hive's lock came after the look of the process that died, and has the lower number."""
    writer, session = hives.session(f"before {at_once}", layout.namespace[1:]), Dying(zookeeper.hosts)
    with connect_zookeeper() as manager:
        manager.release(manager.acquire(owner="makes the queue", writes=[DAY]))
    hive.ensure_path(layout.object(LockObject.parse(DAY)))

    def hive_writes() -> None:
        assert writer.lock([(DAY_PATH[:1], "SHARED"), (DAY_PATH[:2], "SHARED"), (DAY_PATH, "EXCLUSIVE")]).granted

    session.other = hive_writes
    with pytest.raises(StoreUnavailable, match="dead"):
        LockManager(ZooKeeperBackend(session, layout)).acquire(owner="task", writes=[DAY])
    assert session.overtaken
    with connect_zookeeper() as manager:
        taken_up = Polling(manager, "task", writes=[DAY])
        assert [str(blocker.object) for blocker in taken_up.blocked().by] == [DAY]
        assert [holder.lease_id for holder in manager.show()] == [None] * 3, "its lock nodes are in Hive's way"
        writer.unlock()
        lease = taken_up.granted()
        manager.verify(lease)
        assert manager.release(lease)


def test_a_grant_that_died_and_lost_its_node_is_not_returned_to_the_next_process(
    zookeeper: ZooKeeperServer,
    connect_zookeeper: Callable[[], LockManager],
    layout: Layout,
    hives: HiveLockManagers,
    hive: KazooClient,
) -> None:
    """The process before may have got that lease, and work under it."""
    with pytest.raises(StoreUnavailable, match="dead"):
        LockManager(ZooKeeperBackend(Dying(zookeeper.hosts), layout)).acquire(owner="task", writes=[DAY])
    unlock(hives, hive, layout, DAY_PATH)
    with connect_zookeeper() as manager:
        with pytest.raises(LockLost, match="acquire again"):
            manager.acquire(owner="task", writes=[DAY])
        (lease,) = manager.leases()
        assert manager.force_release(lease.id, reason="its process died", user="ann")
        assert manager.acquire(owner="task", writes=[DAY], attempt=2)


@pytest.mark.parametrize("table", ["dw.t", "dw.new"])
def test_exclusive_on_a_database_excludes_its_writers_and_they_exclude_it(
    connect_zookeeper: Callable[[], LockManager], table: str
) -> None:
    with connect_zookeeper() as one, connect_zookeeper() as two:
        one.release(one.acquire(owner="makes the nodes", writes=["dw.t/p=1"]))
        database = one.acquire(owner="database", writes=["dw"])
        writer = Polling(two, "writer", writes=[f"{table}/p=1"])
        assert writer.blocked().by[0].owner == "database"
        one.release(database)
        held = writer.granted()
        again = Polling(one, "database", writes=["dw"], attempt=1)
        assert again.blocked().by[0].owner == "writer"
        two.release(held)
        assert again.granted()


@pytest.mark.parametrize("first", ["the database", "a writer"])
@pytest.mark.parametrize("crossing", [Overtaken, Verifying])
def test_exclusive_on_a_database_and_a_writer_that_cross_are_not_both_granted(
    zookeeper: ZooKeeperServer,
    connect_zookeeper: Callable[[], LockManager],
    layout: Layout,
    first: str,
    crossing: type[Overtaken],
) -> None:
    """One of them takes its lock nodes after the look of the other, or right before its verification."""
    wants = {"the database": ["dw"], "a writer": ["dw.t/p=1"]}
    second = next(owner for owner in wants if owner != first)
    session = crossing(zookeeper.hosts)
    with connect_zookeeper() as others, LockManager(ZooKeeperBackend(session, layout)) as manager:
        for writes in wants.values():  # creates the queues: no transaction is refused for want of one
            others.release(others.acquire(owner="makes the queues", writes=writes))
        quicker = Polling(others, first, writes=wants[first])
        session.other = quicker.granted if crossing is Overtaken else quicker.blocked
        crossed = Polling(manager, second, writes=wants[second])
        if crossing is Overtaken:
            assert crossed.blocked().by[0].owner == first
        else:
            manager.release(crossed.granted())
            assert quicker.granted()
        assert session.overtaken


def test_a_partition_that_was_given_back_is_anothers_and_the_rest_of_the_lease_stands(
    connect_zookeeper: Callable[[], LockManager],
) -> None:
    other_day = "dw.t/dt=2013-01-02"
    with connect_zookeeper() as one, connect_zookeeper() as two:
        lease = one.acquire(owner="both", writes=[DAY, other_day])
        waiter = Polling.queued(two, "waits for one", writes=[DAY])
        rest = one.release(lease, objects=[DAY])
        assert rest is not None
        held = waiter.granted()
        reader = Polling(two, "reader", reads=[other_day])
        assert reader.blocked().by[0].owner == "both"
        with pytest.raises(LockTimeout, match="waits for one"):
            one.acquire(owner="late", reads=[DAY])
        assert one.release(rest)
        two.verify(held)
        two.release(reader.granted())
        assert two.release(held)
        assert one.show() == []


def unlock(hives: HiveLockManagers, hive: KazooClient, layout: Layout, path: list[str]) -> None:
    """UNLOCK TABLE by real Hive. Hive 2.3 does not list locks on a database, so these are removed by hand."""
    if hives.session("unlocks", layout.namespace[1:]).free(path):
        return
    target = "/".join((layout.namespace, *path))
    for name in hive.get_children(target):
        if name.startswith("LOCK-"):
            hive.delete(f"{target}/{name}")
    if not hive.get_children(target):
        hive.delete(target)


def nodes_on(manager: LockManager, name: str) -> list[str]:
    """The paths of the lock nodes on that object."""
    target = LockObject.parse(name)
    return [placed.path for placed in store(manager).namespace.below(target) if placed.object == target]
