"""Logins to MySQL and MariaDB: right and wrong, with TLS and without, and servers that are too old."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from airflow_hivelock.locks import AccessDenied, StoreUnavailable, Unsupported, connect
from airflow_hivelock.locks.backends.database.mysql_session import Login
from tests.backends.databases import DAY, database, do
from tests.support.servers import MariaDBServer
from tests.support.servers.certificates import Authority

integration = pytest.mark.integration


@integration
def test_who_is_not_let_in_is_told_so(mariadb: MariaDBServer, mysql_url: str) -> None:
    with connect(mysql_url) as manager:
        schema = database(manager).tables.schema
        # By default every user may do everything in databases named test…
        do(manager, "DELETE FROM mysql.db", "FLUSH PRIVILEGES")
        do(manager, "CREATE OR REPLACE USER ann IDENTIFIED BY 'hush-日本'", "CREATE OR REPLACE USER bob")
        do(manager, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.* TO ann", f"GRANT SELECT ON {schema}.* TO bob")
    at = f"127.0.0.1:{mariadb.port}/{schema}"
    with connect(f"mysql://ann:hush-%E6%97%A5%E6%9C%AC@{at}?schema={schema}") as manager:
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))
    for login, said in (("ann:wrong", "1045"), ("ann", "1045"), ("nobody", "1045|1044")):
        with pytest.raises(AccessDenied, match=said) as refused:
            connect(f"mysql://{login}@{at}?schema={schema}")
        assert "wrong" not in str(refused.value)
    with connect(f"{mariadb.url}?prefix=plain_") as manager:
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, CREATE VIEW"  # as the guide has them
        do(manager, "CREATE DATABASE IF NOT EXISTS carols", "CREATE OR REPLACE USER carol")
        do(manager, f"GRANT {rights} ON carols.* TO carol")
    with connect(f"mariadb://carol@127.0.0.1:{mariadb.port}/carols") as manager:
        assert manager.release(manager.acquire(owner="me", writes=[DAY]))
    with connect(f"mysql://bob@{at}?schema={schema}") as manager, pytest.raises(AccessDenied, match="1142"):
        manager.acquire(owner="me", writes=[DAY])
    with pytest.raises(AccessDenied, match="SSL"):
        connect(f"mysql://bob@{at}?schema={schema}&ssl_mode=required")


@integration
@pytest.mark.usefixtures("mariadb_asked_for")
def test_tls_is_checked_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    ours, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "stranger")
    with TemporaryDirectory() as readable:  # for the user that the server runs as
        pem = Path(readable) / "server.pem"
        pem.write_bytes(ours.issue("localhost").read_bytes())
        for path in (pem.parent, pem):
            path.chmod(0o755)
        with MariaDBServer(tmp_path, config={"ssl-cert": str(pem), "ssl-key": str(pem)}) as server:
            with connect(server.url) as manager:
                do(manager, "CREATE USER ann IDENTIFIED BY 'hush' REQUIRE SSL", "GRANT ALL ON test.* TO ann")
            for host, options in (
                ("localhost", f"ssl_ca={ours.ca}"),
                ("127.0.0.1", f"ssl_ca={ours.ca}&ssl_mode=VERIFY_CA"),
                ("127.0.0.1", "ssl_mode=required"),
                ("127.0.0.1", ""),
            ):
                with connect(f"mysql://ann:hush@{host}:{server.port}/test?{options}") as manager:
                    assert manager.release(manager.acquire(owner="me", writes=[DAY]))
            for host, options, said in (
                ("localhost", f"ssl_ca={stranger.ca}", "certificate verify failed"),
                ("localhost", "ssl_mode=verify_identity", "certificate verify failed"),
                ("127.0.0.1", f"ssl_ca={ours.ca}", "certificate verify failed"),
                ("localhost", "ssl_ca=/nowhere.pem", "ssl_ca cannot be used"),
                ("localhost", "ssl_mode=disabled", "1045"),
            ):
                with pytest.raises(AccessDenied, match=said):
                    connect(f"mysql://ann:hush@{host}:{server.port}/test?{options}")
            with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as relay:
                ended = pool.submit(_end_in_a_handshake, relay, server)
                with pytest.raises(StoreUnavailable, match="SSL") as cut:
                    connect(f"mysql://ann@127.0.0.1:{relay.getsockname()[1]}/test?ssl_mode=required")
                assert not isinstance(cut.value, AccessDenied)
                ended.result()


def _end_in_a_handshake(relay: socket.socket, server: MariaDBServer) -> None:
    session, _ = relay.accept()
    with session, socket.create_connection(("127.0.0.1", server.port)) as real:
        session.sendall(real.recv(4096))
        session.recv(36)  # the request for TLS
        session.recv(4096)


@pytest.mark.parametrize(
    ("said", "old"),
    [
        ("5.7.44-log", True),
        ("8.0.36", False),
        ("8.4.3-commercial", False),
        ("5.5.5-10.5.23-MariaDB-log", True),
        ("5.5.5-10.6.18-MariaDB", False),
        ("11.4.2-MariaDB-ubu2404", False),
    ],
)
def test_a_server_that_is_too_old_is_refused(said: str, old: bool) -> None:
    class Answers:
        def get_server_info(self) -> str:
            return said

    login = Login({}, 2.5)
    if old:
        with pytest.raises(Unsupported, match=r"MySQL 8\.0 or MariaDB 10\.6"):
            login._variables(Answers())
    else:
        variables = dict(login._variables(Answers()))
        assert ("max_statement_time" in variables) is ("MariaDB" in said)
        assert variables["innodb_lock_wait_timeout"] == "3"
