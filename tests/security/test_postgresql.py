"""PostgreSQL that asks for a password and for TLS: right and wrong, each told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from airflow_hivelock.locks import AccessDenied, connect
from tests.servers import PostgresServer
from tests.servers.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.security
DEBIANS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server listens that takes ``ann`` by password, and by TLS only."""
    home = tmp_path_factory.mktemp("secured")
    with PostgresServer(home, programs=DEBIANS[-1], tls=authority.issue("localhost")) as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute("SET password_encryption = 'scram-sha-256'")
            session.execute("CREATE ROLE ann LOGIN PASSWORD 'hush-hush'")
            session.execute("CREATE ROLE bob LOGIN PASSWORD 'hush-hush'")
            session.execute("CREATE DATABASE locks OWNER ann")
        server.require("hostssl locks all 127.0.0.1/32 scram-sha-256")
        yield f"localhost:{server.port}/locks"


def test_a_password_and_the_full_check_of_the_server_let_in(secured: str, authority: Authority) -> None:
    tls = f"sslmode=verify-full&sslrootcert={authority.ca}"
    with connect(f"postgresql://ann:hush-hush@{secured}?{tls}") as manager:
        lease = manager.acquire(owner="me", writes=["dw.flights"])
        assert manager.release(lease)


@pytest.mark.parametrize(
    ("login", "options", "said"),
    [
        ("ann:wrong-one", "sslmode=require", "password authentication failed"),
        ("ann", "sslmode=require", "no password supplied"),
        ("nobody:wrong-one", "sslmode=require", "password authentication failed"),
        ("bob:hush-hush", "sslmode=require", "permission denied"),
        ("ann:hush-hush", "sslmode=disable", "no pg_hba.conf entry"),
        ("ann:hush-hush", "sslmode=verify-full&sslrootcert={stranger}", "certificate verify failed"),
        ("ann:hush-hush", "sslmode=verify-full&sslrootcert=/nowhere.pem", "root certificate file"),
    ],
)
def test_who_is_not_let_in_is_told_why_in_one_line(
    login: str, options: str, said: str, secured: str, tmp_path: Path
) -> None:
    given = options.format(stranger=Authority(tmp_path).ca)
    with pytest.raises(AccessDenied, match=f"{said}.*Check login and password") as told:
        connect(f"postgresql://{login}@{secured}?{given}")
    assert "\n" not in str(told.value)
    assert "wrong-one" not in str(told.value)
    assert "hush-hush" not in str(told.value)


def test_a_server_of_another_name_is_not_trusted(secured: str, authority: Authority) -> None:
    by_address = secured.replace("localhost", "127.0.0.1")
    with pytest.raises(AccessDenied, match="does not match host name"):
        connect(f"postgresql://ann:hush-hush@{by_address}?sslmode=verify-full&sslrootcert={authority.ca}")
