"""Looks up connections once for hundreds of triggers that start together, and decides when to retry a failed one."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_hivelock import comms
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.pauses import pauses
from airflow_hivelock.locks.pending import FIRST_PAUSE_S, LONGEST_PAUSE_S, OUTAGE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.settings import Settings

CONNECTION_S = 30.0
"""The time for which the triggerer caches a connection, in seconds."""

_hooks: comms.SharedAnswers[HiveLockHook] = comms.SharedAnswers(CONNECTION_S)


async def hook_of(conn_id: str, log: Any) -> HiveLockHook:
    """The hook of a connection. All triggers share it for CONNECTION_S. While Airflow does not answer, ask again.

    :param log: the task's log.
    :raises CannotTell: Airflow has not answered for OUTAGE_S.
    :raises InvalidRequest: the connection cannot be used.
    """
    until = time.monotonic() + OUTAGE_S
    pause_s, logged = pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S), False
    while True:
        try:
            return await _hooks.of(conn_id, partial(_load, conn_id))
        except CannotTell as error:
            if time.monotonic() > until:
                raise
            if not logged:
                log.warning("%s. Asking again, for %g s at most", error, OUTAGE_S)
                logged = True
        await asyncio.sleep(next(pause_s))


async def _load(conn_id: str) -> HiveLockHook:
    hook = HiveLockHook(conn_id)
    try:
        await comms.load(hook)
    except BaseException:
        _hooks.forget(conn_id)
        raise
    return hook


class Trial:
    """Remembers whether a connection has worked with its present settings, and when to try it again if not."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._good: Settings | None = None
        self._bad: Settings | None = None
        self._since = self._again_at = 0.0
        self._pauses: Iterator[float] = iter(())
        self._most_s = 0.0  # 0: it does not fail

    def is_due(self, settings: Settings | None) -> bool:
        return settings != self._bad or time.monotonic() >= self._again_at

    def worked(self, settings: Settings) -> None:
        self._good, self._bad, self._most_s = settings, None, 0.0

    def failed(self, settings: Settings | None, most_s: float) -> tuple[float, float]:
        """The time since the first failure, and the next pause, in seconds. Both are 0 for settings that have worked.

        :param most_s: the longest pause.
        """
        now = time.monotonic()
        if settings is not None and settings == self._good:
            return 0.0, 0.0
        if settings != self._bad or not self._most_s:
            self._bad, self._since, self._most_s = settings, now, 0.0
        if most_s != self._most_s:  # another kind of failure begins with short pauses
            self._pauses, self._most_s = pauses(self._every_s, most_s), most_s
        pause_s = next(self._pauses)
        self._again_at = now + pause_s
        return now - self._since, pause_s
