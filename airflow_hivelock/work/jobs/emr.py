"""Work on Amazon EMR: steps on a cluster, a cluster with its steps, job runs on EMR Serverless and on EKS.

The states are those of AWS's APIs. The provider counts CANCELLING and CANCEL_PENDING as ends. Here they are not,
because the work still runs. Missing work does not count as ended either, because the connection can now lead to
another account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.validate import one_line
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs.job import Job, checked, lines
from airflow_hivelock.work.jobs.trust import REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""An id of a cluster, a step, an application or a run. It becomes a part of a path."""

_OPERATORS = "airflow.providers.amazon.aws.operators.emr"
_STEP_OVER = {"COMPLETED", "CANCELLED", "FAILED", "INTERRUPTED"}
_CLUSTER_GONE = {"TERMINATED", "TERMINATED_WITH_ERRORS"}


@dataclass(frozen=True)
class AwsJob(Job):
    """The base class of work on AWS.

    :param conn_id: the connection. If it is empty, boto3 searches for credentials itself.
    :param region: the region of the submission, even if the connection has changed.
    """

    package: ClassVar = "apache-airflow-providers-amazon"
    conn_types: ClassVar = ("aws",)
    own: ClassVar = {"connection": "aws_conn_id"}
    checks: ClassVar = {"conn_id": one_line, "region": REGION}
    hook: ClassVar[str]

    conn_id: str
    region: str

    def client(self) -> Any:
        """Return the client of boto3."""
        made = getattr(import_module("airflow.providers.amazon.aws.hooks.emr"), self.hook)
        return client_of(made(aws_conn_id=self.conn_id or None, region_name=self.region))


def client_of(hook: Any) -> Any:
    """Return the client of Airflow's *hook* for AWS, with short time-outs.

    The hook itself does not get these limits, because they would replace the connection's own, with its proxies.
    """
    config = import_module("botocore.config").Config
    limits = config(connect_timeout=ANSWER_S / 2, read_timeout=ANSWER_S, retries={"total_max_attempts": 2})
    return hook.get_client_type(region_name=hook.region_name, config=hook.config.merge(limits))


def _steps(value: Any, name: str) -> tuple[str, ...]:
    if not value:
        raise ValueError(f"{name} is empty")
    return tuple(checked(_ID, each, name) for each in lines(value, name))


