"""A PostgreSQL server that only reads, as a standby, which is behind its primary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from airflow_hivelock.locks import AccessDenied, LockLost, StoreUnavailable, connect
from tests.backends.databases import DAY
from tests.support.servers import PostgresServer

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.integration


def test_a_standby_confirms_no_lease(tmp_path: Path) -> None:
    primary, standby = PostgresServer(tmp_path / "primary"), PostgresServer(tmp_path / "standby")
    with primary, connect(primary.url) as manager:
        lease = manager.acquire(owner="me", writes=[DAY])
    primary.pack(tmp_path / "data.tar")
    standby.unpack(tmp_path / "data.tar")
    (standby._data / "standby.signal").touch()
    with primary, standby:
        with connect(primary.url) as manager:
            assert manager.release(lease)
        with pytest.raises(StoreUnavailable, match="standby"):
            connect(standby.url)
        hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in (standby, primary))
        with connect(f"postgresql://postgres@/postgres?{hosts}") as manager:
            with pytest.raises(LockLost):
                manager.verify(lease)
            assert manager.release(manager.acquire(owner="next", writes=[DAY]))


def test_a_server_that_only_reads_is_reported_with_the_next_step_and_is_asked_again(postgres_url: str) -> None:
    """As after a failover: its listings are good, and a grant needs the primary."""
    connect(postgres_url).close()
    with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as ruler:
        name = sql.Identifier(ruler.info.dbname)
        ruler.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        try:
            with connect(postgres_url) as manager:
                assert manager.show() == []
                with pytest.raises(
                    StoreUnavailable, match=r"read-only transaction\. It only reads, as a standby"
                ) as refused:
                    manager.acquire(owner="me", writes=[DAY], outage_s=0)
                assert not isinstance(refused.value, AccessDenied), "another try can succeed"
        finally:
            ruler.execute("SET default_transaction_read_only = off")
            ruler.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
