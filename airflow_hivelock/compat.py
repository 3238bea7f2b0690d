"""The differences between Airflow 3.1 and 3.3. No other module checks the version.

First come the names that have moved, as in the newest Airflow. Then the features that older ones lack, and the
consequences.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS, AIRFLOW_V_3_3_PLUS

if TYPE_CHECKING or AIRFLOW_V_3_2_PLUS:
    from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferralError, TaskDeferralTimeout
else:
    from airflow.exceptions import AirflowRescheduleException, TaskDeferralError, TaskDeferralTimeout

if TYPE_CHECKING or AIRFLOW_V_3_3_PLUS:
    from airflow.sdk.bases.decorator import is_decorated_task
    from airflow.sdk.exceptions import TaskAwaitingInput
    from airflow.sdk.log import amask_secret
    from airflow.sdk.observability import stats
else:
    from contextlib import suppress

    from airflow.providers.common.compat.sdk import Stats, mask_secret
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import MaskSecret

    class _Stats:
        """Finds the destination of a metric when it is sent, because it may not have been initialised before."""

        def __getattr__(self, name):
            return lambda *args, **kwargs: getattr(Stats, name)(*args, **kwargs)

    stats = _Stats()

    class TaskAwaitingInput(BaseException):
        """An exception that older Airflows never raise."""

    def is_decorated_task(function):
        return getattr(function, "_airflow_is_task_decorator", False)

    async def amask_secret(secret):
        mask_secret(secret)  # in this process: from an event loop mask_secret does not reach the supervisor
        with suppress(Exception):
            await asyncio.shield(task_runner.SUPERVISOR_COMMS.asend(MaskSecret(value=secret)))


if AIRFLOW_V_3_2_PLUS:
    from airflow.sdk.observability.metrics import stats_utils

__all__ = [
    "AirflowRescheduleException",
    "TaskAwaitingInput",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "amask_secret",
    "is_decorated_task",
    "stats",
]


def initialize_stats() -> None:
    """Send :data:`stats` to the destination in Airflow's configuration. Before 3.2 Airflow does this by itself."""
    if TYPE_CHECKING or AIRFLOW_V_3_3_PLUS:
        legacy = conf.getboolean("metrics", "legacy_names_on")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)
    elif AIRFLOW_V_3_2_PLUS:
        stats.initialize(factory=stats_utils.get_stats_factory(Stats))


TRIGGERS_RENDER = AIRFLOW_V_3_3_PLUS
"""Whether a task can start in the triggerer, which renders its fields."""

TRIGGERS_HEAR_OF_KILLS = AIRFLOW_V_3_3_PLUS
"""Whether Airflow calls a trigger's ``on_kill()`` when its task no longer waits for it."""

TRIGGERS_RETRY = AIRFLOW_V_3_3_PLUS
"""Whether Airflow retries a task that its trigger has failed, up to ``retries``."""

TRIGGERS_ASK_FROM_THREADS = AIRFLOW_V_3_3_PLUS
"""Whether a trigger's threads, such as hooks of clusters, may ask Airflow."""


_LACKS = (
    (
        TRIGGERS_RENDER,
        "Airflow 3.3 starts tasks in the triggerer and renders their templates there. Here a task starts on a worker for a "
        "moment, and takes free locks. If it has to wait, it then waits in the triggerer",
    ),
    (
        TRIGGERS_HEAR_OF_KILLS,
        "Airflow 3.3 notifies a trigger if its task no longer waits for it. Here a trigger that ends asks for the state of "
        "its task, and leaves the queue if the task is over",
    ),
    (
        TRIGGERS_RETRY,
        "Airflow 3.3 retries a task that its trigger has failed. Here a task that has waited too long fails on a worker "
        "instead, so that it is retried",
    ),
    (
        AIRFLOW_V_3_3_PLUS,
        "Airflow 3.3 lets a retry continue a job that a cluster runs (durable). Here a retry first ends the job of the "
        "earlier try, and submits a new one",
    ),
    (
        AIRFLOW_V_3_2_PLUS,
        "Airflow 3.2 has commands of providers, such as `airflow hivelock`. Here use `python -m airflow_hivelock.cli`",
    ),
)


def lacks() -> list[str]:
    """The features that this Airflow lacks, and the consequences; empty for 3.3."""
    return [text for present, text in _LACKS if not present]
