"""Renews the held leases of one Spark driver in a thread, and notices the loss of a lease."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import LockLost, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease

RETRY_S = 10.0
"""The pause before a release or a renewal is tried again if the lock store did not answer, in seconds."""

CHECK_S = 30.0
"""The longest pause between two checks of a held lease, in seconds. The store also notifies the driver of changes."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class HeldLease:
    """A lease of one thread.

    :param named: a user took it for several statements, and named its data.
    :param changed: gets an entry when the lease may have changed.
    :param renewed_at: the monotonic time of the latest renewal, or of the grant.
    :param check_at: the monotonic time of the next check.
    :param lost: the reason if the lease is lost.
    :param ended: whether its statements have ended. Another thread may have ended them.
    :param users: how many statements run under it.
    """

    lease: Lease
    named: bool
    changed: SimpleQueue[None]
    renewed_at: float
    check_at: float = 0.0
    lost: LockLost | None = None
    ended: bool = False
    users: int = 0

    def look_again(self) -> None:
        """Ask for a check in the next moment. The lock store calls it. Stores know a method of one lease as one watcher."""
        self.check_at = 0.0
        self.changed.put(None)

    def refuse_if_lost(self) -> None:
        """:raises LockLost: the lease is known to be lost."""
        if self.lost is not None:
            raise LockLost(f"the statement did not run: {self.lost}")


@dataclass(eq=False)
class OpenRows:
    """The locks of rows that are read one by one.

    The renewal refers to it, so that Python's garbage collector never ends its context managers. The collector runs in
    any thread and at any moment, also inside a call of the lock store.

    :param held: holds the locks until it is closed.
    :param leases: the leases that it has taken.
    :param abandoned: whether the reader has gone before the last row.
    :param ended: whether the locks are released.
    """

    renewal: Renewal
    held: ExitStack
    leases: list[HeldLease]
    abandoned: bool = False
    ended: bool = False

    def close(self) -> None:
        """Release the locks."""
        self.renewal.end_rows(self)

    def abandon(self) -> None:
        """Let the renewal thread release the locks. A finalizer calls it, so it takes no lock and asks no store."""
        if not self.ended:
            for each in self.leases:
                each.ended = True
            self.abandoned = True
            self.renewal.wake()


