"""Jobs of operators that Airflow's ResumableJobMixin makes durable: Livy, Databricks, Glue, and others.

To ask about such a job, this module creates a new operator of the same class.
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
from airflow_hivelock.work.jobs.glue import last_attempt
from airflow_hivelock.work.jobs.job import Job, NotFound, checked, knows, paths
from airflow_hivelock.work.jobs.table import RESUMABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_JOB_ID = re.compile(r"(?!\.{1,2}(?:;|\Z))[^\s/?#%\\]{1,300}")
"""An id of any service. It can become a part of a path, so it must not lead upwards, even with a path parameter."""

_SECRET = re.compile(r"passw|secret|token|credential|auth|private|api_?key|cookie|header", re.IGNORECASE)
"""Names of arguments with secret values. No lease records them."""

_LOOKS_LIKE = {
    "region_name": trust.REGION,
    "livy_endpoint_prefix": re.compile(r"(?!.*\.\.)[\w./~-]{0,200}"),
}
"""By argument that becomes a part of a host's name or a path, its allowed values."""

_HARMLESS = re.compile(r"\w*conn_id|deferrable|durable|wait\w*|poll\w*")
"""Arguments that a record may set for an unknown operator: connections, and ways to wait."""

_SPARK = "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator"

_FORGOTTEN = ("NOT_FOUND", "NOTFOUND", "MISSING", "UNKNOWN")
"""The states of a job that its cluster does not know. It ended long ago, or belongs to another cluster."""


@dataclass(frozen=True)
class Asking:
    """The way to ask about the jobs of one class of operators.

    :param attribute: the attribute that an operator sets after it has submitted, and that its ``on_kill()`` uses.
    :param package: the distribution that contains the operator.
    :param arguments: the recorded arguments that the asking operator gets.
    :param types: the allowed types of its connection.
    :param constants: other arguments of the operator that asks and cancels.
    :param own_only: arguments that a record may set only if an operator in this process has the same value. Otherwise
        the connection decides.
    :param limit: a function that limits the time-outs of the asking operator.
    :param submits_anew: whether ``execute()`` submits a job without a search for an earlier try's job.
    :param last_attempt: a function that returns the id of the last attempt of a job, and whether it has not ended. The
        service itself starts the later attempts.
    """

    attribute: str
    package: str
    arguments: tuple[str, ...]
    types: frozenset[str] = frozenset()
    constants: Mapping[str, Any] = field(default_factory=dict)
    own_only: frozenset[str] = frozenset()
    limit: Callable[[Any], None] = lambda operator: None
    submits_anew: Callable[[Any], bool] = lambda operator: bool(getattr(operator, "deferrable", False))
    last_attempt: Callable[[Any, Any], tuple[Any, bool]] = lambda operator, job_id: (job_id, False)


def _limit_livy(operator: Any) -> None:
    operator.hook.extra_options = {"check_response": False, "timeout": ANSWER_S}


def _limit_databricks(operator: Any) -> None:
    operator._hook.timeout_seconds = ANSWER_S


def _limit_glue(operator: Any) -> None:
    operator.hook.conn = client_of(operator.hook)


_DATABRICKS = Asking(
    attribute="run_id",
    package="apache-airflow-providers-databricks",
    arguments=("databricks_conn_id",),
    types=frozenset({"databricks"}),
    constants={"databricks_retry_limit": 1},
    limit=_limit_databricks,
)

ASKING = {
    "airflow.providers.apache.livy.operators.livy.LivyOperator": Asking(
        attribute="_batch_id",
        package="apache-airflow-providers-apache-livy",
        arguments=("livy_conn_id", "livy_endpoint_prefix"),
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
        arguments=("job_name", "aws_conn_id", "region_name", "verify"),
        types=frozenset({"aws"}),
        constants={"stop_job_run_on_kill": True, "deferrable": False},
        own_only=frozenset({"verify"}),
        limit=_limit_glue,
        last_attempt=last_attempt,
    ),
}


def _job_id(value: Any, name: str) -> int | str:
    return validate.number(value, name) if not isinstance(value, str) else checked(_JOB_ID, value, name)


def _name_or_none(value: Any, name: str) -> str:
    if validate.one_line(value, name) and not value.isidentifier():
        raise ValueError(f"{value!r:.80} is not a name")
    return str(value)


