"""What only PostgreSQL can be asked: its round trips, its plans, its sessions."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import psycopg
import pytest
from sqlalchemy import literal, select, text

from airflow_hivelock.locks import (
    HiveLockError,
    InvalidRequest,
    Lease,
    LockObject,
    LockTimeout,
    StoreUnavailable,
    connect,
    rules,
)
from airflow_hivelock.locks.backends.database import DatabaseBackend, notifier
from airflow_hivelock.locks.backends.database.postgresql_session import DeadlineConnection
from airflow_hivelock.locks.hive import coverage
from tests.backends.databases import DAY, HANG_S, database, round_trips, wait_until
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
    from tests.support.servers import PostgresServer


pytestmark = pytest.mark.integration


def test_a_lease_costs_three_round_trips_and_one_that_was_waited_for_six(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(postgres_url) as manager:
        trips = round_trips(manager, monkeypatch)
        lease = manager.acquire(owner="holder", writes=[DAY])
        assert len(trips) == 2, trips
        told = threading.Event()
        waiting = manager.begin(rules.request("waits", writes=[DAY]), told.set)
        waiting.poll()
        assert len(trips) == 4, trips
        assert manager.release(lease)
        assert len(trips) == 6, trips
        assert told.wait(HANG_S)
        granted = waiting.poll()
        assert isinstance(granted, Lease)
        assert manager.release(granted)
        assert len(trips) == 9, trips


def test_a_client_that_stands_still_in_a_transaction_blocks_others_for_the_time_out_at_most(postgres_url: str) -> None:
    with connect(f"{postgres_url}&timeout_s=1") as still, connect(postgres_url) as other:
        assert isinstance(still.backend, DatabaseBackend)
        mine = still.backend.begin(rules.request("stands still", writes=[DAY]), lambda: None)

        def stand_still(transaction: StoreTransaction) -> None:
            transaction.ask(text("SET transaction_timeout = 0"))  # servers before 17 have none
            assert mine._attempt(transaction, comes_back=False)
            transaction.flush()
            assert other.acquire(owner="other", writes=[DAY], timeout_s=HANG_S)
            assert transaction.ask(select(literal(1))).rows

        with pytest.raises(StoreUnavailable, match="server closed the connection"):
            database(still).transact(stand_still)


def test_a_client_that_was_cut_off_within_a_batch_blocks_others_for_three_time_outs_at_most(postgres_url: str) -> None:
    """Until the end of the batch the server does not count as idle."""
    with connect(f"{postgres_url}&timeout_s=1") as cut, connect(postgres_url) as other:
        pooled = database(cut).engine.raw_connection()
        session = pooled.driver_connection
        assert isinstance(session, DeadlineConnection)

        def be_cut_off() -> None:
            with session.batch(ends=True):
                session.execute("SELECT pg_advisory_xact_lock(1)").fetchone()  # without the end of the batch
                with database(other).engine.connect() as connection:
                    connection.execute(text("SELECT pg_advisory_lock(1), pg_advisory_unlock(1)"))

        with pytest.raises(psycopg.OperationalError, match="server closed the connection"):
            be_cut_off()
        pooled.invalidate()


@pytest.mark.parametrize(
    "default",
    ["default_transaction_isolation=serializable", r"default_transaction_isolation=repeatable\ read", "lock_timeout=1"],
)
def test_who_was_kept_out_sees_what_was_granted_meanwhile(postgres_url: str, default: str) -> None:
    option = quote_plus(f"-c {default}")
    waits = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with (
        connect(postgres_url) as manager,
        connect(f"{postgres_url}&options={option}") as late,
        ThreadPoolExecutor(1) as pool,
    ):
        kept = database(manager)
        assert isinstance(manager.backend, DatabaseBackend)
        mine = manager.backend.begin(rules.request("first", writes=[DAY]), lambda: None)

        def grant_while_another_is_kept_out(transaction: StoreTransaction) -> Future[Any]:
            assert mine._attempt(transaction, comes_back=False)
            transaction.flush()
            refused = pool.submit(late.acquire, owner="late", writes=[DAY])
            wait_until(lambda: kept.read(lambda other: other.scalar(waits)))
            return refused

        refused = kept.transact(grant_while_another_is_kept_out)
        with pytest.raises(LockTimeout, match="first"):
            refused.result(HANG_S)


@pytest.mark.parametrize("waited", [False, True])
def test_a_grant_whose_answer_was_lost_is_given_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, waited: bool
) -> None:
    with connect(postgres_url) as manager:
        kept = database(manager)
        transact, thread = kept.transact, threading.get_ident()

        def cut(work: Any) -> None:
            granted = transact(work)
            if threading.get_ident() != thread:  # a sign of life
                return
            assert granted
            assert not granted.ahead, "nothing was granted"
            raise StoreUnavailable("cut")

        def away(*given: Any, **settings: Any) -> None:
            raise StoreUnavailable("away")

        holder = manager.acquire(owner="holder", writes=[DAY]) if waited else None
        mine = manager.begin(rules.request("me", writes=[DAY]), lambda: None, outage_s=0)
        if holder:
            mine.poll()
            manager.release(holder)
        with monkeypatch.context() as broken:
            broken.setattr(kept, "transact", cut)
            with pytest.raises(StoreUnavailable, match="cut"):
                mine.poll()
        with monkeypatch.context() as broken:
            broken.setattr(kept, "enter", away)
            with pytest.raises(StoreUnavailable, match="away"):
                mine.poll()
        mine.withdraw()
        assert (manager.leases(), manager.waiters()) == ([], [])


def test_rows_that_were_are_not_read_again_before_a_vacuum(postgres_url: str) -> None:
    with connect(postgres_url) as manager:
        kept = database(manager)
        schema, prefix = kept.tables.schema, kept.tables.prefix

        def scans() -> dict[str, int]:
            found = text(
                "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE schemaname = :schema AND relname = :name"
            )
            named = {"schema": schema or "public", "name": f"{prefix}lock"}

            def counted(connection: Connection) -> dict[str, int]:
                connection.execute(text("SELECT pg_stat_force_next_flush()"))
                return {row.indexrelname: row.idx_scan for row in connection.execute(found, named)}

            return kept.read(counted)

        kept.read(lambda connection: connection.execute(text(f"VACUUM ANALYZE {kept.tables.qualified}lock")))
        before = scans()
        manager.acquire(owner="me", writes=[DAY])
        after = scans()
    assert after["hivelock_lock_object"] > before["hivelock_lock_object"]
    assert after["hivelock_lock_pkey"] == before["hivelock_lock_pkey"], "it is read from end to end"


def test_what_was_told_while_nobody_listened_is_found(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "RECONNECT_S", 2.0)
    monkeypatch.setattr(notifier, "LOOK_S", 3600.0)
    with connect(postgres_url) as manager, connect(postgres_url) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        waiting = Polling.queued(other, "waits", writes=[DAY])
        kept = database(manager)
        listening = "query LIKE 'LISTEN%' OR query LIKE '%notif%'"

        def cut() -> int:
            cutting = text(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({listening})"
            )
            return len(kept.read(lambda connection: connection.execute(cutting).all()))

        wait_until(cut)
        manager.release(lease)
        other.release(waiting.granted())


def test_a_notification_of_another_role_wakes_nobody_late(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every role of the database may notify every channel, with any text."""
    monkeypatch.setattr(notifier, "RECONNECT_S", 3600.0)
    monkeypatch.setattr(notifier, "LOOK_S", 3600.0)
    told = threading.Event()
    with connect(postgres_url) as manager, connect(postgres_url) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        kept = database(manager)
        waiting = other.begin(rules.request("waits", writes=[DAY]), told.set)
        waiting.poll()
        listens = text("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE 'LISTEN%'")
        wait_until(lambda: len(kept.read(lambda connection: connection.execute(listens).all())) > 0)
        with psycopg.connect(postgres_url.partition("?")[0]) as another:
            another.execute(f"NOTIFY \"airflow_hivelock {kept.tables.key:x}\", 'odd'")
        manager.release(lease)
        assert told.wait(HANG_S)
        granted = waiting.poll()
        assert isinstance(granted, Lease)
        manager.release(granted)


