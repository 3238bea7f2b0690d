"""Work on Amazon EMR: steps on a cluster, a cluster with steps of its own, job runs on EMR Serverless and on EKS.

States are those of the APIs of AWS. The provider counts CANCELLING and CANCEL_PENDING as ends; here they are none, for the
work goes on meanwhile. That something is not found never counts as its end: the connection may have become that of
another account.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.jobs.trust import REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_OPERATORS = "airflow.providers.amazon.aws.operators.emr"
_STEP_OVER = {"COMPLETED", "CANCELLED", "FAILED", "INTERRUPTED"}
_CLUSTER_GONE = {"TERMINATED", "TERMINATED_WITH_ERRORS"}
_CLUSTER_IDLE = {"WAITING", *_CLUSTER_GONE}
_SERVERLESS_OVER = {"SUCCESS", "FAILED", "CANCELLED"}
_ON_EKS_OVER = {"COMPLETED", "FAILED", "CANCELLED"}


@dataclass(frozen=True)
class AwsJob(Job):
    """What is asked for in a region, through a connection.

    :param conn_id: the connection; empty for boto3's own way to credentials.
    :param region: the one that it was submitted in, whatever the connection says by now.
    """

    package: ClassVar = "apache-airflow-providers-amazon"
    conn_types: ClassVar = ("aws",)
    hook: ClassVar[str]

    conn_id: str
    region: str

    def __post_init__(self) -> None:
        validate.one_line(self.conn_id, "conn_id")
        if not REGION.fullmatch(validate.text(self.region, "region")):
            raise ValueError(f"region={self.region!r:.80}")

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        return [("connection", getattr(operator, "aws_conn_id", None) or "")]

    def client(self) -> Any:
        """The client of boto3."""
        made = getattr(import_module("airflow.providers.amazon.aws.hooks.emr"), self.hook)
        return client_of(made(aws_conn_id=self.conn_id or None, region_name=self.region))


def client_of(hook: Any) -> Any:
    """The client of Airflow's *hook* for AWS, which waits for no answer for long.

    The hook is not given these limits: they would replace those of the connection, with its proxies.
    """
    config = import_module("botocore.config").Config
    limits = config(connect_timeout=ANSWER_S / 2, read_timeout=ANSWER_S, retries={"total_max_attempts": 2})
    return hook.get_client_type(region_name=hook.region_name, config=hook.config.merge(limits))


@dataclass(frozen=True)
class EmrSteps(AwsJob):
    """The steps that EmrAddStepsOperator has added to a cluster.

    The operator sets nothing on itself, and with ``wait_for_completion`` tells their ids only when they are over; so the
    answer of AWS is read as it comes in.

    A step that was cancelled while it ran may have left an application to YARN ("asynchronous processes are not affected",
    says AWS of cancelling): unless it says ``--deploy-mode client``, or its cluster is gone, nobody can tell. So a later try
    cancels only what says so, or has not begun; it does not start beside another one.
    """

    kind: ClassVar = "emr-steps"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.EmrAddStepsOperator": ""}
    hook: ClassVar = "EmrHook"

    cluster_id: str
    step_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_line(self.cluster_id, "cluster_id")
        if not isinstance(self.step_ids, list | tuple) or not self.step_ids:
            raise TypeError(f"step_ids={self.step_ids!r:.80}")
        object.__setattr__(self, "step_ids", tuple(validate.one_line(one, "step_ids") for one in self.step_ids))

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        """None: :meth:`watch` tells."""
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
            if cluster["Status"]["State"] not in _CLUSTER_GONE:
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
                    f"step {step['Id']} of EMR cluster {self.cluster_id} runs, and was not cancelled, for YARN might go "
                    "on with its application; wait for its end"
                )
        client.cancel_steps(ClusterId=self.cluster_id, StepIds=list(self.step_ids))

    def __str__(self) -> str:
        return f"EMR step {', '.join(self.step_ids)} of cluster {self.cluster_id}"

    def _steps(self, client: Any) -> list[dict[str, Any]]:
        return [client.describe_step(ClusterId=self.cluster_id, StepId=one)["Step"] for one in self.step_ids]


def _state(step: dict[str, Any]) -> str:
    return str(step["Status"]["State"])


def _was_cut_short(step: dict[str, Any]) -> bool:
    """Whether *step* was ended by somebody while it ran."""
    return _state(step) in ("CANCELLED", "INTERRUPTED") and "StartDateTime" in step["Status"].get("Timeline", {})


def _is_in_client_mode(step: dict[str, Any]) -> bool:
    """Whether *step* says that Spark's driver is its own process: the application ends with that."""
    said = " ".join(step.get("Config", {}).get("Args", []))
    return any(f"{option}client" in said for option in ("--deploy-mode ", "--deploy-mode=", "spark.submit.deployMode="))


