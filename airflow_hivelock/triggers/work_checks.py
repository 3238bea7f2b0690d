"""Checks the work under leases in separate threads, and frees leases that are over."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
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
"""The time limit of a check of work, in seconds."""


class WorkChecks:
    """The running checks, by lease id.

    :param threads: for calls to the lock store. A check has a separate thread.
    """

    def __init__(self, threads: Threads) -> None:
        self._running: dict[str, Future[Verdict]] = {}
        self._threads = threads

    async def verdict(self, lease_id: str, judge: Callable[[], Verdict]) -> Verdict:
        """Call *judge* in a separate thread, because a silent cluster can block a thread for ever. Return its verdict.

        :raises CannotTell: the cluster's answer is not usable.
        :raises TimeoutError: the cluster does not answer in time. The next check starts only after this one has ended.
        """
        self._running = {each: check for each, check in self._running.items() if not check.done()}
        if lease_id in self._running:
            raise TimeoutError("an earlier check has not ended")
        running = self._running[lease_id] = Future()
        running.set_running_or_notify_cancel()

        def check() -> None:
            try:
                running.set_result(judge())
            except Exception as error:  # noqa: BLE001 - the caller that awaits the result gets it
                running.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - SystemExit would end the triggerer's event loop
                running.set_exception(RuntimeError(f"the check raised {error!r}"))

        threading.Thread(target=check, name="hivelock-check", daemon=True).start()
        return await asyncio.wait_for(asyncio.wrap_future(running), CHECK_S)

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
