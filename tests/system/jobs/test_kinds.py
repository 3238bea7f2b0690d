"""All kinds of jobs: each operator is where its path says, and a silent service is given up."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs import dataproc, emr, kubernetes, resumable
from airflow_hivelock.work.jobs.resumable import ResumableJob
from tests.support.clusters import Glue
from tests.system.jobs.told import operator_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.work.jobs.job import Job


KINDS: list[type[Job]] = [
    emr.EmrSteps,
    emr.EmrJobFlow,
    emr.EmrServerlessRun,
    emr.EmrOnEksRun,
    dataproc.DataprocJob,
    dataproc.DataprocBatch,
    kubernetes.KubernetesPod,
    kubernetes.KubernetesJob,
    kubernetes.SparkApplication,
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_is_where_its_path_says(kind: type[Job]) -> None:
    made = operator_of(kind)
    assert f"{made.__module__}.{made.__qualname__}" == path_of(kind)


class TestSilence:
    """A service that accepts, and never answers: the thread that asks it ends soon, whatever the hook would wait."""

    @pytest.fixture
    def at(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        for module in (emr, resumable):
            monkeypatch.setattr(module, "ANSWER_S", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"

    @pytest.mark.parametrize(
        ("job", "provider"),
        [
            (
                ResumableJob(
                    "airflow.providers.apache.livy.operators.livy.LivyOperator",
                    1,
                    {"livy_conn_id": "silent"},
                    "_batch_id",
                ),
                "livy",
            ),
            (
                ResumableJob(
                    "airflow.providers.databricks.operators.databricks.DatabricksSubmitRunOperator",
                    1,
                    {"databricks_conn_id": "silent"},
                    "run_id",
                ),
                "databricks",
            ),
            (
                ResumableJob(
                    "airflow.providers.amazon.aws.operators.glue.GlueJobOperator",
                    "r-1",
                    {"job_name": "j", "aws_conn_id": "silent", "region_name": "eu-central-1", "verify": None},
                    "_job_run_id",
                ),
                "aws",
            ),
            (emr.EmrServerlessRun("silent", "eu-central-1", "a-1", "r-1"), "aws"),
        ],
        ids=lambda each: each if isinstance(each, str) else None,
    )
    def test_is_given_up(self, job: Any, provider: str, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("airflow.providers.amazon")
        connection: dict[str, Any] = {"conn_type": provider, "host": at, "password": "token"}
        if provider == "aws":
            connection = {"conn_type": "aws", "login": "k", "password": "s", "extra": {"endpoint_url": at}}
        monkeypatch.setenv("AIRFLOW_CONN_SILENT", json.dumps(connection))
        job.check()
        for ask in (job.running, job.cancel):
            began = time.monotonic()
            with pytest.raises(CannotTell, match=r"(?i)time"):
                ask()
            assert time.monotonic() - began < 25, "its hook waits for a minute or more"
        for thread in threading.enumerate():
            if thread.name == "hivelock-asks":
                thread.join(5)
                assert not thread.is_alive(), "a thread waits on"


def test_a_failed_run_of_glue_runs_on_as_its_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.amazon")
    with Glue() as glue:
        monkeypatch.setenv("AIRFLOW_CONN_AWS_GLUE", json.dumps(glue.connection()))
        glue.retries = 1
        first = glue.submit(["/bin/false"])
        first.process.wait(10)
        arguments = {"job_name": "j", "aws_conn_id": glue.conn_id, "region_name": "us-east-1", "verify": None}
        path = "airflow.providers.amazon.aws.operators.glue.GlueJobOperator"
        job = ResumableJob(path, first.id, arguments, "_job_run_id")
        assert not job.running()
        second = glue.submit(["/bin/sleep", "60"], {"PreviousRunId": first.id})
        assert job.running()
        job.stop()
        assert second.cancelled
        assert not job.running()
