"""``locked()``: makes the work of any operator class run under locks."""

from __future__ import annotations

import copyreg
import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.operators.inspection import undecorated
from airflow_hivelock.operators.mixin import HiveLockMixin

if TYPE_CHECKING:
    from collections.abc import Callable

Operator = TypeVar("Operator", bound=BaseOperator)

_SPARK_SUBMIT = "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator"


def locked(operator: type[Operator], *, work_ends_with_process: bool | None = None) -> type[Operator]:
    """A subclass of *operator* under locks, as if :class:`HiveLockMixin` came before it.

    ``locked(BashOperator)(task_id="load", bash_command="…", writes=["dw.t"])`` has the arguments of BashOperator and of
    HiveLockMixin. The result is always the same class for the same operator, with the name ``LockedBashOperator``. You
    can give the class another name in your code, derive from it and pickle it. For SparkSubmitOperator the result is
    HiveLockedSparkSubmitOperator.

    :param work_ends_with_process: whether all work ends with the task's process and its child processes. None means the
        setting of the operator's class.
    :raises InvalidRequest: *operator* is no operator class, or already takes locks.
    """
    if not inspect.isclass(operator) or not issubclass(operator, BaseOperator):
        raise InvalidRequest(f"locked({operator!r:.80}) needs the class of an operator, as in locked(BashOperator)")
    if issubclass(operator, NamesLocks):
        raise InvalidRequest(
            f"locked({operator.__name__}) is not needed, because the operator takes locks by itself. Use it without locked()"
        )
    return cast("type[Operator]", _locked(operator, work_ends_with_process))


@cache
def _locked(operator: type[BaseOperator], ends: bool | None) -> type[BaseOperator]:
    mixin: type[BaseOperator] = HiveLockMixin
    if any(f"{base.__module__}.{base.__qualname__}" == _SPARK_SUBMIT for base in operator.__mro__):
        from airflow_hivelock.operators.spark_submit import HiveLockedSparkSubmitOperator

        mixin = HiveLockedSparkSubmitOperator
    body: dict[str, Any] = {
        # The operator's module, because that configures its log.
        "__module__": operator.__module__,
        "__doc__": f"{operator.__name__} under locks, as airflow_hivelock.locked makes it.",
        "_locked_from": (operator, ends),
    }
    if ends is not None:
        body["work_ends_with_process"] = ends
    elif f"{operator.__module__}.{operator.__qualname__}" == _SPARK_SUBMIT:
        return mixin
    kind: Any = type(operator)
    bases = (mixin, _Undecorated, operator) if hasattr(operator, "get_python_source") else (mixin, operator)
    return cast("type[BaseOperator]", _metaclass(kind)(_name(operator), bases, body))


class _Undecorated:
    """Removes ``@task.hivelock`` from a function's source, which some operators pass to a Python without Airflow."""

    def get_python_source(self) -> str:
        return undecorated(super().get_python_source(), "task.hivelock")  # type: ignore[misc]


@cache
def _metaclass(of: Any) -> Any:
    """A metaclass for locked classes, which have no global name. It lets pickle create them again."""
    made = type(of.__name__, (of,), {})
    copyreg.pickle(made, _reduce)
    return made


def _reduce(cls: type) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """The form of *cls* for pickle. A class that derives from a locked class is stored by its name, like any class."""
    made_from = vars(cls).get("_locked_from")
    return cls.__qualname__ if made_from is None else (_locked, made_from)


def _name(operator: type) -> str:
    bare = operator.__name__.lstrip("_")
    return f"{'_' * (len(operator.__name__) - len(bare))}Locked{bare}"
