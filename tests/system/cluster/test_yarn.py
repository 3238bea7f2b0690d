"""A real Airflow, YARN and HDFS: an application keeps its partition until the ResourceManager reports its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import CannotTell
from tests.support.servers import Metastore
from tests.support.servers.yarn import YarnCluster
from tests.system.cluster.drivers import *  # noqa: F403
from tests.system.cluster.drivers import GATE, airflow_on, owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import LockManager
    from tests.support.airflow_server import AirflowServer
    from tests.system.cluster.drivers import Start

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not os.environ.get("YARN"), reason="make test-yarn"),
]

JOB = Path(__file__).with_name("yarn_job.py")


@pytest.fixture(scope="module")
def cluster(workdir: Path) -> Iterator[YarnCluster]:
    with YarnCluster(workdir) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(cluster.connection("cluster")))
        yield cluster


@pytest.fixture(scope="module")
def af(workdir: Path, url: str, cluster: YarnCluster) -> Iterator[AirflowServer]:
    job = {
        "application": str(JOB),
        "application_args": [f"{GATE}.log", GATE, "{{ params.table }}/dt=2013-01-15", cluster.fs],
        "driver_memory": "512m",
        "yarn_track_via_rm_api": True,
    }
    with (
        Metastore(workdir) as metastore,
        airflow_on(cluster, workdir, url, job, cluster.environment(metastore)) as server,
    ):
        yield server


def test_an_application_that_cannot_be_asked_for_keeps_the_partition(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    """It continues while the ResourceManager is down, and publishes to HDFS."""
    run = start("driver", "dw.silent")
    run.begun()
    job = run.job(manager)
    run.kill()
    assert run.ended() == "failed"
    cluster.resource_manager.suspend()
    try:
        with pytest.raises(CannotTell):
            job.running()
        assert start("force", "dw.silent").ended() == "success"
        assert owners(manager, "dw.silent") == [run.owner()]
    finally:
        cluster.resource_manager.resume()
    assert start("force", "dw.silent").ended() == "success"
    assert cluster.resource_manager.applications()[job.job_id] == "RUNNING"
    assert owners(manager, "dw.silent") == [run.owner()], "it writes on, and somebody else would write too"
    run.open_gate()
    run.until(lambda: not job.running(), "the application to end")
    assert [line.split()[0] for line in run.log()] == ["begin", "end"], "it was not let publish"
    assert start("force", "dw.silent").ended() == "success"
    assert not owners(manager, "dw.silent")


def test_an_application_is_over_no_sooner_than_its_driver(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    """Marked failed: ``on_kill`` kills it, and the ResourceManager reports the end before the NodeManager has done it."""
    run = start("driver", "dw.marked")
    run.begun()
    job = run.job(manager)
    run.mark("failed")
    run.until(lambda: not job.running(), "the application to be over")
    assert run.alive() == 0
    assert cluster.resource_manager.applications()[job.job_id] == "KILLED"
    assert start("force", "dw.marked").ended() == "success"
    assert not owners(manager, "dw.marked")


def test_a_client_that_has_outlived_its_task_keeps_the_partition(manager: LockManager, start: Start) -> None:
    """The driver is spark-submit's, on the task's host, and goes on without the task."""
    run = start("client", "dw.client")
    run.begun()
    run.kill()
    assert run.ended() == "failed"
    assert start("force", "dw.client").ended() == "success"
    assert owners(manager, "dw.client") == [run.owner()]
    run.open_gate()
    run.until(lambda: len(run.log()) == 2, "the driver to publish")

    def freed() -> bool:
        return start("force", "dw.client").ended() == "success" and not owners(manager, "dw.client")

    run.until(freed, "its end to be found")


def test_an_application_that_was_forgotten_is_not_taken_for_ended(
    manager: LockManager, cluster: YarnCluster, start: Start
) -> None:
    """The ResourceManager restarted without its state: a user looks, and frees the lease."""
    run = start("driver", "dw.forgotten")
    run.begun()
    job = run.job(manager)
    run.kill()
    assert run.ended() == "failed"
    cluster.resource_manager.kill()
    cluster.resource_manager.start()
    with pytest.raises(CannotTell, match="does not know application_"):
        job.running()
    with pytest.raises(CannotTell):
        job.stop()
    assert start("force", "dw.forgotten").ended() == "success"
    assert owners(manager, "dw.forgotten") == [run.owner()]