def test_who_waits_in_one_thread_has_three_sessions_however_often(postgres_url: str) -> None:
    mine = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'one_thread'")
    with connect(f"{postgres_url}&application_name=one_thread") as manager:
        kept = database(manager)
        lease = manager.acquire(owner="holder", writes=[DAY])
        manager.renew(lease)
        assert manager.leases() == [lease]
        assert kept.read(lambda connection: connection.scalar(mine)) == 1
        told = [threading.Event() for _ in range(20)]
        waiting = [manager.begin(rules.request(str(n), writes=[DAY]), one.set) for n, one in enumerate(told)]
        for pending in waiting:
            pending.poll()
        for pending, one in zip(waiting, told, strict=True):
            manager.release(lease)
            assert one.wait(HANG_S)
            granted = pending.poll()
            assert isinstance(granted, Lease)
            lease = granted
        assert kept.read(lambda connection: connection.scalar(mine)) <= 3


def test_a_server_that_restarts_keeps_leases_and_places(postgres: PostgresServer, postgres_url: str) -> None:
    with connect(postgres_url) as manager, connect(postgres_url) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        waiting = Polling.queued(other, "waits", writes=[DAY])
        postgres.kill()
        with pytest.raises(HiveLockError):
            manager.renew(lease)
        postgres.start()

        def released() -> bool:
            try:
                return manager.release(lease)
            except HiveLockError:
                return False

        wait_until(released)

        lease = waiting.granted()
        assert lease.token > 0
        other.release(lease)


