"""Connections to Hive's servers: what cannot be had here, a Kerberos realm say, in its shape."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airflow_hivelock.locks import HiveLockError, StoreUnavailable, connect
from airflow_hivelock.locks.thrift_client import Metastore

if TYPE_CHECKING:
    from pathlib import Path


def test_kerberos_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kerberos", None)
    with pytest.raises(HiveLockError, match=r"pip install 'airflow-hivelock\[kerberos\]'"):
        connect("metastore://host?auth=kerberos")


@pytest.mark.parametrize("url", ["metastore://host?auth=KERBEROS", "hiveserver2://host"])
def test_a_missing_client_is_named_by_its_extra(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyhive.hive", None)
    with pytest.raises(HiveLockError, match=r"pip install 'airflow-hivelock\[(kerberos|hiveserver2)\]'"):
        connect(url)


def test_kerberos_asks_for_the_service_on_that_host(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def client(*arguments: Any) -> Any:
        asked.append(arguments)
        raise OSError("no ticket")

    monkeypatch.setitem(sys.modules, "kerberos", ModuleType("kerberos"))
    monkeypatch.setattr("pyhive.hive.get_installed_sasl", client)
    with socket.create_server(("127.0.0.1", 0)) as server:
        metastore = Metastore.parse(
            f"127.0.0.1:{server.getsockname()[1]}", auth="KERBEROS", kerberos_service_name="hms"
        )
        with pytest.raises(StoreUnavailable, match="no ticket"), metastore.client():
            pass
    assert [(host, mechanism, service) for host, mechanism, service, *_ in asked] == [("127.0.0.1", "GSSAPI", "hms")]


def test_a_tls_server_is_trusted_by_its_certificate_only(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(tmp_path))
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
        with pytest.raises(StoreUnavailable, match=r"thrift://127\.0\.0\.1"), Metastore.parse(at, tls=True).client():
            pass
        with Metastore.parse(at, tls=True, ca=str(tmp_path / "server.pem")).client():
            pass
        thread.join(20)
    assert shaken == ["TLSV1_ALERT_UNKNOWN_CA", "TLSv1.3"]


def _certificate(directory: Path) -> Path:
    """A certificate that 127.0.0.1 signed for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
