"""A standby of PostgreSQL, which is behind its primary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockLost, StoreUnavailable, connect
from tests.backends.databases import DAY
from tests.support.servers import PostgresServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.integration
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
