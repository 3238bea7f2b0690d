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

ROWS = {
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
    :param unrecorded: an argument that would be needed as well, and cannot be recorded; ``""`` for none.
    """

    kind: ClassVar = "resumable"
    operators: ClassVar[Mapping[str, str]] = {path: row.attribute for path, row in ROWS.items()}

    operator: str
    job_id: int | str
    arguments: dict[str, Any]
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
        validate.text(self.unrecorded, "unrecorded")
        if not isinstance(self.arguments, dict) or not all(map(_is_plain, self.arguments.values())):
            raise ValueError(f"arguments={self.arguments!r:.80}")

    @classmethod
    def of(cls, operator: Any) -> Self | None:
        paths = {f"{base.__module__}.{base.__qualname__}": base for base in type(operator).__mro__}
        found = next((path for path in paths if path in ROWS), None)
        if found is None:
            return None
        job_id = getattr(operator, ROWS[found].attribute, None)
        return None if job_id is None else cls.submitted(operator, job_id)

    @classmethod
    def submitted(cls, operator: Any, job_id: int | str) -> Self:
        """The job of that id, which *operator* has submitted."""
        paths = {f"{base.__module__}.{base.__qualname__}": base for base in type(operator).__mro__}
        for path in paths:
            if (row := ROWS.get(path)) is not None:
                given = {name: getattr(operator, attribute) for name, attribute in row.arguments.items()}
                return cls(path, job_id, {name: value for name, value in given.items() if value is not None})
        path, made_by = next((path, base) for path, base in paths.items() if "get_job_status" in vars(base))
        arguments, unrecorded = _given(operator, made_by)
        return cls(path, job_id, arguments, unrecorded)

    def running(self) -> bool:
        with self.asking(self.conn_id):
            asking = self._operator()
            status = str(asking.get_job_status(self.job_id, {}))
            active = bool(asking.is_job_active(status))
            if not active and status.upper().startswith(_FORGOTTEN):
                raise NotFound(f"{self} is not known to connection {self.conn_id!r} (any more)")
        return active

    def cancel(self) -> None:
        with self.asking(self.conn_id):
            self._operator().on_kill()

    def reconnects(self, operator: Any, context: Any) -> bool:
        store = context.get("task_state_store") if getattr(operator, "durable", False) else None
        row = ROWS.get(self.operator)
        if store is None or (row.submits_anew(operator) if row else getattr(operator, "deferrable", False)):
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
        row = ROWS.get(self.operator)
        made_by = getattr(import_module(module), name)
        if not isinstance(made_by, type) or RESUMABLE not in [
            f"{base.__module__}.{base.__qualname__}" for base in made_by.__mro__
        ]:
            raise CannotTell(f"{self.operator} is no ResumableJobMixin")
        asking = made_by(task_id="asks", **(row.constants if row else {}), **self.arguments)
        if row is not None:
            setattr(asking, row.attribute, self.job_id)
        return asking


def _given(operator: Any, made_by: type) -> tuple[dict[str, Any], str]:
    """The arguments that *operator* was given for its class *made_by*, and one of them that cannot be recorded."""
    found: dict[str, Any] = {}
    for base in made_by.__mro__:
        if base.__module__.startswith("airflow.sdk."):
            continue
        init = vars(base).get("__init__")
        for name, parameter in inspect.signature(init).parameters.items() if init else ():
            if parameter.kind is not parameter.KEYWORD_ONLY or name in found:
                continue
            value = getattr(operator, name, getattr(operator, f"_{name}", parameter.default))
            if value == parameter.default:
                continue
            if not _is_plain(value):
                return {}, name
            found[name] = value
    return found, ""


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and len(value) <= 300
    return value is None or isinstance(value, bool | int | float)
