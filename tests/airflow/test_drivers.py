"""The leases of Spark drivers: an Airflow that they name as their keeper frees them when the driver has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock import hooks
from airflow_hivelock.locks import InvalidRequest, LockManager, connect
from airflow_hivelock.operators.force_unlock import HiveForceUnlockOperator
from airflow_hivelock.spark import driver_work
from airflow_hivelock.spark.driver_work import digest, processes, work_of
from airflow_hivelock.triggers import drivers
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes
from airflow_hivelock.work.spark_job import SparkJob
from tests.airflow.tasks import DAY, dag
from tests.airflow.test_keeper_frees import keep
from tests.support.clusters.resource_manager import ResourceManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.airflow.conftest import Run

APPLICATION = "application_1_0001"

DRIVER = f"""
import sys
from types import SimpleNamespace as Some
from airflow_hivelock.locks import LockObject, connect
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark.driver_work import work_of
from airflow_hivelock.spark.leases import DriverLeases, DriverName
import os

url, keeper, master = sys.argv[1:]
context = Some(master=master, applicationId="{APPLICATION}", getConf=lambda: Some(getAll=lambda: []))
work = work_of(context, keeper, os.getpid)
leases = DriverLeases(connect(url), DriverName("{APPLICATION}", master), work=work, lease_s=60.0)
with leases.locked(Plan([], [LockObject("dw", "t")], {{}}), "insert overwrite table dw.t select 1"):
    print("it holds its lock", flush=True)
    sys.stdin.read()
leases.close()
"""
"""A driver as far as its leases go: it holds one until it is told to end, or dies."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockManager]:
    """The lock store of both: a file."""
    monkeypatch.setattr(drivers, "SETTLE_S", -1.0)
    with connect(url) as manager:
        monkeypatch.setitem(hooks._managers, "memory://", manager)
        yield manager


@pytest.fixture
def start(url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a driver, and wait until it holds its lock."""
    started: list[subprocess.Popen[str]] = []

    def driver(keeper: str, master: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DRIVER, url, keeper, master]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "it holds its lock\n"
        return process

    yield driver
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    with ResourceManager() as manager:
        threading.Thread(target=manager.serve_forever, daemon=True).start()
        extra = {"deploy-mode": "client", "yarn_resourcemanager_webapp_address": manager.url}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        manager.state = ["RUNNING", "UNDEFINED"]
        yield manager
        manager.shutdown()


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_lock_of_a_dead_driver_stays_until_yarn_reports_its_application_over(
    store: LockManager, start: Callable[..., subprocess.Popen[str]], yarn: ResourceManager
) -> None:
    kill(start("here/spark_default", "yarn"))
    assert keep(3) == {}
    (lease,) = store.leases()
    assert applications.of(lease.works[0]) == SparkJob("spark_default", APPLICATION, "cluster")
    yarn.state = ["FINISHED", "SUCCEEDED"]
    keep()
    assert not store.leases()
    (entry,) = store.audit()
    assert (entry.user, entry.lease_id) == ("keeper of here", lease.id)
    assert entry.reason == f"its driver has ended: Spark job {APPLICATION}"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lock_stays_where_yarn_does_not_answer_and_is_suspect_when_it_has_expired(
    store: LockManager,
    start: Callable[..., subprocess.Popen[str]],
    yarn: ResourceManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yarn.forgets = True
    driver = start("here/spark_default", "yarn")
    (lease,) = store.leases()
    assert keep() == {}, "its driver renews it"
    kill(driver)
    assert lease.expires
    later = lease.expires + timedelta(seconds=1)
    monkeypatch.setattr(store.backend, "now", lambda: later)
    assert "does not know" in keep()[lease.id]
    assert store.leases()


def test_a_local_drivers_lock_goes_with_its_process(
    store: LockManager, start: Callable[..., subprocess.Popen[str]], run: Run
) -> None:
    driver = start("here", "local[2]")
    keep(2)
    assert store.leases()
    with dag() as reports:
        HiveForceUnlockOperator(task_id="free", stale=True, reason="it is over", min_age=timedelta(0))
    assert run(reports, logical_date=DAY).state == "success"
    assert store.leases(), "its driver runs"
    kill(driver)
    keep()
    assert not store.leases()


def test_another_airflows_keeper_leaves_it_alone(
    store: LockManager, start: Callable[..., subprocess.Popen[str]]
) -> None:
    kill(start("elsewhere", "local[2]"))
    assert keep(2) == {}
    assert store.leases()


def test_the_record_of_a_process_is_the_one_of_the_work() -> None:
    recorded = applications.decode(json.dumps(processes(os.getpid())))
    assert isinstance(recorded, Processes)
    assert (recorded.pid, recorded.started, recorded.boot, recorded.host) == (
        (mine := Processes()).pid,
        mine.started,
        mine.boot,
        mine.host,
    )


@pytest.mark.parametrize(
    ("keeper", "master", "why"),
    [
        ("", "yarn", "use the id of an Airflow installation"),
        ("here/spark/default", "yarn", "use the id of an Airflow installation"),
        ("here/spark_default", "local[2]", "Name the installation alone"),
        ("here/spark_default", "k8s://https://api", "the pod of this driver is not known"),
    ],
)
def test_a_keeper_that_could_not_judge_is_refused(keeper: str, master: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        work_of(context(master), keeper, os.getpid)


def test_a_driver_on_kubernetes_records_its_pod_and_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_work, "ACCOUNT", tmp_path)
    settings = {"spark.kubernetes.driver.pod.name": "load-driver", "spark.kubernetes.namespace": "jobs"}
    name, recorded = work_of(context("k8s://https://api", settings), "here/k8s", os.getpid)
    assert name == "driver for here"
    assert applications.decode(recorded) == SparkJob("k8s", "jobs:load-driver", "cluster")
    (tmp_path / "ca.crt").write_bytes(b"authority")
    _, recorded = work_of(context("k8s://https://api", settings), "here/k8s", os.getpid)
    assert applications.decode(recorded) == SparkJob("k8s", "jobs:load-driver", "cluster", digest(b"authority"))


def context(master: str, settings: dict[str, str] | None = None) -> Any:
    """A SparkContext as far as it is asked."""
    conf = SimpleNamespace(getAll=lambda: (settings or {}).items())
    return SimpleNamespace(master=master, applicationId=APPLICATION, getConf=lambda: conf)
