"""LockManager: acquires, renews, releases and lists leases, over any backend."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, overload

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked, FreesForeign, NeedsSlot
from airflow_hivelock.locks.errors import InvalidRequest, LockTimeout, StoreUnavailable, Unsupported
from airflow_hivelock.locks.groups import ManagesGroups
from airflow_hivelock.locks.invalid import MAX_REASON_LENGTH, one_line
from airflow_hivelock.locks.model import Lease, LockObject, check_priority
from airflow_hivelock.locks.pending import OUTAGE_S, Patience, PendingLease, PendingLook, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Backend, Capabilities
    from airflow_hivelock.locks.model import ForcedRelease, Holder, LeaseLimit, Lock, LockRequest, Tenure, Waiter, Work

log = logging.getLogger(__name__)

TELL_S = 1.0
"""How often a waiting caller is told how it waits, in seconds."""


class LockManager(ManagesGroups, AbstractContextManager["LockManager"]):
    """Hive's locks over one backend. Safe for several threads; use it as a context manager, or call :meth:`close`.

    :param clock: monotonic seconds; a test may pass its own clock.
    """

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend = backend
        self._clock = clock

    @property
    def capabilities(self) -> Capabilities:
        """The promises of the lock store."""
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
        tell: Callable[[Blocked | Silent, float], None] | None = None,
    ) -> Lease:
        """Lock *reads* SHARED and *writes* EXCLUSIVE, with SHARED on all their parents, as one request: granted whole
        or not at all.

        :param timeout_s: how long to wait in the queue, in seconds; 0: not at all; None: without end.
        :param outage_s: how long a waiting request tolerates a store that does not answer, in seconds; None: until the
            time-out.
        :param priority: the waiter with the larger priority goes first, within the store's bound on being overtaken.
        :param limit: how many leases of a group may be held at a time.
        :param tell: called about once a second while the request waits: with the latest answer, and the seconds waited.
        :raises InvalidRequest: the input is invalid, or the store does not offer this; nothing was changed.
        :raises LockTimeout: naming the blockers.
        :raises StoreUnavailable: no answer for *outage_s*, or until the time-out. Ask again to learn what happened.
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
                self._wait(
                    changed, pending, partial(tell, outcome) if tell and not isinstance(outcome, NeedsSlot) else None
                )
        except LockTimeout:
            raise
        except StoreUnavailable:
            with suppress(StoreUnavailable):  # report the first error; a position without renewal lapses
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
        """Start a request without waiting for it; *wake* is called, from any thread, when a poll is worthwhile.

        :param patience: one that has begun before, in place of *timeout_s* and *outage_s*.
        :raises InvalidRequest: it has a limit, and the store counts no leases.
        """
        if request.limit and not self.capabilities.limits:
            raise InvalidRequest(
                f"{request.owner}: this lock store does not count leases, so it has no max_leases. Keep locks in "
                "ZooKeeper or in a database, or limit the rerun by an Airflow pool"
            )
        patience = patience or Patience.of(request, timeout_s, outage_s, self._clock)
        return PendingLease(self.backend.begin(request, wake), request, patience, self.backend.audit)

    def look(
        self,
        request: LockRequest,
        wake: Callable[[], None] | None = None,
        timeout_s: float | None = None,
        outage_s: float | None = OUTAGE_S,
        patience: Patience | None = None,
    ) -> PendingLook:
        """Wait until *request* could have its locks, without taking them.

        :param wake: as in :meth:`begin`; None: nothing is watched.
        :param patience: as in :meth:`begin`.
        """
        patience = patience or Patience.of(request, timeout_s, outage_s, self._clock)
        return PendingLook(self.backend, request, wake, patience)

    def renew(self, lease: Lease) -> None:
        """Extend *lease*, or its remaining part, by its ``lease_s`` from now. Raises LockLost when it is no longer
        held."""
        self.backend.renew(lease)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Raise LockLost unless *lease* and all of its locks are still held.

        After a partial release, call it with the lease that :meth:`release` returned.

        :param wake: called once, from any thread, when that may have changed: verify again.
        """
        self.backend.verify(lease, wake)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Record that *application* starts under *lease*, with a new token. The earlier work of that *name* can no
        longer publish.

        Make sure first that the earlier work has ended: a token keeps it from publishing, not from running.

        :return: the lease, with the new token.
        """
        return self.backend.start_work(lease, name, application)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """Replace what is recorded under *name*, for example by the id that the work has got; its token stays.

        :param application: ``""``: its starter knows of nothing that runs; None: the work has ended.
        """
        return self.backend.record_work(lease, name, application)

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Raise LockLost unless work may still publish: the last check before it publishes."""
        self.backend.check_token(lease_id, name, token)

    @overload
    def release(self, lease: Lease) -> bool: ...

    @overload
    def release(self, lease: Lease, *, objects: Iterable[str | LockObject]) -> Lease | None: ...

    def release(self, lease: Lease, *, objects: Iterable[str | LockObject] | None = None) -> bool | Lease | None:
        """Release *lease*. A lease that is already gone is success. A lease that a later attempt has taken over is left
        alone.

        :param objects: a partial release: release only what it holds on these and inside them, in one step, and SHARED
            on the parents that no remaining lock needs. The rest stays held, with its id, its tokens and its work. To
            release the same part twice is success.
        :return: whether this call released it; with *objects*, the lease as it is now, or None if nothing of it
            remains.
        :raises InvalidRequest: one of *objects* was never in it; nothing was released.
        :raises Unsupported: this store releases leases whole.
        """
        if objects is None:
            return self.backend.release(lease)
        named = frozenset(rules.objects("objects", objects))
        if not named:
            raise InvalidRequest(
                f"the release of lease {lease.id} of {lease.owner} has an empty list of objects. Name objects, or leave the list out"
            )
        if not self.capabilities.parts:
            raise Unsupported(
                f"{lease.owner}: this lock store cannot release a part of lease {lease.id}. Release it when all work is done, "
                "or take a lease for each part"
            )
        return self.backend.release_part(lease, named)

    def show(self, target: str | LockObject | None = None) -> Sequence[Holder]:
        """The holders on *target* and below it, or all holders: those of this package and Hive's own."""
        return self.backend.show(_target(target))

    def waiters(self, target: str | LockObject | None = None) -> Sequence[Waiter]:
        """The waiters, in their order."""
        return self.backend.waiters(_target(target))

    def history(self, target: str | LockObject | None = None, *, most: int | None = None) -> Sequence[Tenure]:
        """The leases of the last days, held or ended, each with the times of its request, grant and end.

        :param most: how many requests to read at most: the newest, in ZooKeeper any. None: all.
        """
        return self.backend.history(_target(target), most=most)

    def leases(self) -> Sequence[Lease]:
        """Every lease of every owner that is held."""
        return self.backend.leases()

    def requests(self) -> tuple[Sequence[Lease], Sequence[Waiter]]:
        """Every held lease, and every waiter: of one snapshot where the store allows it."""
        return self.backend.requests()

    def find(self, lease_id: str) -> Lease | None:
        """The lease with that id while it is held, else None."""
        return self.backend.find(lease_id)

    def lease_of(self, owner: str) -> Lease | None:
        """The lease that *owner* holds, whichever attempt acquired it, else None."""
        return self.backend.lease_of(owner)

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        """Withdraw the owner's request if it waits for a worker slot and is of this *attempt*: its owner will not ask
        again.

        An invited request loses its position. The owner may ask again, as a new arrival.

        :return: whether this call withdrew it.
        """
        return self.backend.forget_deferred(owner, attempt)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Release another owner's lease, and write the user, the time, the lease and the reason to the audit trail.

        :param reason: and *user*: each is stored as one line.
        :param seen: release it only if it is as in this snapshot: not taken over since, and with the same work under
            it.
        :return: whether this call released it.
        :raises InvalidRequest: the reason or the user is missing, or cannot be stored.
        """
        reason, user = audit_texts(f"force release of {lease_id[:80]!r}", reason, user)
        return self.backend.force_release(lease_id, reason=reason, user=user, seen=seen)

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        """Withdraw the owner's request while it waits for locks or for a permit, and write an entry to the audit trail.

        The process that waits gets :class:`~airflow_hivelock.locks.errors.Withdrawn`, with the reason. A request that
        waits for a worker slot stays, as its task may be starting.

        :return: whether this call withdrew it; False: the owner does not wait.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: the store keeps its queue elsewhere.
        """
        reason, user = audit_texts(f"withdrawal of {owner[:80]!r}", reason, user)
        return self.backend.force_withdraw(owner, reason=reason, user=user)

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        """Change the priority of the owner's request while it waits for its locks, and write an entry to the audit trail.

        With a higher priority, the request overtakes others like a new arrival of that priority, from its place in the
        queue. With a lower one, it becomes a new arrival. A later request of the owner has its own priority.

        :return: whether this call changed it; False: the owner does not wait for its locks.
        :raises InvalidRequest: as :meth:`force_release`; or no request before it may be overtaken any more.
        :raises Unsupported: the store has no priorities.
        """
        check_priority(priority, owner)
        reason, user = audit_texts(f"priority of {owner[:80]!r}", reason, user)
        return self.backend.force_priority(owner, priority, reason=f"priority {priority}: {reason}", user=user)

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        """Replace what another owner's work has recorded by *application*, and write an entry to the audit trail.

        :param seen: that work; if the record has changed since, it stays as it is.
        :return: whether this call recorded it.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: the store does not record work.
        """
        reason, user = audit_texts(f"work {seen.name[:80]!r} under lease {lease_id[:80]!r}", reason, user)
        return self.backend.force_record(lease_id, seen, application, reason=reason, user=user)

    def force_release_all(
        self,
        target: str | LockObject | None = None,
        *,
        held_s: float | None = None,
        reason: str,
        user: str,
    ) -> list[Lease]:
        """Release the leases on *target* or below it that have been held for *held_s* seconds or longer.

        Locks of Hive's own sessions stay; :meth:`force_unlock` frees those.

        :return: the released leases.
        :raises InvalidRequest: *target* and *held_s* are both missing (``held_s=0`` for all leases).
        """
        if target is None and held_s is None:
            raise InvalidRequest("the force release has no target. Name an object, or an age in seconds (held_s)")
        before = self.now() - timedelta(seconds=held_s or 0)
        ids = dict.fromkeys(holder.lease_id for holder in self.show(target) if holder.since <= before)
        leases = [lease for lease_id in ids if lease_id and (lease := self.find(lease_id))]
        return [lease for lease in leases if self.force_release(lease.id, reason=reason, user=user)]

    def force_unlock(
        self, query_id: str, target: str | LockObject | None = None, *, reason: str, user: str
    ) -> Sequence[Lock]:
        """Free the locks that a Hive session has left, and no others on those objects. It is audited.

        Make sure first that the query is over: its session is not notified.

        :param query_id: the id of Hive's query, as SHOW LOCKS … EXTENDED shows it. In a metastore: the lock's id, as
            SHOW LOCKS shows it. A client of Hive's metastore, such as Trino or Iceberg, may have taken it.
        :param target: free only its lock on this object; None: all its locks.
        :return: the locks that this call freed; empty if the query holds none there.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: Hive's locks are not in this store, or cannot be freed one by one; in a metastore: the lock
            belongs to a transaction.
        """
        reason, user = audit_texts(f"force unlock of {query_id[:80]!r}", reason, user)
        if not isinstance(self.backend, FreesForeign):
            raise Unsupported(
                f"{query_id[:80]!r}: this lock store has no locks of Hive that it can free. Name the store that Hive locks in: its "
                "ZooKeeper, or its metastore"
            )
        return self.backend.force_unlock(query_id, _target(target), reason=reason, user=user)

    def audit(self, target: str | LockObject | None = None) -> Sequence[ForcedRelease]:
        """The audit trail of *target* and below, or all of it, oldest first: force releases and records by force."""
        wanted = _target(target)
        return [entry for entry in self.backend.audit() if rules.concern(entry.locks, wanted)]

    def sweep(self) -> int:
        """Remove what dead processes have left and no lease needs; leases are never touched. Safe at any time."""
        return self.backend.sweep()

    def now(self) -> datetime:
        """The store's clock. All its times are by this clock."""
        return self.backend.now()

    def _wait(self, changed: threading.Event, pending: PendingLease, tell: Callable[[float], None] | None) -> None:
        """Wait until the next poll is worthwhile."""
        wait_s = pending.wait_s()
        if tell is None:
            changed.wait(wait_s)
        else:
            until = math.inf if wait_s is None else self._clock() + wait_s
            while (left_s := until - self._clock()) > 0:
                tell(pending.waited_s())
                if changed.wait(min(left_s, TELL_S)):
                    break
        changed.clear()

    def close(self) -> None:
        """Close the connections; every lease stays held."""
        self.backend.close()

    def __exit__(self, *exc: object) -> None:
        self.close()


def audit_texts(what: str, reason: str, user: str) -> tuple[str, str]:
    """Return *reason* and *user* for the audit trail, each as one line.

    :param what: what is done by force, for the error.
    :raises InvalidRequest: one of them is missing, or cannot be stored.
    """
    texts = one_line(reason), one_line(user)
    if not all(texts):
        raise InvalidRequest(
            f"{what} needs a reason (reason) and a user (user), each of up to {MAX_REASON_LENGTH:,} printable characters. The audit "
            "trail keeps both"
        )
    return texts


def _target(target: str | LockObject | None) -> LockObject | None:
    return LockObject.parse(target) if isinstance(target, str) else target