def test_a_server_that_crashes_remembers_the_last_grant(postgres: PostgresServer, postgres_url: str) -> None:
    """Also if commits do not wait for the disk by default."""
    with connect(f"{postgres_url}&options=-c+synchronous_commit%3Doff") as manager:
        leases = [manager.acquire(owner=f"owner {number}", writes=[f"dw.t{number}"]) for number in range(20)]
        postgres.kill()
        postgres.start()
        with pytest.raises(StoreUnavailable):
            manager.leases()
        assert manager.leases() == leases


def test_what_others_have_made_in_the_search_path_is_not_called(postgres_url: str) -> None:
    """An overload with the very types of the argument, which would win over PostgreSQL's own function."""
    schema = f"theirs_{postgres_url.rpartition('=')[2]}"
    forged = "RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1970-01-01'::timestamptz $$"
    with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as session:
        session.execute(f"CREATE SCHEMA {schema}")
        session.execute(f"CREATE FUNCTION {schema}.to_timestamp(numeric) {forged}")
    with connect(f"{postgres_url}&options=-c+search_path%3D{schema}") as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
        kept = database(manager)
        shown = text(f"SELECT DISTINCT start_utc FROM {kept.tables.qualified}lease")
        assert kept.read(lambda connection: connection.scalar(shown)) == lease.since
        path = kept.read(lambda connection: connection.scalar(text("SHOW search_path")))
    assert path == "pg_catalog, pg_temp"


