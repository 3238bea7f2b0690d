"""The locks of a real metastore, Hive 2.3's or another's: what we hold in it, what Hive holds, and what it grants by mistake."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from airflow_hivelock.locks import (
    Blocked,
    InvalidRequest,
    Lease,
    LeaseMismatch,
    LockManager,
    LockRequest,
    StoreUnavailable,
    connect,
    rules,
)
from airflow_hivelock.locks.backend import NeedsSlot
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.metastore.acquisition import MetastoreAcquisition
from airflow_hivelock.locks.backends.metastore.store import LockClient
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.hive.coverage import check
from airflow_hivelock.locks.model import DeferredGrant, LockObject
from airflow_hivelock.locks.model import LockType as Type
from airflow_hivelock.locks.pending import Silent
from tests.backends.metastores import DAY, HIVE, TABLE, TIMEOUT_S, Hive, S, X, frees_what_is_not_renewed
from tests.conformance import BackendConformance, Polling

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import Metastore

    Connect = Callable[[], LockManager]

pytestmark = pytest.mark.integration


@pytest.fixture
def manager(connect_metastore: Connect) -> LockManager:
    return connect_metastore()


class TestMetastore(BackendConformance, capabilities=MetastoreBackend.capabilities):
    @pytest.fixture
    def connect(self, connect_metastore: Connect) -> Connect:
        return connect_metastore

    @frees_what_is_not_renewed
    def test_a_lease_that_is_not_renewed_blocks_nobody_for_long(self, manager: LockManager, other: LockManager) -> None:
        super().test_a_lease_that_is_not_renewed_blocks_nobody_for_long(manager, other)


@frees_what_is_not_renewed
def test_a_dead_waiter_blocks_the_queue_only_until_the_server_gives_it_up(
    manager: LockManager, raw_metastore: Hive
) -> None:
    lease = manager.acquire(owner="holder", reads=[DAY])
    assert not raw_metastore.granted(raw_metastore.lock((X, DAY), agent="dead"))
    behind = Polling(manager, "behind", reads=[DAY])
    while isinstance(outcome := behind.pending.poll(), Blocked):
        assert [by.owner for by in outcome.by] == ["dead"]
        manager.renew(lease)
        threading.Event().wait(outcome.recheck_s)
    assert manager.waiters() == []


def polled(manager: LockManager, request: LockRequest) -> Lease:
    lease = manager.begin(request, lambda: None, 10.0).poll()
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.parametrize("kind", [Type.SHARED_WRITE, Type.EXCL_WRITE])
def test_a_lease_of_a_type_of_hives_can_be_taken_over_as_it_is_listed(manager: LockManager, kind: Type) -> None:
    """As a task does after its trigger has acquired the lease."""
    table = LockObject.parse(TABLE)
    lease = polled(manager, rules.request("inserts", writes=[TABLE], named="sql", types={table: kind}))
    assert polled(manager, LockRequest("inserts", lease.locks)).id == lease.id
    with pytest.raises(LeaseMismatch):
        polled(manager, rules.request("inserts", [TABLE], ["dw.other"]))


def test_what_is_locked_is_named_and_nothing_else(manager: LockManager, raw_metastore: Hive) -> None:
    raw_metastore.create_table("deep.events", "dt", "hr")
    for owner, reads, writes, locks in (
        ("leaf", ["deep.events/dt=1/hr=2"], [], {"deep.events/dt=1/hr=2": "SHARED"}),
        ("both", ["deep.t"], ["deep.t/dt=1"], {"deep.t": "SHARED", "deep.t/dt=1": "EXCLUSIVE"}),
        ("covered", ["deep.u", "deep.u/dt=1"], [], {"deep.u": "SHARED"}),
        ("unknown", [], ["deep.v/dt=1"], {"deep.v/dt=1": "EXCLUSIVE"}),
    ):
        lease = manager.acquire(owner=owner, reads=reads, writes=writes)
        assert {str(lock.object): lock.mode.value for lock in lease.locks} == locks
        assert manager.acquire(owner=owner, reads=reads, writes=writes) == lease
        assert manager.find(lease.id) == lease
        manager.release(lease)


def test_a_prefix_becomes_its_table(manager: LockManager, raw_metastore: Hive) -> None:
    raw_metastore.create_table("prefix.events", "dt", "hr")
    lease = manager.acquire(owner="writer", writes=["prefix.events/dt=1"])
    assert [str(lock) for lock in lease.locks] == ["prefix.events EXCLUSIVE"]
    assert manager.acquire(owner="writer", writes=["prefix.events/dt=1"]) == lease
    assert not raw_metastore.granted(raw_metastore.lock((S, "prefix.events/dt=1/hr=2"))), (
        "by its name alone it would have been let in"
    )


def test_shared_on_a_database_is_not_taken(manager: LockManager) -> None:
    with pytest.raises(InvalidRequest, match="Name the tables"):
        manager.acquire(owner="reader", reads=["dw"])
    lease = manager.acquire(owner="reader", reads=["dw", TABLE])
    assert [str(lock) for lock in lease.locks] == [f"{TABLE} SHARED"]


@pytest.mark.parametrize(
    "owner", ["it's", "prod:dag/manual__2026-01-01T00:00:00+00:00/task/-1", "ü" * 40, "a b\\c", "x" * 255]
)
def test_an_owner_is_read_back_as_it_was_given(manager: LockManager, owner: str) -> None:
    query = "insert overwrite table dw.flights select 'it''s' from dw.staging; " * 9
    lease = manager.acquire(owner=owner, writes=["dw.flights/dt=it's"], query=query)
    assert manager.lease_of(owner) == lease
    (holder,) = manager.show()
    assert (holder.owner, str(holder.object)) == (owner, "dw.flights/dt=it%27s")
    assert query.startswith(holder.query[:30])


def test_an_owner_too_long_to_be_kept_finds_its_lease_again(manager: LockManager) -> None:
    first, second = (f"{'long ' * 80}{number}" for number in (1, 2))
    lease = manager.acquire(owner=first, reads=[DAY])
    assert manager.acquire(owner=first, reads=[DAY]) == lease
    assert manager.lease_of(first) == lease
    assert manager.acquire(owner=second, reads=[DAY]).id != lease.id


def test_a_lease_lasts_no_longer_than_the_server_waits_for_heartbeats(manager: LockManager) -> None:
    lease = manager.acquire(owner="me", writes=[DAY], lease_s=3600)
    assert lease.lease_s == TIMEOUT_S
    assert manager.acquire(owner="brief", writes=["dw.other"], lease_s=2).lease_s == 2


def test_a_lost_answer_leaves_no_lock_behind(manager: LockManager) -> None:
    def lock(client: LockClient, *arguments: Any) -> Any:
        given(client, *arguments)
        raise StoreUnavailable("the answer was lost")

    given = LockClient.lock
    manager.release(manager.acquire(owner="first", reads=[TABLE]))  # by now it is known what the server is
    for end in ("step", "withdraw"):
        pending = manager.begin(rules.request("me", writes=[DAY]), lambda: None, outage_s=0)
        with mock.patch.object(LockClient, "lock", lock), pytest.raises(StoreUnavailable):
            pending.poll()
        assert len(manager.show()) == 1
        if end == "step":
            lease = pending.poll()
            assert isinstance(lease, Lease)
            manager.release(lease)
        pending.withdraw()
        assert manager.show() == []


def test_of_two_processes_of_an_owner_that_ask_at_once_the_later_takes_up_the_earliers_lease(
    manager: LockManager,
) -> None:
    lease = manager.acquire(owner="me", writes=[DAY])
    late = Polling(manager, "me", writes=[DAY])
    with mock.patch.object(MetastoreAcquisition, "_existing", return_value=None):  # it looked before the other asked
        late.blocked()
    assert late.granted() == lease
    assert manager.waiters() == []


def test_a_deferred_request_whose_answer_was_lost_still_takes_no_locks(manager: LockManager) -> None:
    manager.release(manager.acquire(owner="first", reads=[TABLE]))  # by now it is known what the server is
    request = replace(rules.request("me", writes=[DAY]), deferred=DeferredGrant())
    pending, lock = manager.begin(request, lambda: None), LockClient.lock

    def lost(*given: Any) -> None:
        lock(*given)
        raise StoreUnavailable("the answer was lost")

    with mock.patch.object(LockClient, "lock", lost):
        assert isinstance(pending.poll(), Silent)
    assert [lease.owner for lease in manager.leases()] == ["me"]
    assert isinstance(pending.poll(), NeedsSlot)
    assert manager.leases() == []


def test_of_several_metastores_the_first_that_answers_is_asked(lock_metastore: Metastore) -> None:
    with connect(f"metastore://127.0.0.1:1,127.0.0.1:{lock_metastore.port}?timeout_s=60") as manager:
        assert manager.acquire(owner="me", writes=[DAY], lease_s=100).lease_s == 60
        manager.force_release_all(DAY, reason="the test is over", user="pytest")
    with pytest.raises(StoreUnavailable, match=r"thrift://127\.0\.0\.1:1 did not answer"):
        connect("metastore://127.0.0.1:1")


def test_the_check_names_the_release_and_what_readers_are_not_told_of(
    manager: LockManager, lock_metastore: Metastore
) -> None:
    findings = list(map(str, check(manager)))
    *_, named, passes = findings
    release = HIVE if HIVE >= "4" else HIVE[0]
    assert named.startswith(f"ok: the metastore is of Hive {release}")
    assert ("HIVE-22888" in named) is (HIVE < "4")
    assert ("HIVE-15077" in named) is (HIVE < "3")
    assert ("UPDATE" in passes) is (HIVE < "4")
    assert "INSERT INTO" in passes
    catalog = connect_catalog(lock_metastore.uri)
    assert str(check(connect("memory://check"), catalog, catalog=catalog)[-1]).startswith(named.partition(". ")[0])


def test_a_table_and_its_partition_columns_are_found(lock_metastore: Metastore, raw_metastore: Hive) -> None:
    catalog = connect_catalog(lock_metastore.uri)
    raw_metastore.create_table("shop.orders", "dt", "hr")
    found = catalog.table(LockObject("shop", "orders"))
    assert found is not None
    assert (found.partition_columns, found.partition_types) == (("dt", "hr"), ("string", "string"))
    assert catalog.table(LockObject("shop", "none")) is None
    assert catalog.names("shop") == ["orders"]
    assert list(catalog.partitions(LockObject("shop", "orders"))) == []


@pytest.mark.skipif(not HIVE.startswith("3"), reason=f"Hive {HIVE} makes none for a client of Hive 2.3's")
def test_an_insert_only_table_is_told_of(lock_metastore: Metastore, raw_metastore: Hive) -> None:
    """Hive 3 reports such a table only to clients that know the type."""
    raw_metastore.create_table("acid.orders", "dt", transactional="true", transactional_properties="insert_only")
    found = connect_catalog(lock_metastore.uri).table(LockObject("acid", "orders"))
    assert found is not None
    assert found.transactional
    assert found.partition_columns == ("dt",)


def test_a_sensor_waits_for_a_partition_whatever_the_case_of_its_name_there(manager: LockManager) -> None:
    """Hive 3.1 keeps it in lower case."""
    lease = manager.acquire(owner="writer", writes=["dw.t/country=US"])
    look = manager.look(rules.request("sensor", reads=["dw.t/country=US"]))
    assert manager.show()
    assert look.poll() == manager.show()
    manager.release(lease)
    assert look.poll() == []