class Renewal:
    """The held leases of one driver. A thread renews and checks them. Several threads can use it.

    :param lease_s: how long a lease is trusted without renewal, in seconds.
    :param stop: called once for each lease that is lost while its statement may run.
    """

    def __init__(self, manager: LockManager, lease_s: float, stop: Callable[[Lease], None]) -> None:
        self._manager = manager
        self._lease_s = lease_s
        self._stop = stop
        self._held: dict[str, HeldLease] = {}
        self._unreleased: list[Lease] = []
        self._open: set[OpenRows] = set()
        self._guard = threading.RLock()  # a finalizer of a user's object may end a lease while this thread has it
        self._changed: SimpleQueue[None] = SimpleQueue()  # its put() is reentrant, and Event.set() is not
        self._ended = False
        self._thread: threading.Thread | None = None

    def begin(self, lease: Lease, named: bool) -> HeldLease:
        """Renew the lease from now on."""
        held = HeldLease(lease, named, self._changed, time.monotonic())
        with self._guard:
            self._held[lease.id] = held
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hive-locks", daemon=True)
                self._thread.start()
        if named:  # watch it now; most other leases end before the next round of the thread
            held.look_again()
        return held

    def end(self, held: HeldLease) -> None:
        """Stop renewing the lease."""
        held.ended = True
        with self._guard:
            self._held.pop(held.lease.id, None)

    def keep(self, held: ExitStack, leases: list[HeldLease]) -> OpenRows:
        """Keep the locks of rows that are read one by one.

        :param held: holds the locks until it is closed.
        :param leases: the leases that it has taken.
        """
        rows = OpenRows(self, held, leases)
        self._open.add(rows)
        return rows

    def end_rows(self, rows: OpenRows) -> None:
        """Release the locks of rows, once."""
        try:
            self._open.remove(rows)
        except KeyError:  # another thread has ended them
            return
        rows.ended = True
        rows.held.close()

    def wake(self) -> None:
        """Let the thread look again at once."""
        self._changed.put(None)

    def check(self, held: HeldLease) -> None:
        """Check in the lock store that the lease is still held. If the store does not answer, trust a lease that has not
        expired.

        :raises LockLost: it is not held.
        :raises StoreUnavailable: the store does not answer, and the lease has expired.
        """
        held.refuse_if_lost()
        try:
            self._manager.verify(held.lease)
        except LockLost as error:
            held.lost = error
        except StoreUnavailable as error:
            if time.monotonic() - held.renewed_at >= self._lease_s:
                raise
            log.warning("The lease of %s could not be checked. It has not expired: %s", held.lease.owner, error)
        held.refuse_if_lost()

    def release(self, lease: Lease) -> bool:
        """Release the lease, now or when the lock store answers again. Return False if it is known to be lost."""
        try:
            return self._manager.release(lease)
        except StoreUnavailable as error:
            log.warning("The lease of %s is not released yet; it is tried again: %s", lease.owner, error)
            self._unreleased.append(lease)
            return True

    def close(self) -> None:
        """Release all leases and end the thread."""
        self._ended = True
        self.wake()
        for rows in self._open.copy():
            self._end_safely(rows)
        with self._guard:
            held = [each.lease for each in list(self._held.values())]
            self._held.clear()  # so that the thread does not take their release for a loss
        for lease in [*held, *self._unreleased]:
            self.release(lease)

    def _run(self) -> None:
        pause_s = min(RETRY_S, self._lease_s / 3)
        retry_at = 0.0
        while not self._ended:
            self._wait(pause_s)
            for rows in self._open.copy():
                if rows.abandoned and not any(each.users for each in rows.leases):
                    self._end_safely(rows)
                    self.wake()  # they may have been read under the lease of other abandoned rows
            if time.monotonic() >= retry_at:
                self._retry_releases()
                retry_at = time.monotonic() + pause_s
            for held in list(self._held.values()):
                if held.lost is None and not self._ended:
                    self._keep(held)

    def _wait(self, pause_s: float) -> None:
        with suppress(Empty):
            self._changed.get(timeout=pause_s)
            while True:  # one look is enough for all entries
                self._changed.get_nowait()

    def _end_safely(self, rows: OpenRows) -> None:
        try:
            self.end_rows(rows)
        except Exception as error:  # noqa: BLE001 - otherwise the thread would end, and the other leases expire
            log.warning("The locks of rows that are no longer read were not held to their end: %s", error)

    def _retry_releases(self) -> None:
        for lease in list(self._unreleased):
            self._unreleased.remove(lease)
            try:
                self.release(lease)
            except Exception:  # otherwise the thread would end, and the other leases expire
                log.exception("The lease of %s could not be released; it is tried again", lease.owner)
                self._unreleased.append(lease)

    def _keep(self, held: HeldLease) -> None:
        """Check and renew the lease, if it is time."""
        now = time.monotonic()
        try:
            if now >= held.check_at:
                held.check_at = now + CHECK_S  # before the check, because a change during the check needs another one
                self._manager.verify(held.lease, held.look_again)
            if now - held.renewed_at >= self._lease_s / 3:
                self._manager.renew(held.lease)
                held.renewed_at = now
        except LockLost as error:
            if held.lease.id in self._held:  # otherwise its own thread has just released it
                self._lose(held, error)
        except Exception as error:  # noqa: BLE001 - otherwise the thread would end, and the other leases expire
            held.check_at = now
            log.warning("The lease of %s was not checked or renewed; it is tried again: %s", held.lease.owner, error)

    def _lose(self, held: HeldLease, error: LockLost) -> None:
        held.lost = error
        log.error("Stopping the statement: %s", error)
        try:
            self._stop(held.lease)
        except Exception:  # Spark can raise any exception
            log.exception("The statement of %s could not be stopped, and runs without its locks", held.lease.owner)
