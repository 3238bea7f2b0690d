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
from airflow_hivelock.locks.model import MAX_LEASE_S, Lease, LockObject, check_priority
from airflow_hivelock.locks.pending import OUTAGE_S, Patience, PendingLease, PendingLook, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backend import Backend, Capabilities
    from airflow_hivelock.locks.model import ForcedRelease, Holder, LeaseLimit, Lock, LockRequest, Tenure, Waiter, Work

log = logging.getLogger(__name__)

TELL_S = 1.0
"""How often :meth:`LockManager.acquire` calls *tell* while it waits, in seconds."""


class LockManager(ManagesGroups, AbstractContextManager["LockManager"]):
    """Acquires and releases Hive's locks over one backend. Several threads may use it at once.

    Use it as a context manager, or call :meth:`close` at the end.

    :param clock: monotonic seconds. A test can pass its own clock.
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
        """Lock *reads* SHARED, *writes* EXCLUSIVE and all their parents SHARED. All locks are granted, or none.

        :param timeout_s: the longest wait for the locks, in seconds; 0: fail at once; None: wait without a limit.
        :param outage_s: how long a waiting request tolerates a store that does not answer, in seconds; None: until the
            time-out.
        :param priority: the waiter with the larger priority goes first, within the store's limit on overtaking.
        :param limit: how many leases of a group may be held at a time.
        :param tell: called about once a second while the request waits, with the latest answer and the seconds waited.
        :raises InvalidRequest: the input is invalid, or the store cannot do this. Nothing was changed.
        :raises LockTimeout: the locks were not granted in time. The message names the blockers.
        :raises StoreUnavailable: the store did not answer for *outage_s* or until the time-out. It may have changed:
            call this again to find out.
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
            return outcome
        except LockTimeout:
            raise
        except BaseException:
            # The caller needs the first error, such as KeyboardInterrupt. The request leaves when the store answers.
            with suppress(StoreUnavailable):
                pending.withdraw()
            raise

    def begin(
        self,
        request: LockRequest,
        wake: Callable[[], None],
        timeout_s: float | None = None,
        outage_s: float | None = OUTAGE_S,
        patience: Patience | None = None,
    ) -> PendingLease:
        """Start a request without waiting for it. Any thread may call *wake* when another poll is useful.

        :param patience: the patience of an earlier wait, instead of *timeout_s* and *outage_s*.
        :raises InvalidRequest: the request has a limit, and the store counts no leases.
        """
        if request.limit and not self.capabilities.limits:
            raise InvalidRequest(
                f"{request.owner}: this lock store does not count leases, so it has no max_leases. Keep locks in "
                "ZooKeeper or in a database, or limit the work with an Airflow pool"
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

        :param wake: as in :meth:`begin`. None: the caller polls, and no lock is watched.
        :param patience: as in :meth:`begin`.
        """
        patience = patience or Patience.of(request, timeout_s, outage_s, self._clock)
        return PendingLook(self.backend, request, wake, patience)

    def renew(self, lease: Lease) -> None:
        """Extend *lease* by its ``lease_s`` from now. Raise LockLost if it is no longer held."""
        self.backend.renew(lease)

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Raise LockLost unless *lease* and all its locks are still held.

        After a partial release, pass the lease that :meth:`release` returned.

        :param wake: called once, from any thread, when the lease may have changed. Then verify again.
        """
        self.backend.verify(lease, wake)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Record that *application* starts under *lease*, with a new token. Earlier work of that *name* can no longer
        publish.

        Check first that the earlier work has ended: the new token does not stop it.

        :return: the lease, with the new token.
        """
        return self.backend.start_work(lease, name, application)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """Replace the recorded application of the work *name*, for example by its id in a cluster. Its token stays.

        :param application: ``""``: nothing runs that the caller knows; None: the work has ended.
        """
        return self.backend.record_work(lease, name, application)

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Raise LockLost unless the work *name* with this token may publish. Call this last before it publishes."""
        self.backend.check_token(lease_id, name, token)

    @overload
    def release(self, lease: Lease) -> bool: ...

    @overload
    def release(self, lease: Lease, *, objects: Iterable[str | LockObject]) -> Lease | None: ...

    def release(self, lease: Lease, *, objects: Iterable[str | LockObject] | None = None) -> bool | Lease | None:
        """Release *lease*. A lease that is already gone is no error. A lease that a later attempt has taken over stays
        held.

        :param objects: for a partial release: release only the locks on these objects and below them, in one step, and
            SHARED on each parent that no remaining lock needs. The rest stays held, with its id, tokens and work. It is
            no error to release the same objects twice.
        :return: whether this call released the lease. With *objects*: the lease with its remaining locks, or None if no
            lock remains.
        :raises InvalidRequest: the lease never held one of *objects*. Nothing was released.
        :raises Unsupported: this store can only release a whole lease.
        """
        if objects is None:
            return self.backend.release(lease)
        named = frozenset(rules.objects("objects", objects))
        if not named:
            raise InvalidRequest(
                f"the release of lease {lease.id} of {lease.owner} has an empty list of objects. Name objects, or omit the list"
            )
        return self.backend.release_part(lease, named)

    def show(self, target: str | LockObject | None = None) -> Sequence[Holder]:
        """The holders on *target* and below it, or all holders: owners of leases, and Hive's own sessions."""
        return self.backend.show(_target(target))

    def waiters(self, target: str | LockObject | None = None) -> Sequence[Waiter]:
        """The waiters for *target* and objects below it, or all waiters, in queue order."""
        return self.backend.waiters(_target(target))

    def history(self, target: str | LockObject | None = None, *, most: int | None = None) -> Sequence[Tenure]:
        """The leases of the last days, held and ended, each with the times of its request, grant and end.

        :param most: how many requests to read at most; None: all. ZooKeeper reads any, other stores read the newest.
        """
        return self.backend.history(_target(target), most=most)

    def leases(self) -> Sequence[Lease]:
        """All held leases of all owners."""
        return self.backend.leases()

    def requests(self) -> tuple[Sequence[Lease], Sequence[Waiter]]:
        """All held leases and all waiters, from one snapshot if the store allows it."""
        return self.backend.requests()

    def find(self, lease_id: str) -> Lease | None:
        """The held lease with this id, or None."""
        return self.backend.find(lease_id)

    def lease_of(self, owner: str) -> Lease | None:
        """The lease that *owner* holds, or None. Any attempt of the owner may have acquired it."""
        return self.backend.lease_of(owner)

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        """Drop the owner's request if it waits for a worker slot and belongs to this *attempt*.

        Call it for an owner that will not ask again. If the owner does ask again, it is a new arrival.

        :return: whether this call dropped it.
        """
        return self.backend.forget_deferred(owner, attempt)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Release another owner's lease, and write the user, the time, the lease and the reason to the audit trail.

        :param reason: stored as one line, like *user*.
        :param seen: release the lease only if it and its work are the same as in this snapshot.
        :return: whether this call released it.
        :raises InvalidRequest: the reason or the user is missing, or cannot be stored.
        """
        reason, user = audit_texts(f"force release of {lease_id[:80]!r}", reason, user)
        return self.backend.force_release(lease_id, reason=reason, user=user, seen=seen)

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        """Withdraw the owner's request while it waits for locks or a permit, and write an entry to the audit trail.

        The waiting process gets :class:`~airflow_hivelock.locks.errors.Withdrawn`, with the reason. A request that
        waits for a worker slot stays, because its task may be starting.

        :return: whether this call withdrew it. False: the owner does not wait.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: the store has its own queue.
        """
        reason, user = audit_texts(f"withdrawal of {owner[:80]!r}", reason, user)
        return self.backend.force_withdraw(owner, reason=reason, user=user)

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        """Change the priority of the owner's request while it waits for locks, and write an entry to the audit trail.

        A raised request overtakes others like a new arrival of that priority, from its position in the queue. A
        lowered request becomes a new arrival. The owner's next request has its own priority again.

        :return: whether this call changed it. False: the owner does not wait for locks.
        :raises InvalidRequest: as :meth:`force_release`. Or the request can no longer overtake any request.
        :raises Unsupported: the store has no priorities.
        """
        check_priority(priority, owner)
        reason, user = audit_texts(f"priority of {owner[:80]!r}", reason, user)
        return self.backend.force_priority(owner, priority, reason=f"priority {priority}: {reason}", user=user)

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        """Replace the recorded application of another owner's work, and write an entry to the audit trail.

        :param seen: the work as the caller saw it. If its record has changed since then, it stays the same.
        :return: whether this call replaced it.
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
        """Force-release the leases on *target* or below it that have been held for at least *held_s* seconds.

        Locks of Hive's own sessions stay. Use :meth:`force_unlock` for those.

        :return: the released leases.
        :raises InvalidRequest: *held_s* is invalid, or it and *target* are missing. Use ``held_s=0`` for all leases.
        """
        if target is None and held_s is None:
            raise InvalidRequest("the force release has no target. Name an object, or an age in seconds (held_s)")
        if not 0 <= (held_s or 0) <= MAX_LEASE_S:
            raise InvalidRequest(f"held_s={held_s!r} is not an age. Give seconds, up to {MAX_LEASE_S:,}")
        before = self.now() - timedelta(seconds=held_s or 0)
        ids = dict.fromkeys(holder.lease_id for holder in self.show(target) if holder.since <= before)
        leases = [lease for lease_id in ids if lease_id and (lease := self.find(lease_id))]
        return [lease for lease in leases if self.force_release(lease.id, reason=reason, user=user)]

    def force_unlock(
        self, query_id: str, target: str | LockObject | None = None, *, reason: str, user: str
    ) -> Sequence[Lock]:
        """Free the locks that a Hive query has left behind, and write an entry to the audit trail.

        Check first that the query has ended: its session is not notified. Locks of other queries stay.

        :param query_id: the id of Hive's query, as SHOW LOCKS … EXTENDED shows it. In a metastore: the id of the lock,
            as SHOW LOCKS shows it. There it can be the lock of another client, such as Trino or Iceberg.
        :param target: free only the query's lock on this object; None: all its locks.
        :return: the locks that this call freed; empty if the query holds none there.
        :raises InvalidRequest: as :meth:`force_release`.
        :raises Unsupported: Hive's locks are not in this store, or it cannot free them one by one. In a metastore: the
            lock belongs to a transaction.
        """
        reason, user = audit_texts(f"force unlock of {query_id[:80]!r}", reason, user)
        if not isinstance(self.backend, FreesForeign):
            raise Unsupported(
                f"{query_id[:80]!r}: this lock store has no locks of Hive to free. Use the URL of the store in which Hive locks: its "
                "ZooKeeper or its metastore"
            )
        return self.backend.force_unlock(query_id, _target(target), reason=reason, user=user)

    def audit(self, target: str | LockObject | None = None) -> Sequence[ForcedRelease]:
        """The audit trail of *target* and the objects below it, or all of it, oldest entry first."""
        wanted = _target(target)
        return [entry for entry in self.backend.audit() if rules.concern(entry.locks, wanted)]

    def sweep(self) -> int:
        """Delete unfinished requests of dead processes, and history that is too old. Return the number of entries."""
        return self.backend.sweep()

    def now(self) -> datetime:
        """The time by the store's clock. All times in the store use it."""
        return self.backend.now()

    def _wait(self, changed: threading.Event, pending: PendingLease, tell: Callable[[float], None] | None) -> None:
        """Wait until another poll is useful."""
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
        """Close the connections. Leases stay held."""
        self.backend.close()

    def __exit__(self, *exc: object) -> None:
        self.close()


def audit_texts(what: str, reason: str, user: str) -> tuple[str, str]:
    """Return *reason* and *user* for the audit trail, each as one line.

    :param what: the action, for the error message.
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
