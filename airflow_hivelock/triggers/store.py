"""Waits in the triggerer until the lock store answers. The task then asks the store on a worker."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from airflow_hivelock import metrics
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.pending import OUTAGE_S, Patience, Silent
from airflow_hivelock.triggers.lock import LockTrigger
from airflow_hivelock.waiting.rounds import resume_s

if TYPE_CHECKING:
    from airflow_hivelock.hooks import HiveLockHook


class HiveLockStoreTrigger(LockTrigger):
    """Resumes a task when the lock store answers. It acquires no locks and is in no queue.

    :param unanswered: the number of workers in a row that got no answer.
    """

    def __init__(self, *, unanswered: int = 1, **kwargs: Any) -> None:
        super().__init__(**{"reads": (), "writes": (), **kwargs})
        self.unanswered = unanswered

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "unanswered": self.unanswered}

    async def _event(self) -> TriggerEvent:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        hook = await self._hook()
        patience = Patience(None, OUTAGE_S, time.monotonic)
        while (silent := await self._in_pool(lambda: _ask(hook, patience))) is not None:
            if silent.first:
                self.log.warning("%s", silent)
            await asyncio.sleep(silent.recheck_s)
        await asyncio.sleep(begun + resume_s(self.unanswered) - loop.time())
        return TriggerEvent({"unanswered": self.unanswered})  # type: ignore[no-untyped-call]


def _ask(hook: HiveLockHook, patience: Patience) -> Silent | None:
    """Ask the lock store. Return None if it answers.

    :raises StoreUnavailable: the store has not answered for ten minutes.
    """
    try:
        hook.manager().now()
    except StoreUnavailable as error:
        metrics.store_failed()
        return patience.bear(error)
    return None
