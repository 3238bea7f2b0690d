"""``@task.hivelock``: runs a TaskFlow task under locks, alone or above another decorator of Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attr
from airflow.providers.standard.decorators.python import python_task

from airflow_hivelock.compat import is_decorated_task
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.operators.locked import locked
from airflow_hivelock.operators.mixin import HiveLockMixin

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk.bases.decorator import TaskDecorator


def hivelock_task(
    python_callable: Callable[..., Any] | None = None,
    *,
    work_ends_with_process: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """``@task.hivelock(writes=["dw.delays/dt={{ ds }}"])``: the function runs under locks.

    On a plain function it is ``@task`` under locks. Above another decorator of Airflow, such as ``@task.bash`` or
    ``@task.branch``, it adds locks to that decorator's task. It has the arguments of HiveLockMixin and of the task's
    operator. ``partial``, ``expand`` and ``override`` work as with any task.

    :param work_ends_with_process: as for :func:`airflow_hivelock.locked`.
    :raises InvalidRequest: an argument is invalid, or the task already takes locks.
    """

    def lock(function: Any) -> Any:
        if not hasattr(function, "__name__"):
            raise InvalidRequest(
                f"@task.hivelock needs a function below it, or a decorator of one task, not {function!r:.80}. To lock a task group, "
                "write with hive_lock(…): inside it"
            )
        inner: Any = function if is_decorated_task(function) else python_task(function)
        both = sorted(kwargs.keys() & inner.kwargs.keys() - {"task_id"})
        if both:
            raise InvalidRequest(
                f"{inner.kwargs['task_id']}: {', '.join(both)} has a value in both decorators. Keep one of them"
            )
        arguments = {**inner.kwargs, **kwargs}
        # Airflow keeps this one apart, and passes it to the operator itself.
        apart = {name: arguments.pop(name) for name in ("multiple_outputs",) if name in arguments}
        HiveLockMixin.check_arguments(arguments)
        kind = locked(inner.operator_class, work_ends_with_process=work_ends_with_process)
        return attr.evolve(inner, operator_class=kind, kwargs=arguments, **apart)

    return cast("TaskDecorator", lock if python_callable is None else lock(python_callable))
