"""Tests for ZooKeeper only: lost connections, dead waiters, and requests that do not fit."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import (
    Lease,
    LeaseLimit,
    LockLost,
    LockManager,
    LockMode,
    LockTimeout,
    RequestTooLarge,
    StoreCorrupted,
    StoreUnavailable,
    WaitsFor,
    connect,
    formats,
    rules,
)
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend, backend, layout
from airflow_hivelock.locks.backends.zookeeper.client import Create, Delete, SetData
from airflow_hivelock.locks.model import DeferredGrant, owner_key
from tests.backends.zookeepers import commit, data, expire, store
from tests.conformance import Polling
from tests.support.patience import until
from tests.support.servers import ZooKeeperServer, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

DAY = "dw.flights/dt=2013-01-01"


@pytest.fixture
def manager(connect_zookeeper: Callable[[], LockManager]) -> Iterator[LockManager]:
    with connect_zookeeper() as manager:
        yield manager


def test_a_year_of_partitions_is_one_request(manager: LockManager) -> None:
    lease = manager.acquire(owner="rerun", writes=["dw.delays/dt=2013-01-01..2013-12-31"])
    assert len(manager.show("dw.delays")) == 366
    assert manager.release(lease)
    assert manager.show() == []


def test_more_partitions_than_a_transaction_can_carry_become_exclusive_on_their_table(
    manager: LockManager, caplog: pytest.LogCaptureFixture
) -> None:
    reads, writes = ["dw.flights/n=1000..9999"], ["dw.delays/n=1..100"]
    lease = manager.acquire(owner="decade", reads=reads, writes=writes)
    assert "dw.flights, too many" in caplog.text
    modes = {str(lock.object): lock.mode for lock in lease.locks}
    assert len(modes) == 103
    assert modes["dw.flights"] is LockMode.EXCLUSIVE, "SHARED on a table keeps no writer out of its partitions"
    assert modes["dw.delays"] is LockMode.SHARED
    again = manager.acquire(owner="decade", reads=reads, writes=writes)
    assert again.id == lease.id
    with pytest.raises(LockTimeout, match="decade"):
        manager.acquire(owner="writer", writes=["dw.flights/n=5"])
    assert manager.release(again)
    assert manager.show() == []


def test_what_one_transaction_carries_at_most_is_granted(manager: LockManager) -> None:
    """The bound is close, and on the safe side: a packet too large would cost the connection."""
    fits = [f"dw.delays/{'n' * 60}={number}" for number in range(100_000, 101_250)]
    lease = manager.acquire(owner="large", writes=fits)
    assert len(lease.locks) == len(fits) + 2, "escalated far below the limit"
    assert manager.release(lease)


def test_what_one_transaction_cannot_grant_at_once_is_granted(manager: LockManager) -> None:
    """Of objects that are there already it says more than fits."""
    deep = [f"dw.delays/{'n' * 700}={number}" for number in range(100_000, 100_380)]
    for _ in range(2):
        lease = manager.acquire(owner="large", writes=deep)
        assert len(lease.locks) == len(deep) + 2
        assert manager.release(lease)
        layout = store(manager).layout
        commit(manager, *(Create(layout.object(lock.object)) for lock in lease.locks if lock.object.partition))


def test_more_tables_than_a_transaction_can_carry_are_refused_before_anything_is_done(manager: LockManager) -> None:
    with pytest.raises(RequestTooLarge, match="5,001 tables and databases"):
        manager.acquire(owner="greedy", writes=[f"dw.t{number}" for number in range(5_000)])
    assert manager.waiters() == []
    assert manager.show() == []


def test_the_largest_request_there_is_can_be_freed_by_force(manager: LockManager) -> None:
    """The entry in the audit trail goes into the same transaction."""
    deep = [f"dw.delays/{'n' * 700}={number}" for number in range(100_000, 100_380)]
    lease = manager.acquire(owner="large", writes=deep)
    assert len(lease.locks) == len(deep) + 2, "escalated far below the limit"
    assert manager.force_release(lease.id, reason="stuck", user="ann")
    assert {str(lock.object) for lock in manager.audit()[-1].locks} == {"dw", "dw.delays"}


def test_what_was_asked_for_counts_too_in_what_a_transaction_carries(manager: LockManager) -> None:
    wanted = replace(rules.request("long", writes=[DAY]), named="n" * 990_000)
    pending = manager.begin(wanted, lambda: None)
    assert isinstance(pending.poll(), Lease), "it fits"
    with pytest.raises(RequestTooLarge):
        manager.begin(replace(wanted, owner="longer", named="n" * 1_000_000), lambda: None)


def test_a_transaction_that_is_too_large_does_not_cost_everybody_the_connection(manager: LockManager) -> None:
    client = store(manager).client
    session = client.session
    with pytest.raises(RequestTooLarge, match="/too-large: "):
        commit(manager, Create("/too-large", b"x" * 1_048_576))
    assert manager.show() == []
    assert client.session == session


def test_a_new_session_is_another_though_its_id_is_the_same(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    """A server whose clock was set back may give the same id."""
    client: Any = store(manager).client
    session, ident = client.session, client._zk.client_id
    expire(zookeeper, manager)
    client._zk._session_id = ident[0]
    assert client.session != session


def test_long_queries_of_hives_are_shown_and_not_remembered(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    """Hive 3 keeps a million characters of a query in each of its locks."""
    lease = manager.acquire(owner="a", reads=["dw.t"])
    before = layout._lock_data.cache_info().currsize
    for number in range(3):
        query = f"hive_{number}:1356998400000:IMPLICIT:{'select ' * 100_000}:10.0.0.1".encode()
        commit(manager, Create(f"{store(manager).layout.namespace}/dw/t/LOCK-SHARED-000000001{number}", query))
    queries = [len(holder.query) for holder in manager.show("dw.t") if holder.lease_id is None]
    assert queries == [700_000] * 3
    assert layout._lock_data.cache_info().currsize <= before + 1
    manager.release(lease)


def test_a_renewal_tells_of_a_lock_that_hive_has_removed(manager: LockManager) -> None:
    lease = manager.acquire(owner="me", writes=[DAY])
    (node,) = store(manager).namespace.below(lease.locks[-1].object)
    commit(manager, Delete(node.path))
    with pytest.raises(LockLost, match="UNLOCK TABLE"):
        manager.renew(lease)
    with pytest.raises(LockLost, match="acquire again"):
        manager.acquire(owner="me", writes=[DAY])
    assert manager.release(lease), "what remains of it must be freed, by who held it"


def test_an_away_request_blocks_no_other_and_is_forgotten_in_time(
    connect_zookeeper: Callable[[], LockManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "WAITER_KEPT_S", 0.0)
    with connect_zookeeper() as holder, connect_zookeeper() as mine:
        lease = holder.acquire(owner="holder", writes=[DAY])
        late = mine.begin(rules.request("late", [], [DAY], deferred=DeferredGrant()), lambda: None)
        assert isinstance(late.poll(), Blocked)
        behind = Polling.queued(holder, "behind", writes=[DAY])
        holder.release(lease)
        assert isinstance(late.poll(), NeedsSlot)
        assert [(w.owner, w.waits_for) for w in holder.waiters()] == [
            ("behind", WaitsFor.LOCK),
            ("late", WaitsFor.SLOT),
        ]
        holder.release(behind.granted())
        assert holder.sweep() == 1
        assert holder.waiters() == []


def test_coming_back_with_a_slot_is_one_write_although_it_is_the_workers_first(
    connect_zookeeper: Callable[[], LockManager],
) -> None:
    with connect_zookeeper() as triggerer, connect_zookeeper() as worker:
        triggerer.release(triggerer.acquire(owner="before", writes=[DAY]))

        def written() -> int:
            (touched,) = commit(triggerer, SetData(store(triggerer).layout.root, b"", -1))
            return int(touched.mzxid)

        before = written()
        assert isinstance(
            triggerer.begin(rules.request("late", [], [DAY], deferred=DeferredGrant()), lambda: None).poll(), NeedsSlot
        )
        invited = written()
        assert isinstance(worker.begin(rules.request("late", [], [DAY]), lambda: None).poll(), Lease)
        assert (invited - before, written() - invited) == (3, 2), (
            "arrival and going away; the grant; the one that counts each"
        )


def test_the_permit_of_a_newer_versions_lease_is_not_swept(connect_zookeeper: Callable[[], LockManager]) -> None:
    limit = LeaseLimit("reruns", 1)
    with connect_zookeeper() as manager:
        lease = manager.acquire(owner="newer", writes=[DAY], limit=limit)
        record = store(manager).layout.record(owner_key("newer"))
        known = data(manager, record)
        newer = json.dumps(json.loads(known) | {"format": formats.FORMAT + 1}).encode()
        commit(manager, SetData(record, newer, -1))
        assert manager.sweep() == 0
        commit(manager, SetData(record, known, -1))
        with pytest.raises(LockTimeout, match="reruns"):
            manager.acquire(owner="second", writes=["dw.other"], limit=limit)
        manager.release(lease)


def test_waiters_and_holders_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(tmp_path))
        url = f"{server.url}?timeout_s=60"  # a busy machine takes long to start it
        manager, other = (stack.enter_context(connect(url)) for _ in range(2))
        lease = manager.acquire(owner="holder", writes=[DAY])
        waiting = Polling.queued(other, "waiter", writes=[DAY])
        server.stop()
        server.start()
        waiting.blocked()
        assert [holder.owner for holder in other.show(DAY)] == ["holder"]
        manager.renew(lease)
        manager.release(lease)
        assert waiting.granted()


def test_a_request_that_is_withdrawn_while_the_server_is_away_leaves_the_queue_later(tmp_path: Path) -> None:
    """It blocked its tables for as long as its process lived and asked for nothing more."""
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(tmp_path))
        idle, other = (stack.enter_context(connect(f"{server.url}?timeout_s={timeout_s}")) for timeout_s in (5, 60))
        lease = other.acquire(owner="holder", writes=[DAY])
        cancelled = Polling.queued(idle, "cancelled", writes=[DAY])
        waiting = Polling.queued(other, "next", writes=[DAY])
        server.stop()
        with pytest.raises(StoreUnavailable):
            cancelled.pending.withdraw()
        server.start()
        waiting.blocked()
        other.release(lease)
        assert waiting.granted()
        until(lambda: not withdrawing(idle), "the end of the thread")


def test_a_manager_that_is_closed_tries_no_withdrawal_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(tmp_path))
        with connect(f"{server.url}?timeout_s=2") as manager:
            manager.acquire(owner="holder", writes=[DAY])
            cancelled = Polling.queued(manager, "cancelled", writes=[DAY])
            server.stop()
            with pytest.raises(
                StoreUnavailable, match=r"not sent\. Check that it runs, has a quorum and can be reached from here"
            ):
                cancelled.pending.withdraw()
            assert withdrawing(manager)
        until(lambda: not withdrawing(manager), "the end of the thread")
        with pytest.raises(StoreUnavailable):
            cancelled.pending.withdraw()
        assert not withdrawing(manager)


def withdrawing(manager: LockManager) -> bool:
    """Whether a thread of the manager tries withdrawals again."""
    tries = store(manager).abandoned._try
    return any(isinstance(thread, threading.Timer) and thread.function == tries for thread in threading.enumerate())


def test_patience_for_a_lock_of_hives_below_the_table_ends_in_waiting_on(zookeeper: ZooKeeperServer) -> None:
    """It was a KeyError: the partition is none of the objects that the request locks."""
    backend = ZooKeeperBackend.connect(zookeeper.hosts, "hive-below", root="/hivelock-below", patience_s=0)
    with LockManager(backend) as manager:
        manager.release(manager.acquire(owner="to make the nodes", reads=["dw.flights"]))
        partition = "/hive-below/dw/flights/dt=2013-01-01"
        lock = f"{partition}/LOCK-SHARED-0000000000"
        commit(manager, Create(partition), Create(lock, b"q:1:EXPLICIT:lock table:h"))
        waiting = Polling(manager, "alter", writes=["dw.flights"])
        for _ in range(3):
            assert str(waiting.blocked().by[0].object) == DAY
        (waiter,) = manager.waiters()
        assert [str(blocker.object) for blocker in waiter.blocked_by] == [DAY]
        commit(manager, Delete(lock))
        assert manager.release(waiting.granted())


def test_a_lock_of_hives_below_a_database_is_listed_although_the_waiter_wants_its_table_shared(
    manager: LockManager,
) -> None:
    manager.release(manager.acquire(owner="makes the nodes", reads=["dw.flights"]))
    hives = f"{store(manager).layout.namespace}/dw/flights/LOCK-SHARED-0000000000"
    commit(manager, Create(hives, b"q:1:EXPLICIT:lock table:h"))
    waiting = Polling(manager, "rebuild", writes=["dw", DAY])
    assert waiting.blocked_by() == ["q"]
    commit(manager, Delete(hives))
    assert waiting.granted()


def test_a_server_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+ did not answer within 1 s"):
        connect(f"zookeeper://127.0.0.1:{free_port()}/hive?timeout_s=1")


def test_what_a_newer_version_wrote_is_left_as_it_is_and_not_overtaken(manager: LockManager) -> None:
    """The rolling upgrade: a version reads the records that it knows, and reports the others."""
    newer = manager.acquire(owner="newer", writes=[DAY])
    path = store(manager).layout.record(owner_key("newer"))
    written = json.dumps(json.loads(data(manager, path)) | {"format": formats.FORMAT + 1, "sealed": True}).encode()
    commit(manager, SetData(path, written, -1))
    for attempt in (
        lambda: manager.acquire(owner="newer", writes=[DAY], attempt=2),
        lambda: manager.acquire(owner="late", writes=[DAY]),
        lambda: manager.force_release(newer.id, reason="stuck", user="ops"),
    ):
        with pytest.raises(StoreCorrupted, match="upgrade airflow-hivelock here too"):
            attempt()
    assert [str(holder.object) for holder in manager.show(DAY)] == [DAY], "a lock that nobody sees"
    assert data(manager, path) == written
    assert manager.acquire(owner="elsewhere", writes=["dw.other"])


def test_what_an_older_protocol_wrote_is_not_overtaken_and_not_misread(manager: LockManager) -> None:
    """A process of the older protocol may still run: the error for its record has the steps to end it."""
    manager.acquire(owner="older", writes=[DAY])
    path = store(manager).layout.record(owner_key("older"))
    written = json.dumps(json.loads(data(manager, path)) | {"format": formats.OLDEST - 1}).encode()
    commit(manager, SetData(path, written, -1))
    for owner in ("older", "next"):
        with pytest.raises(StoreCorrupted, match="stop all processes of the older version"):
            manager.acquire(owner=owner, writes=[DAY], attempt=2)
    assert data(manager, path) == written
    assert manager.acquire(owner="elsewhere", writes=["dw.other"])


@pytest.mark.parametrize("written", [b"\x00 newer", b'{"owner": "o", "locks": {"dw": "S"}, "place": 3}'])
def test_a_ticket_that_cannot_be_read_is_not_overtaken(written: bytes, manager: LockManager) -> None:
    manager.release(manager.acquire(owner="first", writes=[DAY]))
    queue = store(manager).layout.queue("dw.flights")
    commit(manager, Create(f"{queue}/0123456789abcdef-7-1-A", written))
    commit(manager, Create(f"{queue}/somebody's note", b"not a ticket"))
    with pytest.raises(StoreCorrupted, match="0123456789abcdef-7-1-A is a ticket that this version cannot read"):
        manager.acquire(owner="second", writes=[DAY])
    assert manager.show() == []
    assert manager.acquire(owner="elsewhere", writes=["dw.other"])
    assert [lease.owner for lease in manager.leases()] == ["elsewhere"], "the keeper would renew nothing any more"
