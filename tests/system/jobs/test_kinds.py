"""Each kind of work elsewhere beside the real operator of its provider, whose service is a stub."""

from __future__ import annotations

import json
import socket
import threading
import time
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import MagicMock

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import dataproc, emr, kubernetes, resumable
from airflow_hivelock.work.jobs.resumable import ResumableJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


class Over(Exception):
    """Ends an operator's wait."""


def path_of(kind: type[Job]) -> str:
    (path,) = kind.operators
    return path


def operator_of(kind: type[Job]) -> Any:
    module, _, name = path_of(kind).rpartition(".")
    pytest.importorskip(module)
    return getattr(import_module(module), name)


def told_by(kind: type[Job], **arguments: Any) -> tuple[Any, list[Job]]:
    """An operator of *kind*, and what is recorded of it: while it runs, and in that order."""
    recorded: list[Job] = []

    class Told(operator_of(kind)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if (
                name == kind.operators[path_of(kind)]
                and getattr(self, "begun", False)
                and (job := kind.of(self)) is not None
            ):
                recorded.append(job)

    operator = Told(task_id="work", **arguments)
    operator.begun = True
    return operator, recorded


def context() -> dict[str, Any]:
    instance = MagicMock(dag_id="dag", task_id="work", run_id="run", map_index=-1, try_number=1)
    dag = SimpleNamespace(parent_dag=None)
    return {"ti": instance, "task_instance": instance, "run_id": "run", "dag": dag, "task_state_store": None}


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_is_where_its_path_says(kind: type[Job]) -> None:
    made = operator_of(kind)
    assert f"{made.__module__}.{made.__qualname__}" == path_of(kind)


class TestEmr:
    @pytest.fixture(autouse=True)
    def connection(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", "aws://key:word@/?region_name=eu-central-1")

    @pytest.fixture
    def answers(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, Any]], list[dict[str, Any]]]:
        """``answers(action, answer)``: what AWS says to it; with what it was asked for."""
        botocore = pytest.importorskip("botocore.client")
        asked: dict[str, tuple[Any, list[dict[str, Any]]]] = {}

        def answer(self: Any, operation: str, http: dict[str, Any], *_: Any) -> Any:
            made, calls = asked[self.meta.service_model.service_name + "." + operation]
            calls.append(http)
            if isinstance(made, Exception):
                raise made
            return SimpleNamespace(status_code=200), {"ResponseMetadata": {"HTTPStatusCode": 200}, **made}

        def make_request(self: Any, operation: Any, http: dict[str, Any], request_context: Any) -> Any:
            return answer(self, operation.name, http)

        monkeypatch.setattr(botocore.BaseClient, "_make_request", make_request)

        def add(action: str, said: Any) -> list[dict[str, Any]]:
            calls: list[dict[str, Any]] = []
            asked[action] = (said, calls)
            return calls

        return add

    @pytest.mark.parametrize(
        ("service", "shape", "over", "goes_on"),
        [
            ("emr", "StepState", emr._STEP_OVER, {"PENDING", "CANCEL_PENDING", "RUNNING"}),
            (
                "emr",
                "ClusterState",
                emr._CLUSTER_IDLE,
                {"STARTING", "BOOTSTRAPPING", "RUNNING", "TERMINATING"},
            ),
            (
                "emr-serverless",
                "JobRunState",
                emr._SERVERLESS_OVER,
                {"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED"},
            ),
            (
                "emr-containers",
                "JobRunState",
                emr._ON_EKS_OVER,
                {"PENDING", "SUBMITTED", "RUNNING", "CANCEL_PENDING"},
            ),
        ],
    )
    def test_the_states_are_those_of_the_service(
        self, service: str, shape: str, over: set[str], goes_on: set[str]
    ) -> None:
        session = pytest.importorskip("botocore.session").get_session()
        states = set(session.get_service_model(service).shape_for(shape).enum)
        assert states == over | goes_on

    @pytest.mark.parametrize("waits", [True, False])
    def test_steps_are_told_before_they_are_waited_for(self, answers: Any, waits: bool) -> None:
        operator, _ = told_by(
            emr.EmrSteps,
            job_flow_id="j-1",
            steps=[{"Name": "s", "HadoopJarStep": {"Jar": "x"}}],
            wait_for_completion=waits,
        )
        recorded: list[Job] = []
        answers("emr.DescribeCluster", {"Cluster": {"LogUri": "s3n://logs/emr/"}})
        answers("emr.AddJobFlowSteps", {"StepIds": ["s-1", "s-2"]})
        answers("emr.DescribeStep", Over())
        emr.EmrSteps.watch(operator, recorded.append)
        if waits:
            with pytest.raises(Over):
                operator.execute(context())
        else:
            operator.execute(context())
        assert recorded == [emr.EmrSteps("aws_default", "eu-central-1", "j-1", ("s-1", "s-2"))]

    def test_the_steps_of_one_task_are_not_told_to_another(self, answers: Any) -> None:
        one, other = (told_by(emr.EmrSteps, job_flow_id="j-1", steps=[])[0] for _ in range(2))
        told: list[Job] = []
        answers("emr.DescribeCluster", {"Cluster": {"LogUri": "s3n://logs/emr/"}})
        answers("emr.AddJobFlowSteps", {"StepIds": ["s-1"]})
        emr.EmrSteps.watch(one, told.append)
        other.execute(context())
        assert told == []

    @pytest.mark.parametrize("deferrable", [True, False])
    def test_a_job_flow(self, answers: Any, deferrable: bool) -> None:
        operator, recorded = told_by(
            emr.EmrJobFlow,
            wait_for_completion=True,
            deferrable=deferrable,
            emr_conn_id=None,
            job_flow_overrides={"Name": "n", "Instances": {}},
        )
        answers("emr.RunJobFlow", {"JobFlowId": "j-1"})
        answers("emr.DescribeCluster", Over())
        with pytest.raises(Over):
            operator.execute(context())
        assert recorded == [emr.EmrJobFlow("aws_default", "eu-central-1", "j-1")]

    @pytest.mark.parametrize("deferrable", [True, False])
    def test_a_serverless_run(self, answers: Any, deferrable: bool) -> None:
        operator, recorded = told_by(
            emr.EmrServerlessRun,
            application_id="a-1",
            execution_role_arn="arn:aws:iam::123456789012:role/jobs-of-airflow",
            job_driver={"sparkSubmit": {"entryPoint": "s3://jobs/delays.py"}},
            deferrable=deferrable,
        )
        answers("emr-serverless.GetApplication", {"application": {"state": "STARTED"}})
        answers("emr-serverless.StartJobRun", {"jobRunId": "r-1"})
        answers("emr-serverless.GetJobRun", Over())
        operator.persist_links = lambda _: None
        with pytest.raises((Over, TaskDeferred)) as ended:
            operator.execute(context())
        assert type(ended.value).__name__ == ("TaskDeferred" if deferrable else "Over")
        assert recorded == [emr.EmrServerlessRun("aws_default", "eu-central-1", "a-1", "r-1")]

    @pytest.mark.parametrize("deferrable", [True, False])
    def test_a_run_on_eks(self, answers: Any, deferrable: bool) -> None:
        operator, recorded = told_by(
            emr.EmrOnEksRun,
            name="job",
            virtual_cluster_id="v-1",
            execution_role_arn="arn:aws:iam::123456789012:role/jobs-of-airflow",
            release_label="emr-7",
            job_driver={},
            deferrable=deferrable,
        )
        answers("emr-containers.StartJobRun", {"id": "r-1", "virtualClusterId": "v-1"})
        answers("emr-containers.DescribeJobRun", Over())
        with pytest.raises(Over):
            operator.execute(context())
        assert recorded == [emr.EmrOnEksRun("aws_default", "eu-central-1", "v-1", "r-1")]

    @pytest.mark.parametrize(
        ("job", "asks", "says", "cancels"),
        [
            (
                emr.EmrSteps("aws_default", "us-east-1", "j-1", ("s-1",)),
                "emr.DescribeStep",
                lambda state: {"Step": {"Id": "s-1", "Status": {"State": state}}},
                "emr.CancelSteps",
            ),
            (
                emr.EmrJobFlow("aws_default", "us-east-1", "j-1"),
                "emr.DescribeCluster",
                lambda state: {"Cluster": {"Status": {"State": state}}},
                "emr.TerminateJobFlows",
            ),
            (
                emr.EmrServerlessRun("aws_default", "us-east-1", "a-1", "r-1"),
                "emr-serverless.GetJobRun",
                lambda state: {"jobRun": {"state": state}},
                "emr-serverless.CancelJobRun",
            ),
            (
                emr.EmrOnEksRun("aws_default", "us-east-1", "v-1", "r-1"),
                "emr-containers.DescribeJobRun",
                lambda state: {"jobRun": {"state": state}},
                "emr-containers.CancelJobRun",
            ),
        ],
    )
    def test_it_is_asked_for_where_it_runs(self, answers: Any, job: Any, asks: str, says: Any, cancels: str) -> None:
        operator_of(type(job))
        for state, running in (("RUNNING", True), ("FAILED" if "Flow" not in str(type(job)) else "TERMINATED", False)):
            calls = answers(asks, says(state))
            assert job.running() is running
            assert "us-east-1" in calls[0]["url"]
        if isinstance(job, emr.EmrSteps):
            answers(asks, says("PENDING"))
        called = answers(cancels, {})
        job.cancel()
        assert len(called) == 1

    def test_what_another_account_does_not_know_may_run(self, answers: Any) -> None:
        errors = pytest.importorskip("botocore.exceptions")
        job = emr.EmrServerlessRun("aws_default", "us-east-1", "a-1", "r-1")
        answers("emr-serverless.GetJobRun", errors.ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "Get"))
        with pytest.raises(CannotTell, match="r-1"):
            job.running()


