"""Pending requests: deadlines, and outages of the lock store.

A request has one deadline. An outage of the store has a separate time limit. No function here sleeps: the caller polls,
and waits between two polls in its own way (in a thread, in an event loop, or by rescheduling its task). It polls again
when ``wake`` is called or ``wait_s()`` seconds have passed.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from airflow_hivelock.locks import past, queueing, rules
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.errors import (
    AccessDenied,
    InvalidRequest,
    LockTimeout,
    StoreUnavailable,
    Withdrawn,
)
from airflow_hivelock.locks.model import Lock, LockObject
from airflow_hivelock.locks.pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Acquisition, Backend
    from airflow_hivelock.locks.model import Blocker, ForcedRelease, Holder, Lease, LockRequest

PASSING_S = 10.0
"""How long a request that does not wait still waits for a blocker that will soon be granted or withdrawn, in
seconds."""

OUTAGE_S = 600.0
"""How long a waiting request tolerates a store that does not answer, in seconds."""

FIRST_PAUSE_S = 0.5
"""The pause after the first failure, in seconds. Each further pause is twice as long, up to :data:`LONGEST_PAUSE_S`."""

LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True)
class Silent:
    """The store does not answer, and the request continues to wait. It is a value, because only a time limit makes it
    an error.

    :param error: the last error.
    :param recheck_s: ask again after this many seconds.
    :param left_s: how much longer the request tolerates the outage, in seconds; infinite without a limit.
    :param first: whether the outage has just begun. The caller then logs it.
    """

    error: StoreUnavailable
    recheck_s: float
    left_s: float
    first: bool

    def __str__(self) -> str:
        at_most = "" if math.isinf(self.left_s) else f" for {math.ceil(self.left_s)} s"
        return f"The lock store does not answer; asking again{at_most}: {self.error}"


class Patience:
    """The time limits of a request: its deadline, and the longest outage of the store that it tolerates.

    :param timeout_s: the time from now to the deadline, in seconds; None: no deadline.
    :param outage_s: the longest outage, in seconds; None: until the deadline.
    :param before_s: how long the owner has already waited since it first asked, in seconds.
    :param uncounted_s: the part of *before_s* that does not count for the deadline, in seconds.
    :ivar known_s: how long the owner had waited before this request, according to the store, in seconds.
    """

    def __init__(
        self,
        timeout_s: float | None,
        outage_s: float | None,
        clock: Callable[[], float],
        before_s: float = 0.0,
        uncounted_s: float = 0.0,
    ) -> None:
        self.known_s = 0.0
        self.timeout_s = _limit_s(timeout_s)
        self._before_s = before_s
        self._uncounted_s = uncounted_s
        self._outage_s = _limit_s(outage_s)
        self._clock = clock
        self._began = clock()
        self._silent_since: float | None = None
        self._pauses = pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    @classmethod
    def of(
        cls,
        request: LockRequest,
        timeout_s: float | None,
        outage_s: float | None,
        clock: Callable[[], float],
    ) -> Self:
        """Return the patience of *request*. The other parameters are those of the class.

        :raises InvalidRequest: a parameter is not a number of seconds.
        """
        for name, given in (("timeout_s", timeout_s), ("outage_s", outage_s)):
            if given is not None and not (isinstance(given, int | float) and given >= 0):
                raise InvalidRequest(
                    f"{name}={given!r} of {request.owner} is invalid. Give seconds, 0 to fail at once, or None for no limit"
                )
        return cls(timeout_s, outage_s, clock)

    def waited_s(self) -> float:
        """How long the owner has waited since it first asked, in seconds."""
        return self._elapsed_s() + max(self._before_s, self.known_s)

    def left_s(self, at_least_s: float = 0.0) -> float:
        """The seconds to the deadline; infinite without a deadline.

        :param at_least_s: the least time for which this request waits, in seconds, even after the deadline.
        """
        counted_s = self.waited_s() - self._uncounted_s
        return max(0.0, self.timeout_s - counted_s, at_least_s - self._elapsed_s())

    def answered(self) -> None:
        """Note that the store has answered. A later failure begins a new outage."""
        self._silent_since, self._pauses = None, pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def bear(self, error: StoreUnavailable) -> Silent:
        """Return Silent. Raise *error* instead if a time limit is over, or if waiting cannot help."""
        now_s = self._clock()
        if first := self._silent_since is None:
            self._silent_since = now_s
        left_s = min(self.left_s(), self._outage_s - (now_s - self._silent_since))
        if left_s <= 0 or isinstance(error, AccessDenied):
            raise error
        return Silent(error, min(next(self._pauses), left_s), left_s, first)

    def _elapsed_s(self) -> float:
        return self._clock() - self._began


def _limit_s(given_s: float | None) -> float:
    """Return infinity for None, and for more than Python's threads can wait, which is centuries."""
    return math.inf if given_s is None or given_s > threading.TIMEOUT_MAX else given_s


class _Pending:
    """The common part of a pending lease and a pending look. Only one thread at a time may use it."""

    def __init__(self, request: LockRequest, patience: Patience) -> None:
        self.request = request
        self._patience = patience
        self._recheck_s: float | None = None
        self._at_least_s = 0.0

    def waited_s(self) -> float:
        """How long the owner has waited since it first asked, in seconds."""
        return self._patience.waited_s()

    def wait_s(self) -> float | None:
        """The longest time to wait for a wake-up, in seconds; None: no limit; 0: poll at once."""
        left_s = self._patience.left_s(self._at_least_s)
        wait_s = left_s if self._recheck_s is None else min(left_s, self._recheck_s)
        return None if math.isinf(wait_s) else wait_s

    def _bear(self, error: StoreUnavailable) -> Silent:
        silent = self._patience.bear(error)
        self._recheck_s = silent.recheck_s
        return silent

    def _late(self, missed: str, in_the_way: Sequence[object], group: str = "") -> str:
        parents = {parent for lock in self.request.locks for parent in lock.object.parents}
        leaves = [lock for lock in self.request.locks if lock.object not in parents]
        by = "; ".join(map(str, in_the_way[:3]))
        look = (
            f"raise the limit of {group!r}: see SHOW GROUPS"
            if group
            else "look at the holder with SHOW LOCKS … EXTENDED"
        )
        return (
            f"{self.request.owner} {missed} {rules.few(leaves, 3)} within {self._patience.timeout_s:g} s: {by}. "
            f"Wait longer (timeout), or {look}"
        )


