"""What once broke the protocol on a real ZooKeeper, each named for its symptom."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from airflow_hivelock.locks import Lease, LockManager, LockTimeout, StoreUnavailable, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, queue, retry
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Exists, Request, SetData
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.bench.measure import zxid
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockRequest
    from airflow_hivelock.locks.backend import Blocked, Free
    from airflow_hivelock.locks.pending import Silent
    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

WAIT_S = 20


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
    """Real Hive, whose sessions clean up behind them."""
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
    """Before its next grant somebody else does something."""

    other: Callable[[], object] | None = None

    def submit(self, *requests: Request) -> list[Any]:
        if self.other is not None and any(isinstance(r, Commit) and _grants(r) for r in requests):
            other, self.other = self.other, None
            other()
        return super().submit(*requests)


def _grants(commit: Commit) -> bool:
    return any(isinstance(op, SetData) and b'"state":"granted"' in op.data for op in commit.ops)


def hive_locks(hive: KazooClient, namespace: str, mode: str) -> None:
    """What a query of Hive's makes that locks a table, its namespace too."""
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
        assert session.other is None


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
        assert session.other is None


@pytest.mark.parametrize("namespace", ["/hive-away", "/hive/locks/away"])
@pytest.mark.parametrize("at_once", [True, False])
def test_hives_namespace_is_made_again_where_its_clean_up_has_removed_it(
    zookeeper: ZooKeeperServer, hive: KazooClient, monkeypatch: pytest.MonkeyPatch, namespace: str, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(ZooKeeperAcquisition, "_grant_at_once", lambda *given: False)
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
    """Namespaces on a ZooKeeper whose own root nobody may write, nor read perhaps."""
    layout = Layout(f"/hive-guarded-{request.param}", f"/hivelock-guarded-{request.param}")
    for path in layout.directories:
        hive.ensure_path(path)
    hive.set_acls("/", [make_acl("world", "anyone", read=request.param, admin=True)])
    yield layout
    hive.set_acls("/", OPEN_ACL_UNSAFE)


def test_what_lies_above_hives_namespace_need_not_be_open(zookeeper: ZooKeeperServer, guarded_root: Layout) -> None:
    with LockManager(ZooKeeperBackend(KazooSession(zookeeper.hosts), guarded_root)) as manager:
        for owner in ("first", "tries to be granted at once, and learns", "third"):
            before = zxid(zookeeper)
            lease = manager.acquire(owner=owner, writes=["dw.t/p=1"])
            written = zxid(zookeeper) - before
            manager.release(lease)
        assert written == 3, "a ticket, a try and a grant, and nothing in vain"


def test_a_store_without_our_nodes_is_said_to_be_one(
    connect_zookeeper: Callable[[], LockManager], hive: KazooClient
) -> None:
    with connect_zookeeper() as manager:
        store: Any = manager.backend.store  # type: ignore[attr-defined]
        hive.delete(store.layout.root, recursive=True)
        with pytest.raises(StoreUnavailable, match="urgent is gone from ZooKeeper; connect again"):
            manager.acquire(owner="me", writes=["dw.t"], timeout_s=5.0)


class Restless(KazooSession):
    """Before each of its grants somebody makes or removes the table's node."""

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
    """Before each of its writes somebody else is quicker."""

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
    monkeypatch.setattr(retry, "GIVE_UP_S", 1.0)
    with connect_zookeeper() as other:
        store: Any = other.backend.store  # type: ignore[attr-defined]
        session = Outwritten(zookeeper.hosts)
        with LockManager(ZooKeeperBackend(session, store.layout)) as manager:
            lease = manager.acquire(owner="me", reads=["dw.t"])
            session.other = partial(other.renew, lease)
            with pytest.raises(StoreUnavailable, match="times in turn"):
                call(manager, lease)
            assert session.tries < 50, "it has kept the server busy"
            session.other = None
            assert manager.release(lease)


def outcome_of(manager: LockManager, request: LockRequest) -> Lease | Free | Blocked | Silent:
    """What becomes of *request* at first, in bounded time."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(manager.begin(request, lambda: None, 60.0).poll).result(WAIT_S)
