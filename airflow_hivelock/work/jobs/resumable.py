"""Jobs of operators that Airflow's ResumableJobMixin makes durable: Livy, Databricks, Glue, and any other.

They are asked for by an operator of the same class, made anew.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import trust
from airflow_hivelock.work.jobs.emr import client_of
from airflow_hivelock.work.jobs.job import Job, NotFound, knows
from airflow_hivelock.work.jobs.table import RESUMABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_JOB_ID = re.compile(r"[^\s/?#%]{1,300}")

_SECRET = re.compile(r"passw|secret|token|credential|auth|private|api_?key|cookie|header", re.IGNORECASE)
"""Names of arguments whose values are no lease's business."""

_LOOKS_LIKE = {
    "region_name": trust.REGION,
    "livy_endpoint_prefix": re.compile(r"(?!.*\.\.)[\w./~-]{0,200}"),
}
"""What arguments look like that become parts of a host's name, or of a path."""

_HARMLESS = re.compile(r"\w*conn_id|deferrable|durable|wait\w*|poll\w*")
"""Arguments of an operator that nothing more is known of, which a record may decide: whom it asks, and how it waits."""

_SPARK = "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator"

_FORGOTTEN = ("NOT_FOUND", "UNKNOWN")
"""What an operator says of a job that its cluster does not know: it has ended long since, or another cluster has it."""


@dataclass(frozen=True)
class Asking:
    """What is needed to ask for the jobs of one class of operators.

    :param attribute: what it sets on itself once it has submitted, and what its ``on_kill()`` goes by.
    :param package: the distribution that it comes from.
    :param arguments: by argument, the attribute that has it.
    :param types: of the connections that it asks through.
    :param constants: arguments of the one that asks, and cancels.
    :param own_only: arguments that a record decides only where this process's own operator has the same. Elsewhere the
        connection decides.
    :param limit: has the one that asks wait for no answer for long.
    :param submits_anew: whether ``execute()`` submits without looking for an earlier try's job.
    """

    attribute: str
    package: str
    arguments: Mapping[str, str]
    types: frozenset[str] = frozenset()
    constants: Mapping[str, Any] = field(default_factory=dict)
    own_only: frozenset[str] = frozenset()
    limit: Callable[[Any], None] = lambda operator: None
    submits_anew: Callable[[Any], bool] = lambda operator: bool(getattr(operator, "deferrable", False))

    def of(self, operator: Any) -> dict[str, Any]:
        """The arguments of *operator*, one of that class."""
        return {name: getattr(operator, attribute, None) for name, attribute in self.arguments.items()}


def _limit_livy(operator: Any) -> None:
    operator.hook.extra_options = {"check_response": False, "timeout": ANSWER_S}


def _limit_databricks(operator: Any) -> None:
    operator._hook.timeout_seconds = ANSWER_S


def _limit_glue(operator: Any) -> None:
    operator.hook.conn = client_of(operator.hook)


_DATABRICKS = Asking(
    attribute="run_id",
    package="apache-airflow-providers-databricks",
    arguments={"databricks_conn_id": "databricks_conn_id"},
    types=frozenset({"databricks"}),
    constants={"databricks_retry_limit": 1},
    limit=_limit_databricks,
)

ASKING = {
    "airflow.providers.apache.livy.operators.livy.LivyOperator": Asking(
        attribute="_batch_id",
        package="apache-airflow-providers-apache-livy",
        arguments={"livy_conn_id": "_livy_conn_id", "livy_endpoint_prefix": "_livy_endpoint_prefix"},
        types=frozenset({"livy", "http", "https"}),
        constants={"file": "-", "deferrable": False},
        limit=_limit_livy,
        submits_anew=lambda operator: operator.deferrable or operator._polling_interval <= 0,
    ),
    "airflow.providers.databricks.operators.databricks.DatabricksSubmitRunOperator": _DATABRICKS,
    "airflow.providers.databricks.operators.databricks.DatabricksRunNowOperator": _DATABRICKS,
    "airflow.providers.amazon.aws.operators.glue.GlueJobOperator": Asking(
        attribute="_job_run_id",
        package="apache-airflow-providers-amazon",
        arguments={
            "job_name": "job_name",
            "aws_conn_id": "aws_conn_id",
            "region_name": "region_name",
            "verify": "verify",
        },
        types=frozenset({"aws"}),
        constants={"stop_job_run_on_kill": True, "deferrable": False},
        own_only=frozenset({"verify"}),
        limit=_limit_glue,
    ),
}


