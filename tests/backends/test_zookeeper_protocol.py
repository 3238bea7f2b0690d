"""What once broke the protocol on a real ZooKeeper, each named for its symptom."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from airflow_hivelock.locks import Lease, LockLost, LockManager, LockObject, LockTimeout, StoreUnavailable, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, queue
from airflow_hivelock.locks.backends.zookeeper import store as stores
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import (
    Commit,
    Create,
    Delete,
    Exists,
    Names,
    Refused,
    Request,
    SetData,
)
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.nodes import FEW
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.turn import NotAtOnce
from tests.bench.measure import zxid
from tests.conformance import Polling
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockRequest
    from airflow_hivelock.locks.backend import Blocked, NeedsSlot
    from airflow_hivelock.locks.pending import Silent
    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

WAIT_S = 20
DAY = "dw.t/dt=2013-01-01"
DAY_PATH = ["dw", "t", "dt=2013-01-01"]


@pytest.fixture
def hive(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """Does what Hive does."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture(scope="module")
def hives(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLockManagers]:
    """Real Hive with sessions that remove their nodes."""
    with HiveLockManagers(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, cleans=True) as managers:
        yield managers


class HeldUp(KazooSession):
    """One thread's next deletion is answered, but its thread does not go on before it may."""

    thread: threading.Thread | None = None

    def __init__(self, hosts: str) -> None:
        super().__init__(hosts)
        self.answered, self.may_go_on = threading.Event(), threading.Event()

    def submit(self, *requests: Request) -> list[Any]:
        replies = super().submit(*requests)
        if threading.current_thread() is self.thread and _deletes(requests) and not self.answered.is_set():
            self.answered.set()
            assert self.may_go_on.wait(WAIT_S)
        return replies


def _deletes(requests: tuple[Request, ...]) -> bool:
    return any(isinstance(op, Delete) for each in requests if isinstance(each, Commit) for op in each.ops)


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


class Overtaken(KazooSession):
    """Before its next grant another client acts."""

    other: Callable[[], object] | None = None
    overtaken = False

    def submit(self, *requests: Request) -> list[Any]:
        if self.other is not None and any(isinstance(r, Commit) and _grants(r) for r in requests):
            self.overtake()
        return super().submit(*requests)

    def overtake(self) -> None:
        other, self.other, self.overtaken = self.other, None, True
        assert other
        other()


def _grants(commit: Commit) -> bool:
    return any(isinstance(op, SetData) and b'"state":"granted"' in op.data for op in commit.ops)


def hive_locks(hive: KazooClient, namespace: str, mode: str) -> None:
    """The locks of a Hive query on a table, and its namespace."""
    for target, wanted in (("dw", "SHARED"), ("dw/t", mode)):
        hive.ensure_path(f"{namespace}/{target}")
        hive.create(f"{namespace}/{target}/LOCK-{wanted}-", b"q:0:IMPLICIT:query:host", sequence=True)


@pytest.mark.parametrize("namespace", ["/hive-anew", "/hive/locks/anew"])
def test_a_grant_notices_that_hive_has_made_its_namespace_anew_since_the_look(
    zookeeper: ZooKeeperServer, hive: KazooClient, namespace: str
) -> None:
    """And has come as far in it as it was before, with a writer in the place of a reader."""
    session = Overtaken(zookeeper.hosts)

    def hive_writes() -> None:
        hive.delete(namespace, recursive=True)
        hive_locks(hive, namespace, "EXCLUSIVE")

    with LockManager(ZooKeeperBackend(session, Layout(namespace, f"/ours{namespace}"))) as manager:
        manager.release(manager.acquire(owner="before", reads=["dw.t"]))
        hive.delete(namespace, recursive=True)
        hive_locks(hive, namespace, "SHARED")
        session.other = hive_writes
        with pytest.raises(LockTimeout, match="t EXCLUSIVE"):
            manager.acquire(owner="reader", reads=["dw.t"])
        assert session.overtaken


