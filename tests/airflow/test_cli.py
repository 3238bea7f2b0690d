"""``airflow hivelock`` as a person runs it: a process of its own, a connection in Airflow's database, a real lock store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
from airflow.cli import cli_parser
from airflow.models import Connection
from airflow.utils.session import create_session
from sqlalchemy import delete

from airflow_hivelock import comms
from airflow_hivelock.cli.command import main_in_airflow
from airflow_hivelock.locks import LockManager, LockMode, connect
from tests.support.servers.jvm import write_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import ZooKeeperServer

ID = "the_locks"


def airflow(*args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}
    return subprocess.run(
        [sys.executable, "-m", "airflow", *args], env=env, capture_output=True, text=True, timeout=200
    )


@pytest.fixture
def stored() -> Iterator[None]:
    """The connection is this test's only: the database is that of all tests of the process."""
    yield
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id == ID))


@pytest.mark.integration
@pytest.mark.usefixtures("stored")
def test_airflow_hivelock_speaks_to_the_lock_store_of_a_connection(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    namespace, root = "hive_of_the_cli", "/hivelock_of_the_cli"
    file = tmp_path / "hive-site.xml"
    write_site(file, {"hive.support.concurrency": "true", "hive.zookeeper.quorum": zookeeper.hosts})
    extra = json.dumps({"installation": "here", "root": root, "hive_site": str(file)})
    add = ("connections", "add", ID, "--conn-type", "hivelock", "--conn-schema", namespace, "--conn-extra", extra)
    added = cli_parser.get_parser().parse_args(add)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's own, as the command is
        added.func(added)
    checked = airflow("hivelock", "--conn-id", ID, "check")
    assert checked.returncode == 1, checked.stderr
    assert f"host={zookeeper.hosts}  (hive.zookeeper.quorum, {file}:4)\n" in checked.stdout
    assert f"schema={namespace}  (the connection)\n" in checked.stdout
    assert "locks=stricter  (the default)\n" in checked.stdout
    assert checked.stdout.splitlines()[-1].startswith("ERROR: Hive locks in ZooKeeper")  # in another namespace
    with connect(f"zookeeper://{zookeeper.hosts}/{namespace}?root={root}") as manager:
        manager.acquire(owner="job", writes=["dw.u"])
        statements = "lock table dw.t exclusive; SHOW LOCKS; lock table dw.u shared"
        ran = airflow("hivelock", "--conn-id", ID, "-e", statements)
        assert (ran.returncode, ran.stdout) == (75, "dw@t\tEXCLUSIVE\ndw@u\tEXCLUSIVE\n"), ran.stderr
        assert "job holds dw.u EXCLUSIVE" in ran.stderr
        assert [holder.mode for holder in manager.show("dw.t")] == [LockMode.EXCLUSIVE], (
            "it stands when its process ends"
        )


@pytest.mark.parametrize(
    ("extra", "code", "said"),
    [
        ({"installation": "here"}, 0, "WARNING: Hive does not see this lock store"),
        (
            {"installation": "here", "concurrency": False},
            1,
            "ERROR: tasks take no locks: concurrency is false in connection",
        ),
        ({"backend": "sqlite"}, 1, "it has no installation id. Name this Airflow in the extra"),
        ({"backend": "oracle"}, 1, "backend 'oracle' is unknown"),
    ],
)
def test_check_fails_where_the_connection_protects_nothing(
    extra: dict[str, object],
    code: int,
    said: str,
    manager: LockManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(comms, "read_metadata", lambda: None)
    connection = {"conn_type": "hivelock", "extra": {"backend": "memory", **extra}}
    if extra.get("backend") == "sqlite":
        connection["host"] = "/no/such/leases.db"
    monkeypatch.setenv("AIRFLOW_CONN_HIVELOCK_DEFAULT", json.dumps(connection))
    with pytest.raises(SystemExit) as ended:
        main_in_airflow(["check"])
    assert (ended.value.code, said in "".join(capsys.readouterr())) == (code, True)


def test_an_unknown_connection_names_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comms, "read_metadata", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main_in_airflow(["--conn-id", "nope", "-e", "SHOW LOCKS"])
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        "hivelock: connection 'nope' does not exist. Add one of type hivelock, or name another one (--conn-id)\n",
    )
