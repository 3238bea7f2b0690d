"""EMR's jobs: the real operators, against a stub of the service."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs import emr
from tests.system.jobs.told import Over, context, operator_of, told_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.work.jobs.job import Job


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
                emr.EmrJobFlow.over,
                {"STARTING", "BOOTSTRAPPING", "RUNNING", "TERMINATING"},
            ),
            (
                "emr-serverless",
                "JobRunState",
                emr.EmrServerlessRun.over,
                {"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED"},
            ),
            (
                "emr-containers",
                "JobRunState",
                emr.EmrOnEksRun.over,
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
