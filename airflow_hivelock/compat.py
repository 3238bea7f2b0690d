"""The differences between Airflow 3.1 and 3.3. No other module checks the version.

The first part exports names that Airflow has moved, by their name in the newest Airflow. The second part has the
features that an older Airflow lacks, and what happens without them.
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
        """Looks ``Stats`` up at each metric, because Airflow may initialise it after this import."""

        def __getattr__(self, name):
            return lambda *args, **kwargs: getattr(Stats, name)(*args, **kwargs)

    stats = _Stats()

    class TaskAwaitingInput(BaseException):
        """A stand-in, so that code can catch it. Airflow before 3.3 never raises it."""

    def is_decorated_task(function):
        return getattr(function, "_airflow_is_task_decorator", False)

    async def amask_secret(secret):
        mask_secret(secret)  # only in this process: in an event loop, mask_secret does not reach the supervisor
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
    """Make :data:`stats` send to the destination in Airflow's configuration. Airflow before 3.2 does this itself."""
    if TYPE_CHECKING or AIRFLOW_V_3_3_PLUS:
        legacy = conf.getboolean("metrics", "legacy_names_on")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)
    elif AIRFLOW_V_3_2_PLUS:
        stats.initialize(factory=stats_utils.get_stats_factory(Stats))


TRIGGERS_RENDER = AIRFLOW_V_3_3_PLUS
"""Whether a task can start in the triggerer, and the triggerer renders the task's fields."""

TRIGGERS_HEAR_OF_KILLS = AIRFLOW_V_3_3_PLUS
"""Whether Airflow calls a trigger's ``on_kill()`` when its task no longer waits for it."""

TRIGGERS_RETRY = AIRFLOW_V_3_3_PLUS
"""Whether Airflow retries a task that its trigger has failed, up to ``retries``."""

TRIGGERS_ASK_FROM_THREADS = AIRFLOW_V_3_3_PLUS
"""Whether a trigger's threads, such as hooks of clusters, may ask Airflow."""


_LACKS = (
    (
        TRIGGERS_RENDER,
        "Airflow 3.3 starts tasks in the triggerer and renders their templates there. Here a task starts on a worker and takes "
        "free locks. If a lock is not free, the task gives its slot back and waits in the triggerer",
    ),
    (
        TRIGGERS_HEAR_OF_KILLS,
        "Airflow 3.3 notifies a trigger if its task no longer waits for it. Here a trigger that ends asks Airflow for the "
        "state of its task. If the task has ended, the trigger leaves the queue",
    ),
    (
        TRIGGERS_RETRY,
        "Airflow 3.3 retries a task that its trigger has failed. Here a worker fails a task after its time-out, so that Airflow "
        "retries it",
    ),
    (
        AIRFLOW_V_3_3_PLUS,
        "Airflow 3.3 lets a retry continue a job that runs in a cluster (durable). Here a retry ends the job of the earlier "
        "try, and then submits a new one",
    ),
    (
        AIRFLOW_V_3_2_PLUS,
        "Airflow 3.2 lets a provider add commands, such as `airflow hivelock`. Here use `python -m airflow_hivelock.cli`",
    ),
)


def lacks() -> list[str]:
    """A text for each feature that this Airflow lacks, with the consequence. Airflow 3.3 lacks none."""
    return [text for present, text in _LACKS if not present]
