"""The servers are what they say: real, restartable, and of one mind about locks and tables."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest
from kazoo.client import KazooClient

from tests.support.patience import until
from tests.support.servers import HiveError, HiveSession, Metastore, PostgresServer, ServerError, ZooKeeperServer
from tests.support.servers.server import accepts
from tests.support.servers.zookeeper import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

SPARK_JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE flights (carrier STRING) PARTITIONED BY (dt STRING) STORED AS PARQUET")
spark.sql("INSERT OVERWRITE TABLE flights PARTITION (dt) VALUES ('UA', '2013-01-01'), ('AA', '2013-01-02')")
"""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def zookeeper(workdir: Path) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(workdir) as server:
        yield server


@pytest.fixture(scope="module")
def metastore(workdir: Path) -> Iterator[Metastore]:
    with Metastore(workdir) as server:
        yield server


@pytest.fixture(scope="module")
def hive(workdir: Path, zookeeper: ZooKeeperServer, metastore: Metastore) -> Iterator[HiveSession]:
    with HiveSession(workdir, zookeeper=zookeeper, metastore=metastore) as session:
        yield session


@pytest.fixture(scope="module")
def table(hive: HiveSession) -> str:
    hive.run("create table T (a int) partitioned by (ds string)")
    return "t"


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    connected = KazooClient(zookeeper.hosts)
    connected.start(timeout=10)
    yield connected
    connected.stop()
    connected.close()


@pytest.mark.parametrize("end", [ZooKeeperServer.stop, ZooKeeperServer.kill])
def test_a_restart_keeps_what_was_answered(
    zookeeper: ZooKeeperServer, client: KazooClient, end: Callable[[ZooKeeperServer], None]
) -> None:
    client.create("/kept", b"data")
    end(zookeeper)
    with pytest.raises(ServerError):
        _ = zookeeper.pid
    zookeeper.start()
    assert client.retry(client.get, "/kept")[0] == b"data"
    client.delete("/kept")


def test_a_suspended_server_lets_its_client_wait(zookeeper: ZooKeeperServer, client: KazooClient) -> None:
    zookeeper.suspend()
    answer = client.exists_async("/")
    assert not answer.wait(0.5)
    zookeeper.resume()
    assert answer.get(timeout=10)


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    starter = (
        "import os, signal, sys; from pathlib import Path; from tests.support.servers import ZooKeeperServer\n"
        "server = ZooKeeperServer(Path(sys.argv[1])); server.start(); print(server.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run(
        [sys.executable, "-c", starter, str(tmp_path)], stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert died.returncode == -signal.SIGKILL
    until(lambda: not accepts(int(died.stdout)), "it to end", 10)


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(ServerError, match="ended with status") as failed:
        ZooKeeperServer(tmp_path, config={"tickTime": "soon"}).start()
    assert "NumberFormatException" in "".join(failed.value.__notes__)


def test_hive_writes_the_documented_lock_node(hive: HiveSession, table: str, client: KazooClient) -> None:
    hive.run(f"lock table {table} exclusive")
    try:
        path = f"/{NAMESPACE}/default/{table}"
        (node,) = client.get_children(path)
        data, stat = client.get(f"{path}/{node}")
        assert re.fullmatch(r"LOCK-EXCLUSIVE-\d{10}", node)
        assert re.fullmatch(rf"[^:]+:\d{{13}}:EXPLICIT:lock table {table} exclusive:[\d.]+", data.decode())
        assert stat.ephemeralOwner == 0
        assert hive.run("show locks") == [f"default@{table}\tEXCLUSIVE"]
        assert hive.run("show locks extended")[3:] == [
            "LOCK_MODE:EXPLICIT\t ",
            f"LOCK_QUERYSTRING:lock table {table} exclusive\t ",
        ]
    finally:
        hive.run(f"unlock table {table}")


def test_a_second_session_waits_and_is_refused(hive: HiveSession, table: str) -> None:
    hive.run(f"lock table {table} exclusive")
    other = hive.session("other")
    other.run("set hive.lock.numretries=1")
    with pytest.raises(HiveError, match="return code 1 from"):
        other.run(f"lock table {table} shared")
    other.run("set hive.lock.numretries=60")
    blocked = other.submit(f"lock table {table} shared")
    # Each of Hive's tries makes its node before it looks who is in the way, and takes it away again.
    until(lambda: hive.run("show locks") == [f"default@{table}\tEXCLUSIVE"], "its lock", 10)
    assert not blocked.done()
    hive.run(f"unlock table {table}")
    assert blocked.result(10) == []
    other.run(f"unlock table {table}")


def test_a_statement_that_hive_refuses_says_why(hive: HiveSession) -> None:
    with pytest.raises(HiveError, match="ParseException") as refused:
        hive.run("show the locks")
    assert refused.value.code == 40000


def test_hive_reads_what_spark_wrote(hive: HiveSession, metastore: Metastore, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(SPARK_JOB)
    subprocess.run(
        [sys.executable, job],
        env={**os.environ, "SPARK_CONF_DIR": str(metastore.spark_conf_dir)},
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    assert hive.run("show partitions flights") == ["dt=2013-01-01", "dt=2013-01-02"]
    assert hive.run("select carrier from flights where dt = '2013-01-02'") == ["AA"]


def test_a_database_server_starts_with_what_another_has_packed(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "first") as first, psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    first.pack(tmp_path / "packed.tar")
    second = PostgresServer(tmp_path / "second")
    second.unpack(tmp_path / "packed.tar")
    with second, psycopg.connect(second.url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
