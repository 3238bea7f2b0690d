"""A real Airflow and a real standalone cluster.

Standalone clusters take no Python in cluster mode, so that the drivers here are of a few lines of Java.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import Metastore
from tests.support.servers.jvm import classes
from tests.support.servers.spark import SparkCluster
from tests.system.cluster.drivers import *  # noqa: F403
from tests.system.cluster.drivers import GATE, Run, airflow_on, owners
from tests.system.race.spark import environment, run_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import LockManager
    from tests.support.airflow_server import AirflowServer
    from tests.system.cluster.drivers import Start

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

EXAMPLES = Path(__file__).parents[3] / "dags_examples"
DAY = "2013-01-15"
FLIGHTS = 894


@pytest.fixture(scope="module")
def cluster(workdir: Path) -> Iterator[SparkCluster]:
    with SparkCluster(workdir) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def metastore(workdir: Path) -> Iterator[Metastore]:
    with Metastore(workdir) as metastore:
        yield metastore


@pytest.fixture(scope="module")
def af(workdir: Path, url: str, cluster: SparkCluster, metastore: Metastore) -> Iterator[AirflowServer]:
    shutil.copytree(EXAMPLES, workdir / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    job = {
        "application": str(classes()),
        "java_class": "servers.ClusterJob",
        "application_args": [f"{GATE}.log", GATE],
        "driver_memory": "128m",
    }
    with airflow_on(cluster, workdir, url, job, environment(metastore)) as server:
        server.unpause("flights_daily", Run.wait_s)
        yield server


def test_a_task_killed_within_its_submission_leaves_no_driver_that_nobody_knows(
    manager: LockManager, cluster: SparkCluster, start: Start
) -> None:
    """spark-submit goes on for five seconds after the cluster has taken the driver."""
    run = start("driver_anew", "dw.within")
    known = set(cluster.drivers())
    run.until(lambda: set(cluster.drivers()) - known, "the master to have the driver")
    run.until(lambda: manager.lease_of(run.owner()).works[0].application.count("driver-"), "its record")  # type: ignore[union-attr]
    run.kill()
    run.until(lambda: len(set(cluster.drivers()) - known) == 2, "the second try's driver")
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
    run.mark("failed")
    run.until(lambda: cluster.drivers()[driver] == "KILLED", "on_kill to end the driver")
    run.until(lambda: not owners(manager, "dw.marked"), "on_kill to free the lock")


def test_the_daily_dag_runs_on_the_cluster_as_it_is(
    af: AirflowServer, cluster: SparkCluster, metastore: Metastore, manager: LockManager, workdir: Path
) -> None:
    """In client mode, by nothing but another connection."""
    run_job(metastore, EXAMPLES / "jobs" / "load_flights.py", "--from", DAY, "--to", DAY)
    day = datetime.fromisoformat(DAY).replace(tzinfo=UTC)
    assert Run(af, "flights_daily", af.trigger("flights_daily", day), workdir).ended() == "success"
    report = run_job(metastore, EXAMPLES / "jobs" / "weekly_report.py", "--to", DAY)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if "|" in line]
    assert sum(int(row[1]) for row in rows[1:]) == FLIGHTS
    assert [app["name"] for app in cluster.master.state()["completedapps"]], "it ran somewhere else"
    assert not owners(manager, "dw.delays")
