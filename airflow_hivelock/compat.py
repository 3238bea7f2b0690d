"""What differs between the Airflows that this runs on, 3.1 to 3.3. No other module asks which one it is.

First the names that have moved, each as the newest Airflow has it. Then what older ones lack, and what that means.
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
        """Looks where metrics go when one is told, and not before: they may not have been initialised yet."""

        def __getattr__(self, name):
            return lambda *told, **more: getattr(Stats, name)(*told, **more)

    stats = _Stats()

    class TaskAwaitingInput(BaseException):
        """Nothing raises it."""

    def is_decorated_task(function):
        return getattr(function, "_airflow_is_task_decorator", False)

    async def amask_secret(secret):
        mask_secret(secret)  # in this process: from an event loop its word does not reach the supervisor
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
    """Have :data:`stats` go where Airflow's configuration says. Before 3.2 they do by themselves."""
    if TYPE_CHECKING or AIRFLOW_V_3_3_PLUS:
        legacy = conf.getboolean("metrics", "legacy_names_on")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)
    elif AIRFLOW_V_3_2_PLUS:
        stats.initialize(factory=stats_utils.get_stats_factory(Stats))


TRIGGERS_RENDER = AIRFLOW_V_3_3_PLUS
"""Whether a task can start in the triggerer, which renders its fields."""

TRIGGERS_HEAR_OF_KILLS = AIRFLOW_V_3_3_PLUS
"""Whether a trigger's ``on_kill()`` is called once its task no longer waits for it."""

TRIGGERS_RETRY = AIRFLOW_V_3_3_PLUS
"""Whether a task that its trigger has failed is tried again, as ``retries`` says."""

TRIGGERS_ASK_FROM_THREADS = AIRFLOW_V_3_3_PLUS
"""Whether what a trigger runs in threads, as hooks of clusters, may ask Airflow."""


_LACKS = (
    (
        TRIGGERS_RENDER,
        "Airflow 3.3 starts tasks in the triggerer and renders their templates there; here a task begins on a worker, for a "
        "moment, takes what is free, and only then waits in the triggerer",
    ),
    (
        TRIGGERS_HEAR_OF_KILLS,
        "Airflow 3.3 tells a trigger that its task no longer waits for it; here each trigger that ends asks what has become "
        "of its task, and leaves the queue if that is over",
    ),
    (
        TRIGGERS_RETRY,
        "Airflow 3.3 retries a task that its trigger has failed; here one that has waited too long fails on a worker, for a "
        "moment, so that it is retried",
    ),
    (
        AIRFLOW_V_3_3_PLUS,
        "Airflow 3.3 lets a retry go on with a job that a cluster runs (durable); here it first ends what an earlier try has "
        "left running, and starts anew",
    ),
    (
        AIRFLOW_V_3_2_PLUS,
        "Airflow 3.2 has commands of providers; here `python -m airflow_hivelock.cli` is what `airflow hivelock` is there",
    ),
)


def lacks() -> list[str]:
    """What this Airflow lacks, and what that means; nothing for 3.3."""
    return [text for present, text in _LACKS if not present]
