"""What a record of work may decide, where it was written by a stranger with access to the lock store."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.ui import works
from airflow_hivelock.work import applications
from airflow_hivelock.work.jobs import resumable, trust
from airflow_hivelock.work.jobs.dataproc import DataprocBatch, DataprocJob
from airflow_hivelock.work.jobs.emr import EmrJobFlow, EmrOnEksRun, EmrServerlessRun, EmrSteps
from airflow_hivelock.work.jobs.kubernetes import KubernetesJob, KubernetesPod, SparkApplication
from airflow_hivelock.work.jobs.resumable import ResumableJob
from airflow_hivelock.work.spark_job import SparkJob
from tests.airflow.test_keeper_frees import Airflow, acquire, keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Lease


FASTAPI = {"kind": "resumable", "operator": "fastapi.__main__.x", "job_id": 1, "arguments": {}}
"""Its module ends the process that imports it."""
POISON = {**FASTAPI, "operator": "poison.x"}


@pytest.fixture(autouse=True)
def poison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that can be imported, and ends the process as fastapi.__main__ does."""
    (tmp_path / "poison.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("poison", "fastapi.__main__"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.fixture
def recorded(manager: LockManager) -> Callable[[dict[str, Any]], Lease]:
    """``recorded(record)``: a lease under which a stranger has recorded that work."""
    return lambda record: manager.start_work(acquire(manager), "load", json.dumps(record))


@pytest.mark.parametrize("record", [FASTAPI, POISON])
class TestModule:
    def test_the_page_imports_none_that_a_record_names(self, recorded: Any, record: dict[str, Any]) -> None:
        lease = recorded(record)
        assert works.ask(lease)["load"].code == "untold"
        assert works.how(lease.works[0]).code == "untold"
        assert not {"poison", "fastapi.__main__"} & sys.modules.keys()

    def test_the_keeper_imports_none_and_keeps_the_lease(
        self, recorded: Any, record: dict[str, Any], manager: LockManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = recorded(record)
        airflow_knows_it_over(monkeypatch)
        assert "provider" in keep()[lease.id]
        assert not {"poison", "fastapi.__main__"} & sys.modules.keys()
        assert manager.find(lease.id)

    def test_release_and_the_next_try_import_none(self, recorded: Any, record: dict[str, Any]) -> None:
        lease = recorded(record)
        with pytest.raises(CannotTell, match="provider"):
            applications.running(lease.works)
        ending = applications.decode(json.dumps({**record, "attribute": "job_id"}))
        with pytest.raises(CannotTell, match="provider"):
            ending.stop()
        assert not {"poison", "fastapi.__main__"} & sys.modules.keys()


def airflow_knows_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import task_runner

    from airflow_hivelock.triggers import keeper

    played = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", played, raising=False)
    monkeypatch.setattr(keeper, "SETTLE_S", 0.0)
    played.knows("run", "failed", load="failed")


@pytest.fixture(autouse=True)
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task has run in this process, so that nothing is known but what Airflow itself says."""
    monkeypatch.setattr(trust, "_own", set())
    monkeypatch.setattr(resumable, "_own_classes", {})


POD = KubernetesPod("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1")
K8S_JOB = KubernetesJob("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1")
APPLICATION = SparkApplication(
    *("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1"),
    *("sparkoperator.k8s.io", "v1beta2", "sparkapplications"),
)
DATAPROC = DataprocJob("google_cloud_default", (), "p", "europe-west3", "job-1")
EMR = EmrServerlessRun("aws_default", "eu-central-1", "a-1", "r-1")
LIVY = ResumableJob(
    "airflow.providers.apache.livy.operators.livy.LivyOperator", 1, {"livy_conn_id": "livy_default"}, "_batch_id"
)
GLUE = ResumableJob(
    "airflow.providers.amazon.aws.operators.glue.GlueJobOperator", "r-1", {"aws_conn_id": "aws_default"}, "_job_run_id"
)


class TestConnection:
    """A stranger would like to see one service's password sent to another."""

    @pytest.fixture(autouse=True)
    def warehouse(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A connection to something else. Returns the hooks that have read it."""
        connection = {"conn_type": "postgres", "host": "db", "login": "etl", "password": "tiger-tiger"}
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
        read: list[str] = []
        original = BaseHook.get_connection.__func__  # type: ignore[attr-defined]

        def get_connection(cls: type, conn_id: str) -> Any:
            if cls is not BaseHook:
                read.append(cls.__name__)
            return original(cls, conn_id)

        monkeypatch.setattr(BaseHook, "get_connection", classmethod(get_connection))
        return read

    @pytest.mark.parametrize(
        "job",
        [
            *(replace(job, conn_id="warehouse") for job in (POD, K8S_JOB, APPLICATION, DATAPROC, EMR)),
            SparkJob("warehouse", "driver-1", "cluster"),
            replace(LIVY, arguments={"livy_conn_id": "warehouse"}),
            replace(GLUE, arguments={"aws_conn_id": "warehouse", "job_name": "j"}),
        ],
        ids=lambda job: job.kind,
    )
    @pytest.mark.parametrize("ask", ["running", "cancel"])
    def test_of_another_type_no_hook_reads(self, job: Any, ask: str, warehouse: list[str]) -> None:
        with pytest.raises(CannotTell, match="is of type 'postgres', but a record may only name one of type"):
            getattr(job, ask)()
        assert warehouse == []

    @pytest.mark.parametrize("conn_id", ["../../secret", "a\nb", "a b", "x" * 300])
    def test_of_no_possible_id_no_secrets_backend_is_asked_for(self, conn_id: str) -> None:
        with pytest.raises(CannotTell, match="has an invalid name"):
            trust.check_connection(conn_id, ("aws",))

    def test_of_this_process_s_own_task_is_asked_through_whatever_its_type(self) -> None:
        operator: Any = SimpleNamespace(_conn_id="warehouse")
        trust.learn(SparkJob.names_of(operator))
        assert trust.check_connection("warehouse", ("spark",)) == {}


class TestArguments:
    @pytest.mark.parametrize(
        "argument",
        [
            {"script_location": "/etc/passwd"},
            {"s3_bucket": "a-stranger-s"},
            {"botocore_config": "x"},
            {"iam_role_arn": "x"},
        ],
    )
    def test_of_a_known_operator_no_others_are_given(self, argument: dict[str, str]) -> None:
        """With these GlueJobOperator uploads a file of the host to a bucket."""
        with pytest.raises(CannotTell, match="only its own task may set the argument"):
            replace(GLUE, arguments={"aws_conn_id": "", **argument}).running()

    @pytest.mark.parametrize("argument", [{"endpoint": "http://a.stranger"}, {"verify": False}, {"command": "true"}])
    def test_of_an_unknown_operator_only_its_connection_is_given(
        self, argument: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trust, "_providers", lambda: {"poison": frozenset({"poisonous"})})
        with pytest.raises(CannotTell, match="only its own task may set the argument"):
            ResumableJob("poison.Operator", 1, argument).running()
        assert "poison" not in sys.modules

    @pytest.mark.parametrize("prefix", ["../admin", "x?y", "a b", "x#"])
    def test_livy_s_prefix_leads_nowhere_else(self, prefix: str) -> None:
        with pytest.raises(CannotTell, match="is invalid"):
            replace(LIVY, arguments={"livy_conn_id": "livy", "livy_endpoint_prefix": prefix}).running()

    @pytest.mark.parametrize("region", ["evil.com/", "evil.com", "a:1", "x@y", "", "a" * 64, "Ünited"])
    def test_a_region_is_no_host(self, region: str) -> None:
        """It becomes the first part of a host name. A token is sent to that host."""
        for job in (DATAPROC, EMR, DataprocBatch("g", (), "p", "r", "b"), EmrSteps("aws", "r", "j-1", ("s-1",))):
            with pytest.raises(ValueError, match="region"):
                replace(job, region=region)
        with pytest.raises(CannotTell, match="is invalid"):
            replace(GLUE, arguments={"region_name": region or "."}).running()


class TestPath:
    """An id becomes a part of a path. A request with ".." went to the application above the run."""

    @pytest.mark.parametrize("part", [".", "..", "", "a/b", "../b", "..;b", "a?b", "a#b", "a b", "%2e%2e", "a\\b"])
    @pytest.mark.parametrize(
        ("job", "fields"),
        [
            (EmrJobFlow("aws", "r", "j-1"), ["cluster_id"]),
            (EmrSteps("aws", "r", "j-1", ("s-1",)), ["cluster_id"]),
            (EMR, ["application_id", "run_id"]),
            (EmrOnEksRun("aws", "r", "v-1", "r-1"), ["virtual_cluster_id", "run_id"]),
            (DATAPROC, ["project", "job_id"]),
            (DataprocBatch("g", (), "p", "r", "b"), ["project", "job_id"]),
            *((job, ["namespace", "name"]) for job in (POD, K8S_JOB, APPLICATION)),
            *((job, ["job_id"]) for job in (LIVY, GLUE, SparkJob("spark_default", "driver-1", "cluster"))),
        ],
        ids=lambda value: getattr(value, "kind", ""),
    )
    def test_an_id_leads_nowhere_else(self, job: Any, fields: list[str], part: str) -> None:
        for field in fields:
            change: dict[str, Any] = {field: part}
            with pytest.raises(ValueError, match=field):
                replace(job, **change)

    @pytest.mark.parametrize("part", [".", "..", "", "a/b"])
    def test_nor_does_an_id_in_a_list_or_behind_a_colon(self, part: str) -> None:
        with pytest.raises(ValueError, match="step_ids"):
            EmrSteps("aws", "r", "j-1", ("s-1", part))
        for pod in (f"{part}:driver", f"jobs:{part}", f"jobs:driver:{part}"):
            with pytest.raises(ValueError, match="job_id"):
                SparkJob("spark_default", pod, "cluster")


class TestKubeconfig:
    """Such a file can name a program that Kubernetes' client then runs."""

    JOB = replace(POD, config_file="/tmp/a-stranger-s")

    @pytest.fixture(autouse=True)
    def hook(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        hooks = pytest.importorskip("airflow.providers.cncf.kubernetes.hooks.kubernetes")
        made = MagicMock()
        made.return_value.get_pod.return_value = None
        monkeypatch.setattr(hooks, "KubernetesHook", made)
        return made

    def test_that_only_a_record_names_is_not_read(self, hook: Any) -> None:
        for ask in (self.JOB.running, self.JOB.cancel):
            with pytest.raises(CannotTell, match=r"\[hivelock\] kube_config_files"):
                ask()
        hook.assert_not_called()

    @pytest.mark.parametrize("way", ["connection", "setting", "task"])
    def test_that_airflow_names_is_read(self, way: str, hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        extra = {"kube_config_path": self.JOB.config_file} if way == "connection" else {}
        connection = {"conn_type": "kubernetes", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
        if way == "setting":
            monkeypatch.setenv("AIRFLOW__HIVELOCK__KUBE_CONFIG_FILES", f"/etc/kube,{self.JOB.config_file}")
        if way == "task":
            operator: Any = SimpleNamespace(
                kubernetes_conn_id="kubernetes_default", config_file=self.JOB.config_file, reattach_on_restart=False
            )
            assert not self.JOB.reconnects(operator, {})
        assert not self.JOB.running()
        assert hook.call_args.kwargs["config_file"] == self.JOB.config_file


class TestImpersonation:
    JOB = replace(DATAPROC, impersonation=("admin@p.iam.gserviceaccount.com",))

    def test_of_whom_only_a_record_names_is_not_done(self) -> None:
        with pytest.raises(CannotTell, match=r"\[hivelock\] impersonated_accounts"):
            self.JOB.check()

    @pytest.mark.parametrize("way", ["connection", "setting", "task"])
    def test_of_whom_airflow_names_is_done(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        (account,) = self.JOB.impersonation
        extra = {"impersonation_chain": account} if way == "connection" else {}
        connection = {"conn_type": "google_cloud_platform", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(connection))
        if way == "setting":
            monkeypatch.setenv("AIRFLOW__HIVELOCK__IMPERSONATED_ACCOUNTS", f"etl@p,{account}")
        if way == "task":
            operator: Any = SimpleNamespace(gcp_conn_id="google_cloud_default", impersonation_chain=account)
            trust.learn(DataprocJob.names_of(operator))
        self.JOB.check()


class TestDeleted:
    """In place of a job, any object of the cluster could be named."""

    @pytest.fixture
    def hook(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        pytest.importorskip("airflow.providers.cncf.kubernetes")
        made = MagicMock()
        for kind in (KubernetesPod, KubernetesJob, SparkApplication):
            monkeypatch.setattr(kind, "hook", lambda self: made)
        return made

    def test_is_no_pod_that_airflow_has_not_made(self, hook: Any) -> None:
        hook.get_pod.return_value.metadata.labels = {"app": "scheduler"}
        with pytest.raises(CannotTell, match="no operator of Airflow made it"):
            POD.cancel()
        hook.core_v1_client.delete_namespaced_pod.assert_not_called()
        hook.get_pod.return_value.metadata.labels = {"kubernetes_pod_operator": "True"}
        POD.cancel()
        hook.core_v1_client.delete_namespaced_pod.assert_called_once()

    def test_is_no_job_that_airflow_has_not_made(self, hook: Any) -> None:
        labels = {"app": "backup"}
        hook.get_job.return_value.spec.template.metadata.labels = labels
        with pytest.raises(CannotTell, match="no operator of Airflow made it"):
            K8S_JOB.cancel()
        hook.batch_v1_client.delete_namespaced_job.assert_not_called()
        labels["kubernetes_pod_operator"] = "True"
        K8S_JOB.cancel()
        hook.batch_v1_client.delete_namespaced_job.assert_called_once()

    @pytest.mark.parametrize("other", [{"group": "apps", "plural": "deployments"}, {"version": "../v1"}])
    def test_is_nothing_but_a_spark_application(self, other: dict[str, str], hook: Any) -> None:
        changed: dict[str, Any] = dict(other)
        job = replace(APPLICATION, **changed)
        for ask in (job.running, job.cancel):
            with pytest.raises(CannotTell, match="not applications of the Spark operator"):
                ask()
        assert not hook.mock_calls
