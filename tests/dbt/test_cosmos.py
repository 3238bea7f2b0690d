"""The guide's DAG on a dbt project: real Cosmos, dbt and Spark, with a metastore, and with locks in ZooKeeper."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dbt.adapters.spark.session import Cursor
from pyspark.sql import SparkSession

from airflow_hivelock import hooks
from airflow_hivelock.locks.statements.session import StatementSession
from tests.backends.databases import wait_until
from tests.docs.blocks import Block, Kind, blocks
from tests.support.servers import Metastore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import DAG

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Ran
    from tests.support.servers import ZooKeeperServer

    Run = Callable[..., Ran]

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

DAY = datetime(2013, 1, 15, tzinfo=UTC)
DAG_BLOCK, SCRIPT = blocks(Kind.DBT)
SOURCE = """
create database raw;
create database dw;
create table raw.flights (carrier string, delay int) partitioned by (dt string) stored as parquet;
insert into raw.flights partition (dt = '2013-01-15') values ('UA', 90), ('AA', 20), ('AA', -5)
"""

LOCKED = {
    "dw.carriers": ("dw@carriers EXCLUSIVE",),
    "dw.delays": (
        "dw@carriers SHARED",
        "dw@delays EXCLUSIVE",
        "raw@flights SHARED",
        "raw@flights@dt=2013-01-15 SHARED",
    ),
    "dbt_internal_test": ("dw@delays SHARED",),
    "dw.worst_carriers": ("dw@delays SHARED", "dw@worst_carriers EXCLUSIVE"),
    "dw.history": ("dw@delays SHARED", "dw@history EXCLUSIVE", "dw@worst_carriers SHARED"),
}
"""The locks while dbt creates or fills a relation, and while it tests one. SHOW LOCKS leaves databases out."""

TASKS = tuple(
    f"dbt.{name}" for name in ("carriers_seed", "late_run", "delays.run", "delays.test", "worst_run", "history_run")
)


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with Metastore(tmp_path_factory.mktemp("metastore")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(server.spark_conf_dir))
        yield server


@pytest.fixture(scope="module")
def spark(metastore: Metastore) -> Iterator[SparkSession]:
    """The session that dbt uses, too."""
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it would log at exit, to pytest's closed stream
    with SparkSession.builder.enableHiveSupport().getOrCreate() as session:
        for statement in SOURCE.split(";"):
            session.sql(statement)
        yield session


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dbt project with its manifest."""
    found = shutil.copytree(Path(__file__).parent / "project", tmp_path_factory.mktemp("dbt") / "flights")
    place = ["--project-dir", str(found), "--profiles-dir", str(found)]
    subprocess.run([Path(sys.executable).with_name("dbt"), "parse", *place], check=True, timeout=120)
    return found


@pytest.fixture
def manager(zookeeper: ZooKeeperServer, metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockManager]:
    managers: dict[str, LockManager] = {}
    extra = {"installation": "here", "root": "/hivelock_dbt", "metastore_uri": metastore.uri}
    connection = {"conn_type": "hivelock", "host": zookeeper.hosts, "schema": "hive_dbt", "extra": extra}
    monkeypatch.setattr(hooks, "_managers", managers)
    monkeypatch.setenv("AIRFLOW_CONN_HIVELOCK_DEFAULT", json.dumps(connection))
    yield hooks.HiveLockHook().manager()
    for manager in managers.values():
        assert not manager.leases(), "a lease was left behind"
        assert not manager.show(), "a lock was left behind"
        manager.close()


@pytest.fixture
def dag(spark: SparkSession, project: Path, tmp_path: Path) -> DAG:
    from tests.support.airflow_names import DagBag

    file = tmp_path / "flights.py"
    file.write_text(in_the(project, DAG_BLOCK))
    bag = DagBag(dag_folder=str(file), bundle_path=tmp_path, bundle_name="dags-folder")
    assert not bag.import_errors
    return bag.dags["flights"]


def in_the(project: Path, block: Block) -> str:
    return block.padded.replace("/opt/dbt/flights", str(project))


@pytest.fixture
def seen(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """What SHOW LOCKS prints before the first statement that creates or fills a relation, or tests one."""
    found: dict[str, tuple[str, ...]] = {}
    execute = Cursor.execute

    def spy(cursor: Cursor, sql: str, *given: Any) -> None:
        if match := re.search(
            r"(?:create (?:or replace )?(?:table|view)|insert into(?: table)?) (dw\.\w+)|(dbt_internal_test)", sql
        ):
            (shown,) = StatementSession(manager, user="test").run("show locks")
            lines = (shown.text or "").replace("\t", " ").splitlines()
            found.setdefault(match[1] or match[2], tuple(sorted(lines)))
        execute(cursor, sql, *given)

    monkeypatch.setattr(Cursor, "execute", spy)
    return found


def test_each_node_holds_exactly_its_locks(
    dag: DAG, run: Run, seen: dict[str, tuple[str, ...]], spark: SparkSession
) -> None:
    ran = run(dag, logical_date=DAY)
    assert ran.tasks == dict.fromkeys(TASKS, "success")
    assert seen == LOCKED
    assert {row.name for row in spark.table("dw.history").collect()} == {"United Air Lines Inc."}


def test_a_reader_of_a_model_makes_its_task_wait_without_a_worker_slot(
    dag: DAG, run: Run, manager: LockManager, lines: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    held = manager.acquire(owner="somebody", reads=["dw.delays"])

    def release() -> None:
        try:
            wait_until(lambda: "In the way: somebody" in lines())
        finally:
            manager.release(held)

    releasing = threading.Thread(target=release)
    releasing.start()
    ran = run(dag, logical_date=DAY)
    releasing.join()
    assert ran.tasks == dict.fromkeys(TASKS, "success")
    (deferred,) = [line for line in caplog.messages if "running trigger in line" in line]
    started = [line for line in caplog.messages[: caplog.messages.index(deferred)] if "starting task_id" in line]
    assert "dbt.delays.run" in started[-1]


def test_a_model_that_fails_frees_its_locks(dag: DAG, run: Run, spark: SparkSession, manager: LockManager) -> None:
    spark.sql("insert into raw.flights partition (dt = '2013-01-16') values ('UA', 2000)")
    try:
        ran = run(dag, logical_date=DAY)
    finally:
        spark.sql("alter table raw.flights drop partition (dt = '2013-01-16')")
    assert ran.tasks["dbt.delays.run"] == "failed"
    (held,) = [each for each in manager.history() if each.owner.endswith(f"/{ran.run_id}/dbt.delays.run/-1")]
    assert held.ended
    assert not manager.show()


def test_the_script_locks_each_statement(
    project: Path, spark: SparkSession, manager: LockManager, zookeeper: ZooKeeperServer
) -> None:
    url = f"zookeeper://{zookeeper.hosts}/hive_dbt?root=/hivelock_dbt"
    text = re.sub(r"zookeeper://zk1[^\"]+", url, in_the(project, SCRIPT))
    before = {tenure.lease_id for tenure in manager.history()}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    held = [tenure for tenure in manager.history() if tenure.lease_id not in before]
    assert {str(lock) for tenure in held for lock in tenure.locks} >= {"dw.delays EXCLUSIVE", "dw.carriers SHARED"}