class TestDataproc:
    @pytest.fixture(autouse=True)
    def connection(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", "google-cloud-platform://?project=elsewhere")

    @pytest.fixture
    def api(self) -> Any:
        return pytest.importorskip("google.cloud.dataproc_v1")

    @pytest.fixture
    def hook(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Google's side: whatever hook asks."""
        hooks = pytest.importorskip("airflow.providers.google.cloud.hooks.dataproc")
        google, service = hooks.DataprocHook, MagicMock()
        for method in ("submit_job", "get_job", "cancel_job", "create_batch", "get_batch", "get_operations_client"):
            monkeypatch.setattr(google, method, getattr(service, method))
        monkeypatch.setattr(google, "project_id", "here")
        return service

    def test_the_states_are_those_of_the_service(self, api: Any) -> None:
        assert {state.name for state in api.JobStatus.State} - dataproc._JOB_OVER == {
            *("STATE_UNSPECIFIED", "PENDING", "SETUP_DONE", "RUNNING", "CANCEL_PENDING", "CANCEL_STARTED"),
            "ATTEMPT_FAILURE",
        }
        assert {state.name for state in api.Batch.State} - dataproc._BATCH_OVER == {
            *("STATE_UNSPECIFIED", "PENDING", "RUNNING", "CANCELLING"),
        }

    @pytest.mark.parametrize("how", [{}, {"deferrable": True}, {"asynchronous": True}])
    def test_a_job(self, api: Any, hook: Any, how: dict[str, Any]) -> None:
        operator, recorded = told_by(dataproc.DataprocJob, job={}, region="europe-west3", **how)
        hook.submit_job.return_value = api.Job(reference={"job_id": "job-1"})
        hook.get_job.side_effect = Over()
        operator.hook = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("time.sleep", lambda _: None)
            if "asynchronous" in how:
                operator.execute(context())
            else:
                with pytest.raises(Over):
                    operator.execute(context())
        (job,) = recorded
        assert job == dataproc.DataprocJob("google_cloud_default", (), "here", "europe-west3", "job-1")
        hook.get_job.side_effect = None
        for state in api.JobStatus.State:
            hook.get_job.return_value = api.Job(status={"state": state})
            assert job.running() is (state.name not in ("DONE", "ERROR", "CANCELLED"))
        job.cancel()
        (asked,) = hook.cancel_job.call_args_list
        assert asked.kwargs.items() >= {"job_id": "job-1", "project_id": "here", "region": "europe-west3"}.items()

    @pytest.mark.parametrize("how", [{}, {"deferrable": True}, {"asynchronous": True}])
    def test_a_batch(self, api: Any, hook: Any, how: dict[str, Any]) -> None:
        operator, recorded = told_by(dataproc.DataprocBatch, batch={}, region="europe-west3", project_id="p", **how)
        made = api.BatchOperationMetadata(batch="projects/p/locations/europe-west3/batches/b-1", batch_uuid="u-1")
        hook.create_batch.return_value = SimpleNamespace(metadata=made)
        hook.get_batch.side_effect = Over()
        with pytest.raises((Over, TaskDeferred)) as ended:
            operator.execute(context())
        assert type(ended.value).__name__ == ("TaskDeferred" if "deferrable" in how else "Over")
        (job,) = recorded
        assert job == dataproc.DataprocBatch("google_cloud_default", (), "p", "europe-west3", "b-1", "u-1")
        hook.get_batch.side_effect = None
        for state in api.Batch.State:
            hook.get_batch.return_value = api.Batch(state=state, uuid="u-1", operation="o-1")
            if state.name == "STATE_UNSPECIFIED":
                with pytest.raises(CannotTell):
                    job.running()
            else:
                assert job.running() is (state.name in ("PENDING", "RUNNING", "CANCELLING"))
        job.cancel()
        hook.get_operations_client.return_value.cancel_operation.assert_called_once_with(
            name="o-1", retry=None, timeout=ANSWER_S
        )
        hook.get_batch.return_value = api.Batch(state="RUNNING", uuid="u-2")
        assert not job.running(), "a later one of its name"

    def test_a_batch_that_was_there_before(self, api: Any, hook: Any) -> None:
        errors = pytest.importorskip("google.api_core.exceptions")
        operator, recorded = told_by(dataproc.DataprocBatch, batch={}, region="europe-west3", batch_id="b-1")
        hook.create_batch.side_effect = errors.AlreadyExists("b-1")
        hook.get_batch.side_effect = Over()
        with pytest.raises(Over):
            operator.execute(context())
        assert recorded == []
        assert dataproc.DataprocBatch.of(operator) == dataproc.DataprocBatch(
            "google_cloud_default", (), "here", "europe-west3", "b-1"
        )

    def test_what_is_not_found_has_ended_if_it_is_that_what_is_not_found(self, hook: Any) -> None:
        errors = pytest.importorskip("google.api_core.exceptions")
        job = dataproc.DataprocJob("google_cloud_default", (), "here", "europe-west3", "job-1")
        hook.get_job.side_effect = errors.NotFound("Not found: Job projects/here/regions/europe-west3/jobs/job-1")
        assert not job.running()
        for error in (errors.NotFound("Not found: Project here"), errors.PermissionDenied("job-1")):
            hook.get_job.side_effect = error
            with pytest.raises(CannotTell, match="job-1"):
                job.running()


class TestKubernetes:
    LABELS: ClassVar = {"kubernetes_pod_operator": "True"}

    @pytest.fixture(autouse=True)
    def connection(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        config = tmp_path / "config"
        config.write_text(
            """{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}]}"""
        )
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", f"kubernetes://?kube_config_path={config}")

    @pytest.fixture
    def k8s(self) -> Any:
        return pytest.importorskip("kubernetes.client")

    @pytest.fixture
    def cluster(self, k8s: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The cluster's side: by name, what its API knows."""
        hooks = pytest.importorskip("airflow.providers.cncf.kubernetes.hooks.kubernetes")
        service = MagicMock()
        monkeypatch.setattr(k8s.CoreV1Api, "read_namespaced_pod", service.read_pod)
        monkeypatch.setattr(k8s.CoreV1Api, "list_namespaced_pod", service.list_pods)
        monkeypatch.setattr(k8s.CoreV1Api, "create_namespaced_pod", service.create_pod)
        monkeypatch.setattr(k8s.CoreV1Api, "delete_namespaced_pod", service.delete_pod)
        monkeypatch.setattr(k8s.BatchV1Api, "create_namespaced_job", service.create_job)
        monkeypatch.setattr(k8s.BatchV1Api, "read_namespaced_job", service.read_job)
        monkeypatch.setattr(k8s.BatchV1Api, "delete_namespaced_job", service.delete_job)
        monkeypatch.setattr(k8s.CustomObjectsApi, "create_namespaced_custom_object", service.create_custom)
        monkeypatch.setattr(k8s.CustomObjectsApi, "get_namespaced_custom_object", service.read_custom)
        monkeypatch.setattr(k8s.CustomObjectsApi, "delete_namespaced_custom_object", service.delete_custom)
        service.list_pods.return_value = k8s.V1PodList(items=[])
        assert hooks
        return service

    def pod(self, k8s: Any, phase: str, uid: str = "u-1", **status: Any) -> Any:
        return k8s.V1Pod(
            metadata=k8s.V1ObjectMeta(name="work", namespace="jobs", uid=uid, labels=dict(self.LABELS)),
            spec=k8s.V1PodSpec(
                restart_policy="Never",
                containers=[k8s.V1Container(name="base"), k8s.V1Container(name="airflow-xcom-sidecar")],
            ),
            status=k8s.V1PodStatus(phase=phase, **status),
        )

    @pytest.mark.parametrize("deferrable", [True, False])
    def test_a_pod(self, k8s: Any, cluster: Any, deferrable: bool) -> None:
        operator, recorded = told_by(
            kubernetes.KubernetesPod, name="work", namespace="jobs", image="i", deferrable=deferrable
        )
        operator.await_pod_start = MagicMock(side_effect=Over())
        cluster.read_pod.return_value = self.pod(k8s, "Pending")
        with pytest.raises((Over, TaskDeferred)) as ended:
            operator.execute(context())
        assert type(ended.value).__name__ == ("TaskDeferred" if deferrable else "Over")
        (job,) = recorded
        assert isinstance(job, kubernetes.KubernetesPod)
        assert job.name.startswith("work-")
        assert (job.conn_id, job.namespace, job.uid) == ("kubernetes_default", "jobs", "u-1")
        assert job.running()
        for phase, running in (("Running", True), ("Succeeded", False), ("Failed", False)):
            cluster.read_pod.return_value = self.pod(k8s, phase)
            assert job.running() is running
        cluster.read_pod.return_value = self.pod(k8s, "Unknown")
        with pytest.raises(CannotTell, match="does not know"):
            job.running()
        cluster.read_pod.return_value = self.pod(k8s, "Running", uid="u-2")
        assert not job.running(), "a later one of its name"
        assert self.LABELS.items() <= operator.pod_request_obj.metadata.labels.items()
        job.cancel()
        assert cluster.delete_pod.call_args.kwargs["body"].preconditions.uid == "u-1"

    def test_a_pod_whose_sidecar_waits_for_a_dead_task_has_ended(self, k8s: Any, cluster: Any) -> None:
        job = self.job(kubernetes.KubernetesPod)
        ended = k8s.V1ContainerState(terminated=k8s.V1ContainerStateTerminated(exit_code=0))
        statuses = [self.status(k8s, "base", ended), self.status(k8s, "airflow-xcom-sidecar", k8s.V1ContainerState())]
        cluster.read_pod.return_value = pod = self.pod(k8s, "Running", container_statuses=statuses)
        assert not job.running()
        pod.spec.containers.append(k8s.V1Container(name="writes-on"))
        assert job.running()

    def status(self, k8s: Any, name: str, state: Any) -> Any:
        return k8s.V1ContainerStatus(name=name, state=state, image="i", image_id="i", ready=True, restart_count=0)

    def job(self, kind: Any, **besides: Any) -> Any:
        values = {"conn_id": "kubernetes_default", "in_cluster": None, "cluster_context": None, "config_file": None}
        return kind(
            **{**values, "cluster": "http://127.0.0.1:1", "namespace": "jobs", "name": "work", "uid": "u-1"} | besides
        )

    def test_what_is_gone_is_over_by_the_word_of_its_own_cluster(self, k8s: Any, cluster: Any) -> None:
        gone = k8s.ApiException(status=404)
        gone.body = '{"message": "pods \\"work\\" not found"}'
        cluster.read_pod.side_effect = gone
        assert not self.job(kubernetes.KubernetesPod).running()
        with pytest.raises(CannotTell, match="another cluster"):
            self.job(kubernetes.KubernetesPod, cluster="http://10.0.0.1:443").running()
        for status, body in ((404, "404 page not found"), (403, "work"), (500, "work")):
            cluster.read_pod.side_effect = error = k8s.ApiException(status=status)
            error.body = body
            with pytest.raises(CannotTell):
                self.job(kubernetes.KubernetesPod).running()

    def test_a_pod_is_taken_up_where_the_operator_reattaches(self, k8s: Any, cluster: Any) -> None:
        job = self.job(kubernetes.KubernetesPod)
        again, _ = told_by(kubernetes.KubernetesPod, name="work", image="i")
        anew, _ = told_by(kubernetes.KubernetesPod, name="work", image="i", durable=False)
        cluster.read_pod.return_value = pod = self.pod(k8s, "Running")
        assert job.reconnects(again, {})
        assert not job.reconnects(anew, {})
        pod.metadata.labels[again.POD_CHECKED_KEY] = "True"
        assert not job.reconnects(again, {})

    def test_a_job(self, k8s: Any, cluster: Any) -> None:
        operator, recorded = told_by(kubernetes.KubernetesJob, name="work", namespace="jobs", image="i")
        running = k8s.V1Job(metadata=k8s.V1ObjectMeta(uid="u-1"), status=k8s.V1JobStatus(active=1))
        cluster.read_job.return_value = running
        operator.execute(context())
        (job,) = recorded
        assert isinstance(job, kubernetes.KubernetesJob)
        assert (job.namespace, job.uid) == ("jobs", "u-1")
        assert job.running()
        condition = k8s.V1JobCondition(type="Failed", status="True")
        cluster.read_job.return_value = k8s.V1Job(
            metadata=k8s.V1ObjectMeta(uid="u-1"), status=k8s.V1JobStatus(conditions=[condition])
        )
        assert not job.running()
        pod = self.pod(k8s, "Running")
        pod.metadata.owner_references = [k8s.V1OwnerReference(api_version="v1", kind="Job", name="work", uid="u-1")]
        cluster.list_pods.return_value = k8s.V1PodList(items=[pod])
        assert job.running(), "one of its pods"
        template = operator.job_request_obj.spec.template
        assert self.LABELS.items() <= template.metadata.labels.items()
        cluster.read_job.return_value.spec = k8s.V1JobSpec(template=template)
        job.cancel()
        assert cluster.delete_job.call_args.kwargs["body"].propagation_policy == "Foreground"

    def test_a_spark_application_is_told_before_its_driver_runs(self, k8s: Any, cluster: Any) -> None:
        template = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "spec": self.spark_spec()}
        operator, recorded = told_by(
            kubernetes.SparkApplication, name="work", namespace="jobs", template_spec=template, image="i", code_path="f"
        )
        made = {"metadata": {"name": "work-1", "uid": "u-1"}, "spec": {"driver": {}}}
        cluster.create_custom.return_value = made
        kubernetes.SparkApplication.watch(operator, recorded.append)
        operator.custom_obj_api.get_namespaced_custom_object_status = MagicMock(side_effect=Over())
        with pytest.raises(Over):
            operator.execute(context())
        (job,) = recorded
        assert isinstance(job, kubernetes.SparkApplication)
        assert (job.namespace, job.name, job.uid) == ("jobs", "work-1", "u-1")
        assert (job.group, job.version, job.plural) == ("sparkoperator.k8s.io", "v1beta2", "sparkapplications")
        gone = k8s.ApiException(status=404)
        gone.body = "work-1"
        cluster.read_pod.side_effect = gone
        for state, running in (("SUBMITTED", True), ("PENDING_RERUN", True), ("COMPLETED", False), ("FAILED", False)):
            cluster.read_custom.return_value = {**made, "status": {"applicationState": {"state": state}}}
            assert job.running() is running
        cluster.read_pod.side_effect = None
        cluster.read_pod.return_value = self.pod(k8s, "Running")
        assert job.running(), "its driver ends"

    def spark_spec(self) -> dict[str, Any]:
        part = {"cores": 1, "memory": "1g"}
        return {"dynamicAllocation": {"enabled": False}, "driver": dict(part), "executor": {**part, "instances": 1}}

    def test_another_providers_pods_are_not_asked_for_through_this_one(self, cluster: Any) -> None:
        operator, _ = told_by(kubernetes.KubernetesPod, name="work", image="i")
        operator.pod_request_obj = object()
        operator.hook = MagicMock()  # as GKEStartPodOperator's
        assert kubernetes.KubernetesPod.of(operator) is None


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