@dataclass(frozen=True)
class ResumableJob(Job):
    """A job of an operator that is a ResumableJobMixin.

    :param operator: the path of the operator's class.
    :param job_id: as the operator keeps it for its own retries.
    :param arguments: of an operator of that class, as far as they are needed to ask; nothing secret.
    :param attribute: which the operator sets to its id, and which its ``on_kill()`` goes by; ``""`` for an unknown one.
    :param unrecorded: an argument that would be needed as well, and cannot be recorded; ``""`` for none.
    """

    kind: ClassVar = "resumable"
    operators: ClassVar[Mapping[str, str]] = {path: asking.attribute for path, asking in ASKING.items()}

    operator: str
    job_id: int | str
    arguments: dict[str, Any]
    attribute: str = ""
    unrecorded: str = ""

    def __post_init__(self) -> None:
        """:raises ValueError: what cannot be asked for: it comes out of a store."""
        if not _PATH.fullmatch(validate.one_line(self.operator, "operator")):
            raise ValueError(f"operator={self.operator!r:.80}")
        if isinstance(self.job_id, str):
            if not _JOB_ID.fullmatch(self.job_id):
                raise ValueError(f"job_id={self.job_id!r:.80}")
        else:
            validate.number(self.job_id, "job_id")
        for name in (self.attribute, self.unrecorded):
            if name and not validate.one_line(name, "name").isidentifier():
                raise ValueError(f"{name!r:.80} is no name")
        if not isinstance(self.arguments, dict) or not all(map(_is_plain, self.arguments.values())):
            raise ValueError(f"arguments={self.arguments!r:.80}")

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        found = next((path for path in _paths(type(operator)) if path in ASKING), None)
        if found is None:
            return None
        asking = ASKING[found]
        job_id = getattr(operator, asking.attribute, None)
        if job_id is None:
            return None
        return cls(found, job_id, asking.of(operator), asking.attribute)

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        for path, made_by in _paths(type(operator)).items():
            if path in ASKING or ("get_job_status" in vars(made_by) and path not in RESUMABLE):
                _own_classes[path] = made_by
                for name in _parameters_of(made_by):
                    value = getattr(operator, name, getattr(operator, f"_{name}", None))
                    yield "argument", path, name, json.dumps(value, default=repr)

    @classmethod
    def submitted(cls, operator: Any, job_id: Any, before: Mapping[str, Any]) -> Job:
        """What ``submit_job()`` has returned of an operator that is only known to be resumable.

        :param before: the operator's attributes before that.
        """
        if _SPARK in _paths(type(operator)):
            from airflow_hivelock.work.spark_job import SparkJob  # not in a circle

            return SparkJob.submitted_by(operator, job_id)
        trust.learn(cls.names_of(operator))
        path, made_by = next(
            (path, base) for path, base in _paths(type(operator)).items() if "get_job_status" in vars(base)
        )
        now = {name for name, value in vars(operator).items() if type(value) is type(job_id) and value == job_id}
        attribute = next((name for name in sorted(now) if before.get(name) != job_id), "")
        arguments, unrecorded = _given(operator, made_by)
        return cls(path, job_id, arguments, attribute, unrecorded)

    def running(self) -> bool:
        operator = self._operator()
        status = str(operator.get_job_status(self.job_id, {}))
        active = bool(operator.is_job_active(status))
        if not active and status.upper().startswith(_FORGOTTEN):
            raise NotFound(f"{self} is not known to connection {self.conn_id!r} (any more)")
        return active

    def cancel(self) -> None:
        if not self.attribute:
            raise CannotTell(f"{self} can be ended in its cluster only: its operator does not show how")
        self._operator().on_kill()

    def reconnects(self, operator: Any, context: Any) -> bool:
        asking = ASKING.get(self.operator)
        if asking.submits_anew(operator) if asking else getattr(operator, "deferrable", False):
            return False
        return knows(operator, context, self.job_id) and self.running()

    @property
    def conn_id(self) -> str:
        """The connection that it was submitted through."""
        return next((str(value) for name, value in self.arguments.items() if name.endswith("conn_id")), "")

    def __str__(self) -> str:
        return f"job {self.job_id} of {self.operator.rpartition('.')[2]}"

    def _operator(self) -> Any:
        """An operator of that class, which has submitted this job and nothing else."""
        if self.unrecorded:
            raise CannotTell(
                f"{self} can be asked for by its own task only: its argument {self.unrecorded!r} is not recorded"
            )
        asking, arguments = ASKING.get(self.operator), self._allowed()
        made_by = _own_classes.get(self.operator) or self._imported(asking)
        operator = made_by(task_id="asks", **{**arguments, **(asking.constants if asking else {})})
        if asking:
            asking.limit(operator)
        if self.attribute:
            setattr(operator, self.attribute, self.job_id)
        return operator

    def _allowed(self) -> dict[str, Any]:
        """Those of its arguments that a record may decide.

        :raises CannotTell: it has others; or its operator is of no installed provider, and of no task in this process.
        """
        asking, types = ASKING.get(self.operator), trust.provider_types(self.operator.rpartition(".")[0])
        if asking is None and types is None and self.operator not in _own_classes:
            raise CannotTell(
                f"{self.operator} is not imported because a record names it: no installed provider lists its module as one of "
                "operators. Its own task can ask for it; register a kind of jobs in the entry points airflow_hivelock.jobs"
            )
        allowed = {}
        for name, value in self.arguments.items():
            if not trust.is_own("argument", self.operator, name, json.dumps(value)):
                if asking and name in asking.own_only:
                    continue
                if not (name in asking.arguments if asking else _HARMLESS.fullmatch(name)):
                    raise CannotTell(f"its argument {name!r} is its own task's to give, and no record's")
                if value and name in _LOOKS_LIKE and not _LOOKS_LIKE[name].fullmatch(str(value)):
                    raise CannotTell(f"{name}={value!r:.80} cannot be meant")
                if name.endswith("conn_id") and value:
                    trust.check_connection(str(value), (asking.types if asking else types) or ())
            allowed[name] = value
        return allowed

    def _imported(self, asking: Asking | None) -> type:
        """Its operator's class. :meth:`_allowed` has checked its module."""
        module, _, name = self.operator.rpartition(".")
        try:
            found = vars(import_module(module)).get(name)
        except ImportError as error:
            raise CannotTell(
                f"{self} cannot be asked for here: install {asking.package if asking else module} ({error})"
            ) from error
        if not isinstance(found, type) or RESUMABLE.isdisjoint(_paths(found)):
            raise CannotTell(f"{self.operator} is no ResumableJobMixin")
        return found


