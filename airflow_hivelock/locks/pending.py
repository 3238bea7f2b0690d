"""Requests that wait. Each has one deadline. An outage of the store has a time limit of its own.

Nothing here sleeps. A waiter polls. While there is no outcome, it waits in its own way: a thread, an event loop, a
reschedule. It polls again when ``wake`` is called or ``wait_s()`` has passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.errors import (
    AccessDenied,
    HiveLockError,
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
"""How long a request that does not wait gives a blocker that is about to be granted or withdrawn, in seconds."""

OUTAGE_S = 600.0
"""How long a waiting request tolerates a store that does not answer, in seconds."""

FIRST_PAUSE_S = 0.5
"""The pause after the first failure, in seconds. Each further pause is twice as long, up to :data:`LONGEST_PAUSE_S`."""

LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True)
class Silent:
    """The store does not answer, and the request waits on: a value, and no error before the outage or the deadline ends
    it.

    :param error: the last error.
    :param recheck_s: ask again after this many seconds.
    :param left_s: how much longer the request tolerates it, in seconds; infinite without an end.
    :param first: whether the outage has just begun, so that it is logged once.
    """

    error: StoreUnavailable
    recheck_s: float
    left_s: float
    first: bool

    def __str__(self) -> str:
        at_most = "" if math.isinf(self.left_s) else f" for {math.ceil(self.left_s)} s"
        return f"The lock store does not answer; asking again{at_most}: {self.error}"


class Patience:
    """How much longer a request waits: until its deadline, and until then through an outage of the store.

    :param timeout_s: from now to the deadline, in seconds; None: without end.
    :param outage_s: how long one outage may last, in seconds; None: until the deadline.
    :param before_s: how long the owner has waited since it first asked for the same, in seconds.
    :param uncounted_s: the part of *before_s* that the deadline does not count, in seconds.
    :ivar known_s: how long the owner had waited when this request began, as the store knows it.
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
        self.timeout_s = math.inf if timeout_s is None else timeout_s
        self._before_s = before_s
        self._uncounted_s = uncounted_s
        self._outage_s = math.inf if outage_s is None else outage_s
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
        """Make the patience of *request*; parameters as in the class.

        :raises InvalidRequest: one of them is no number of seconds.
        """
        for name, given in (("timeout_s", timeout_s), ("outage_s", outage_s)):
            if given is not None and not (isinstance(given, int | float) and given >= 0):
                raise InvalidRequest(
                    f"{name}={given!r} of {request.owner} is invalid. Give seconds, 0 to not wait, or None to wait without end"
                )
        return cls(timeout_s, outage_s, clock)

    def waited_s(self) -> float:
        """How long the owner has waited since it first asked, in seconds."""
        return self._elapsed_s() + max(self._before_s, self.known_s)

    def left_s(self, at_least_s: float = 0.0) -> float:
        """Seconds to the deadline, or until this request itself has waited for *at_least_s*; infinite without a
        deadline."""
        counted_s = self.waited_s() - self._uncounted_s
        return max(0.0, self.timeout_s - counted_s, at_least_s - self._elapsed_s())

    def answered(self) -> None:
        """Note that the store has answered: the next outage is a new one."""
        self._silent_since, self._pauses = None, pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def bear(self, error: StoreUnavailable) -> Silent:
        """Return Silent, or raise *error*: after the deadline, after too long an outage, or if waiting cannot help."""
        now_s = self._clock()
        if first := self._silent_since is None:
            self._silent_since = now_s
        left_s = min(self.left_s(), self._outage_s - (now_s - self._silent_since))
        if left_s <= 0 or isinstance(error, AccessDenied):
            raise error
        return Silent(error, min(next(self._pauses), left_s), left_s, first)

    def _elapsed_s(self) -> float:
        return self._clock() - self._began


