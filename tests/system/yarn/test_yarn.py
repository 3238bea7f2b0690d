"""A real Airflow, YARN and HDFS: an application keeps its partition until the ResourceManager reports its end."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.errors import CannotTell
from tests.support.airflow_server import AirflowServer
from tests.support.servers import Metastore
from tests.support.servers.yarn import YarnCluster
from tests.system.cluster.runs import WAIT_S, Start, owners, starting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("yarn")


@pytest.fixture(scope="module")
def manager(zookeeper: ZooKeeperServer) -> Iterator[LockManager]:
    with connect(f"zookeeper://{zookeeper.hosts}/hive-yarn?root=/hivelock-yarn") as manager:
        yield manager


@pytest.fixture(scope="module")
def cluster(workdir: Path) -> Iterator[YarnCluster]:
    with YarnCluster(workdir) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_YARN_CLUSTER", json.dumps(cluster.connection("cluster")))
        yield cluster


@pytest.fixture(scope="module")
def af(workdir: Path, zookeeper: ZooKeeperServer, cluster: YarnCluster) -> Iterator[AirflowServer]:
    hivelock = {
        "conn_type": "hivelock",
        "host": zookeeper.hosts,
        "schema": "hive-yarn",
        "extra": {"installation": "here", "root": "/hivelock-yarn"},
    }
    with (
        Metastore(workdir) as metastore,
        AirflowServer(
            workdir / "airflow",
            shutil.copytree(HERE / "dags", workdir / "dags", ignore=shutil.ignore_patterns("__pycache__")),
            connections={
                "hivelock_default": hivelock,
                "yarn_client": cluster.connection("client"),
                "yarn_cluster": cluster.connection("cluster"),
            },
            variables={"gates": str(workdir), "job": str(HERE / "job.py"), "fs": cluster.fs},
            config={("workers", "socket_cleanup_timeout"): "2"},
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                **cluster.environment(metastore),
            },
        ) as server,
    ):
        for dag_id in ("driver", "driver_again", "driver_anew", "client", "force"):
            server.unpause(dag_id, WAIT_S)
        yield server


@pytest.fixture
def start(af: AirflowServer, workdir: Path) -> Iterator[Start]:
    with starting(af, workdir) as start:
        yield start


def test_an_application_that_has_outlived_its_task_keeps_the_partition(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    """It continues while the ResourceManager is down, and publishes to HDFS."""
    run = start("driver", "dw.outlives")
    run.begun()
    job = run.job(manager)
    run.kill_task()
    assert run.ended() == "failed"
    cluster.resource_manager.suspend()
    try:
        with pytest.raises(CannotTell):
            job.running()
        assert start("force", "dw.outlives").ended() == "success"
        assert owners(manager, "dw.outlives") == [run.owner]
    finally:
        cluster.resource_manager.resume()
    assert start("force", "dw.outlives").ended() == "success"
    assert cluster.resource_manager.applications()[job.job_id] == "RUNNING"
    assert owners(manager, "dw.outlives") == [run.owner], "it writes on, and somebody else would write too"
    run.open_gate()
    run.af.wait(lambda: not job.running(), WAIT_S, "the application to end")
    assert [line.split()[0] for line in run.log()] == ["begin", "end"], "it was not let publish"
    assert start("force", "dw.outlives").ended() == "success"
    assert not owners(manager, "dw.outlives")


def test_a_retry_goes_on_with_the_application(manager: LockManager, cluster: YarnCluster, start: Start) -> None:
    run = start("driver_again", "dw.again")
    run.begun()
    application = run.driver(manager)
    run.kill_task()
    run.retried()
    assert run.end() == "success"
    assert [line.split()[0] for line in run.log()] == ["begin", "end"], "two wrote"
    assert cluster.resource_manager.applications()[application] == "FINISHED"
    assert not owners(manager, "dw.again")


def test_a_retry_that_begins_anew_first_ends_the_application(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    run = start("driver_anew", "dw.anew")
    run.begun()
    first = run.driver(manager)
    run.kill_task()
    run.begun(drivers=2)
    assert run.alive() == 1, "two writers at once"
    assert cluster.resource_manager.applications()[first] == "KILLED"
    assert run.driver(manager) != first
    assert run.end() == "success"
    begun, anew, ended = (line.split() for line in run.log())
    assert (begun[0], anew[0], ended[0]) == ("begin", "begin", "end")
    assert int(begun[1]) < int(anew[1]) == int(ended[1]), "tokens only grow"
    assert not owners(manager, "dw.anew")


def test_an_application_is_over_no_sooner_than_its_driver(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    """Marked failed: ``on_kill`` kills it, and the ResourceManager reports the end before the NodeManager has done it."""
    run = start("driver", "dw.marked")
    run.begun()
    job = run.job(manager)
    run.af.set_task_state(run.dag_id, run.run_id, "job", "failed")
    run.af.wait(lambda: not job.running(), WAIT_S, "the application to be over")
    assert run.alive() == 0
    assert cluster.resource_manager.applications()[job.job_id] == "KILLED"
    assert start("force", "dw.marked").ended() == "success"
    assert not owners(manager, "dw.marked")


def test_a_client_that_has_outlived_its_task_keeps_the_partition(manager: LockManager, start: Start) -> None:
    """The driver is spark-submit's, on the task's host, and goes on without the task."""
    run = start("client", "dw.client")
    run.begun()
    run.kill_task()
    assert run.ended() == "failed"
    assert start("force", "dw.client").ended() == "success"
    assert owners(manager, "dw.client") == [run.owner]
    run.open_gate()
    run.af.wait(lambda: len(run.log()) == 2, WAIT_S, "the driver to publish")

    def freed() -> bool:
        return start("force", "dw.client").ended() == "success" and not owners(manager, "dw.client")

    run.af.wait(freed, WAIT_S, "its end to be found")


def test_an_application_that_was_forgotten_is_not_taken_for_ended(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    """The ResourceManager restarted without its state: a user looks, and frees the lease."""
    run = start("driver", "dw.forgotten")
    run.begun()
    job = run.job(manager)
    run.kill_task()
    assert run.ended() == "failed"
    cluster.resource_manager.kill()
    cluster.resource_manager.start()
    with pytest.raises(CannotTell, match="does not know application_"):
        job.running()
    with pytest.raises(CannotTell):
        job.stop()
    assert start("force", "dw.forgotten").ended() == "success"
    assert owners(manager, "dw.forgotten") == [run.owner]
