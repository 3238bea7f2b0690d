"""Metastores that keep the locks of catalogs apart, as Hive 4.3 does, and those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore import ttypes as hive
from hmsclient.genthrift.hive_metastore.ttypes import LockState, LockType

from airflow_hivelock.locks import Blocked, LockManager, connect, rules
from airflow_hivelock.locks.hive.thrift import LOCK_CATALOG, in_catalog
from tests.support.servers.catalog_metastore import CatalogMetastore, catalog_metastore

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "dw.flights"
S, X = LockType.SHARED_READ, LockType.EXCLUSIVE
LAKE = {"metastore.catalog.default": "Lake"}


class Client:
    """Another client of that metastore.

    :param catalog: the catalog that it names; None: a client from before Hive 4.3, which names none.
    """

    def __init__(self, metastore: CatalogMetastore, catalog: str | None = None) -> None:
        self._port, self._catalog = metastore.port, catalog

    def lock(self, kind: int) -> int:
        component: Any = hive.LockComponent(kind, hive.LockLevel.TABLE, *TABLE.split("."))
        if self._catalog:
            component = in_catalog(component, LOCK_CATALOG, self._catalog)
        request = hive.LockRequest([component], user="ann", hostname="gateway", agentInfo="a query")
        with HMSClient(host="127.0.0.1", port=self._port) as client:
            return int(client.lock(request).lockid)

    def holds(self, number: int) -> bool:
        with HMSClient(host="127.0.0.1", port=self._port) as client:
            return bool(client.check_lock(hive.CheckLockRequest(number)).state == LockState.ACQUIRED)

    def unlock(self, number: int) -> None:
        with HMSClient(host="127.0.0.1", port=self._port) as client:
            client.unlock(hive.UnlockRequest(number))


@pytest.fixture
def server() -> Iterator[CatalogMetastore]:
    with catalog_metastore() as metastore:
        yield metastore


def manager_of(metastore: CatalogMetastore, **options: str) -> LockManager:
    query = "".join(f"&{name}={value}" for name, value in options.items())
    return connect(f"metastore://127.0.0.1:{metastore.port}?recheck_s=0.2{query}")


def conflicts(manager: LockManager, client: Client) -> bool:
    """Whether each of the two waits for the other: it is an error if only one does."""
    theirs = client.lock(X)
    ours_waits = blockers(manager) == ["a query"]
    client.unlock(theirs)
    ours = manager.acquire(owner="ours", writes=[TABLE], timeout_s=0)
    theirs = client.lock(S)
    theirs_waits = not client.holds(theirs)
    manager.renew(ours)  # a conflicting lock beside it would be a fault of the server, and the lease would be lost
    manager.release(ours)
    assert client.holds(theirs)
    client.unlock(theirs)
    assert ours_waits == theirs_waits
    return ours_waits


def blockers(manager: LockManager) -> list[str]:
    """The owners in the way of a writer."""
    request = manager.begin(rules.request("ours", writes=[TABLE]), lambda: None)
    try:
        outcome = request.poll()
        return [blocker.owner for blocker in outcome.by] if isinstance(outcome, Blocked) else []
    finally:
        request.withdraw()
        if lease := manager.lease_of("ours"):
            manager.release(lease)


@pytest.mark.parametrize("catalog", [None, "hive", "HIVE"])
def test_clients_with_and_without_a_catalog_conflict(server: CatalogMetastore, catalog: str | None) -> None:
    assert conflicts(manager_of(server), Client(server, catalog))
    assert "hive" in server.named, "ours is named"


def test_a_table_of_the_same_name_in_another_catalog_is_another_table(server: CatalogMetastore) -> None:
    manager = manager_of(server)
    assert not conflicts(manager, Client(server, "lake"))
    assert manager.show() == []
    assert [request.owner for request in manager.requests()[1]] == []


@pytest.mark.parametrize(("catalog", "found"), [("lake", True), ("hive", False), (None, False)])
def test_the_catalog_is_the_servers_own(catalog: str | None, found: bool) -> None:
    with catalog_metastore(settings=LAKE) as metastore:
        assert conflicts(manager_of(metastore), Client(metastore, catalog)) is found


def test_another_catalog_can_be_named() -> None:
    with catalog_metastore(settings=LAKE) as metastore:
        assert conflicts(manager_of(metastore, catalog="Sea"), Client(metastore, "sea"))


@pytest.mark.parametrize("catalog", [None, "hive", "lake"])
def test_a_server_without_catalogs_skips_the_name(catalog: str | None) -> None:
    """Before Hive 4.3 all locks of a database conflict, whatever its catalog is."""
    with catalog_metastore(catalogs=False, settings=LAKE) as metastore:
        assert conflicts(manager_of(metastore), Client(metastore, catalog))


def test_waiting_and_listing_go_on_in_the_catalog(server: CatalogMetastore) -> None:
    manager, other = manager_of(server), Client(server, "lake")
    theirs = other.lock(X)
    held = manager.acquire(owner="held", writes=[TABLE])
    waiting = manager.begin(rules.request("waits", reads=[TABLE]), lambda: None)
    waiting.poll()
    assert [str(holder.object) for holder in manager.show()] == [TABLE]
    (waiter,) = manager.waiters()
    assert [blocker.owner for blocker in waiter.blocked_by] == ["held"]
    manager.release(held)
    assert waiting.poll()
    assert other.holds(theirs)