@pytest.fixture
def empty_database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database without any schema of ours."""
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute("CREATE DATABASE empty")
        yield postgres.url.removesuffix("/postgres") + "/empty"
        session.execute("DROP DATABASE empty WITH (FORCE)")


def test_the_tables_have_a_schema_of_their_own(empty_database: str) -> None:
    with connect(empty_database) as manager:
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))
        where = text("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'hivelock%'")
        found = database(manager).read(lambda connection: connection.execute(where).scalars().all())
    assert found == ["airflow_hivelock"]


def test_check_warns_where_every_role_may_create_in_the_schema(empty_database: str) -> None:
    def warnings() -> list[str]:
        with connect(empty_database) as manager:
            return [each.text for each in coverage.check(manager) if "CREATE" in each.text]

    assert warnings() == []
    with psycopg.connect(empty_database, autocommit=True) as session:
        session.execute("GRANT CREATE ON SCHEMA airflow_hivelock TO PUBLIC")
        (warning,) = warnings()
        session.execute(warning[warning.index("REVOKE") :])
    assert warnings() == []


def test_a_session_tells_what_it_is_for(postgres_url: str) -> None:
    def name(url: str) -> object:
        with connect(url) as manager:
            return database(manager).read(lambda connection: connection.scalar(text("SHOW application_name")))

    assert name(postgres_url) == "airflow_hivelock"
    assert name(f"{postgres_url}&application_name=night") == "night"


@pytest.mark.parametrize("value", ["a,b", "NULL", " x ", "{}", 'say "a\\b"', "é", "日本", "''"])
def test_names_that_mean_something_to_postgresql_are_names(postgres_url: str, value: str) -> None:
    target = LockObject("dw", "flights", (("carrier", value),))
    with connect(f"{postgres_url}&client_encoding=latin1") as manager:
        holder = manager.acquire(owner=f"holder {value.strip()}", writes=[target])
        waiting = Polling(manager, "waits", writes=[target])
        assert [(blocker.owner, blocker.object) for blocker in waiting.blocked().by] == [(holder.owner, target)]
        assert manager.leases() == [holder]
        assert {shown.object for shown in manager.show(target)} == {target}
        assert manager.release(holder)
        assert manager.release(waiting.granted())


def test_a_session_that_has_forgotten_what_was_prepared_goes_on(postgres_url: str) -> None:
    prepared = text("SELECT count(*) FROM pg_prepared_statements WHERE statement ~ 'hivelock_'")
    unseen = text("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # by the driver, as a pooler's are
    with connect(postgres_url) as manager:
        kept = database(manager)
        for number in range(20):
            lease = manager.acquire(owner=f"owner {number}", writes=[DAY])
            if number % 10 == 9:
                assert kept.read(lambda connection: connection.scalar(prepared)) >= 4
                kept.read(lambda connection: connection.execute(unseen))
            assert manager.release(lease)
            assert manager.leases() == []


def test_a_session_whose_socket_is_gone_is_no_longer_used(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(waits: Generator[Any, Any, Any], *given: Any, **settings: Any) -> None:
        next(waits, None)
        raise psycopg.OperationalError("connection socket closed")

    def cut(transaction: StoreTransaction) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(psycopg.waiting, "wait", gone)
            transaction.ask(text("SELECT 1"))
            transaction.flush()

    with connect(postgres_url) as manager:
        with pytest.raises(StoreUnavailable, match="connection socket closed"):
            database(manager).transact(cut)
        assert manager.release(manager.acquire(owner="another", writes=[DAY]))


def test_only_one_call_fails_after_the_server_has_ended_all_sessions(postgres_url: str) -> None:
    with connect(postgres_url) as manager, connect(postgres_url) as other:
        pooled = [database(manager).engine.raw_connection() for _ in range(3)]
        pids = [each.driver_connection.info.backend_pid for each in pooled]  # type: ignore[union-attr]
        for each in pooled:
            each.close()
        with database(other).engine.connect() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM unnest(CAST(:pids AS int[])) AS pid"), {"pids": pids}
            )
        with pytest.raises(StoreUnavailable):
            manager.acquire(owner="first", writes=[DAY])
        assert manager.release(manager.acquire(owner="second", writes=[DAY]))


@pytest.mark.parametrize(
    "option", ["timeout=20", "connect_timeout=soon", "timeout_s=800000"], ids=["unknown", "malformed", "too long"]
)
def test_a_wrong_option_is_named(option: str, postgres_url: str) -> None:
    with pytest.raises(InvalidRequest, match=option.partition("=")[0]):
        connect(f"{postgres_url}&{option}").close()
