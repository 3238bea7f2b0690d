"""A session with ZooKeeper, without one."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.backends.zookeeper import session


def test_a_server_that_was_away_for_long_is_tried_again_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def client(*given: Any, **options: Any) -> Any:
        made.append(kazoo(*given, **options))
        raise ValueError("no more is wanted")

    kazoo = KazooClient
    monkeypatch.setattr(session, "KazooClient", client)
    with pytest.raises(InvalidRequest):
        session.KazooSession("zk1:2181")
    (zk,) = made
    assert zk._conn_retry.max_tries == -1
    assert zk._conn_retry.max_delay <= 5