def test_a_grant_notices_that_real_hive_has_made_its_namespace_anew_since_the_look(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers
) -> None:
    reads, writes = [(["dw"], "SHARED"), (["dw", "t"], "SHARED")], [(["dw"], "SHARED"), (["dw", "t"], "EXCLUSIVE")]
    session, name = Overtaken(zookeeper.hosts), "hive-cleans"

    def hive_writes() -> None:
        reader.close()
        assert hives.session("writer", name).lock(writes).granted

    with LockManager(ZooKeeperBackend(session, Layout(f"/{name}", "/hivelock-cleans"))) as manager:
        manager.release(manager.acquire(owner="before", reads=["dw.t"]))
        hives.session("reader", name).close()
        reader = hives.session("reader", name)
        assert reader.lock(reads).granted
        session.other = hive_writes
        with pytest.raises(LockTimeout, match="t EXCLUSIVE"):
            manager.acquire(owner="reader", reads=["dw.t"])
        assert session.overtaken


@pytest.mark.parametrize("namespace", ["/hive-away", "/hive/locks/away"])
@pytest.mark.parametrize("at_once", [True, False])
def test_hives_namespace_is_made_again_where_its_clean_up_has_removed_it(
    zookeeper: ZooKeeperServer, hive: KazooClient, monkeypatch: pytest.MonkeyPatch, namespace: str, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(ZooKeeperAcquisition, "_at_once", Mock(side_effect=NotAtOnce))
    session = KazooSession(zookeeper.hosts)
    with LockManager(ZooKeeperBackend(session, Layout(namespace, f"/ours{namespace}-{at_once}"))) as manager:
        manager.release(manager.acquire(owner="before", reads=["dw.t"]))
        hive.delete(namespace, recursive=True)
        outcome = outcome_of(manager, rules.request("next", writes=["dw.t/p=1"]))
        assert isinstance(outcome, Lease), outcome
        assert len(manager.show()) == 3
        assert manager.release(outcome)


def test_real_hives_clean_up_keeps_nobody_waiting(zookeeper: ZooKeeperServer, hives: HiveLockManagers) -> None:
    name = "hive-cleaned"
    with LockManager(
        ZooKeeperBackend(KazooSession(zookeeper.hosts), Layout(f"/{name}", "/hivelock-cleaned"))
    ) as manager:
        store: Any = manager.backend.store  # type: ignore[attr-defined]
        for owner in ("before", "after"):
            outcome = outcome_of(manager, rules.request(owner, writes=["dw.t"]))
            assert isinstance(outcome, Lease), outcome
            manager.release(outcome)
            hives.session("cleans", name).close()
            assert store.client.submit(Exists(f"/{name}")) == [None]


@pytest.fixture(params=[True, False], ids=["readable", "closed"])
def guarded_root(hive: KazooClient, request: pytest.FixtureRequest) -> Iterator[Layout]:
    """Namespaces on a ZooKeeper with a root that no client may write, or even read."""
    layout = Layout(f"/hive-guarded-{request.param}", f"/hivelock-guarded-{request.param}")
    for path in layout.directories:
        hive.ensure_path(path)
    hive.set_acls("/", [make_acl("world", "anyone", read=request.param, admin=True)])
    yield layout
    hive.set_acls("/", OPEN_ACL_UNSAFE)


def test_what_lies_above_hives_namespace_need_not_be_open(zookeeper: ZooKeeperServer, guarded_root: Layout) -> None:
    with LockManager(ZooKeeperBackend(KazooSession(zookeeper.hosts), guarded_root)) as manager:
        manager.release(manager.acquire(owner="first", writes=["dw.t/p=1"]))
        before = zxid(zookeeper)
        manager.release(manager.acquire(owner="second", writes=["dw.t/p=1"]))
        assert zxid(zookeeper) - before == 2, "something was written in vain"


def test_a_store_without_our_nodes_is_said_to_be_one(
    connect_zookeeper: Callable[[], LockManager], hive: KazooClient
) -> None:
    with connect_zookeeper() as manager:
        store: Any = manager.backend.store  # type: ignore[attr-defined]
        hive.delete(store.layout.root, recursive=True)
        with pytest.raises(StoreUnavailable, match=r"is missing in ZooKeeper\. Connect again"):
            manager.acquire(owner="me", writes=["dw.t"], timeout_s=5.0)


def _is_grant(requests: tuple[Request, ...]) -> bool:
    """Whether the first of them creates lock nodes, and the others verify what it has granted."""
    return bool(requests) and isinstance(requests[0], Commit) and _grants(requests[0])


class Verifying(Overtaken):
    """Between the transaction that creates its lock nodes and the reads behind it, another client does something."""

    def submit(self, *requests: Request) -> list[Any]:
        if self.other is None or not _is_grant(requests):
            return super().submit(*requests)
        written = KazooSession.submit(self, requests[0])
        if not isinstance(written[0], Refused):
            self.overtake()
        return written + super().submit(*requests[1:])


class Dying(Overtaken):
    """Its process dies once its lock nodes exist, before it has verified them."""

    def submit(self, *requests: Request) -> list[Any]:
        if not _is_grant(requests):
            return super().submit(*requests)
        replies = super().submit(requests[0])
        if isinstance(replies[0], Refused):
            return replies + super().submit(*requests[1:])
        self.close()
        raise StoreUnavailable("dead")


@pytest.fixture
def layout(connect_zookeeper: Callable[[], LockManager]) -> Layout:
    """That of this test's managers."""
    with connect_zookeeper() as manager:
        found: Layout = manager.backend.store.layout  # type: ignore[attr-defined]
        return found


@pytest.fixture(params=[True, False], ids=["at once", "queued"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a request that no other is in the way of is granted in its first transaction."""
    if not request.param:
        monkeypatch.setattr(ZooKeeperAcquisition, "_at_once", Mock(side_effect=NotAtOnce))
    return bool(request.param)


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
        assert one.backend.store.client.submit(Exists(layout.object(LockObject.parse(name)))) == [None]  # type: ignore[attr-defined]
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
        waiter = Polling(two, "waits for one", writes=[DAY])
        waiter.blocked()
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


@pytest.mark.parametrize("reads", [False, True], ids=["writer", "reader"])
def test_hives_clean_up_between_the_look_and_the_grant_keeps_no_request_waiting(
    zookeeper: ZooKeeperServer, hives: HiveLockManagers, layout: Layout, reads: bool, at_once: bool
) -> None:
    session = Overtaken(zookeeper.hosts)
    with LockManager(ZooKeeperBackend(session, layout)) as manager:
        manager.release(manager.acquire(owner="before", writes=["dw.t"]))
        session.other = hives.session("cleans", layout.namespace[1:]).close
        outcome = outcome_of(manager, rules.request("next", [DAY] if reads else [], [] if reads else [DAY]))
        assert session.overtaken
        assert isinstance(outcome, Lease), outcome
        assert len(manager.show()) == 3
        assert manager.release(outcome)


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
        if self.comes is not None and _deletes(requests) and self.goes is None:
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
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[LockManager, Lease], object],
) -> None:
    monkeypatch.setattr(stores, "GIVE_UP_S", 1.0)
    with connect_zookeeper() as other:
        store: Any = other.backend.store  # type: ignore[attr-defined]
        session = Outwritten(zookeeper.hosts)
        with LockManager(ZooKeeperBackend(session, store.layout)) as manager:
            lease = manager.acquire(owner="me", reads=["dw.t"])
            session.other = partial(other.renew, lease)
            with pytest.raises(StoreUnavailable, match="times in a row"):
                call(manager, lease)
            assert session.tries < 50, "it has kept the server busy"
            session.other = None
            assert manager.release(lease)


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
    store: Any = manager.backend.store  # type: ignore[attr-defined]
    target = LockObject.parse(name)
    return [placed.path for placed in store.namespace.below(target) if placed.object == target]


def outcome_of(manager: LockManager, request: LockRequest) -> Lease | NeedsSlot | Blocked | Silent:
    """What becomes of *request* at first, in bounded time."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(manager.begin(request, lambda: None, 60.0).poll).result(WAIT_S)
