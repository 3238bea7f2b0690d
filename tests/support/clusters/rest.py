"""The calls of each cluster that Airflow's operators, hooks and triggers make."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from tests.support.clusters.cluster import POLL_S, Unknown
from tests.support.clusters.http import HttpCluster, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.clusters.cluster import Job


class Livy(HttpCluster):
    """Apache Livy's batches."""

    kind = "livy"
    conn_id = "livy_default"
    _STATES: ClassVar = {"running": "running", "succeeded": "success", "failed": "dead", "cancelled": "killed"}

    def connection(self) -> Mapping[str, Any]:
        return {"conn_type": "livy", "host": "127.0.0.1", "port": self.port, "schema": "http"}

    def answer(self, asked: Request) -> Any:
        match asked.method, *asked.path:
            case "POST", "batches":
                return self._batch(self.submit([asked.body["file"], *asked.body["args"]]))
            case "GET", "batches", job_id:
                return self._batch(self.job(job_id))
            case "GET", "batches", job_id, "state":
                return {"id": int(job_id), "state": self._STATES[self.job(job_id).state]}
            case "GET", "batches", job_id, "log":
                return {"id": int(job_id), "from": 0, "total": 0, "log": [f"{self.job(job_id).state}"]}
            case "DELETE", "batches", job_id:
                self.job(job_id).cancel()
                self._gone(job_id)
                return {"msg": "deleted"}
        raise Unknown(asked.path)

    def _gone(self, job_id: str) -> None:
        """Livy forgets a batch once its application has been killed."""
        job = self.jobs[job_id]
        job.process.wait(10)
        del self.jobs[job_id]

    def _batch(self, job: Job) -> dict[str, Any]:
        return {"id": int(job.id), "appId": f"application_1_{job.id}", "state": self._STATES[job.state], "log": []}


class Databricks(HttpCluster):
    """Runs of Databricks jobs."""

    kind = "databricks"
    conn_id = "databricks_default"
    _RESULTS: ClassVar = {"succeeded": "SUCCESS", "failed": "FAILED", "cancelled": "CANCELED"}

    def connection(self) -> Mapping[str, Any]:
        return {
            "conn_type": "databricks",
            "host": "127.0.0.1",
            "port": self.port,
            "schema": "http",
            "password": "token",
        }

    def answer(self, asked: Request) -> Any:
        match asked.method, *asked.path[2:]:
            case "POST", "jobs", "runs", "submit":
                task = asked.body["spark_python_task"]
                return {"run_id": int(self.submit([task["python_file"], *task["parameters"]]).id)}
            case "GET", "jobs", "runs", "get":
                return self._run(self._named(asked))
            case "GET", "jobs", "runs", "get-output":
                return {"metadata": self._run(self._named(asked)), "error": ""}
            case "POST", "jobs", "runs", "cancel":
                self.job(str(asked.body["run_id"])).cancel()
                return {}
        raise Unknown(asked.path)

    def _named(self, asked: Request) -> Job:
        """The job of a question. The operator names it in the address, and the trigger in the body."""
        return self.job(str((asked.body or asked.query)["run_id"]))

    def _run(self, job: Job) -> dict[str, Any]:
        state: dict[str, Any] = {"life_cycle_state": "RUNNING", "state_message": ""}
        if job.state != "running":
            state |= {"life_cycle_state": "TERMINATED", "result_state": self._RESULTS[job.state]}
        return {
            "run_id": int(job.id),
            "job_id": int(job.id),
            "run_page_url": f"{self.url}/#run/{job.id}",
            "state": state,
            "tasks": [{"run_id": int(job.id), "task_key": "writer", "state": state}],
        }


class _Aws(HttpCluster):
    """AWS' JSON protocol: every call is a POST to ``/``."""

    def connection(self) -> Mapping[str, Any]:
        return {
            "conn_type": "aws",
            "login": "key",
            "password": "secret",
            "extra": {"region_name": "us-east-1", "endpoint_url": self.url},
        }


SUBMIT = ("spark-submit", "--deploy-mode", "client")
"""What the words of a step begin with; behind them comes what it runs."""


