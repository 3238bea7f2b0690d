"""A question about a recorded job reaches no module, file, program or host that only the record names."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection
from hypothesis import strategies as st

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs import resumable, trust
from airflow_hivelock.work.spark_job import SparkJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.work.jobs.job import Job

WAREHOUSE = "warehouse"
"""A connection that exists, and fits no cluster. All others of these tests do not exist."""

_SEEN = {"import", "open", "subprocess.Popen", "os.system", "socket.connect", "socket.getaddrinfo"}
"""Python's audit events that are looked at."""

_seen: list[tuple[str, str]] | None = None


def check(job: Job, record: dict[str, Any]) -> None:
    """Ask for *job*, which *record* has named, and have it ended."""
    job_id = str(getattr(job, "job_id", ""))
    assert not set("/?#% \n") & set(job_id), "it would lead elsewhere in a URL"
    assert not {".", ".."} & set(job_id.split(":")), "it would lead upwards in a URL"
    assert not isinstance(job, SparkJob) or not job_id.startswith("-"), "spark-submit: an option"
    operator = str(record.get("operator", ""))
    module = operator.rpartition(".")[0]
    known = operator in resumable.ASKING or trust.provider_types(module) is not None
    texts = [each for each in _texts(record) if len(each) > 3]
    with _watching() as seen:
        for ask in (job.running, job.cancel):
            with suppress(CannotTell):
                ask()
    for event, what in seen:
        if event == "import":
            assert known or f"{module}.".startswith(f"{what}.") is False, f"a record had {what} imported"
        elif event == "open":
            assert what not in texts, f"a record had {what} read"
        elif event.startswith("socket"):
            assert not any(text in what for text in texts), f"a record led to {what}"
        else:
            raise AssertionError(f"a record had {event} {what}")


@contextmanager
def _watching() -> Iterator[list[tuple[str, str]]]:
    global _seen
    found: list[tuple[str, str]] = []

    def imports(name: str) -> Any:
        found.append(("import", name))  # also one that is loaded already
        return import_module(name)

    def get_connection(cls: type, conn_id: str) -> Any:
        if conn_id != WAREHOUSE:
            raise AirflowNotFoundException(conn_id)
        if cls is not BaseHook:
            found.append(("connection", f"{conn_id} read by {cls.__name__}"))
        return Connection(conn_id=conn_id, conn_type="postgres", host="db.internal", login="etl", password="tiger")

    def away(*_: Any) -> str:
        raise ConnectionError("no cluster here")

    with ExitStack() as stack:
        for thing, name, made in (
            (resumable, "import_module", imports),
            (BaseHook, "get_connection", classmethod(get_connection)),
            (SparkSubmitOperator, "_fetch_driver_status", away),
        ):
            stack.enter_context(mock.patch.object(thing, name, made))
        _seen = found
        try:
            yield found
        finally:
            _seen = None


for _module in ("airflow.serialization.serialized_objects", "airflow.providers.cncf.kubernetes.hooks.kubernetes"):
    with suppress(ImportError):
        import_module(_module)  # the first import of some of theirs runs a program


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _seen is not None and event in _SEEN and threading.current_thread().name == "hivelock-asks":
        _seen.append((event, str(args[1] if event == "socket.connect" else args[0])))


sys.addaudithook(_audit)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


_KUBERNETES = {
    "conn_id": "kubernetes_default",
    "in_cluster": None,
    "cluster_context": None,
    "config_file": None,
    "cluster": "https://k8s:443",
    "namespace": "jobs",
    "name": "work",
    "uid": "u-1",
}
_GOOGLE = {
    "conn_id": "google_cloud_default",
    "impersonation": [],
    "project": "flights",
    "region": "europe-west3",
    "job_id": "job-1",
}
_AWS = {"conn_id": "aws_default", "region": "eu-central-1"}

JOBS: list[dict[str, Any]] = [
    {"kind": "spark", "conn_id": "spark_default", "job_id": "application_1_0001", "deploy_mode": "cluster"},
    {
        "kind": "resumable",
        "operator": "airflow.providers.apache.livy.operators.livy.LivyOperator",
        "job_id": 7,
        "arguments": {"livy_conn_id": "livy_default", "livy_endpoint_prefix": None},
        "attribute": "_batch_id",
        "unrecorded": "",
    },
    {
        "kind": "resumable",
        "operator": "airflow.providers.amazon.aws.operators.glue.GlueJobOperator",
        "job_id": "jr_1",
        "arguments": {"job_name": "load", "aws_conn_id": "aws_default", "region_name": "eu-central-1", "verify": None},
        "attribute": "_job_run_id",
        "unrecorded": "",
    },
    {"kind": "emr-steps", **_AWS, "cluster_id": "j-1", "step_ids": ["s-1"]},
    {"kind": "emr-job-flow", **_AWS, "cluster_id": "j-1"},
    {"kind": "emr-serverless", **_AWS, "application_id": "a-1", "run_id": "r-1"},
    {"kind": "emr-on-eks", **_AWS, "virtual_cluster_id": "v-1", "run_id": "r-1"},
    {"kind": "dataproc-job", **_GOOGLE},
    {"kind": "dataproc-batch", **_GOOGLE, "uuid": "u-1"},
    {"kind": "pod", **_KUBERNETES},
    {"kind": "kubernetes-job", **_KUBERNETES},
    {
        "kind": "spark-application",
        **_KUBERNETES,
        "group": "sparkoperator.k8s.io",
        "version": "v1beta2",
        "plural": "sparkapplications",
    },
]

_STRANGE = st.sampled_from(
    [
        *("antigravity.x", "this.x", "fastapi.__main__.x", "idlelib.idle.x", "os.system", "subprocess.Popen"),
        *("airflow.__main__.main", "airflow.providers.standard.operators.bash.BashOperator"),
        *("/etc/passwd", "../../etc/passwd", "/tmp/kubeconfig", "file:///etc/passwd"),
        *(WAREHOUSE, "no_such_connection", "../secret"),
        *("stranger.example.com", "stranger.example.com/", "http://stranger.example.com", "127.0.0.1:1"),
        *("admin@p.iam.gserviceaccount.com", True, False, None),
    ]
)


@st.composite
def strange(draw: st.DrawFn) -> bytes:
    """A job of some kind. Some of its fields name what a stranger would like to reach."""
    data = json.loads(json.dumps(draw(st.sampled_from(JOBS))))
    for name in draw(st.lists(st.sampled_from([each for each in data if each != "kind"]), min_size=1, max_size=3)):
        value = draw(_STRANGE)
        if isinstance(data[name], list):
            data[name] = [value]
        elif isinstance(data[name], dict):
            more = ("verify", "script_location", "s3_bucket", "config_file", "endpoint", "livy_conn_id", "aws_conn_id")
            data[name][draw(st.sampled_from([*data[name], *more]))] = value
        else:
            data[name] = value
    return json.dumps(data).encode()
