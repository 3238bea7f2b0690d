"""Drivers on a cluster, and what holds for them on each kind: a dead task does not mean a dead driver, and never are there two.

A driver works until its gate opens. The gate is a file with the name of the run.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.work import applications
from airflow_hivelock.work.spark_job import SparkJob
from tests.support import airflow_server
from tests.support.airflow_server import AirflowServer, locks_in
from tests.support.spans import noted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.servers import ZooKeeperServer

DAGS = Path(__file__).parent / "dags"
GATE = "{{ var.value.gates }}/{{ run_id }}"
PROCESSES = {
    "org.apache.spark.deploy.worker.DriverWrapper",
    "org.apache.spark.deploy.yarn.ApplicationMaster",
}
"""What a driver in a cluster is called by the operating system."""


class Cluster(Protocol):
    """What runs the drivers."""

    def connection(self, deploy_mode: str) -> dict[str, Any]: ...

    def drivers(self) -> dict[str, str]:
        """The state of every driver, by id."""
        ...


@dataclass
class Run(airflow_server.Run):
    """A run of one of the DAGs on a table of its own."""

    gates: Path

    def log(self) -> list[str]:
        """What its drivers have noted."""
        return noted(self.gates / f"{self.run_id}.log")

    def begun(self, drivers: int = 1) -> None:
        self.until(lambda: len(self.log()) == drivers, f"{drivers} drivers to have begun")

    def job(self, manager: LockManager) -> SparkJob:
        """What its lease has recorded."""
        lease = manager.lease_of(self.owner())
        assert lease
        job = applications.decode(lease.works[0].application)
        assert isinstance(job, SparkJob), job
        return job

    def driver(self, manager: LockManager) -> str:
        """The id that its lease has recorded."""
        return self.job(manager).job_id

    def alive(self) -> int:
        """How many drivers of it there are, by the operating system's word."""
        gate = str(self.gates / self.run_id)
        lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        return sum(gate in line and not PROCESSES.isdisjoint(line) for line in lines)

    def retried(self) -> None:
        """Wait until its second try works."""
        self.until(lambda: (self.try_number(), self.state()) == (2, "running"), "the second try")

    def open_gate(self) -> None:
        (self.gates / self.run_id).touch()

    def end(self) -> str:
        self.open_gate()
        return self.ended()


class Start(Protocol):
    def __call__(self, dag_id: str, table: str) -> Run: ...


@contextmanager
def airflow_on(
    cluster: Cluster, workdir: Path, url: str, job: Mapping[str, Any], env: Mapping[str, str], **variables: str
) -> Iterator[AirflowServer]:
    """An Airflow with the DAGs of the drivers, and those that are in ``workdir/dags`` already.

    :param job: the arguments of the operator that the kind of cluster needs.
    :param env: how spark-submit reaches the cluster.
    """
    dags = shutil.copytree(DAGS, workdir / "dags", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    modes = {"spark_default": "client", "cluster": "cluster"}
    with AirflowServer(
        workdir / "airflow",
        dags,
        connections={"hivelock_default": locks_in(url)} | {name: cluster.connection(modes[name]) for name in modes},
        variables={"gates": str(workdir), "job": job, **variables},
        config={("workers", "socket_cleanup_timeout"): "2"},
        env={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **env},
    ) as server:
        for dag_id in ("driver", "driver_again", "driver_anew", "client", "force"):
            server.unpause(dag_id, Run.wait_s)
        yield server


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def url(zookeeper: ZooKeeperServer, workdir: Path) -> str:
    """The lock store."""
    return f"zookeeper://{zookeeper.hosts}/hive-{workdir.name}?root=/hivelock-{workdir.name}"


@pytest.fixture(scope="module")
def manager(url: str) -> Iterator[LockManager]:
    with connect(url) as manager:
        yield manager


@pytest.fixture
def start(af: AirflowServer, workdir: Path) -> Iterator[Start]:
    """Start runs; what they have left running ends with the test."""
    runs: list[Run] = []

    def start(dag_id: str, table: str) -> Run:
        run_id = af.trigger(dag_id, conf={"table": table}, run_id=f"{dag_id}-{table}-{len(af.runs(dag_id))}")
        runs.append(Run(af, dag_id, run_id, workdir))
        return runs[-1]

    yield start
    for left in runs:
        left.open_gate()


def owners(manager: LockManager, table: str) -> list[str]:
    return [holder.owner for holder in manager.show(f"{table}/dt=2013-01-15")]


def test_a_driver_that_has_outlived_its_task_keeps_the_partition(
    manager: LockManager, cluster: Cluster, start: Start
) -> None:
    run = start("driver", "dw.outlives")
    run.begun()
    driver = run.driver(manager)
    run.kill()
    assert run.ended() == "failed"
    behind = start("driver", "dw.outlives")
    assert start("force", "dw.outlives").ended() == "success"
    assert cluster.drivers()[driver] == "RUNNING"
    assert owners(manager, "dw.outlives") == [run.owner()], "it writes on, and somebody else would write too"
    assert behind.log() == []
    run.open_gate()
    run.until(lambda: cluster.drivers()[driver] == "FINISHED", "the driver to end")
    assert [line.split()[0] for line in run.log()] == ["begin", "end"], "it was not let publish"
    assert start("force", "dw.outlives").ended() == "success"
    assert behind.end() == "success"
    assert not owners(manager, "dw.outlives")


def test_a_retry_goes_on_with_the_driver(manager: LockManager, cluster: Cluster, start: Start) -> None:
    run = start("driver_again", "dw.again")
    run.begun()
    driver = run.driver(manager)
    run.kill()
    run.retried()
    assert run.end() == "success"
    assert [line.split()[0] for line in run.log()] == ["begin", "end"], "two wrote"
    assert cluster.drivers()[driver] == "FINISHED"
    assert not owners(manager, "dw.again")


def test_a_retry_that_begins_anew_first_ends_the_driver(manager: LockManager, cluster: Cluster, start: Start) -> None:
    run = start("driver_anew", "dw.anew")
    run.begun()
    first = run.driver(manager)
    run.kill()
    run.begun(drivers=2)
    assert run.alive() == 1, "two writers at once"
    assert cluster.drivers()[first] == "KILLED"
    assert run.driver(manager) != first
    assert run.end() == "success"
    begun, anew, ended = (line.split() for line in run.log())
    assert (begun[0], anew[0], ended[0]) == ("begin", "begin", "end")
    assert int(begun[1]) < int(anew[1]) == int(ended[1]), "tokens only grow"
    assert not owners(manager, "dw.anew")
