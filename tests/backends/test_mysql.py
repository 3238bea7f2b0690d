"""What only MySQL and MariaDB can be asked, on a real MariaDB: its row, its sessions, its defaults."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import inspect, text, update

from airflow_hivelock.locks import (
    HiveLockError,
    Lease,
    LockObject,
    LockTimeout,
    StoreCorrupted,
    StoreUnavailable,
    connect,
    rules,
)
from airflow_hivelock.locks.backends.database import DatabaseBackend, mysql
from tests.backends.databases import DAY, HANG_S, ask, database, do, round_trips, wait_until
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.backends.database.candidate import Living
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
    from tests.support.servers import MariaDBServer

integration = pytest.mark.integration


def grant(manager: LockManager, transaction: StoreTransaction, owner: str) -> None:
    """Write the grant of the day, and leave the transaction open."""
    assert isinstance(manager.backend, DatabaseBackend)
    mine = manager.backend.begin(rules.request(owner, writes=[DAY]), lambda: None)
    assert mine._attempt(transaction, comes_back=False)
    transaction.flush()


def session(transaction: StoreTransaction) -> int:
    (row,) = transaction.ask(text("SELECT CONNECTION_ID() AS id")).rows
    return int(row["id"])


# The row.


@integration
def test_who_was_kept_out_sees_what_was_granted_meanwhile(mysql_url: str) -> None:
    with connect(mysql_url) as manager, connect(mysql_url) as late, ThreadPoolExecutor(1) as pool:

        def grant_while_another_is_kept_out(transaction: StoreTransaction) -> Future[Lease]:
            grant(manager, transaction, "first")
            refused = pool.submit(late.acquire, owner="late", writes=[DAY])
            waits = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            wait_until(lambda: ask(manager, waits))
            return refused

        refused = database(manager).transact(grant_while_another_is_kept_out)
        with pytest.raises(LockTimeout, match="first"):
            refused.result(HANG_S)


@integration
def test_a_session_that_is_killed_in_between_leaves_nothing_and_keeps_nobody_out(mysql_url: str) -> None:
    with connect(mysql_url) as manager, connect(mysql_url) as other:

        def killed(transaction: StoreTransaction) -> None:
            grant(manager, transaction, "killed")
            do(other, f"KILL {session(transaction)}")
            assert other.release(other.acquire(owner="next", writes=[DAY], timeout_s=HANG_S))

        with pytest.raises(StoreUnavailable):
            database(manager).transact(killed)
        assert (manager.leases(), manager.lease_of("killed")) == ([], None)


@integration
def test_a_client_that_stands_still_in_between_is_ended_by_the_server(mysql_url: str) -> None:
    with connect(f"{mysql_url}&timeout_s=1") as manager, connect(mysql_url) as other:

        def stands_still(transaction: StoreTransaction) -> None:
            grant(manager, transaction, "stands still")
            assert other.release(other.acquire(owner="next", writes=[DAY], timeout_s=HANG_S))

        with pytest.raises(StoreUnavailable):
            database(manager).transact(stands_still)
        assert manager.leases() == []


@integration
def test_who_is_kept_out_for_too_long_is_told_so_and_has_done_nothing(mysql_url: str) -> None:
    with connect(mysql_url) as manager, connect(f"{mysql_url}&timeout_s=1") as hasty:

        def in_the_way(transaction: StoreTransaction) -> None:
            grant(manager, transaction, "first")
            with pytest.raises(StoreUnavailable, match="1205"):
                database(hasty).transact(lambda other: grant(hasty, other, "second"))

        database(manager).transact(in_the_way)
        assert [lease.owner for lease in hasty.leases()] == ["first"]


@integration
def test_the_victim_of_a_deadlock_tries_again(mysql_url: str) -> None:
    with connect(mysql_url) as manager, ThreadPoolExecutor(2) as pool:
        for owner in ("one", "two"):
            manager.acquire(owner=owner, writes=[f"dw.{owner}"])
        kept, both, tries = database(manager), threading.Barrier(2), []
        request = kept.tables.request

        def take(*owners: str) -> None:
            def work(transaction: StoreTransaction) -> None:
                tries.append(owners)
                for nth, owner in enumerate(owners):
                    transaction.ask(update(request).where(request.c.owner == owner).values(named=owners[0]))
                    transaction.flush()
                    if nth == 0 and len(tries) <= 2:
                        both.wait(HANG_S)

            kept.transact(work)

        for taking in [pool.submit(take, "one", "two"), pool.submit(take, "two", "one")]:
            taking.result(HANG_S)
        assert len(tries) == 3


@integration
def test_a_lease_costs_three_round_trips(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(mysql_url) as manager:
        trips = round_trips(manager, monkeypatch)
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))
        assert len(trips) == 3, trips


# Sessions.


@integration
def test_a_session_that_the_server_has_ended_is_replaced_unseen(
    mysql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql, "FRESH_S", 0.0)  # as if it had been idle
    with connect(mysql_url) as manager, connect(mysql_url) as other:
        lease = manager.acquire(owner="me", writes=[DAY])
        found = database(manager).transact(session)
        do(other, f"KILL {found}")
        wait_until(lambda: not ask(other, f"SELECT 1 FROM information_schema.processlist WHERE id = {found}"))
        manager.renew(lease)
        assert manager.release(lease)


@integration
def test_a_server_that_only_reads_confirms_no_lease(
    mariadb: MariaDBServer, mysql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica only reads, and so does a primary that others replace. Each can be behind."""
    monkeypatch.setattr(mysql, "FRESH_S", -1.0)
    with connect(mysql_url) as ruler, connect(mysql_url) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        with database(ruler).engine.connect() as root:
            root.execute(text("SET GLOBAL read_only = ON"))
            try:
                for ask_it in (lambda: connect(mysql_url), lambda: manager.verify(lease)):
                    with pytest.raises(StoreUnavailable, match=r"read_only is on.* Give the address of the primary"):
                        ask_it()
            finally:
                root.execute(text("SET GLOBAL read_only = OFF"))
        manager.verify(lease)


