"""HiveLockSensor: waits until data is free, and locks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, BaseSensorOperator

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.operators.arguments import check_switch
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.spec import LockSpec
from airflow_hivelock.triggers.lock import HiveLockSensorTrigger
from airflow_hivelock.waiting import Look

if TYPE_CHECKING:
    from collections.abc import Mapping


class HiveLockSensor(NamesLocks, BaseSensorOperator):
    """Succeeds when its data is free: a task that asked for these locks now would get them.

    The sensor takes no locks, so another task can lock the data a moment later. To work on the data, use
    HiveLockOperator. The sensor waits in the triggerer.

    :param deferrable: False waits on a worker, according to ``mode`` and ``poke_interval``.
    """

    _resume_method = "found_free"

    def __init__(self, *, deferrable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check_whole(vars(self))
        self.deferrable = deferrable
        check_switch(vars(self), "deferrable")
        self._look: Look | None = None
        if deferrable:
            self._start_in_triggerer(HiveLockSensorTrigger, self._trigger_kwargs())

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        super().check_arguments(arguments)
        check_switch(arguments, "deferrable")

    def execute(self, context: Any) -> Any:
        if not self.deferrable:
            return super().execute(context)
        hook = HiveLockHook(self.hivelock_conn_id)
        if not LockSpec.of(self).takes_locks(hook, self.log):
            return None
        return self._defer_to(HiveLockSensorTrigger, self._trigger_kwargs(), hook, context)

    def poke(self, context: Any) -> bool:
        if self._look is None:
            hook = HiveLockHook(self.hivelock_conn_id)
            if not LockSpec.of(self).takes_locks(hook, self.log):
                return True
            self._look = Look(lambda: (hook.manager(), self._request(hook, context)), None, None, self.log)
        return bool(self._look.poll())

    def found_free(self, context: Any, event: str) -> None:
        """Check the event of the trigger. Only dag.test() calls this: in Airflow, the trigger itself ends the task."""
        if event != "success":
            raise AirflowException(f"the trigger ended the task as {event}. The reason is in the task's log")

    def _trigger_kwargs(self) -> dict[str, Any]:
        return {"timeout_s": float(self.timeout), "soft_fail": self.soft_fail}
