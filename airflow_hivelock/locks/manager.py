"""LockManager: acquiring, renewal, release and looks, over any backend."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, overload

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import FreesForeign
from airflow_hivelock.locks.errors import InvalidRequest, LockTimeout, StoreUnavailable, Unsupported
from airflow_hivelock.locks.model import Lease, LockObject
from airflow_hivelock.locks.pending import OUTAGE_S, Patience, PendingLease, PendingLook, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Backend, Capabilities
    from airflow_hivelock.locks.model import ForcedRelease, Holder, LeaseLimit, Lock, LockRequest, Tenure, Waiter, Work

log = logging.getLogger(__name__)

MAX_SAID_LENGTH = 2_000
"""How long a reason, and who gives it, may be."""


class LockManager(AbstractContextManager["LockManager"]):
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
        outage_s: float | None = OUTAGE_S,
        attempt: int = 0,
        query: str = "",
        priority: int = 1,
        limit: LeaseLimit | None = None,
    ) -> Lease:
        """Lock *reads* SHARED and *writes* EXCLUSIVE, with SHARED on all their parents; all of it or nothing.

        :param timeout_s: how long to wait in the queue, in seconds; 0: not at all; None: without end.
        :param outage_s: how long, while it waits, to bear a store that does not answer, in seconds; None: all the time.
        :param priority: of those that wait, the larger goes first, within the store's bound on being passed.
        :param limit: how many leases of a group may be out at a time.
        :raises InvalidRequest: bad input, or what the store does not offer; nothing was touched.
        :raises LockTimeout: naming who is in the way.
        :raises StoreUnavailable: no answer for that long, or until the time-out; what came of it, asking again tells.
        """
        wanted = rules.request(
            owner,
            reads,
            writes,
            lease_s=lease_s,
            attempt=attempt,
            wait=timeout_s != 0,
            query=query,
            priority=priority,
            limit=limit,
        )
        changed = threading.Event()
        pending = self.begin(wanted, changed.set, timeout_s, outage_s)
        try:
            while not isinstance(outcome := pending.poll(), Lease):
                if isinstance(outcome, Silent) and outcome.first:
                    log.warning("%s", outcome)
                changed.wait(pending.wait_s())
                changed.clear()
        except LockTimeout:
            raise
        except StoreUnavailable:
            with suppress(StoreUnavailable):  # the first error counts; a place that nobody renews lapses
                pending.withdraw()
            raise
        except BaseException:
            pending.withdraw()
            raise
        return outcome

    def begin(
        self,
        request: LockRequest,
        wake: Callable[[], None],
        timeout_s: float | None = None,
        outage_s: float | None = OUTAGE_S,
        patience: Patience | None = None,
    ) -> PendingLease:
        """Start a request without waiting for it; *wake* is called, from any thread, when polling is worthwhile.

        :param patience: one that has begun before, in place of *timeout_s* and *outage_s*.
        :raises InvalidRequest: it has a limit, and the store counts no leases.
        """
        if request.limit and not self.capabilities.limits:
            raise InvalidRequest(
                f"{request.owner}: max_leases is not for this lock store, which does not count leases; keep locks in "
                "ZooKeeper or in a database, or bound the rerun by an Airflow pool"
            )
        patience = patience or Patience.of(request, timeout_s, outage_s, self._clock)
        return PendingLease(self.backend.begin(request, wake), request, patience)

    def look(
        self,
        request: LockRequest,
        wake: Callable[[], None] | None = None,
        timeout_s: float | None = None,
        outage_s: float | None = OUTAGE_S,
        patience: Patience | None = None,
    ) -> PendingLook:
        """Start to wait until *request* could have its locks, which are not taken; *wake* and *patience* as for :meth:`begin`.

        :param wake: None: nothing is watched.
        """
        patience = patience or Patience.of(request, timeout_s, outage_s, self._clock)
        return PendingLook(self.backend, request, wake, patience)

    def renew(self, lease: Lease) -> None:
        """Extend *lease*, or what is left of it, by its ``lease_s`` from now. Raises LockLost when it no longer stands."""
        self.backend.renew(lease)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Raise LockLost unless *lease* and all of its locks still stand. Of what was given back, nothing does: look with the
        lease that :meth:`release` returned.

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

    @overload
    def release(self, lease: Lease) -> bool: ...

    @overload
    def release(self, lease: Lease, *, objects: Iterable[str | LockObject]) -> Lease | None: ...

    def release(self, lease: Lease, *, objects: Iterable[str | LockObject] | None = None) -> bool | Lease | None:
        """Free *lease*. What is already gone is success; what a later attempt has taken over is left alone.

        :param objects: free only what it holds on these and in them, in one step, and SHARED on those above that nothing
            left needs; the rest stands, with its id, its tokens and its work. To give back once more is success.
        :return: whether this call freed it; or, with *objects*, the lease as it is now, None if nothing of it is left.
        :raises InvalidRequest: one of *objects* was never in it; nothing was freed.
        :raises Unsupported: this store frees leases whole.
        """
        if objects is None:
            return self.backend.release(lease)
        named = frozenset(rules.objects("objects", objects))
        if not named:
            raise InvalidRequest(f"release of no part of lease {lease.id} of {lease.owner}: name objects, or give none")
        if not self.capabilities.parts:
            raise Unsupported(
                f"{lease.owner}: this lock store frees lease {lease.id} whole, and no part of it; release it once all is done, "
                "or take a lease for each part"
            )
        return self.backend.release_part(lease, named)

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

    def forget_aside(self, owner: str, attempt: int) -> bool:
        """Take the owner's request off the list of those that wait, if it has stepped aside as that very attempt: its
        owner will not ask again. It holds nothing and is in nobody's way, and may ask again all the same.

        :return: whether this call did.
        """
        return self.backend.forget_aside(owner, attempt)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Free somebody else's lease; who, when, which and why goes to the audit trail.

        :param reason: and *user*: kept in one line each.
        :param seen: free it only while it is as it was seen: not taken over since, and with the same work under it.
        :return: whether this call freed it.
        :raises InvalidRequest: without a reason or a user, or for one that cannot be kept.
        """
        reason, user = said(f"force release of {lease_id[:80]!r}", reason, user)
        return self.backend.force_release(lease_id, reason=reason, user=user, seen=seen)

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        """Record *application* in the place of what somebody else's work has recorded; who, when, which and why goes to the
        audit trail.

        :param seen: that work; what has been recorded since stays as it is.
        :return: whether this call recorded it.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: the store does not record what runs under a lease.
        """
        reason, user = said(f"work {seen.name[:80]!r} under lease {lease_id[:80]!r}", reason, user)
        return self.backend.force_record(lease_id, seen, application, reason=reason, user=user)

    def force_release_all(
        self,
        target: str | LockObject | None = None,
        *,
        held_s: float | None = None,
        reason: str,
        user: str,
    ) -> list[Lease]:
        """Free the leases with a lock on *target* or below it that have been held for *held_s* seconds or longer.

        What Hive's own sessions hold stays; :meth:`force_unlock` frees that.

        :return: what was freed.
        :raises InvalidRequest: neither *target* nor *held_s* is given (``held_s=0`` for every lease there is).
        """
        if target is None and held_s is None:
            raise InvalidRequest("force release of what? Name an object, or an age in seconds (held_s)")
        before = self.now() - timedelta(seconds=held_s or 0)
        ids = dict.fromkeys(holder.lease_id for holder in self.show(target) if holder.since <= before)
        leases = [lease for lease_id in ids if lease_id and (lease := self.find(lease_id))]
        return [lease for lease in leases if self.force_release(lease.id, reason=reason, user=user)]

    def force_unlock(
        self, query_id: str, target: str | LockObject | None = None, *, reason: str, user: str
    ) -> Sequence[Lock]:
        """Free locks that Hive's own session has left, and no others on those objects: who, when, which and why goes to the
        audit trail. Make sure first that the query is over: its session is not told.

        :param query_id: of Hive's query, as SHOW LOCKS … EXTENDED shows it.
        :param target: free its lock on this object alone.
        :return: what this call freed; nothing where that query holds nothing there.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: Hive's locks are not in this store, or not to be freed one by one.
        """
        reason, user = said(f"force unlock of {query_id[:80]!r}", reason, user)
        if not isinstance(self.backend, FreesForeign):
            raise Unsupported(
                f"{query_id[:80]!r}: this lock store frees no locks of Hive's own one by one. A metastore frees those that nobody "
                "renews, after hive.txn.timeout; Hive's ABORT TRANSACTIONS ends the rest"
            )
        return self.backend.force_unlock(query_id, _target(target), reason=reason, user=user)

    def audit(self, target: str | LockObject | None = None) -> Sequence[ForcedRelease]:
        """Who has force-released or recorded by force what, when and why; oldest first."""
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

    def __exit__(self, *exc: object) -> None:
        self.close()


def said(what: str, reason: str, user: str) -> tuple[str, str]:
    """*reason* and *user*, for the audit trail: each in one line.

    :param what: what is done by force.
    :raises InvalidRequest: one of them is missing, or cannot be kept.
    """
    texts = [" ".join(text.split()) if isinstance(text, str) else "" for text in (reason, user)]
    if not all(text and text.isprintable() and len(text) <= MAX_SAID_LENGTH for text in texts):
        raise InvalidRequest(
            f"{what}: say why (reason) and who (user), each in up to {MAX_SAID_LENGTH:,} printable characters; both are kept "
            "in the audit trail"
        )
    return texts[0], texts[1]


def _target(target: str | LockObject | None) -> LockObject | None:
    return LockObject.parse(target) if isinstance(target, str) else target
