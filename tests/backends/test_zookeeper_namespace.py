"""Hive removes its namespace and makes it again, and a store without our nodes: on a real ZooKeeper, each named for its symptom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from airflow_hivelock.locks import Lease, LockManager, LockTimeout, StoreUnavailable, rules
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Exists
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.turn import NotAtOnce
from tests.backends.zookeeper_rivals import Overtaken
from tests.backends.zookeepers import store
from tests.bench.measure import zxid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kazoo.client import KazooClient

    from airflow_hivelock.locks import LockRequest
    from airflow_hivelock.locks.backend import Blocked, NeedsSlot
    from airflow_hivelock.locks.pending import Silent
    from tests.support.servers import ZooKeeperServer
    from tests.support.servers.lock_manager import HiveLockManagers


pytestmark = pytest.mark.integration


WAIT_S = 20


DAY = "dw.t/dt=2013-01-01"


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
        for owner in ("before", "after"):
            outcome = outcome_of(manager, rules.request(owner, writes=["dw.t"]))
            assert isinstance(outcome, Lease), outcome
            manager.release(outcome)
            hives.session("cleans", name).close()
            assert store(manager).client.submit(Exists(f"/{name}")) == [None]


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
        hive.delete(store(manager).layout.root, recursive=True)
        with pytest.raises(StoreUnavailable, match=r"is missing in ZooKeeper\. Connect again"):
            manager.acquire(owner="me", writes=["dw.t"], timeout_s=5.0)


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


def outcome_of(manager: LockManager, request: LockRequest) -> Lease | NeedsSlot | Blocked | Silent:
    """What becomes of *request* at first, in bounded time."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(manager.begin(request, lambda: None, 60.0).poll).result(WAIT_S)
