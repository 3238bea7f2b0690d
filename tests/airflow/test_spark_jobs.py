"""Cluster mode, where a job outlives spark-submit: it is recorded at once, asked for, taken up and ended by its id."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
import time
import warnings
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS

from airflow_hivelock import HiveLockedSparkSubmitOperator
from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.spark import URL
from airflow_hivelock.work import applications, spark_job
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.processes import Processes
from airflow_hivelock.work.spark_job import LINGERS_S, SparkJob
from tests.airflow.tasks import DAY, NAMES, dag
from tests.support.clusters.resource_manager import ResourceManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

JOB_ID = "application_1_0001"


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    with ResourceManager() as manager:
        threading.Thread(target=manager.serve_forever, daemon=True).start()
        connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
        connection["extra"] |= {"yarn_resourcemanager_webapp_address": manager.url}  # type: ignore[operator]
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        yield manager
        manager.shutdown()
    with warnings.catch_warnings():  # the provider leaves spark-submit's output and its requests open
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The arguments of a spark-submit that prints the job's id, and ends after that was recorded."""
    binary = tmp_path / "spark-submit"
    binary.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\necho "Submitted application {JOB_ID}"\n'
        f"for _ in $(seq 300); do [ -e {tmp_path}/recorded ] && exit 0; sleep 0.1; done; exit 1\n"
    )
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "called"


