"""Kubernetes' pods and jobs: the real operators, against a stub of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import MagicMock

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs import kubernetes
from tests.system.jobs.told import Over, context, told_by

if TYPE_CHECKING:
    from pathlib import Path


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
        gone.body = '{"message": "pods \\"work\\" not found", "details": {"name": "work", "kind": "pods"}}'
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
        gone.body = '{"details": {"name": "work-1-driver", "kind": "pods"}}'
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
