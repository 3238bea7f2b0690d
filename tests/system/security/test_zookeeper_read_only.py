"""A server that has lost its quorum and still answers readers is no lock store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import StoreUnavailable, connect
from tests.support.servers import ZooKeeperServer, free_port
from tests.support.servers.zookeeper import Seat

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.security


def test_a_read_only_server_is_refused(tmp_path: Path) -> None:
    members = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in range(1, 4)}
    alone = ZooKeeperServer(tmp_path, seat=Seat(1, members), properties={"readonlymode.enabled": "true"})
    with alone:
        assert alone.mode() == "read-only"
        with pytest.raises(StoreUnavailable, match="has a quorum"):
            connect(f"{alone.url}?timeout_s=3")
