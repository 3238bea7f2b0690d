"""LockManager: waiting, deadlines, renewal and release, over any backend."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.errors import InvalidRequest, LockTimeout
from airflow_hivelock.locks.model import Lease, Lock, LockObject, LockRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Acquisition, Backend, Capabilities
    from airflow_hivelock.locks.model import ForcedRelease, Holder, Tenure, Waiter

MAX_SAID_LENGTH = 2_000
"""How long a reason, and who gives it, may be."""

PASSING_S = 10.0
"""How long a request that does not wait still gives one that is about to be granted or withdrawn."""


class PendingLease:
    """A request under way, for those who wait in their own fashion: a thread, an event loop, a reschedule.

    Call :meth:`poll`; while it says Blocked, wait until ``wake`` is called or :meth:`wait_s` has passed, and call
    it again. :meth:`withdraw` unless a lease came out.
    """

    def __init__(
        self,
        backend: Backend,
        request: LockRequest,
        wake: Callable[[], None],
        timeout_s: float | None,
        clock: Callable[[], float],
    ) -> None:
        self.request = request
        self._timeout_s = timeout_s
        self._clock = clock
        self._started = clock()
        self._blocked: Blocked | None = None
        self._acquisition: Acquisition = backend.begin(request, wake)

    def poll(self) -> Lease | Blocked:
        """One step, without waiting.

        :raises LockTimeout: the deadline has passed; the place in the queue is given up.
        """
        outcome = self._acquisition.step()
        self._blocked = outcome if isinstance(outcome, Blocked) else None
        if isinstance(outcome, Blocked) and self.wait_s() == 0:
            self.withdraw()
            raise LockTimeout(self._late(outcome), outcome.by)
        return outcome

    def wait_s(self) -> float | None:
        """How long to wait for a wake-up at most, in seconds; None: as long as it takes; 0: not at all."""
        blocked = self._blocked
        if blocked is None or self._timeout_s is None:
            return blocked.recheck_s if blocked else None
        allowed = max(self._timeout_s, PASSING_S) if blocked.passing else self._timeout_s
        left = max(0.0, allowed - (self._clock() - self._started) - blocked.waited_s)
        return left if blocked.recheck_s is None else min(left, blocked.recheck_s)

    def withdraw(self) -> None:
        """Leave the queue."""
        self._acquisition.withdraw()

    def hand_over(self) -> None:
        """Leave the place in the queue to the owner's next process, and let those behind pass until there is one."""
        self._acquisition.hand_over()

    def _late(self, blocked: Blocked) -> str:
        parents = {parent for lock in self.request.locks for parent in lock.object.parents}
        leaves = [str(lock) for lock in self.request.locks if lock.object not in parents]
        more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
        by = "; ".join(str(blocker) for blocker in blocked.by[:3])
        return (
            f"{self.request.owner} did not get {', '.join(leaves[:3])}{more} within {self._timeout_s:g} s: {by}. "
            "Wait longer (timeout), or look at the holder with SHOW LOCKS … EXTENDED"
        )


