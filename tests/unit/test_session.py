"""A session with ZooKeeper, without one."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.backends.zookeeper import session
from airflow_hivelock.locks.backends.zookeeper.security import Security
from tests.support.servers.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

HANG_S = 20.0


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


def test_certificates_that_are_replaced_are_read_again_by_the_next_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A triggerer runs for months, and a certificate may last for a day."""

    def serve(server: socket.socket) -> None:
        for each in (old, new, new):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(each.issue("127.0.0.1"))
            connection, _ = server.accept()
            with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)

    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(old.ca.read_bytes())
    handler = Security.of(ssl="true", ca=str(ca)).options()["handler"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        address = server.getsockname()
        handler.create_connection(address, hostname="127.0.0.1", timeout=HANG_S).close()
        ca.write_bytes(new.ca.read_bytes())
        handler.create_connection(address, hostname="127.0.0.1", timeout=HANG_S).close()
        ca.write_text("half of a fi")
        assert not caplog.records
        handler.create_connection(address, hostname="127.0.0.1", timeout=HANG_S).close()
        thread.join(HANG_S)
    assert str(ca) in caplog.text, "nobody learns that the next restart fails"
