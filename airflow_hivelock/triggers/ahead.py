"""Logs the failed runs and the force releases of a waiter's blockers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from airflow_hivelock import comms
from airflow_hivelock.locks.errors import CannotTell, HiveLockError
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.spec import Owner
from airflow_hivelock.triggers.threads import Threads
from airflow_hivelock.work.hosts import declares_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import ForcedRelease
    from airflow_hivelock.waiting import MarkedBlocker

KNOWN_S = 30.0
"""The time for which an answer is cached, in seconds, because a thousand waiters can wait for one run."""

LAST_S = 1.0
"""The longest wait for the last answer after the locks are granted, in seconds, so that the log contains it."""

SLOW_S, REST = 0.2, 20.0
"""After a read of the audit trail that took longer than ``SLOW_S`` seconds, the next one waits ``REST`` times as long.

The trail of a store can contain many years.
"""

_OVER = frozenset({"failed", "upstream_failed", "skipped", "removed"})
_ends: comms.SharedAnswers[str] = comms.SharedAnswers(KNOWN_S)


class RunsAhead:
    """Asks Airflow and the audit trail, and logs the answers. A separate asyncio task asks, so that the wait continues.

    :param own: the task that waits. Its Airflow knows only its own tasks.
    :param manager: returns the lock manager. It is called only when there are blockers, so the waiter is connected.
    """

    def __init__(self, own: Owner, manager: Callable[[], LockManager], log: Any) -> None:
        self._own = own
        self._manager = manager
        self._log = log
        self._asking: asyncio.Task[None] | None = None

    def ask_about(self, marked: Sequence[MarkedBlocker]) -> None:
        """Start to ask about these blockers. Do nothing if the previous question has no answer yet."""
        if marked and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._log_ends(marked))

    async def ask_last(self, marked: Sequence[MarkedBlocker]) -> None:
        """Ask for the last time, and wait up to LAST_S, because later log lines can be missing in the task's log."""
        self.ask_about(marked)
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=LAST_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _log_ends(self, marked: Sequence[MarkedBlocker]) -> None:
        await self._log_force_releases(marked)
        for each in marked:
            owner = Owner.parse(each.owner)
            if owner is None or owner.installation != self._own.installation:
                continue
            if each.holds and (owner.dag_id, owner.run_id) == (self._own.dag_id, self._own.run_id):
                self._log.warning(
                    "%s is a task of this run. If it is this task's lock task, this task waits in vain: it needs lease=%s.output",
                    printable(each.owner),
                    printable(owner.task_id),
                )
            if end := await _ends.of(str(owner), partial(_ask, owner)):
                then = "; the keeper frees its lease when its work has ended" if each.holds else ""
                self._log.info("%s: %s%s", printable(each.owner), end, then)

    async def _log_force_releases(self, marked: Sequence[MarkedBlocker]) -> None:
        gone = {each.owner: each.held_since for each in marked if each.held_since is not None}
        manager = self._manager()
        for entry in await _trail_of(manager).after_now(manager) if gone else ():
            since = gone.get(entry.owner)
            if since is not None and entry.at >= since and not declares_gone(entry):
                self._log.info(
                    "%s force-released the lease of %s: %s", *map(printable, (entry.user, entry.owner, entry.reason))
                )


class _Trail:
    """The audit trail of one lock store. One read runs at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._threads = Threads(1)
        self._one = asyncio.Lock()
        self._next: asyncio.Task[Sequence[ForcedRelease]] | None = None
        self._rests_until = 0.0

    async def after_now(self, manager: LockManager) -> Sequence[ForcedRelease]:
        """The entries of a read that begins after this call. Callers share reads. Empty while reads are paused."""
        if self._next is None:
            if self.loop.time() < self._rests_until:
                return ()
            self._next = self.loop.create_task(self._read(manager))
        return await asyncio.shield(self._next)

    async def _read(self, manager: LockManager) -> Sequence[ForcedRelease]:
        async with self._one:
            self._next = None
            began = self.loop.time()
            try:
                return await self._threads.run(manager.audit)
            except HiveLockError:
                return ()
            finally:
                took_s = self.loop.time() - began
                self._rests_until = self.loop.time() + REST * took_s if took_s > SLOW_S else 0.0


_trails: WeakKeyDictionary[LockManager, _Trail] = WeakKeyDictionary()


def _trail_of(manager: LockManager) -> _Trail:
    loop = asyncio.get_running_loop()
    trail = _trails.get(manager)
    if trail is None or trail.loop is not loop:
        trail = _trails[manager] = _Trail(loop)
    return trail


async def _ask(owner: Owner) -> str:
    """A text about the end of the owner's run or task. Empty if both go on, or if Airflow does not answer."""
    try:
        state, tasks = await comms.run_of(owner)
    except CannotTell:
        return ""
    task = tasks.get(comms.key_of(owner), "")
    if state is None:
        return "Airflow does not know its run any more"
    if state in comms.FINISHED_RUN:
        return "its run has failed" if state == "failed" else "its run has ended, with success"
    if task == "up_for_retry":
        return "its task has failed, and waits for its next try"
    return f"its task is {task}" if task in _OVER else ""