class LockManager:
    """Hive's locks over one backend. Safe for several threads; use it as a context manager, or call :meth:`close`.

    :param clock: monotonic seconds; a test's own.
    """

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend = backend
        self._clock = clock

    @property
    def capabilities(self) -> Capabilities:
        """What the lock store promises."""
        return self.backend.capabilities

    def acquire(
        self,
        *,
        owner: str,
        reads: Iterable[str | LockObject] = (),
        writes: Iterable[str | LockObject] = (),
        lease_s: float = 3600.0,
        timeout_s: float | None = 0.0,
        attempt: int = 0,
        query: str = "",
    ) -> Lease:
        """Lock *reads* SHARED and *writes* EXCLUSIVE, with SHARED on all their parents; all of it or nothing.

        :param timeout_s: how long to wait in the queue, in seconds; 0: not at all; None: without end.
        :raises InvalidRequest: bad input; nothing was touched.
        :raises LockTimeout: naming who is in the way.
        """
        wanted = rules.request(owner, reads, writes, lease_s=lease_s, attempt=attempt, wait=timeout_s != 0, query=query)
        changed = threading.Event()
        pending = self.begin(wanted, changed.set, timeout_s)
        try:
            while True:
                outcome = pending.poll()
                if isinstance(outcome, Lease):
                    return outcome
                changed.wait(pending.wait_s())
                changed.clear()
        except LockTimeout:
            raise
        except BaseException:
            pending.withdraw()
            raise

    def begin(self, request: LockRequest, wake: Callable[[], None], timeout_s: float | None = None) -> PendingLease:
        """Start a request without waiting for it; *wake* is called, from any thread, when polling is worthwhile."""
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s >= 0):
            raise InvalidRequest(
                f"timeout_s={timeout_s!r} of {request.owner}: give seconds, 0 for no waiting, None for no end"
            )
        return PendingLease(self.backend, request, wake, timeout_s, self._clock)

    def renew(self, lease: Lease) -> None:
        """Extend *lease* by its ``lease_s`` from now. Raises LockLost when it no longer stands."""
        self.backend.renew(lease)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Raise LockLost unless *lease* and all of its locks still stand.

        :param wake: called once, from any thread, when that may have changed: verify again.
        """
        self.backend.verify(lease, wake)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Record that *application* starts under *lease*, and give it a new token; what had that *name* is shut out.

        Make sure first that what ran under that name has ended: a token keeps it from publishing, not from running.

        :return: the lease, with the new token.
        """
        return self.backend.start_work(lease, name, application)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """Record what runs under that name by now, an id that it has got, say; its token stays.

        :param application: ``""`` while nothing of it runs that its starter knows of, None when it has ended.
        """
        return self.backend.record_work(lease, name, application)

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Raise LockLost unless work may still publish: the last look before it does."""
        self.backend.check_token(lease_id, name, token)

    def release(self, lease: Lease) -> bool:
        """Free *lease*. What is already gone is success; what a later attempt has taken over is left alone.

        :return: whether this call freed it.
        """
        return self.backend.release(lease)

    def show(self, target: str | LockObject | None = None) -> Sequence[Holder]:
        """The holders on *target* and below it, or of everything: ours and Hive's own."""
        return self.backend.show(_target(target))

    def waiters(self, target: str | LockObject | None = None) -> Sequence[Waiter]:
        """Who waits, in their order."""
        return self.backend.waiters(_target(target))

    def history(self, target: str | LockObject | None = None) -> Sequence[Tenure]:
        """The leases of the last days, held or ended: who asked when, was granted when, and ended when."""
        return self.backend.history(_target(target))

    def leases(self) -> Sequence[Lease]:
        """Every lease that stands, whoever's it is."""
        return self.backend.leases()

    def requests(self) -> tuple[Sequence[Lease], Sequence[Waiter]]:
        """Every lease that stands, and who waits: of one look where the store allows it."""
        return self.backend.requests()

    def find(self, lease_id: str) -> Lease | None:
        """The lease of that id while it stands, else None."""
        return self.backend.find(lease_id)

    def lease_of(self, owner: str) -> Lease | None:
        """The lease that *owner* holds, whichever attempt acquired it, else None."""
        return self.backend.lease_of(owner)

    def conflicts(self, request: LockRequest) -> Sequence[Holder]:
        """Who holds, at this moment, what would keep *request* waiting; its own owner's lease does not count."""
        databases = {lock.object.database for lock in request.locks}
        excludes = self._excludes(request)
        return [
            holder
            for database in sorted(databases)
            for holder in self.backend.show(LockObject(database))
            if holder.owner != request.owner and excludes(Lock(holder.object, holder.mode))
        ]

    def _excludes(self, request: LockRequest) -> Callable[[Lock], bool]:
        if not self.capabilities.parents:
            return rules.Footprint(rules.leaves(request)).excludes
        modes = {lock.object: lock.mode for lock in request.locks}
        return lambda lock: rules.excludes(modes, [lock])

    def watch(self, request: LockRequest, wake: Callable[[], None]) -> float | None:
        """Call *wake* once when a lock on one of the request's objects comes or goes.

        :return: None, or after how many seconds to look again where the backend cannot watch.
        """
        return self.backend.watch([lock.object for lock in request.locks], wake)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Free somebody else's lease; who, when, which and why goes to the audit trail.

        :param reason: and *user*: kept in one line each.
        :param seen: free it only while it is as it was seen: not taken over since, and with the same work under it.
        :return: whether this call freed it.
        :raises InvalidRequest: without a reason or a user, or for one that cannot be kept.
        """
        said = [" ".join(text.split()) if isinstance(text, str) else "" for text in (reason, user)]
        if not all(text and text.isprintable() and len(text) <= MAX_SAID_LENGTH for text in said):
            raise InvalidRequest(
                f"force release of {lease_id[:80]!r}: say why (reason) and who (user), each in up to "
                f"{MAX_SAID_LENGTH:,} printable characters; both are kept in the audit trail"
            )
        return self.backend.force_release(lease_id, reason=said[0], user=said[1], seen=seen)

    def force_release_all(
        self,
        target: str | LockObject | None = None,
        *,
        held_s: float | None = None,
        reason: str,
        user: str,
    ) -> list[Lease]:
        """Free the leases with a lock on *target* or below it that have been held for *held_s* seconds or longer.

        What Hive's own sessions hold stays; ``UNLOCK TABLE`` in Hive frees that.

        :return: what was freed.
        :raises InvalidRequest: neither *target* nor *held_s* is given (``held_s=0`` for every lease there is).
        """
        if target is None and held_s is None:
            raise InvalidRequest("force release of what? Name an object, or an age in seconds (held_s)")
        before = self.now() - timedelta(seconds=held_s or 0)
        ids = dict.fromkeys(holder.lease_id for holder in self.show(target) if holder.since <= before)
        leases = [lease for lease_id in ids if lease_id and (lease := self.find(lease_id))]
        return [lease for lease in leases if self.force_release(lease.id, reason=reason, user=user)]

    def audit(self, target: str | LockObject | None = None) -> Sequence[ForcedRelease]:
        """Who has force-released what, when and why; oldest first."""
        wanted = _target(target)
        return [entry for entry in self.backend.audit() if rules.concern(entry.locks, wanted)]

    def sweep(self) -> int:
        """Take away what dead processes have left that holds nothing; leases are never touched. Safe at any time."""
        return self.backend.sweep()

    def now(self) -> datetime:
        """The store's clock, by which all its times are."""
        return self.backend.now()

    def close(self) -> None:
        """Give back connections; what is held stays held."""
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _target(target: str | LockObject | None) -> LockObject | None:
    return LockObject.parse(target) if isinstance(target, str) else target
