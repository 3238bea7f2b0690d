"""A real Airflow and a real standalone cluster: a dead task does not mean a dead driver, and never are there two.

Standalone clusters take no Python in cluster mode, so that the drivers here are of a few lines of Java.
"""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from tests.support.airflow_server import AirflowServer
from tests.support.servers import Metastore
from tests.support.servers.jvm import classes
from tests.support.servers.spark import SparkCluster
from tests.system.cluster.runs import WAIT_S, Start, owners, starting
from tests.system.race.spark import run_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

EXAMPLES = Path(__file__).parents[3] / "dags_examples"
DAY = "2013-01-15"
FLIGHTS = 894


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def manager(zookeeper: ZooKeeperServer) -> Iterator[LockManager]:
    with connect(f"zookeeper://{zookeeper.hosts}/hive-cluster?root=/hivelock-cluster") as manager:
        yield manager


@pytest.fixture(scope="module")
def cluster(workdir: Path) -> Iterator[SparkCluster]:
    with SparkCluster(workdir) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def metastore(workdir: Path) -> Iterator[Metastore]:
    with Metastore(workdir) as metastore:
        yield metastore


@pytest.fixture(scope="module")
def af(
    workdir: Path, zookeeper: ZooKeeperServer, cluster: SparkCluster, metastore: Metastore
) -> Iterator[AirflowServer]:
    dags = shutil.copytree(EXAMPLES, workdir / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(__file__).parent / "dags", dags, dirs_exist_ok=True)
    hivelock = {
        "conn_type": "hivelock",
        "host": zookeeper.hosts,
        "schema": "hive-cluster",
        "extra": {"installation": "here", "root": "/hivelock-cluster"},
    }
    with AirflowServer(
        workdir / "airflow",
        dags,
        connections={
            "hivelock_default": hivelock,
            "spark_default": cluster.connection("client"),
            "spark_cluster": cluster.connection("cluster"),
        },
        variables={"gates": str(workdir), "jar": str(classes())},
        config={("workers", "socket_cleanup_timeout"): "2"},
        env={
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(metastore.spark_conf_dir),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    ) as server:
        for dag_id in ("driver", "driver_again", "driver_anew", "force", "flights_daily"):
            server.unpause(dag_id, WAIT_S)
        yield server


@pytest.fixture
def start(af: AirflowServer, workdir: Path) -> Iterator[Start]:
    with starting(af, workdir) as start:
        yield start


def test_a_driver_that_has_outlived_its_task_keeps_the_partition(
    manager: LockManager, cluster: SparkCluster, start: Start
) -> None:
    run = start("driver", "dw.outlives")
    run.begun()
    driver = run.driver(manager)
    run.kill_task()
    assert run.ended() == "failed"
    behind = start("driver", "dw.outlives")
    assert start("force", "dw.outlives").ended() == "success"
    assert cluster.drivers()[driver] == "RUNNING"
    assert owners(manager, "dw.outlives") == [run.owner], "it writes on, and somebody else would write too"
    assert behind.log() == []
    run.open_gate()
    run.af.wait(lambda: cluster.drivers()[driver] == "FINISHED", WAIT_S, "the driver to end")
    assert start("force", "dw.outlives").ended() == "success"
    assert behind.end() == "success"
    assert not owners(manager, "dw.outlives")


def test_a_retry_goes_on_with_the_driver(manager: LockManager, cluster: SparkCluster, start: Start) -> None:
    run = start("driver_again", "dw.again")
    run.begun()
    driver = run.driver(manager)
    run.kill_task()
    run.retried()
    assert run.end() == "success"
    assert [line.split()[0] for line in run.log()] == ["begin", "end"], "two wrote"
    assert cluster.drivers()[driver] == "FINISHED"
    assert not owners(manager, "dw.again")


def test_a_retry_that_begins_anew_first_ends_the_driver(
    manager: LockManager, cluster: SparkCluster, start: Start
) -> None:
    run = start("driver_anew", "dw.anew")
    run.begun()
    first = run.driver(manager)
    run.kill_task()
    run.begun(drivers=2)
    assert run.alive() == 1, "two writers at once"
    assert cluster.drivers()[first] == "KILLED"
    assert run.driver(manager) != first
    assert run.end() == "success"
    begun, anew, ended = (line.split() for line in run.log())
    assert (begun[0], anew[0], ended[0]) == ("begin", "begin", "end")
    assert int(begun[1]) < int(anew[1]) == int(ended[1]), "tokens only grow"
    assert not owners(manager, "dw.anew")


def test_a_task_killed_within_its_submission_leaves_no_driver_that_nobody_knows(
    manager: LockManager, cluster: SparkCluster, start: Start
) -> None:
    """spark-submit goes on for five seconds after the cluster has taken the driver."""
    run = start("driver_anew", "dw.within")
    known = set(cluster.drivers())
    run.af.wait(lambda: set(cluster.drivers()) - known, WAIT_S, "the master to have the driver")
    run.af.wait(lambda: manager.lease_of(run.owner).works[0].application.count("driver-"), WAIT_S, "its record")  # type: ignore[union-attr]
    run.kill_task()
    run.af.wait(lambda: len(set(cluster.drivers()) - known) == 2, WAIT_S, "the second try's driver")
    first, second = sorted(set(cluster.drivers()) - known)
    assert cluster.drivers()[first] == "KILLED"
    assert run.end() == "success"
    assert cluster.drivers()[second] == "FINISHED"


def test_a_task_that_is_marked_failed_ends_its_driver_and_frees_its_locks(
    manager: LockManager, cluster: SparkCluster, start: Start
) -> None:
    run = start("driver", "dw.marked")
    run.begun()
    driver = run.driver(manager)
    run.af.set_task_state(run.dag_id, run.run_id, "job", "failed")
    run.af.wait(lambda: cluster.drivers()[driver] == "KILLED", WAIT_S, "on_kill to end the driver")
    run.af.wait(lambda: not owners(manager, "dw.marked"), WAIT_S, "on_kill to free the lock")


def test_the_daily_dag_runs_on_the_cluster_as_it_is(
    af: AirflowServer, cluster: SparkCluster, metastore: Metastore, manager: LockManager
) -> None:
    """In client mode, by nothing but another connection."""
    run_job(metastore, EXAMPLES / "jobs" / "load_flights.py", "--from", DAY, "--to", DAY)
    run_id = af.trigger(
        "flights_daily", conf={}, run_id="on-the-cluster", logical_date=datetime.fromisoformat(DAY).replace(tzinfo=UTC)
    )
    af.wait(lambda: af.run("flights_daily", run_id).state in ("success", "failed"), 4 * WAIT_S, "the day's run to end")
    assert af.run("flights_daily", run_id).state == "success"
    report = run_job(metastore, EXAMPLES / "jobs" / "weekly_report.py", "--to", DAY)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if "|" in line]
    assert sum(int(row[1]) for row in rows[1:]) == FLIGHTS
    assert [app["name"] for app in cluster.master.state()["completedapps"]], "it ran somewhere else"
    assert not owners(manager, "dw.delays")