def test_a_job_is_recorded_while_spark_submit_goes_on(
    manager: LockManager, run: Run, yarn: ResourceManager, spark_submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = manager.record_work
    recorded: list[Any] = []

    def record_work(lease: Any, name: str, application: str | None) -> Any:
        recorded.append(applications.decode(application or ""))
        if recorded[-1] == SparkJob("spark_default", JOB_ID):
            spark_submit.with_name("recorded").touch()
        return original(lease, name, application)

    monkeypatch.setattr(manager, "record_work", record_work)
    with dag() as works:
        HiveLockedSparkSubmitOperator(task_id="job", application="job.py", yarn_track_via_rm_api=True, **NAMES)
    assert run(works, logical_date=DAY).state == "success"
    assert f"spark.yarn.appMasterEnv.{URL}=memory://" in spark_submit.read_text().split()
    assert not manager.show()
    submits, job = recorded
    assert submits.submits, "until its id is known, the end of spark-submit tells nothing of the job"
    assert job == SparkJob("spark_default", JOB_ID)


def test_a_job_that_was_never_submitted_keeps_no_lock(
    manager: LockManager, run: Run, yarn: ResourceManager, spark_submit: Path
) -> None:
    """YARN gives an application its id before its files are uploaded, and does not know it when that fails."""
    spark_submit.with_name("spark-submit").write_text(
        f"#!/bin/sh\necho 'Uploading resource file:/job.py -> hdfs://nn/.sparkStaging/{JOB_ID}/job.py'\n"
        "echo 'No space left'\nexit 1\n"
    )
    yarn.forgets = True
    with dag() as works:
        HiveLockedSparkSubmitOperator(task_id="job", application="job.py", yarn_track_via_rm_api=True, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert not manager.show()


def test_a_job_that_nobody_could_follow_is_not_submitted(
    manager: LockManager, run: Run, yarn: ResourceManager, spark_submit: Path
) -> None:
    with dag() as works:
        job = HiveLockedSparkSubmitOperator(task_id="job", application="job.py", durable=False, **NAMES)
    assert run(works, logical_date=DAY).tasks == {"job": "failed"}
    assert not spark_submit.exists()
    with pytest.raises(InvalidRequest, match="yarn_track_via_rm_api=True"):
        job._get_hook()
    assert not manager.show()


def test_a_url_with_a_password_is_not_shown_on_sparks_page(
    yarn: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, "postgresql://scott:tiger@db/locks")
    job = HiveLockedSparkSubmitOperator(task_id="job", yarn_track_via_rm_api=True, **NAMES)
    assert "tiger" not in str(job._get_hook()._conf)


@pytest.mark.skipif(not AIRFLOW_V_3_3_PLUS, reason="before Airflow 3.3 a retry goes on with no job")
def test_what_the_lease_has_recorded_is_taken_up_although_airflow_has_not(yarn: ResourceManager) -> None:
    yarn.state = ["RUNNING", "UNDEFINED"]
    store: dict[str, Any] = {}
    context = {"task_state_store": _Store(store)}
    job = SparkJob("spark_default", JOB_ID)
    operator = HiveLockedSparkSubmitOperator(task_id="job", yarn_track_via_rm_api=True, **NAMES)
    assert operator.reconnects(context, Processes()) is None
    assert operator.reconnects(context, job) == job
    assert store == {"spark_job_id": JOB_ID}
    operator.durable = False
    assert operator.reconnects(context, job) is None


class _Store:
    def __init__(self, values: dict[str, Any]) -> None:
        self.get = values.get
        self.set = values.__setitem__


def test_a_job_is_ended_by_its_id(yarn: ResourceManager) -> None:
    yarn.state = ["RUNNING", "UNDEFINED"]
    job = SparkJob("spark_default", JOB_ID)
    assert not job.ends(patience_s=0)
    job.stop()
    assert yarn.killed == [JOB_ID]
    assert not job.running()


@pytest.mark.parametrize(
    "state", [("KILLED", "KILLED"), ("FAILED", "FAILED"), ("FINISHED", "FAILED"), ("FINISHED", "UNDEFINED")]
)
def test_a_driver_has_time_to_end_after_the_resource_manager_has_ended_its_application(
    yarn: ResourceManager, state: tuple[str, str]
) -> None:
    yarn.state, yarn.finished_s = list(state), time.time()
    job = SparkJob("spark_default", JOB_ID)
    assert job.running(), "its NodeManager has not killed it yet"
    yarn.finished_s -= LINGERS_S + 1
    assert not job.running()


def test_a_job_that_yarn_has_forgotten_is_not_taken_for_ended(yarn: ResourceManager) -> None:
    """Not after a cancellation either: a ResourceManager after a restart has cancelled nothing."""
    yarn.forgets = True
    job = SparkJob("spark_default", JOB_ID)
    for ask in (job.running, job.stop, partial(job.ends, 0, cancelled=True)):
        with pytest.raises(CannotTell, match="does not know application_1_0001"):
            ask()


def test_a_job_is_not_taken_for_ended_where_nobody_answers(yarn: ResourceManager) -> None:
    yarn.shutdown()
    yarn.server_close()
    for ask in (SparkJob("spark_default", JOB_ID).running, SparkJob("spark_default", JOB_ID).stop):
        with pytest.raises(CannotTell, match="spark_default"):
            ask()


class TestStandalone:
    """Of a driver in a standalone cluster, with two masters at the same port."""

    JOB = SparkJob("spark_default", "driver-20130101000000-0000")

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
        """What the second master answers. The first one accepts, and never answers."""
        answer: dict[str, Any] = {}

        class Master(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(answer.get("status", 200))
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None:
                pass

        monkeypatch.setattr(spark_job, "ANSWER_S", 0.3)
        with HTTPServer(("127.0.0.2", 0), Master) as second, socket.create_server(("127.0.0.3", second.server_port)):
            threading.Thread(target=second.serve_forever, daemon=True).start()
            extra = {"deploy-mode": "cluster", "rest-port": second.server_port}
            masters = {"conn_type": "spark", "host": "spark://127.0.0.3:7077,127.0.0.2:7077", "extra": extra}
            monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(masters))
            yield answer
            second.shutdown()

    def test_the_other_master_is_asked_in_time_where_one_is_gone(self, answer: dict[str, Any]) -> None:
        for state, runs in (("RUNNING", True), ("RELAUNCHING", True), ("FINISHED", False), ("KILLED", False)):
            answer |= {"success": True, "driverState": state}
            began = time.monotonic()
            assert self.JOB.running() is runs
            assert time.monotonic() - began < 10

    def test_a_driver_is_not_taken_for_ended_if_a_proxy_answers(self, answer: dict[str, Any]) -> None:
        """Not after a cancellation either: a master answers with 200, even about a driver that it does not know."""
        answer["status"] = 404
        for ask in (self.JOB.running, partial(self.JOB.ends, 0, cancelled=True)):
            with pytest.raises(CannotTell, match="404"):
                ask()

    def test_a_driver_that_no_master_knows_is_not_taken_for_ended(self, answer: dict[str, Any]) -> None:
        answer |= {"success": False, "message": "Driver not found"}
        with pytest.raises(CannotTell, match="Driver not found"):
            self.JOB.running()


class Gone(Exception):
    """Kubernetes' answer that it does not know the driver's pod."""

    status = 404
    body = json.dumps({"kind": "Status", "reason": "NotFound", "details": {"name": "load-driver", "kind": "pods"}})


class TestDriverPod:
    """Of a job on Kubernetes."""

    JOB = SparkJob("spark_default", "jobs:load-driver")

    @pytest.fixture
    def pod(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """What Kubernetes has of it."""
        kube_client = pytest.importorskip("airflow.providers.cncf.kubernetes.kube_client")
        connection = {"conn_type": "spark", "host": "k8s://https://127.0.0.1", "extra": {"deploy-mode": "cluster"}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        self.client = MagicMock()
        monkeypatch.setattr(kube_client, "get_kube_client", lambda: self.client)
        pod = self.client.read_namespaced_pod.return_value
        pod.metadata.uid, pod.metadata.labels = "u-1", {"spark-role": "driver"}
        return pod

    def test_runs_until_its_phase_is_an_end(self, pod: Any) -> None:
        for phase, runs in (("Pending", True), ("Running", True), ("Succeeded", False), ("Failed", False)):
            pod.status.phase = phase
            assert self.JOB.running() is runs
        asked = self.client.read_namespaced_pod.call_args
        assert asked.args == ("load-driver", "jobs")
        assert asked.kwargs == {"_request_timeout": ANSWER_S}, "it would wait for ever"

    def test_an_unknown_state_is_not_taken_for_an_end(self, pod: Any) -> None:
        """Its node does not answer."""
        pod.status.phase = "Unknown"
        with pytest.raises(CannotTell, match="does not know"):
            self.JOB.running()

    @pytest.fixture
    def gone(self, pod: Any) -> Gone:
        """The cluster's answer if the pod is gone."""
        self.client.api_client.configuration = SimpleNamespace(ssl_ca_cert=None, host="https://here")
        self.client.read_namespaced_pod.side_effect = error = Gone()
        return error

    HERE = replace(JOB, cluster="https://here")

    def test_a_pod_that_is_gone_has_ended(self, gone: Gone) -> None:
        assert not self.HERE.running()
        self.HERE.stop()

    def test_a_lease_is_not_freed_if_its_cluster_is_not_recorded(self, gone: Gone) -> None:
        """Any cluster could answer that the pod is gone. A person frees the lease."""
        for ask in (self.JOB.running, self.JOB.stop, partial(self.JOB.ends, 0, cancelled=True)):
            with pytest.raises(CannotTell, match=r"does not record its cluster.* If it has ended, free the lease"):
                ask()

    def test_a_pod_is_not_taken_for_ended_if_a_proxy_answers(self, gone: Gone) -> None:
        for body in (
            "404 page not found",
            "no route to /pods/load-driver",
            '{"details": {"name": "load"}}',
            "[]",
            None,
        ):
            gone.body = body  # type: ignore[assignment]
            for ask in (self.HERE.running, self.HERE.stop, partial(self.HERE.ends, 0, cancelled=True)):
                with pytest.raises(CannotTell, match="does not name load-driver"):
                    ask()

    def test_it_is_not_taken_for_ended_where_another_cluster_is_asked(self, gone: Gone) -> None:
        """As by a triggerer in another cluster than the worker's."""
        self.client.api_client.configuration.host = "https://there"
        operator = SimpleNamespace(_conn_id="spark_default", _deploy_mode="cluster")
        job = SparkJob.submitted_by(operator, "jobs:load-driver")
        assert job.cluster == "https://there"
        self.client.api_client.configuration.host = "https://here"
        with pytest.raises(CannotTell, match="another cluster"):
            job.running()
        self.client.read_namespaced_pod.side_effect = None
        self.client.read_namespaced_pod.return_value.status.phase = "Succeeded"
        with pytest.raises(CannotTell, match="another cluster"):
            job.running()

    def test_a_driver_is_recorded_although_its_cluster_is_unknown(
        self, pod: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spark_job, "_kube_client", MagicMock(side_effect=OSError("no kubeconfig")))
        operator = SimpleNamespace(_conn_id="spark_default", _deploy_mode="cluster")
        assert SparkJob.submitted_by(operator, "jobs:load-driver") == replace(self.JOB, deploy_mode="cluster")
        assert "no kubeconfig" in caplog.text
        assert "until a user frees it" in caplog.text

    def test_is_deleted_and_no_other_pod(self, pod: Any) -> None:
        self.JOB.cancel()
        deleted = self.client.delete_namespaced_pod.call_args
        assert deleted.args == ("load-driver", "jobs")
        assert deleted.kwargs["body"].preconditions.uid == "u-1"
        assert deleted.kwargs["_request_timeout"] == ANSWER_S
        pod.metadata.labels = {"app": "scheduler"}
        with pytest.raises(CannotTell, match="spark-role"):
            self.JOB.cancel()
        assert self.client.delete_namespaced_pod.call_count == 1