class _Pending:
    """What both kinds of request share. Used by one thread at a time."""

    def __init__(self, request: LockRequest, patience: Patience) -> None:
        self.request = request
        self._patience = patience
        self._recheck_s: float | None = None
        self._at_least_s = 0.0

    def waited_s(self) -> float:
        """How long the owner has waited since it first asked, in seconds."""
        return self._patience.waited_s()

    def wait_s(self) -> float | None:
        """How long to wait for a wake-up at most, in seconds; None: without a bound; 0: not at all."""
        left_s = self._patience.left_s(self._at_least_s)
        wait_s = left_s if self._recheck_s is None else min(left_s, self._recheck_s)
        return None if math.isinf(wait_s) else wait_s

    def _bear(self, error: StoreUnavailable) -> Silent:
        silent = self._patience.bear(error)
        self._recheck_s = silent.recheck_s
        return silent

    def _late(self, missed: str, in_the_way: Sequence[object]) -> str:
        parents = {parent for lock in self.request.locks for parent in lock.object.parents}
        leaves = [str(lock) for lock in self.request.locks if lock.object not in parents]
        more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
        by = "; ".join(map(str, in_the_way[:3]))
        return (
            f"{self.request.owner} {missed} {', '.join(leaves[:3])}{more} within {self._patience.timeout_s:g} s: {by}. "
            "Wait longer (timeout), or look at the holder with SHOW LOCKS … EXTENDED"
        )


class PendingLease(_Pending):
    """A request for locks that keeps its queue position.

    Call :meth:`poll`. While it returns Blocked or Silent, wait until ``wake`` is called or :meth:`wait_s` has passed,
    and call it again. Call :meth:`withdraw` unless it returned a lease. A deferred request ends with NeedsSlot; withdrawn then,
    it is no longer listed.
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
        """Do one step, without waiting. If the answer to a step is lost, the next step finds out what happened.

        :raises LockTimeout: the deadline has passed; the request has left the queue.
        :raises StoreUnavailable: the store has not answered for too long, or until the deadline; the position is kept.
            After the deadline, the next poll withdraws again.
        :raises AccessDenied: at once.
        :raises Withdrawn: a person has withdrawn it, with that person's reason.
        :raises InvalidRequest: the store can never grant it; it has left the queue.
        """
        if self._overdue:  # the withdrawal was not answered, and may still happen: the request must not continue
            self._time_out()
        try:
            outcome = self._acquisition.step()
        except StoreUnavailable as error:
            return self._bear(error)
        except Withdrawn as error:
            raise Withdrawn(f"{error}{self._by()}") from None
        except InvalidRequest:  # its group may have got a limit below its weight while it waited
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

    def _by(self) -> str:
        """Who withdrew the request, and why; "" if the audit trail cannot be read."""
        try:
            entries = [entry for entry in self._audit() if entry.owner == self.request.owner]
        except HiveLockError:
            return ""
        return f" ({entries[-1].user}: {entries[-1].reason})" if entries else ""

    def _time_out(self) -> NoReturn:
        self.withdraw()
        raise LockTimeout(self._late("did not get", self._overdue), self._overdue)

    @property
    def asked(self) -> datetime | None:
        """When the owner first asked, by the store's clock; None before the store's first answer, or if it does not
        know."""
        return self._acquisition.asked

    def withdraw(self) -> None:
        """Leave the queue."""
        self._acquisition.withdraw()

    def hand_over(self) -> None:
        """Leave the queue position to the owner's next process. Until it comes, later requests may go first."""
        self._acquisition.hand_over()


class PendingLook(_Pending):
    """Waits until locks could be had, and takes none. Poll it like a :class:`PendingLease`; there is nothing to
    withdraw."""

    def __init__(
        self, backend: Backend, request: LockRequest, wake: Callable[[], None] | None, patience: Patience
    ) -> None:
        super().__init__(request, patience)
        self._backend = backend
        self._wake = wake

    def poll(self) -> Sequence[Holder] | Silent:
        """The holders that would keep the request waiting now; empty: it could have its locks.

        The lease of the request's own owner does not count.

        :raises LockTimeout: the deadline has passed, and there are such holders.
        :raises StoreUnavailable: as :meth:`PendingLease.poll`.
        """
        try:
            targets, wake = [lock.object for lock in self.request.locks], self._wake
            # The watch comes before the look: a lock that is released between the two would otherwise wake no waiter.
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