@integration
def test_a_server_that_restarts_keeps_leases_places_and_its_number(mariadb: MariaDBServer, mysql_url: str) -> None:
    with connect(mysql_url) as manager, connect(mysql_url) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        waiting = Polling.queued(other, "waits", writes=[DAY])
        mariadb.kill()
        with pytest.raises(StoreUnavailable):
            manager.renew(lease)
        mariadb.start()
        manager.renew(lease)
        assert manager.release(lease)
        granted = waiting.granted()
        assert granted.token > lease.token
        other.release(granted)


@integration
def test_a_server_that_stands_still_is_not_waited_for_without_end(mariadb: MariaDBServer, mysql_url: str) -> None:
    with connect(f"{mysql_url}&timeout_s=1") as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        mariadb.suspend()
        try:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                manager.verify(lease)
            assert time.monotonic() - begun < 20
        finally:
            mariadb.resume()
        wait_until(lambda: _released(manager, lease))


def _released(manager: LockManager, lease: Lease) -> bool:
    try:
        manager.release(lease)
    except HiveLockError:
        return False
    return manager.leases() == []


@integration
def test_a_waiter_looks_often_at_first_and_then_less(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    with connect(mysql_url) as manager, connect(mysql_url) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        living = database(other).living

        def look(places: Iterable[int]) -> dict[int, Living]:
            looks.append(time.monotonic())
            return living(places)

        monkeypatch.setattr(database(other), "living", look)
        waiting = [Polling.queued(other, f"waits {number}", writes=[DAY]) for number in range(20)]
        looks.clear()
        wait_until(lambda: len(looks) > 2 and looks[-1] - looks[-2] > 0.4)
        assert len(looks) < 100, "each waiter looks for itself"  # 20 waiters; a look for all grows to 0.4 s in some 40
        manager.release(lease)
        for polling in waiting:
            other.release(polling.granted())


# The server's defaults.


@pytest.fixture
def contrary(mariadb: MariaDBServer, mysql_url: str) -> Iterator[str]:
    """A server with defaults that all differ from the needed ones."""
    changed = {
        "tx_isolation": "'SERIALIZABLE'",
        "autocommit": "0",
        "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "sql_safe_updates": "1",
        "sql_select_limit": "1",
        "max_join_size": "1",
        "completion_type": "'RELEASE'",
        "time_zone": "'-11:30'",
        "collation_server": "'latin1_swedish_ci'",
        "collation_database": "'latin1_swedish_ci'",
    }
    with connect(f"{mariadb.url}?prefix=plain_") as manager:
        before = {name: ask(manager, f"SELECT @@GLOBAL.{name}")[0][0] for name in changed}
        do(manager, *(f"SET GLOBAL {name} = {value}" for name, value in changed.items()))
        yield mysql_url
        do(manager, *(f"SET GLOBAL {name} = {value!r}" for name, value in before.items()))


@integration
def test_nothing_depends_on_the_defaults_of_the_server(contrary: str) -> None:
    names = ("a", "A", "a ", "ä", "Ä", "日本", "it's", "back\\slash", 'quo"te', "100%", "%s", ":of_place", "x" * 200)
    with connect(contrary) as manager:
        assert tuple(ask(manager, "SELECT @@tx_isolation, @@autocommit")[0]) == ("READ-COMMITTED", 1)
        assert abs((manager.now() - datetime.now(UTC)).total_seconds()) < HANG_S
        held: dict[str, LockObject] = {}
        for value in names:
            target = LockObject("dw", "flights", (("carrier", value),))
            held[manager.acquire(owner=f"holder {value.strip()} 😀 {len(held)}", writes=[target]).id] = target
        assert {lease.id: lease.locks[-1].object for lease in manager.leases()} == held
        waiting = Polling(manager, "waits", writes=list(held.values()))
        assert waiting.blocked().by
        for lease in manager.leases():
            assert manager.release(lease)
        manager.release(waiting.granted())
        many = [f"dw.t/name={number:x>100}" for number in range(1_500)]
        lease = manager.acquire(owner="many", writes=many)
        assert manager.find(lease.id) == lease


# The tables.


@integration
@pytest.mark.parametrize("missing", ["VIEW {}lease", "INDEX hivelock_lock_object ON {}lock", "TABLE {}audit"])
def test_what_a_process_has_made_that_died_then_is_completed(mysql_url: str, missing: str) -> None:
    with connect(mysql_url) as manager:
        tables = database(manager).tables
        do(manager, f"DROP {missing.format(tables.qualified)}", f"DELETE FROM {tables.store}")
    with connect(mysql_url) as manager:
        here = {"schema": tables.schema}
        kept = database(manager)
        assert kept.read(lambda connection: inspect(connection).has_table("hivelock_lease", **here))
        assert kept.read(
            lambda connection: inspect(connection).has_index("hivelock_lock", "hivelock_lock_object", **here)
        )
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))
        assert manager.audit() == []


@integration
def test_a_store_whose_number_is_gone_is_not_begun_anew(mysql_url: str) -> None:
    with connect(mysql_url) as manager:
        manager.acquire(owner="me", writes=[DAY])
        do(manager, f"DELETE FROM {database(manager).tables.store}")
    with pytest.raises(StoreCorrupted, match="tokens would not grow"):
        connect(mysql_url)


@integration
def test_tables_are_of_innodb_and_tell_names_by_each_byte(mysql_url: str) -> None:
    with connect(mysql_url) as manager:
        schema = database(manager).tables.schema
        of_ours = f"WHERE table_schema = '{schema}' AND table_type = 'BASE TABLE'"
        made = ask(manager, f"SELECT DISTINCT engine, table_collation FROM information_schema.tables {of_ours}")
        assert [tuple(row) for row in made] == [("InnoDB", "utf8mb4_bin")]
