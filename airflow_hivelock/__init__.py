"""Hive's own table and partition locks for Airflow tasks.

Each public name is imported when it is first used, so ``import airflow_hivelock`` does not import Airflow. A Spark job
or a script can use :mod:`airflow_hivelock.locks` without Airflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_hivelock.callbacks import release_locks
    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.locks.plan.manifest import locks_of_manifest
    from airflow_hivelock.operators.block import hive_lock
    from airflow_hivelock.operators.force_unlock import HiveForceUnlockOperator
    from airflow_hivelock.operators.hold import hold
    from airflow_hivelock.operators.lock import HiveLockOperator, HiveUnlockOperator
    from airflow_hivelock.operators.locked import locked
    from airflow_hivelock.operators.mixin import HiveLockMixin
    from airflow_hivelock.operators.spark_submit import HiveLockedSparkSubmitOperator
    from airflow_hivelock.operators.weights import BackfillsLast
    from airflow_hivelock.sensors import HiveLockSensor

__all__ = [
    "BackfillsLast",
    "HiveForceUnlockOperator",
    "HiveLockHook",
    "HiveLockMixin",
    "HiveLockOperator",
    "HiveLockSensor",
    "HiveLockedSparkSubmitOperator",
    "HiveUnlockOperator",
    "hive_lock",
    "hold",
    "locked",
    "locks_of_manifest",
    "release_locks",
]

__version__ = "0.1.0"

_HOMES = {
    "BackfillsLast": "operators.weights",
    "HiveForceUnlockOperator": "operators.force_unlock",
    "HiveLockHook": "hooks",
    "HiveLockMixin": "operators.mixin",
    "HiveLockOperator": "operators.lock",
    "HiveLockSensor": "sensors",
    "HiveLockedSparkSubmitOperator": "operators.spark_submit",
    "HiveUnlockOperator": "operators.lock",
    "hive_lock": "operators.block",
    "hold": "operators.hold",
    "locked": "operators.locked",
    "locks_of_manifest": "locks.plan.manifest",
    "release_locks": "callbacks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
