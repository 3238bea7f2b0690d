"""Jobs of operators that Airflow's ResumableJobMixin makes durable: Livy, Databricks, Glue, and any other.

They are asked for by an operator of the same class, made anew.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs.job import Job, NotFound
from airflow_hivelock.work.jobs.table import RESUMABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_JOB_ID = re.compile(r"[^\s/?#%]{1,300}")

_SECRET = re.compile(r"passw|secret|token|credential|auth|private|api_?key|cookie|header", re.IGNORECASE)
"""Names of arguments whose values are no lease's business."""

_FORGOTTEN = ("NOT_FOUND", "UNKNOWN")
"""What an operator says of a job that its cluster does not know: it has ended long since, or another cluster has it."""


@dataclass(frozen=True)
class Asking:
    """What is needed to ask for the jobs of one class of operators.

    :param attribute: what it sets on itself once it has submitted, and what its ``on_kill()`` goes by.
    :param package: the distribution that it comes from.
    :param arguments: by argument, the attribute that has it.
    :param constants: arguments of the one that asks, and cancels.
    :param submits_anew: whether ``execute()`` submits without looking for an earlier try's job.
    """

    attribute: str
    package: str
    arguments: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    submits_anew: Callable[[Any], bool] = lambda operator: bool(getattr(operator, "deferrable", False))


_DATABRICKS = Asking(
    attribute="run_id",
    package="apache-airflow-providers-databricks",
    arguments={"databricks_conn_id": "databricks_conn_id"},
)

ASKING = {
    "airflow.providers.apache.livy.operators.livy.LivyOperator": Asking(
        attribute="_batch_id",
        package="apache-airflow-providers-apache-livy",
        arguments={"livy_conn_id": "_livy_conn_id", "livy_endpoint_prefix": "_livy_endpoint_prefix"},
        constants={"file": "-", "deferrable": False},
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
        constants={"stop_job_run_on_kill": True, "deferrable": False},
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
        arguments = {name: getattr(operator, attribute) for name, attribute in asking.arguments.items()}
        return cls(found, job_id, arguments, asking.attribute)

    @classmethod
    def submitted(cls, operator: Any, job_id: int | str, before: Mapping[str, Any]) -> Self:
        """What ``submit_job()`` of an operator has returned of which nothing is known but that it is resumable.

        :param before: the operator's attributes before that.
        """
        path, made_by = next(
            (path, base) for path, base in _paths(type(operator)).items() if "get_job_status" in vars(base)
        )
        now = {name for name, value in vars(operator).items() if type(value) is type(job_id) and value == job_id}
        attribute = next((name for name in sorted(now) if before.get(name) != job_id), "")
        arguments, unrecorded = _given(operator, made_by)
        return cls(path, job_id, arguments, attribute, unrecorded)

    def running(self) -> bool:
        with self.asking(self.conn_id):
            operator = self._operator()
            status = str(operator.get_job_status(self.job_id, {}))
            active = bool(operator.is_job_active(status))
            if not active and status.upper().startswith(_FORGOTTEN):
                raise NotFound(f"{self} is not known to connection {self.conn_id!r} (any more)")
        return active

    def cancel(self) -> None:
        if not self.attribute:
            raise CannotTell(f"{self} can be ended in its cluster only: its operator does not show how")
        with self.asking(self.conn_id):
            self._operator().on_kill()

    def reconnects(self, operator: Any, context: Any) -> bool:
        store = context.get("task_state_store") if getattr(operator, "durable", False) else None
        asking = ASKING.get(self.operator)
        if store is None or (asking.submits_anew(operator) if asking else getattr(operator, "deferrable", False)):
            return False
        if store.get(operator.external_id_key) != self.job_id:
            store.set(operator.external_id_key, self.job_id)  # it was killed between the lease's record and Airflow's
        return self.running()

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
        module, _, name = self.operator.rpartition(".")
        asking = ASKING.get(self.operator)
        try:
            made_by = getattr(import_module(module), name)
        except ImportError as error:
            raise CannotTell(
                f"{self} cannot be asked for here: install {asking.package if asking else module} ({error})"
            ) from error
        if not isinstance(made_by, type) or RESUMABLE.isdisjoint(_paths(made_by)):
            raise CannotTell(f"{self.operator} is no ResumableJobMixin")
        operator = made_by(task_id="asks", **(asking.constants if asking else {}), **self.arguments)
        if self.attribute:
            setattr(operator, self.attribute, self.job_id)
        return operator


def _paths(operator: type) -> dict[str, type]:
    return {f"{base.__module__}.{base.__qualname__}": base for base in operator.__mro__}


def _given(operator: Any, made_by: type) -> tuple[dict[str, Any], str]:
    """The arguments that *operator* was given for its class *made_by*, as rendered; and one that cannot be recorded."""
    found: dict[str, Any] = {}
    parameters = {name for base in made_by.__mro__ for name in _parameters(base)}
    for name in sorted(parameters & operator._BaseOperator__init_kwargs.keys()):
        value = getattr(operator, name, getattr(operator, f"_{name}", operator._BaseOperator__init_kwargs[name]))
        if not _is_plain(value) or _SECRET.search(name) or "{{" in str(value):
            return {}, name
        found[name] = value
    return found, ""


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
