"""What each kind of work elsewhere says of the answers that it gets; its provider is made up here (the real ones:
tests/system/jobs)."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs.dataproc import DataprocBatch, DataprocJob
from airflow_hivelock.work.jobs.emr import EmrJobFlow, EmrOnEksRun, EmrServerlessRun, EmrSteps
from airflow_hivelock.work.jobs.kubernetes import KubernetesJob, KubernetesPod, SparkApplication

if TYPE_CHECKING:
    from collections.abc import Callable

EMR = "airflow.providers.amazon.aws.hooks.emr"
DATAPROC = "airflow.providers.google.cloud.hooks.dataproc"
KUBERNETES = "airflow.providers.cncf.kubernetes.hooks.kubernetes"

STEPS = EmrSteps("aws_default", "eu-central-1", "j-1", ("s-1",))
JOB = DataprocJob("google_cloud_default", (), "p", "europe-west3", "job-1")
BATCH = DataprocBatch("google_cloud_default", (), "p", "europe-west3", "batch-1", "u-1")
POD = KubernetesPod("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1")
K8S_JOB = KubernetesJob("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1")
API = ("sparkoperator.k8s.io", "v1beta2", "sparkapplications")
APPLICATION = SparkApplication("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1", *API)
OTHERS = (
    EmrJobFlow("aws_default", "eu-central-1", "j-1"),
    EmrServerlessRun("aws_default", "eu-central-1", "a-1", "r-1"),
    EmrOnEksRun("aws_default", "eu-central-1", "v-1", "r-1"),
)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """``hook(module, name)``: what asking through that class of hooks ends at."""

    def make(module: str, name: str) -> Any:
        made, found = MagicMock(), ModuleType(module)
        if module == EMR:
            monkeypatch.setitem(sys.modules, "botocore.config", MagicMock())
            made.conn = made.get_client_type.return_value
        setattr(found, name, MagicMock(return_value=made))
        monkeypatch.setitem(sys.modules, module, found)
        return made

    return make


@pytest.mark.parametrize("job", [STEPS, JOB, BATCH, POD, K8S_JOB, APPLICATION, *OTHERS])
def test_without_its_provider_nobody_can_tell(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (EMR, DATAPROC, KUBERNETES):
        monkeypatch.setitem(sys.modules, module, None)
    for ask in (job.running, job.cancel):
        with pytest.raises(CannotTell, match="install apache-airflow-providers-"):
            ask()


class TestEmr:
    @pytest.fixture
    def client(self, hook: Any) -> Any:
        return hook(EMR, "EmrHook").conn

    def step(self, state: str, *args: str, started: bool = True) -> dict[str, Any]:
        timeline = {"StartDateTime": "2013-01-01"} if started else {}
        return {"Step": {"Id": "s-1", "Config": {"Args": args}, "Status": {"State": state, "Timeline": timeline}}}

    @pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CANCEL_PENDING", "ONE_THAT_COMES_LATER"])
    def test_a_step_runs_until_it_has_ended(self, client: Any, state: str) -> None:
        client.describe_step.return_value = self.step(state)
        assert STEPS.running()

    @pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
    def test_a_step_that_has_ended(self, client: Any, state: str) -> None:
        client.describe_step.return_value = self.step(state)
        assert not STEPS.running()

    def test_all_steps_have_to_end(self, client: Any) -> None:
        client.describe_step.side_effect = [self.step("COMPLETED"), self.step("PENDING")]
        assert replace(STEPS, step_ids=("s-1", "s-2")).running()

    @pytest.mark.parametrize("state", ["CANCELLED", "INTERRUPTED"])
    def test_a_cancelled_step_may_have_left_an_application_to_yarn(self, client: Any, state: str) -> None:
        client.describe_step.return_value = self.step(state, "spark-submit", "--deploy-mode", "cluster")
        client.describe_cluster.return_value = {"Cluster": {"Status": {"State": "WAITING"}}}
        with pytest.raises(CannotTell, match="YARN"):
            STEPS.running()
        client.describe_cluster.return_value = {"Cluster": {"Status": {"State": "TERMINATED"}}}
        assert not STEPS.running()

    @pytest.mark.parametrize("how", [("--deploy-mode", "client"), ("--conf", "spark.submit.deployMode=client")])
    def test_a_cancelled_driver_on_the_primary_node_has_ended(self, client: Any, how: tuple[str, str]) -> None:
        client.describe_step.return_value = self.step("CANCELLED", "spark-submit", *how)
        assert not STEPS.running()

    def test_a_step_that_was_cancelled_before_it_ran_has_ended(self, client: Any) -> None:
        client.describe_step.return_value = self.step("CANCELLED", started=False)
        assert not STEPS.running()

    def test_a_step_is_cancelled_only_where_its_application_ends_with_it(self, client: Any) -> None:
        client.describe_step.return_value = self.step("RUNNING", "spark-submit", "--deploy-mode", "cluster")
        with pytest.raises(CannotTell, match="Wait for its end"):
            STEPS.cancel()
        client.cancel_steps.assert_not_called()
        for step in (self.step("PENDING", started=False), self.step("RUNNING", "spark-submit", "--deploy-mode=client")):
            client.describe_step.return_value = step
            STEPS.cancel()
        assert client.cancel_steps.call_count == 2

    def test_what_aws_does_not_answer_nobody_can_tell(self, client: Any) -> None:
        client.describe_step.side_effect = RuntimeError("Cluster id 'j-1' is not valid.")
        with pytest.raises(CannotTell, match="not valid"):
            STEPS.running()

    def test_a_cluster_that_waits_for_steps_runs_none(self, client: Any) -> None:
        for state, running in (("RUNNING", True), ("TERMINATING", True), ("WAITING", False), ("TERMINATED", False)):
            client.describe_cluster.return_value = {"Cluster": {"Status": {"State": state}}}
            assert OTHERS[0].running() is running

    def test_what_is_being_cancelled_runs(self, hook: Any) -> None:
        hook(EMR, "EmrServerlessHook").conn.get_job_run.return_value = {"jobRun": {"state": "CANCELLING"}}
        assert OTHERS[1].running()
        hook(EMR, "EmrContainerHook").conn.describe_job_run.return_value = {"jobRun": {"state": "CANCEL_PENDING"}}
        assert OTHERS[2].running()


class NotFound(Exception):
    code = 404


class TestDataproc:
    @pytest.fixture
    def google(self, hook: Any) -> Any:
        return hook(DATAPROC, "DataprocHook")

    def answer(self, state: str, **besides: Any) -> Any:
        return SimpleNamespace(state=SimpleNamespace(name=state), **besides)

    @pytest.mark.parametrize(
        ("state", "running"),
        [("PENDING", True), ("CANCEL_STARTED", True), ("ATTEMPT_FAILURE", True), ("DONE", False), ("CANCELLED", False)],
    )
    def test_a_job(self, google: Any, state: str, running: bool) -> None:
        google.get_job.return_value = SimpleNamespace(status=self.answer(state))
        assert JOB.running() is running
        google.get_job.assert_called_with(
            job_id="job-1", project_id="p", region="europe-west3", retry=None, timeout=ANSWER_S
        )

    def test_a_job_that_was_deleted_has_ended(self, google: Any) -> None:
        google.get_job.side_effect = NotFound("Not found: Job projects/p/regions/europe-west3/jobs/job-1")
        assert not JOB.running()

    @pytest.mark.parametrize("error", [NotFound("Not found: Project p"), RuntimeError("job-1: no route")])
    def test_another_answer_tells_nothing(self, google: Any, error: Exception) -> None:
        google.get_job.side_effect = error
        with pytest.raises(CannotTell):
            JOB.running()

    def test_a_batch(self, google: Any) -> None:
        for state, running in (("RUNNING", True), ("CANCELLING", True), ("SUCCEEDED", False), ("FAILED", False)):
            google.get_batch.return_value = self.answer(state, uuid="u-1")
            assert BATCH.running() is running
        google.get_batch.return_value = self.answer("RUNNING", uuid="u-2")
        assert not BATCH.running(), "a later one of its name"
        assert replace(BATCH, uuid="").running()

    def test_a_later_batch_of_its_name_is_left_alone(self, google: Any) -> None:
        google.get_batch.return_value = self.answer("RUNNING", uuid="u-2", operation="o")
        BATCH.cancel()
        google.get_operations_client.assert_not_called()


class Gone(Exception):
    """The answer of an API server that it does not know an object of that name."""

    status = 404

    def __init__(self, name: str = "work") -> None:
        self.body = json.dumps({"kind": "Status", "reason": "NotFound", "details": {"name": name}})


class TestKubernetes:
    @pytest.fixture
    def cluster(self, hook: Any) -> Any:
        made = hook(KUBERNETES, "KubernetesHook")
        made.api_client.configuration = SimpleNamespace(ssl_ca_cert=None, host="https://k8s:443")
        made.core_v1_client.list_namespaced_pod.return_value.items = []
        return made

    def pod(self, phase: str, uid: str = "u-1", ended: tuple[str, ...] = (), owner: str = "", **labels: str) -> Any:
        statuses = [SimpleNamespace(name=name, state=SimpleNamespace(terminated=object())) for name in ended]
        owners = [SimpleNamespace(uid=owner)] if owner else None
        return SimpleNamespace(
            metadata=SimpleNamespace(name="work", uid=uid, labels=labels, owner_references=owners),
            status=SimpleNamespace(phase=phase, container_statuses=statuses),
            spec=SimpleNamespace(
                restart_policy="Never", containers=[SimpleNamespace(name=n) for n in ("base", "airflow-xcom-sidecar")]
            ),
        )

    @pytest.mark.parametrize(
        ("phase", "running"), [("Pending", True), ("Running", True), ("Succeeded", False), ("Failed", False)]
    )
    def test_a_pod(self, cluster: Any, phase: str, running: bool) -> None:
        cluster.get_pod.return_value = self.pod(phase)
        assert POD.running() is running

    def test_a_pod_whose_node_does_not_answer(self, cluster: Any) -> None:
        cluster.get_pod.return_value = self.pod("Unknown")
        with pytest.raises(CannotTell, match="does not know"):
            POD.running()

    def test_a_later_pod_of_its_name_is_not_it(self, cluster: Any) -> None:
        cluster.get_pod.return_value = self.pod("Running", uid="u-2")
        assert not POD.running()
        assert replace(POD, uid="").running(), "nobody knows whether it is"

    def test_a_pod_that_only_waits_for_its_task_has_ended(self, cluster: Any) -> None:
        cluster.get_pod.return_value = pod = self.pod("Running", ended=("base",))
        assert not POD.running()
        pod.spec.restart_policy = "OnFailure"
        assert POD.running()

    def test_a_pod_that_is_gone(self, cluster: Any) -> None:
        cluster.get_pod.side_effect = Gone()
        assert not POD.running()

    def test_a_pod_that_another_cluster_does_not_know(self, cluster: Any, tmp_path: Any) -> None:
        cluster.get_pod.side_effect = Gone()
        (tmp_path / "ca.crt").write_text("another authority")
        cluster.api_client.configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
        with pytest.raises(CannotTell, match="another cluster"):
            POD.running()
        cluster.get_pod.side_effect, cluster.get_pod.return_value = None, self.pod("Running", uid="u-2")
        with pytest.raises(CannotTell, match="another cluster"):
            POD.running()
        cluster.get_custom_object.return_value = {"metadata": {"uid": "u-2"}}
        with pytest.raises(CannotTell, match="another cluster"):
            APPLICATION.running()

    @pytest.mark.parametrize(
        ("status", "body"),
        [(404, "404 page not found"), (404, "no route to /pods/work"), (404, None), (403, Gone().body), (None, "work")],
    )
    def test_another_answer_tells_nothing(self, cluster: Any, status: int | None, body: str | None) -> None:
        """Not after a cancellation either."""
        cluster.get_pod.side_effect = error = RuntimeError()
        error.status, error.body = status, body  # type: ignore[attr-defined]
        for ask in (POD.running, partial(POD.ends, 0, cancelled=True)):
            with pytest.raises(CannotTell):
                ask()

    def test_a_jobs_pods_are_not_taken_for_ended_if_a_proxy_answers(self, cluster: Any) -> None:
        cluster.get_job.side_effect = Gone()
        cluster.core_v1_client.list_namespaced_pod.side_effect = Gone("jobs")
        with pytest.raises(CannotTell):
            K8S_JOB.ends(0, cancelled=True)

    def test_it_is_taken_up_by_an_operator_that_reattaches(self, cluster: Any) -> None:
        operator = SimpleNamespace(reattach_on_restart=True, POD_CHECKED_KEY="already_checked")
        cluster.get_pod.return_value = self.pod("Running")
        for job in (POD, APPLICATION):
            assert job.reconnects(operator, {})
            assert not job.reconnects(SimpleNamespace(reattach_on_restart=False), {})
        cluster.get_pod.return_value = self.pod("Running", already_checked="True")
        for job in (POD, APPLICATION):
            assert not job.reconnects(operator, {}), "the operator would make a second one"

    def test_a_jobs_pods_may_outlive_it(self, cluster: Any) -> None:
        cluster.get_job.side_effect = Gone()
        assert not K8S_JOB.running()
        cluster.core_v1_client.list_namespaced_pod.return_value.items = [self.pod("Running", owner="u-1")]
        assert K8S_JOB.running()
        cluster.core_v1_client.list_namespaced_pod.return_value.items = [self.pod("Running", owner="u-2")]
        assert not K8S_JOB.running(), "of a later one of its name"

    def test_a_job(self, cluster: Any) -> None:
        for said, running in (
            (("Suspended", "True"), True),
            (("Failed", "False"), True),
            (("Complete", "True"), False),
        ):
            condition = SimpleNamespace(type=said[0], status=said[1])
            cluster.get_job.return_value.metadata.uid = "u-1"
            cluster.get_job.return_value.status.conditions = [condition]
            assert K8S_JOB.running() is running

    @pytest.mark.parametrize(
        ("state", "running"), [("", True), ("RUNNING", True), ("PENDING_RERUN", True), ("COMPLETED", False)]
    )
    def test_an_application(self, cluster: Any, state: str, running: bool) -> None:
        cluster.get_pod.side_effect = Gone("work-driver")
        made = {"metadata": {"uid": "u-1"}, "status": {"applicationState": {"state": state}}}
        cluster.get_custom_object.return_value = made
        assert APPLICATION.running() is running
        made["metadata"] = {"uid": "u-2"}
        assert not APPLICATION.running(), "a later one of its name"

    def test_an_applications_driver_may_outlive_it(self, cluster: Any) -> None:
        cluster.get_custom_object.side_effect = Gone()
        cluster.get_pod.return_value = self.pod("Running", owner="u-1")
        assert APPLICATION.running()
        cluster.get_pod.return_value = self.pod("Running", owner="u-2")
        assert not APPLICATION.running()


@pytest.mark.parametrize(
    ("job", "wrong"),
    [
        (STEPS, {"step_ids": []}),
        (STEPS, {"step_ids": "s-1"}),
        (STEPS, {"step_ids": ["s\n1"]}),
        (STEPS, {"cluster_id": 1}),
        (STEPS, {"region": None}),
        (JOB, {"project": ""}),
        (JOB, {"impersonation": "someone"}),
        (BATCH, {"uuid": None}),
        (POD, {"name": ""}),
        (POD, {"in_cluster": 1}),
        (POD, {"config_file": "a\nb"}),
        (APPLICATION, {"group": None}),
    ],
)
def test_what_cannot_be_meant_is_refused(job: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        replace(job, **wrong)