@dataclass(frozen=True)
class EmrJobFlow(AwsJob):
    """The cluster that EmrCreateJobFlowOperator has created, until it waits for more steps, or is terminated."""

    kind: ClassVar = "emr-job-flow"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.EmrCreateJobFlowOperator": "_job_flow_id"}
    hook: ClassVar = "EmrHook"

    cluster_id: str

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_line(self.cluster_id, "cluster_id")

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        cluster_id = getattr(operator, "_job_flow_id", None)  # it is not there before
        return cls(operator.aws_conn_id or "", operator.hook.conn_region_name, cluster_id) if cluster_id else None

    def running(self) -> bool:
        client = self.client()
        cluster = client.describe_cluster(ClusterId=self.cluster_id)["Cluster"]
        return cluster["Status"]["State"] not in _CLUSTER_IDLE

    def cancel(self) -> None:
        self.client().terminate_job_flows(JobFlowIds=[self.cluster_id])

    def __str__(self) -> str:
        return f"EMR cluster {self.cluster_id}"


@dataclass(frozen=True)
class EmrServerlessRun(AwsJob):
    """The job run that EmrServerlessStartJobOperator has started."""

    kind: ClassVar = "emr-serverless"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.EmrServerlessStartJobOperator": "job_id"}
    hook: ClassVar = "EmrServerlessHook"

    application_id: str
    run_id: str

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("application_id", "run_id"):
            validate.one_line(getattr(self, name), name)

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        if not operator.job_id:
            return None
        region = operator.hook.conn_region_name
        return cls(operator.aws_conn_id or "", region, operator.application_id, operator.job_id)

    def running(self) -> bool:
        client = self.client()
        run = client.get_job_run(applicationId=self.application_id, jobRunId=self.run_id)
        return run["jobRun"]["state"] not in _SERVERLESS_OVER

    def cancel(self) -> None:
        self.client().cancel_job_run(applicationId=self.application_id, jobRunId=self.run_id)

    def __str__(self) -> str:
        return f"EMR Serverless run {self.run_id} of application {self.application_id}"


@dataclass(frozen=True)
class EmrOnEksRun(AwsJob):
    """The job run that EmrContainerOperator has started on a virtual cluster."""

    kind: ClassVar = "emr-on-eks"
    operators: ClassVar[Mapping[str, str]] = {f"{_OPERATORS}.EmrContainerOperator": "job_id"}
    hook: ClassVar = "EmrContainerHook"

    virtual_cluster_id: str
    run_id: str

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("virtual_cluster_id", "run_id"):
            validate.one_line(getattr(self, name), name)

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        if not operator.job_id:
            return None
        region = operator.hook.conn_region_name
        return cls(operator.aws_conn_id or "", region, operator.virtual_cluster_id, operator.job_id)

    def running(self) -> bool:
        client = self.client()
        run = client.describe_job_run(virtualClusterId=self.virtual_cluster_id, id=self.run_id)
        return run["jobRun"]["state"] not in _ON_EKS_OVER

    def cancel(self) -> None:
        self.client().cancel_job_run(virtualClusterId=self.virtual_cluster_id, id=self.run_id)

    def __str__(self) -> str:
        return f"EMR on EKS run {self.run_id} of virtual cluster {self.virtual_cluster_id}"
