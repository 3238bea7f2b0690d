"""A real PgBouncer before PostgreSQL: pooling sessions it serves as PostgreSQL does, pooling anything else it is refused."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import text

from airflow_hivelock.locks import Lease, StoreUnavailable, Unsupported, connect, rules
from airflow_hivelock.locks.backends.database import notifier
from tests.backends.databases import DAY, HANG_S, database
from tests.support.servers import PgBouncer
from tests.support.servers.pgbouncer import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import PostgresServer

pytestmark = [
    pytest.mark.security,
    pytest.mark.skipif(PROGRAM is None, reason="Debian's pgbouncer is not installed"),
]


@pytest.fixture(scope="module")
def sessions(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgBouncer]:
    with PgBouncer(tmp_path_factory.mktemp("sessions"), postgres, mode="session") as pooler:
        yield pooler


@pytest.fixture(params=["transaction", "statement"])
def shared(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PgBouncer]:
    with PgBouncer(tmp_path_factory.mktemp("shared"), postgres, mode=request.param) as pooler:
        yield pooler


def test_a_waiter_is_woken_through_a_pool_of_sessions(
    sessions: PgBouncer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 3600.0)  # so that it has to hear
    with connect(_through(sessions, postgres_url)) as manager, connect(_through(sessions, postgres_url)) as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        woken = threading.Event()
        waiting = other.begin(rules.request("waits", writes=[DAY]), woken.set)
        waiting.poll()
        while woken.wait(1):  # it may be woken once when its thread begins
            woken.clear()
        manager.renew(lease)
        assert manager.release(lease)
        assert woken.wait(HANG_S)
        granted = waiting.poll()
        assert isinstance(granted, Lease)
        assert other.release(granted)


def test_time_outs_hold_through_a_pool_of_sessions(sessions: PgBouncer, postgres_url: str) -> None:
    with connect(f"{_through(sessions, postgres_url)}&timeout_s=1") as manager:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            database(manager).read(lambda connection: connection.execute(text("SELECT pg_sleep(30)")))
        assert time.monotonic() - began < 2
        assert _settings(manager) == ("1000", "1000", "airflow_hivelock")


def test_time_outs_hold_where_the_pooler_ignores_startup_parameters(
    postgres: PostgresServer, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ignores = {"ignore_startup_parameters": "options"}
    with (
        PgBouncer(tmp_path_factory.mktemp("ignores"), postgres, mode="session", config=ignores) as pooler,
        connect(f"{_through(pooler, postgres_url)}&timeout_s=3") as manager,
    ):
        assert _settings(manager)[:2] == ("3000", "3000")


def test_the_next_client_of_a_pooled_session_finds_it_as_it_was(sessions: PgBouncer, postgres_url: str) -> None:
    with connect(f"{_through(sessions, postgres_url)}&timeout_s=7"):
        pass
    with psycopg.connect(sessions.url, autocommit=True) as session:
        assert _one(session, "SHOW statement_timeout") == "0"
        assert _one(session, "SHOW enable_seqscan") == "on"


def test_a_pool_of_transactions_is_refused_and_left_as_it_was(shared: PgBouncer, postgres_url: str) -> None:
    began = time.monotonic()
    with pytest.raises(Unsupported, match="pool_mode=session") as told:
        connect(_through(shared, postgres_url)).close()
    assert time.monotonic() - began < 5
    assert f"127.0.0.1:{shared.port}" in str(told.value)
    with psycopg.connect(shared.url, autocommit=True) as session:
        for name, expected in (
            ("statement_timeout", "0"),
            ("enable_seqscan", "on"),
            ("search_path", '"$user", public'),
        ):
            assert _one(session, f"SHOW {name}") == expected
        assert session.execute("SELECT pg_listening_channels()").fetchall() == []


def test_a_pool_of_transactions_is_refused_while_others_use_it(
    postgres: PostgresServer, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    over, mode = threading.Event(), {"server_round_robin": "1", "min_pool_size": "5"}

    def use() -> None:
        with psycopg.connect(pooler.url, autocommit=True) as session:
            while not over.is_set():
                session.execute("SELECT pg_sleep(0.002)", prepare=False)

    with PgBouncer(tmp_path_factory.mktemp("busy"), postgres, mode="transaction", config=mode) as pooler:
        others = [threading.Thread(target=use, daemon=True) for _ in range(4)]
        for other in others:
            other.start()
        try:
            for _ in range(5):
                with pytest.raises(Unsupported, match="pool_mode=session"):
                    connect(f"{_through(pooler, postgres_url)}&timeout_s=2").close()
        finally:
            over.set()
            for other in others:
                other.join(HANG_S)


def _through(pooler: PgBouncer, url: str) -> str:
    return f"{pooler.url}?{url.partition('?')[2]}"


def _settings(manager: Any) -> tuple[str, ...]:
    names = "statement_timeout", "idle_in_transaction_session_timeout", "application_name"
    asked = text("SELECT " + ", ".join(f"(SELECT setting FROM pg_settings WHERE name = '{name}')" for name in names))
    return tuple(database(manager).read(lambda connection: connection.execute(asked).one()))


def _one(session: psycopg.Connection[Any], statement: Any) -> Any:
    row = session.execute(statement).fetchone()
    assert row
    return row[0]