@dataclass(frozen=True)
class EmrSteps(AwsJob):
    """The steps that EmrAddStepsOperator has added to a cluster.

    The operator sets no attribute. With ``wait_for_completion`` it returns the steps' ids only after their end. So this
    class reads the answer of AWS when it arrives.

    If a running step is cancelled, its application on YARN can continue: AWS does not end such "asynchronous
    processes". The application's end is certain only with ``--deploy-mode client``, or if the cluster is gone. So a
    later try cancels only such steps and steps that have not begun. It does not start while another step runs.
    """

    kind: ClassVar = "emr-steps"
    operators: ClassVar = {f"{_OPERATORS}.EmrAddStepsOperator": ""}
    checks: ClassVar = {**AwsJob.checks, "cluster_id": _ID, "step_ids": _steps}
    hook: ClassVar = "EmrHook"

    cluster_id: str
    step_ids: tuple[str, ...]

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        """None: :meth:`watch` records the steps."""
        return None

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        hook = operator.hook
        region, events = hook.conn_region_name, hook.conn.meta.events

        def asked(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
            context["hivelock_cluster"] = params["JobFlowId"]

        def answered(parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
            if step_ids := parsed.get("StepIds"):
                record(cls(operator.aws_conn_id or "", region, context["hivelock_cluster"], tuple(step_ids)))

        events.register("provide-client-params.emr.AddJobFlowSteps", asked)
        events.register("after-call.emr.AddJobFlowSteps", answered)

    def running(self) -> bool:
        client = self.client()
        steps = self._steps(client)
        if any(_state(step) not in _STEP_OVER for step in steps):
            return True
        if doubtful := [step["Id"] for step in steps if _was_cut_short(step) and not _is_in_client_mode(step)]:
            cluster = client.describe_cluster(ClusterId=self.cluster_id)["Cluster"]
            if _state(cluster) not in _CLUSTER_GONE:
                raise CannotTell(
                    f"step {', '.join(doubtful)} of EMR cluster {self.cluster_id} was cancelled while it ran, and YARN "
                    "may still run its application"
                )
        return False

    def cancel(self) -> None:
        client = self.client()
        for step in self._steps(client):
            if _state(step) not in ("PENDING", *_STEP_OVER) and not _is_in_client_mode(step):
                raise CannotTell(
                    f"step {step['Id']} of EMR cluster {self.cluster_id} runs. It was not cancelled, because YARN might "
                    "continue its application. Wait for its end"
                )
        client.cancel_steps(ClusterId=self.cluster_id, StepIds=list(self.step_ids))

    def __str__(self) -> str:
        return f"EMR step {', '.join(self.step_ids)} of cluster {self.cluster_id}"

    def _steps(self, client: Any) -> list[dict[str, Any]]:
        return [client.describe_step(ClusterId=self.cluster_id, StepId=one)["Step"] for one in self.step_ids]


def _state(thing: dict[str, Any]) -> str:
    return str(thing["Status"]["State"])


def _was_cut_short(step: dict[str, Any]) -> bool:
    """Whether a user ended *step* while it ran."""
    return _state(step) in ("CANCELLED", "INTERRUPTED") and "StartDateTime" in step["Status"].get("Timeline", {})


def _is_in_client_mode(step: dict[str, Any]) -> bool:
    """Whether *step* runs Spark's driver in its own process. Then the application ends with the step."""
    arguments = " ".join(step.get("Config", {}).get("Args", []))
    return any(
        f"{option}client" in arguments for option in ("--deploy-mode ", "--deploy-mode=", "spark.submit.deployMode=")
    )


@dataclass(frozen=True)
class AwsRun(AwsJob):
    """A run with one request for its state and one to end it. Each subclass is a row of a table.

    :cvar ids: for each id, the argument of both requests, the field, and the operator's attribute.
    :cvar asks: the request for the state, and the keys of the state in its answer.
    :cvar over: the states of a run that has ended.
    :cvar ends_by: the request that ends the run.
    """

    ids: ClassVar[Collection[tuple[str, str, str]]]
    asks: ClassVar[tuple[str, ...]]
    over: ClassVar[Collection[str]]
    ends_by: ClassVar[str]

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        (submitted,) = cls.operators.values()
        if not getattr(operator, submitted, None):  # EmrCreateJobFlowOperator lacks the attribute before
            return None
        ids = (getattr(operator, attribute) for _, _, attribute in cls.ids)
        return cls(operator.aws_conn_id or "", operator.hook.conn_region_name, *ids)

    def running(self) -> bool:
        request, *where = self.asks
        state: Any = reduce(lambda answer, name: answer[name], where, self._request(request))
        return state not in self.over

    def cancel(self) -> None:
        self._request(self.ends_by)

    def _request(self, name: str) -> Any:
        ids = {argument: getattr(self, field) for argument, field, _ in self.ids}
        return getattr(self.client(), name)(**ids)


@dataclass(frozen=True)
class EmrJobFlow(AwsRun):
    """The cluster that EmrCreateJobFlowOperator has created. Its work is over when it waits for steps or terminates."""

    kind: ClassVar = "emr-job-flow"
    operators: ClassVar = {f"{_OPERATORS}.EmrCreateJobFlowOperator": "_job_flow_id"}
    checks: ClassVar = {**AwsJob.checks, "cluster_id": _ID}
    shown: ClassVar = "EMR cluster {cluster_id}"
    hook: ClassVar = "EmrHook"
    ids: ClassVar = (("ClusterId", "cluster_id", "_job_flow_id"),)
    asks: ClassVar = ("describe_cluster", "Cluster", "Status", "State")
    over: ClassVar = {"WAITING", *_CLUSTER_GONE}

    cluster_id: str

    def cancel(self) -> None:
        self.client().terminate_job_flows(JobFlowIds=[self.cluster_id])


@dataclass(frozen=True)
class EmrServerlessRun(AwsRun):
    """The job run that EmrServerlessStartJobOperator has started."""

    kind: ClassVar = "emr-serverless"
    operators: ClassVar = {f"{_OPERATORS}.EmrServerlessStartJobOperator": "job_id"}
    checks: ClassVar = {**AwsJob.checks, "application_id": _ID, "run_id": _ID}
    shown: ClassVar = "EMR Serverless run {run_id} of application {application_id}"
    hook: ClassVar = "EmrServerlessHook"
    ids: ClassVar = (("applicationId", "application_id", "application_id"), ("jobRunId", "run_id", "job_id"))
    asks: ClassVar = ("get_job_run", "jobRun", "state")
    over: ClassVar = {"SUCCESS", "FAILED", "CANCELLED"}
    ends_by: ClassVar = "cancel_job_run"

    application_id: str
    run_id: str


@dataclass(frozen=True)
class EmrOnEksRun(AwsRun):
    """The job run that EmrContainerOperator has started on a virtual cluster."""

    kind: ClassVar = "emr-on-eks"
    operators: ClassVar = {f"{_OPERATORS}.EmrContainerOperator": "job_id"}
    checks: ClassVar = {**AwsJob.checks, "virtual_cluster_id": _ID, "run_id": _ID}
    shown: ClassVar = "EMR on EKS run {run_id} of virtual cluster {virtual_cluster_id}"
    hook: ClassVar = "EmrContainerHook"
    ids: ClassVar = (("virtualClusterId", "virtual_cluster_id", "virtual_cluster_id"), ("id", "run_id", "job_id"))
    asks: ClassVar = ("describe_job_run", "jobRun", "state")
    over: ClassVar = {"COMPLETED", "FAILED", "CANCELLED"}
    ends_by: ClassVar = "cancel_job_run"

    virtual_cluster_id: str
    run_id: str