def _plain(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(map(_is_plain, value.values())):
        raise ValueError(f"{name}={value!r:.80}")
    return value


@dataclass(frozen=True)
class ResumableJob(Job):
    """A job of an operator that is a ResumableJobMixin.

    :param operator: the path of the operator's class.
    :param job_id: the id that the operator keeps for its own retries.
    :param arguments: the operator's arguments that are needed to ask. None of them is secret.
    :param attribute: the operator's attribute with the id, which its ``on_kill()`` uses. Empty if unknown.
    :param unrecorded: a needed argument that cannot be recorded. Empty if there is none.
    """

    kind: ClassVar = "resumable"
    operators: ClassVar = {path: asking.attribute for path, asking in ASKING.items()}
    checks: ClassVar = {
        "operator": re.compile(r"(?!.{301})[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"),
        "job_id": _job_id,
        "arguments": _plain,
        "attribute": _name_or_none,
        "unrecorded": _name_or_none,
    }

    operator: str
    job_id: int | str
    arguments: dict[str, Any]
    attribute: str = ""
    unrecorded: str = ""

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        found = next((path for path in paths(type(operator)) if path in ASKING), None)
        if found is None or (job_id := getattr(operator, ASKING[found].attribute, None)) is None:
            return None
        arguments = {name: _value(operator, name) for name in ASKING[found].arguments}
        return cls(found, job_id, arguments, ASKING[found].attribute)

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        for path, made_by in paths(type(operator)).items():
            if path in ASKING or ("get_job_status" in vars(made_by) and path not in RESUMABLE):
                _own_classes[path] = made_by
                for name in _parameters_of(made_by):
                    yield "argument", path, name, json.dumps(_value(operator, name), default=repr)

    @classmethod
    def submitted(cls, operator: Any, job_id: Any, before: Mapping[str, Any], context: Any = None) -> Job:
        """Return the job that ``submit_job()`` of *operator*, any ResumableJobMixin, has submitted.

        :param job_id: the result of ``submit_job()``.
        :param before: the operator's attributes before the call.
        :param context: the task's context.
        """
        if _SPARK in paths(type(operator)):
            from airflow_hivelock.work.spark_job import SparkJob  # it imports requests

            return SparkJob.submitted_by(operator, job_id)
        trust.learn(cls.names_of(operator))
        path, made_by = next(
            (path, base) for path, base in paths(type(operator)).items() if "get_job_status" in vars(base)
        )
        now = {name for name, value in vars(operator).items() if type(value) is type(job_id) and value == job_id}
        attribute = next((name for name in sorted(now) if before.get(name) != job_id), "")
        arguments, unrecorded = _given(operator, made_by)
        made = cls(path, job_id, arguments, attribute, unrecorded)
        _last[:] = [(made, operator, context or {})]
        return made

    def running(self) -> bool:
        operator, asking = self._operator(), ASKING.get(self.operator)
        return self._is_active(operator) or (asking is not None and asking.last_attempt(operator, self.job_id)[1])

    def _is_active(self, operator: Any) -> bool:
        """Whether the job itself has not ended. Its service may have started it again after its end."""
        _, context = self._own_task()
        status = operator.get_job_status(self.job_id, context)
        # Pass on the status itself, not its text: some operators compare it with the members of an enum.
        active, state = bool(operator.is_job_active(status)), str(getattr(status, "value", status)).upper()
        if not active and state.startswith(_FORGOTTEN):
            raise NotFound(
                f"the server of connection {self.conn_id!r} does not know {self}. Check whether the job still runs"
            )
        # CANCELING, STOPPING and the like are no ends, although many operators do not count them as active.
        return active or state.partition(":")[0].endswith("ING")

    def cancel(self) -> None:
        if not self.attribute:
            raise CannotTell(f"{self} can only be ended in its cluster, because its operator has no way to end it")
        operator, asking = self._operator(), ASKING.get(self.operator)
        if asking:
            setattr(operator, self.attribute, asking.last_attempt(operator, self.job_id)[0])
        operator.on_kill()

    def reconnects(self, operator: Any, context: Any) -> bool:
        asking = ASKING.get(self.operator)
        if asking.submits_anew(operator) if asking else getattr(operator, "deferrable", False):
            return False
        # A later attempt is not continued, because the operator follows only the first one.
        return knows(operator, context, self.job_id) and self._is_active(self._operator())

    @property
    def conn_id(self) -> str:
        """The connection that submitted the job."""
        return next((str(value) for name, value in self.arguments.items() if name.endswith("conn_id")), "")

    def __str__(self) -> str:
        return f"job {self.job_id} of {self.operator.rpartition('.')[2]}"

    def _own_task(self) -> tuple[Any, Any]:
        """Return the operator and the context of this process's task if that has submitted this job; else None, {}."""
        return next(((operator, context) for job, operator, context in _last if job == self), (None, {}))

    def _operator(self) -> Any:
        """Return the operator that has submitted this job here, or else a new one of its class with this job."""
        own, _ = self._own_task()
        if own is not None:
            return own
        if self.unrecorded:
            raise CannotTell(
                f"only its own task can check {self}, because its argument {self.unrecorded!r} is not recorded"
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
        """Return the arguments, after a check that a record may set them.

        :raises CannotTell: a record may not set one of them; or the operator belongs to no installed provider, and to no
            task in this process.
        """
        asking, types = ASKING.get(self.operator), trust.provider_types(self.operator.rpartition(".")[0])
        if asking is None and types is None and self.operator not in _own_classes:
            raise CannotTell(
                f"{self.operator} is not imported, because only a record names it: no installed provider lists its module as one "
                "of operators. Its own task can check the job. For other processes register a kind of jobs in the entry points "
                "airflow_hivelock.jobs"
            )
        allowed = {}
        for name, value in self.arguments.items():
            if not trust.is_own("argument", self.operator, name, json.dumps(value)):
                if asking and name in asking.own_only:
                    continue
                if not (name in asking.arguments if asking else _HARMLESS.fullmatch(name)):
                    raise CannotTell(f"only its own task may set the argument {name!r}, not a record")
                if value and name in _LOOKS_LIKE and not _LOOKS_LIKE[name].fullmatch(str(value)):
                    raise CannotTell(f"{name}={value!r:.80} is invalid")
                if name.endswith("conn_id") and value:
                    trust.check_connection(str(value), (asking.types if asking else types) or ())
            allowed[name] = value
        return allowed

    def _imported(self, asking: Asking | None) -> type:
        """Return the operator's class. :meth:`_allowed` has checked its module."""
        module, _, name = self.operator.rpartition(".")
        try:
            found = vars(import_module(module)).get(name)
        except ImportError as error:
            raise CannotTell(
                f"{self} cannot be checked here: install {asking.package if asking else module} ({error})"
            ) from error
        if not isinstance(found, type) or RESUMABLE.isdisjoint(paths(found)):
            raise CannotTell(f"{self.operator} is not a ResumableJobMixin")
        return found


_last: list[tuple[ResumableJob, Any, Any]] = []
"""The last job that a task of this process has submitted, with its operator and context. No record has all that these
know, so only they can check each kind of job.
"""

_own_classes: dict[str, type] = {}
"""By path, the classes of this process's own operators. They are already loaded."""


def _value(operator: Any, name: str, default: Any = None) -> Any:
    """Return the rendered argument *name* of *operator*."""
    return getattr(operator, name, getattr(operator, f"_{name}", default))


def _given(operator: Any, made_by: type) -> tuple[dict[str, Any], str]:
    """Return the rendered arguments of *operator* for *made_by*, and "". If one is unrecordable, return none, and it."""
    found: dict[str, Any] = {}
    for name in sorted(_parameters_of(made_by) & operator._BaseOperator__init_kwargs.keys()):
        value = _value(operator, name, operator._BaseOperator__init_kwargs[name])
        if not _is_plain(value) or _SECRET.search(name) or "{{" in str(value):
            return {}, name
        found[name] = value
    return found, ""


def _parameters_of(made_by: type) -> set[str]:
    return {name for base in made_by.__mro__ for name in _parameters(base)}


def _parameters(base: type) -> list[str]:
    """Return the arguments of *base* itself. Those of Airflow's own bases are omitted: no question needs them."""
    init = vars(base).get("__init__")
    if init is None or base.__module__.startswith(("airflow.sdk.", "airflow_hivelock.")):
        return []
    return [name for name, each in inspect.signature(init).parameters.items() if each.kind is each.KEYWORD_ONLY]


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and len(value) <= 300
    return value is None or isinstance(value, bool | int | float)
