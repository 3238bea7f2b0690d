"""Connections to Hive's servers: what cannot be had here, a Kerberos realm say, in its shape."""

from __future__ import annotations

import logging
import socket
import ssl
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import AccessDenied, HiveLockError, StoreUnavailable, connect
from airflow_hivelock.locks.hive.thrift import Metastore
from tests.support.servers.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


def test_kerberos_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(HiveLockError, match=r"pip install 'airflow-hivelock\[kerberos\]'"):
        connect("metastore://host?auth=kerberos")


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("metastore://host?auth=KERBEROS", "kerberos"),
        ("hiveserver2://host", "hiveserver2"),
        ("zookeeper://host?auth=KERBEROS", "kerberos"),
        ("zookeeper://user:password@host?auth=SASL", "sasl"),
    ],
)
def test_a_missing_client_is_named_by_its_extra(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    with pytest.raises(HiveLockError, match=rf"pip install 'airflow-hivelock\[{extra}\]'"):
        connect(url)


def test_kerberos_asks_for_the_service_on_that_host(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def client(*arguments: Any, **login: Any) -> Any:
        asked.append(arguments)
        raise OSError("no ticket")

    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    monkeypatch.setattr("airflow_hivelock.locks.hive.kerberos.check", lambda service, hosts: None)
    monkeypatch.setattr("airflow_hivelock.locks.hive.sasl.Negotiator", client)
    with socket.create_server(("127.0.0.1", 0)) as server:
        metastore = Metastore.parse(
            f"127.0.0.1:{server.getsockname()[1]}", auth="KERBEROS", kerberos_service_name="hms"
        )
        with pytest.raises(StoreUnavailable, match="no ticket"), metastore.client():
            pass
    assert asked == [("127.0.0.1", "hms")]


def test_a_tls_server_is_trusted_by_its_certificate_only(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = Authority(tmp_path)
    context.load_cert_chain(authority.issue("127.0.0.1"))
    shaken: list[str | None] = []

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.settimeout(10)
                try:
                    with context.wrap_socket(connection, server_side=True) as secured:
                        shaken.append(secured.version())
                        secured.recv(1)  # to the end of the stream
                except ssl.SSLError as error:
                    shaken.append(error.reason)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        at = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(AccessDenied, match=r"thrift://127\.0\.0\.1.* not trusted here: .*CERTIFICATE_VERIFY_FAILED"),
            Metastore.parse(at, ssl="true").client(),
        ):
            pass
        with Metastore.parse(at, ssl="true", ca=str(authority.ca)).client():
            pass
        thread.join(20)
    assert shaken == ["TLSV1_ALERT_UNKNOWN_CA", "TLSv1.3"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:1?ssl=true", "no-such-host.invalid"])
def test_a_metastore_that_is_away_is_one_error_and_no_line_in_the_log(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that waits asks every five seconds: each time Thrift wrote two lines, or a traceback."""
    netloc, _, options = address.partition("?")
    metastore = Metastore.parse(netloc, ssl=options.removeprefix("ssl=") or "false")
    with pytest.raises(StoreUnavailable, match="did not answer"), metastore.client():
        pass
    assert caplog.records == []
    logging.getLogger("thrift.transport.TSocket").error("of another client")
    assert [record.getMessage() for record in caplog.records] == ["of another client"]
