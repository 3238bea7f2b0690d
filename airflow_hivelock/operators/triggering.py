"""Refuses operators that let Airflow trigger a run. Airflow does that after ``execute()``, when the locks are free."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DagRunTriggerException

from airflow_hivelock.locks.errors import InvalidRequest

_TRIGGERS = "airflow.providers.standard.operators.trigger_dagrun.TriggerDagRunOperator"


def check_class(cls: type) -> None:
    """Check that *cls*, an operator under locks, is no TriggerDagRunOperator.

    :raises InvalidRequest: it is.
    """
    if any(f"{base.__module__}.{base.__qualname__}" == _TRIGGERS for base in cls.__mro__):
        raise _refusal(cls.__name__)


def check_error(task_id: str, error: Exception) -> None:
    """Check that *error*, which ``execute()`` has raised, does not make Airflow trigger a run.

    :raises InvalidRequest: it does. Airflow then triggers no run.
    """
    if isinstance(error, DagRunTriggerException):
        raise _refusal(task_id) from error


def _refusal(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name}: Airflow triggers the run after execute(), so the locks would be free before that run starts. Put a "
        "TriggerDagRunOperator with wait_for_completion=True into a block, with hive_lock(…):, or between a HiveLockOperator "
        "and a HiveUnlockOperator"
    )