_own_classes: dict[str, type] = {}
"""The classes of this process's own operators: they are loaded, and need not be imported."""


def _paths(operator: type) -> dict[str, type]:
    return {f"{base.__module__}.{base.__qualname__}": base for base in operator.__mro__}


def _given(operator: Any, made_by: type) -> tuple[dict[str, Any], str]:
    """The arguments that *operator* was given for its class *made_by*, as rendered; and one that cannot be recorded."""
    found: dict[str, Any] = {}
    for name in sorted(_parameters_of(made_by) & operator._BaseOperator__init_kwargs.keys()):
        value = getattr(operator, name, getattr(operator, f"_{name}", operator._BaseOperator__init_kwargs[name]))
        if not _is_plain(value) or _SECRET.search(name) or "{{" in str(value):
            return {}, name
        found[name] = value
    return found, ""


def _parameters_of(made_by: type) -> set[str]:
    return {name for base in made_by.__mro__ for name in _parameters(base)}


def _parameters(base: type) -> list[str]:
    """The arguments that *base* itself takes; none for Airflow's own bases, whose arguments no cluster is asked with."""
    init = vars(base).get("__init__")
    if init is None or base.__module__.startswith(("airflow.sdk.", "airflow_hivelock.")):
        return []
    return [name for name, each in inspect.signature(init).parameters.items() if each.kind is each.KEYWORD_ONLY]


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and len(value) <= 300
    return value is None or isinstance(value, bool | int | float)
