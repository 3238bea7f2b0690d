"""Checks the work under leases in separate threads, and frees leases that are over."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_hivelock import metrics
from airflow_hivelock.locks.errors import HiveLockError, StoreUnavailable
from airflow_hivelock.locks.invalid import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.triggers.threads import Threads
    from airflow_hivelock.work.stale import Verdict

CHECK_S = 30.0
"""The time limit of a check of work, in seconds. It includes the wait for a free thread."""

AT_ONCE = 32
"""The most checks at a time. Each one is a thread of the triggerer."""

FORGET_S = 3600.0
"""For how long the start of a check is remembered, in seconds."""


class WorkChecks:
    """The running checks, by lease id.

    :param threads: for calls to the lock store. A check has a separate thread.
    """

    def __init__(self, threads: Threads) -> None:
        self._running: dict[str, Future[Verdict]] = {}
        self._began: dict[str, float] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._threads = threads

    def began(self, lease: Lease) -> float:
        """When the last check of *lease* began, on the monotonic clock. 0: it is not known.

        Check the leases in this order. Otherwise the leases of a silent cluster could take all threads each time.
        """
        return self._began.get(lease.id, 0.0)

    async def verdict(self, lease_id: str, judge: Callable[[], Verdict]) -> Verdict:
        """Call *judge* in a separate thread, because a silent cluster can block a thread for ever. Return its verdict.

        :raises CannotTell: the cluster's answer is not usable.
        :raises TimeoutError: the cluster does not answer in time. The next check starts only after this one has ended.
            Or too many checks of other leases have not ended.
        """
        until = asyncio.get_running_loop().time() + CHECK_S
        self._running = {each: check for each, check in self._running.items() if not check.done()}
        if lease_id in self._running:
            raise TimeoutError("an earlier check has not ended")
        try:
            async with asyncio.timeout_at(until):
                await self._room.acquire()
        except TimeoutError:
            raise TimeoutError(f"{AT_ONCE} checks of other leases have not ended") from None
        async with asyncio.timeout_at(until):
            return await asyncio.wrap_future(self._start(lease_id, judge))

    def _start(self, lease_id: str, judge: Callable[[], Verdict]) -> Future[Verdict]:
        """Start a check. The caller has acquired its room, which is released when the thread ends."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        running: Future[Verdict] = Future()
        running.set_running_or_notify_cancel()

        def leave(_: Future[Verdict]) -> None:
            with suppress(RuntimeError):  # the event loop has ended, and with it this keeper
                loop.call_soon_threadsafe(self._room.release)

        def check() -> None:
            try:
                running.set_result(judge())
            except Exception as error:  # noqa: BLE001 - the caller that awaits the result gets it
                running.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - SystemExit would end the triggerer's event loop
                running.set_exception(RuntimeError(f"the check raised {error!r}"))

        try:
            threading.Thread(target=check, name="hivelock-check", daemon=True).start()
        except BaseException:  # the triggerer cannot start more threads now; a later check can
            self._room.release()
            raise
        running.add_done_callback(leave)
        self._running[lease_id] = running
        self._began = {each: at for each, at in self._began.items() if at > now - FORGET_S} | {lease_id: now}
        return running

    async def free(
        self, manager: LockManager, installation: str, lease: Lease, verdict: Verdict, log: Any
    ) -> str | None:
        """Free a stale *lease* if it is unchanged. Return a reason if a user has to check it, else None."""
        user = f"keeper of {installation}"
        try:
            freed = await self._threads.run(
                manager.force_release, lease.id, reason=verdict.reason, user=user, seen=lease
            )
        except StoreUnavailable:
            raise
        except HiveLockError as error:
            return f"{verdict.reason}, but {error}"
        if freed:
            metrics.force_released()
            log.info("Freed lease %s of %s: %s", lease.id, printable(lease.owner), verdict.reason)
        return None