class Emr(_Aws):
    """Steps of an EMR job flow."""

    kind = "emr"
    conn_id = "aws_default"
    _STATES: ClassVar = {"running": "RUNNING", "succeeded": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED"}

    def name(self, number: int) -> str:
        return f"s-{number:013d}"

    def answer(self, asked: Request) -> Any:
        body = asked.body
        match asked.target.partition(".")[2]:
            case "AddJobFlowSteps":
                steps = [step["HadoopJarStep"]["Args"] for step in body["Steps"]]
                return {"StepIds": [self.submit(words[len(SUBMIT) :], {"Args": words}).id for words in steps]}
            case "DescribeStep":
                return {"Step": self._step(self.job(body["StepId"]))}
            case "ListSteps":
                return {"Steps": [self._step(self.job(step_id)) for step_id in body.get("StepIds") or self.jobs]}
            case "CancelSteps":
                for step_id in body["StepIds"]:
                    self.job(step_id).cancel()
                return {
                    "CancelStepsInfoList": [{"StepId": one, "Status": "SUBMITTED"} for one in body["StepIds"]],
                }
            case "DescribeCluster":
                return {"Cluster": {"Id": body["ClusterId"], "Name": "flow", "Status": {"State": "WAITING"}}}
        raise Unknown(asked.target)

    def _step(self, job: Job) -> dict[str, Any]:
        status = {"State": self._STATES[job.state], "Timeline": {"StartDateTime": 1358208000}}
        return {"Id": job.id, "Name": "writer", "Config": job.spec, "Status": status}


class Glue(_Aws):
    """Runs of Glue jobs; a job's script is what it runs, its arguments the words behind that.

    :ivar retries: how often a job may be started again after a failure. A test starts the attempts.
    """

    retries = 0
    kind = "glue"
    conn_id = "aws_glue"
    _STATES: ClassVar = {"running": "RUNNING", "succeeded": "SUCCEEDED", "failed": "FAILED", "cancelled": "STOPPED"}

    def name(self, number: int) -> str:
        return f"jr_{number:064x}"

    def answer(self, asked: Request) -> Any:
        body = asked.body
        match asked.target.partition(".")[2]:
            case "GetJob":
                return {"Job": {"Name": body["JobName"], "MaxRetries": self.retries}}
            case "StartJobRun":
                return {"JobRunId": self.submit(body["Arguments"]["--command"].split(), body).id}
            case "GetJobRun":
                return {"JobRun": self._run(self.job(body["RunId"]))}
            case "GetJobRuns":
                return {"JobRuns": [self._run(job) for job in reversed(list(self.jobs.values()))]}
            case "BatchStopJobRun":
                for run_id in body["JobRunIds"]:
                    self.job(run_id).cancel()
                return {
                    "SuccessfulSubmissions": [
                        {"JobName": body["JobName"], "JobRunId": one} for one in body["JobRunIds"]
                    ],
                    "Errors": [],
                }
        raise Unknown(asked.target)

    def _run(self, job: Job) -> dict[str, Any]:
        run = {"Id": job.id, "JobRunState": self._STATES[job.state], "CompletedOn": 1358208000}
        return run | {"Arguments": job.spec.get("Arguments", {}), "PreviousRunId": job.spec.get("PreviousRunId", "-")}


class Kubernetes(HttpCluster):
    """Pods of one container each."""

    kind = "kubernetes"
    conn_id = "kubernetes_default"
    _PHASES: ClassVar = {"running": "Running", "succeeded": "Succeeded", "failed": "Failed", "cancelled": "Failed"}

    def connection(self) -> Mapping[str, Any]:
        context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [context],
            "current-context": "here",
        }
        return {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(config)}}

    def answer(self, asked: Request) -> Any:
        match asked.method, *asked.path[4:]:
            case "POST", "pods":
                (container,) = asked.body["spec"]["containers"]
                command = [*container["command"], *container["args"]]
                return self._pod(self.submit(command, asked.body, asked.body["metadata"]["name"]))
            case "GET", "pods":
                wanted = asked.query.get("labelSelector", "")
                found = [job for job in list(self.jobs.values()) if _matches(wanted, job.spec["metadata"]["labels"])]
                return {"kind": "PodList", "apiVersion": "v1", "items": [self._pod(self.job(job.id)) for job in found]}
            case "GET", "pods", job_id:
                return self._pod(self.job(job_id))
            case "PATCH", "pods", job_id:
                pod = self.job(job_id)
                pod.spec["metadata"]["labels"] |= asked.body["metadata"]["labels"]
                return self._pod(pod)
            case "GET", "pods", job_id, "log":
                while self.job(job_id).state == "running" and asked.query.get("follow"):
                    threading.Event().wait(POLL_S)
                return "2013-01-15T00:00:00.000000000Z written\n"
            case "DELETE", "pods", job_id:
                job = self.job(job_id)
                job.cancel()
                job.process.wait(10)
                del self.jobs[job_id]
                return self._pod(job)
            case "GET", "events":
                return {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []}
        raise Unknown(asked.path)

    def _pod(self, job: Job) -> dict[str, Any]:
        name, state = job.spec["spec"]["containers"][0]["name"], job.state
        ended = {"exitCode": job.process.returncode, "startedAt": _AT, "finishedAt": _AT, "reason": "Ended"}
        container = {
            "name": name,
            "image": "writer",
            "imageID": "writer",
            "ready": state == "running",
            "restartCount": 0,
            "state": {"running": {"startedAt": _AT}} if state == "running" else {"terminated": ended},
        }
        status = {"phase": self._PHASES[state], "containerStatuses": [container], "startTime": _AT}
        metadata = {"uid": f"uid-{job.id}", "resourceVersion": "1", "creationTimestamp": _AT} | job.spec["metadata"]
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": job.spec["spec"], "status": status}


_AT = "2013-01-15T00:00:00Z"


def _matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Terms of the forms ``a=b``, ``a!=b``, ``a`` and ``!a``."""
    for term in filter(None, (part.strip() for part in selector.split(","))):
        name, unequal, value = term.partition("!=")
        if unequal:
            if labels.get(name) == value:
                return False
            continue
        name, equal, value = term.partition("=")
        name = name.strip()
        if equal and labels.get(name) != value.lstrip("="):
            return False
        if not equal and (name.startswith("!") == (name.lstrip("!") in labels)):
            return False
    return True