class PendingLease(_Pending):
    """A request for locks. It keeps its queue position while it waits.

    1. Call :meth:`poll`.
    2. While it returns Blocked or Silent, wait until ``wake`` is called or :meth:`wait_s` seconds have passed. Then
       call :meth:`poll` again.
    3. At the end, call :meth:`withdraw` unless :meth:`poll` returned a lease.

    A deferred request ends with NeedsSlot, and stays listed until :meth:`withdraw`.
    """

    def __init__(
        self,
        acquisition: Acquisition,
        request: LockRequest,
        patience: Patience,
        audit: Callable[[], Sequence[ForcedRelease]],
    ) -> None:
        super().__init__(request, patience)
        self._acquisition = acquisition
        self._audit = audit
        self._overdue: tuple[Blocker, ...] = ()

    def poll(self) -> Lease | NeedsSlot | Blocked | Silent:
        """Do one step, without waiting. If the store's answer is lost, the next step finds out what happened.

        :raises LockTimeout: the deadline has passed. The request has left the queue.
        :raises StoreUnavailable: the store did not answer for too long, or until the deadline. The request keeps its
            queue position. After the deadline, another poll tries again to leave the queue.
        :raises AccessDenied: the store refuses this process. This is raised without waiting for the end of an outage.
        :raises Withdrawn: a person has withdrawn the request. The message has the reason.
        :raises InvalidRequest: the store can never grant the request. It has left the queue.
        """
        if self._overdue:  # the store did not answer the withdrawal, which may still happen: do not go on waiting
            self._time_out()
        try:
            outcome = self._acquisition.step()
        except StoreUnavailable as error:
            return self._bear(error)
        except Withdrawn as error:
            by = past.last_by(self._audit, lambda entry: entry.owner == self.request.owner)
            raise Withdrawn(f"{error}{by}") from None
        except InvalidRequest:  # while it waited, a person may have set the group's limit below its weight
            self.withdraw()
            raise
        self._patience.answered()
        if isinstance(outcome, NeedsSlot):
            self._patience.known_s = outcome.waited_s
        if isinstance(outcome, Blocked):
            self._recheck_s = outcome.recheck_s
            self._patience.known_s = outcome.waited_s
            self._at_least_s = PASSING_S if outcome.passing else 0.0
            if not self._patience.left_s(self._at_least_s):
                self._overdue = outcome.by
                self._time_out()
        return outcome

    def _time_out(self) -> NoReturn:
        self.withdraw()
        group = next((blocker.group for blocker in self._overdue if blocker.group), "")
        raise LockTimeout(self._late("did not get", self._overdue, group), self._overdue)

    @property
    def asked(self) -> datetime | None:
        """When the owner first asked, by the store's clock. None: the store has not answered yet, or does not keep
        it."""
        return self._acquisition.asked

    def withdraw(self) -> None:
        """Leave the queue. Release the lease if this request was granted one.

        A lease that the owner held before this request stays held.

        :raises StoreUnavailable: the store did not answer. The request leaves the queue later, without another call.
        """
        self._acquisition.withdraw()

    def hand_over(self) -> None:
        """Leave the queue position to the owner's next process. Until that process comes, later requests may go
        first."""
        self._acquisition.hand_over()


class PendingLook(_Pending):
    """A wait until locks are free. It takes no locks and has no queue position.

    Poll it like a :class:`PendingLease`. It needs no ``withdraw()``.
    """

    def __init__(
        self, backend: Backend, request: LockRequest, wake: Callable[[], None] | None, patience: Patience
    ) -> None:
        super().__init__(request, patience)
        self._backend = backend
        self._wake = wake

    def poll(self) -> Sequence[Holder] | Silent:
        """The holders of conflicting locks now. Empty: the locks are free. A lease of the same owner does not count.

        :raises LockTimeout: the deadline has passed, and there are such holders.
        :raises StoreUnavailable: as :meth:`PendingLease.poll`.
        """
        try:
            targets, wake = [lock.object for lock in self.request.locks], self._wake
            # Watch first: otherwise a release between the look and the watch would not call *wake*.
            self._recheck_s = None if wake is None else self._backend.watch(targets, wake)
            holders = self._holders()
        except StoreUnavailable as error:
            return self._bear(error)
        self._patience.answered()
        if holders and not self._patience.left_s():
            raise LockTimeout(self._late("did not find free", holders))
        return holders

    def _holders(self) -> Sequence[Holder]:
        excludes = self._excludes()
        return [
            holder
            for database in sorted({lock.object.database for lock in self.request.locks})
            for holder in self._backend.show(LockObject(database))
            if holder.owner != self.request.owner and excludes(Lock(holder.object, holder.mode))
        ]

    def _excludes(self) -> Callable[[Lock], bool]:
        if not self._backend.capabilities.parents:
            return rules.excluder(rules.leaves(self.request))
        modes = {lock.object: lock.mode for lock in self.request.locks}
        return lambda lock: queueing.excludes(modes, [lock])
