"""PostgreSQL that asks for TLS and a password, or a certificate: right and wrong, each told in one line."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
from sqlalchemy import text

from airflow_hivelock.locks import AccessDenied, Lease, LockManager, StoreUnavailable, connect
from tests.backends.databases import database
from tests.support.patience import until
from tests.support.servers import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.certificates import Authority
    from tests.system.security.conftest import Refused

pytestmark = pytest.mark.security
DEBIANS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with TLS only, for ``ann`` with a password, and for ``carol`` with a certificate."""
    home = tmp_path_factory.mktemp("secured")
    tls = home / "server.pem"
    tls.write_bytes(authority.issue("localhost").read_bytes() + authority.ca.read_bytes())
    with PostgresServer(home, programs=DEBIANS[-1], tls=tls, config={"ssl_ca_file": "server.pem"}) as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute("SET password_encryption = 'scram-sha-256'")
            session.execute("CREATE ROLE ann LOGIN PASSWORD 'hush-hush'")
            session.execute("CREATE ROLE bob LOGIN PASSWORD 'hush-hush'")
            session.execute("CREATE ROLE eve NOLOGIN PASSWORD 'hush-hush'")
            session.execute("CREATE ROLE carol LOGIN")
            session.execute("CREATE DATABASE locks OWNER ann")
            session.execute("CREATE DATABASE certified OWNER carol")
            session.execute("REVOKE CONNECT ON DATABASE locks FROM PUBLIC")
            session.execute("GRANT CONNECT ON DATABASE locks TO bob")
            session.execute("CREATE ROLE fay LOGIN PASSWORD 'hush-hush'")
        server.require("hostssl certified carol 127.0.0.1/32 cert\nhostssl locks all 127.0.0.1/32 scram-sha-256")
        yield f"localhost:{server.port}/locks"


def test_a_password_and_the_full_check_of_the_server_let_in(secured: str, authority: Authority) -> None:
    _works(f"postgresql://ann:hush-hush@{secured}?sslmode=verify-full&sslrootcert={authority.ca}")


def test_a_certificate_lets_in(secured: str, authority: Authority) -> None:
    files = f"sslrootcert={authority.ca}&" + _certificate(authority, "carol")
    _works(f"postgresql://carol@{_certified(secured)}?sslmode=verify-full&{files}&sslpassword=hush-key")


@pytest.mark.parametrize(
    ("login", "options", "said"),
    [
        ("ann:wrong-one", "sslmode=require", "password authentication failed"),
        ("ann", "sslmode=require", "no password supplied"),
        ("nobody:wrong-one", "sslmode=require", "password authentication failed"),
        ("bob:hush-hush", "sslmode=require", "permission denied"),
        ("eve:hush-hush", "sslmode=require", "not permitted to log in"),
        ("fay:hush-hush", "sslmode=require", "permission denied for database"),
        ("ann:hush-hush", "sslmode=disable", "no pg_hba.conf entry"),
        ("ann:hush-hush", "sslmode=verify-full&sslrootcert={stranger}", "certificate verify failed"),
        ("ann:hush-hush", "sslmode=verify-full&sslrootcert=/nowhere.pem", "root certificate file"),
    ],
)
def test_who_is_not_let_in_is_told_why_in_one_line(
    login: str, options: str, said: str, secured: str, stranger: Authority, refused: Refused
) -> None:
    refused(
        f"postgresql://{login}@{secured}?{options.format(stranger=stranger.ca)}", f"{said}.*Check login and password"
    )


def test_a_server_of_another_name_is_not_trusted(secured: str, authority: Authority, refused: Refused) -> None:
    by_address = secured.replace("localhost", "127.0.0.1")
    url = f"postgresql://ann:hush-hush@{by_address}?sslmode=verify-full&sslrootcert={authority.ca}"
    refused(url, "does not match host name")


def test_a_wrong_certificate_is_told(secured: str, authority: Authority, stranger: Authority, refused: Refused) -> None:
    url = f"postgresql://carol@{_certified(secured)}?sslmode=require"
    refused(url, "requires a valid client certificate")
    refused(f"{url}&{_certificate(authority, 'dave')}&sslpassword=hush-key", "certificate authentication failed")
    refused(f"{url}&{_certificate(stranger, 'carol')}&sslpassword=hush-key", "unknown ca")
    refused(f"{url}&{_certificate(authority, 'carol')}&sslpassword=wrong-one", "private key file")


def test_a_server_that_crashes_refuses_nobody(secured: str, authority: Authority) -> None:
    """OpenSSL reports it as an error of TLS. A waiting request would end at once, and not wait for the server."""
    with connect(f"postgresql://ann:hush-hush@{secured}?sslmode=verify-full&sslrootcert={authority.ca}") as manager:
        lease = manager.acquire(owner="me", writes=["dw.crash"])
        pid = database(manager).read(lambda connection: connection.scalar(text("SELECT pg_backend_pid()")))
        os.kill(pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid), "the end of the session", 60)
        with pytest.raises(StoreUnavailable, match="SSL error") as cut:
            manager.renew(lease)
        assert not isinstance(cut.value, AccessDenied)
        until(lambda: _released(manager, lease), "a server that has recovered", 60)


def test_a_server_that_ends_in_a_handshake_refuses_nobody(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def end() -> None:
            session, _ = server.accept()
            with session:
                session.recv(8)
                session.sendall(b"S")
                session.recv(65_536)

        ended = pool.submit(end)
        refused(f"postgresql://ann@127.0.0.1:{server.getsockname()[1]}/locks?sslmode=require", "eof", StoreUnavailable)
        ended.result()


def _released(manager: LockManager, lease: Lease) -> bool:
    try:
        return manager.release(lease)
    except StoreUnavailable:
        return False


def _works(url: str) -> None:
    with connect(url) as manager:
        lease = manager.acquire(owner="me", writes=["dw.flights"])
        manager.renew(lease)
        assert manager.release(lease)


def _certified(secured: str) -> str:
    return secured.replace("/locks", "/certified")


def _certificate(authority: Authority, name: str) -> str:
    file = authority.issue(name, password="hush-key")
    return f"sslcert={file}&sslkey={file}"
