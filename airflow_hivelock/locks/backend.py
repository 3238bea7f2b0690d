"""The interface of a lock backend. No method waits: :mod:`.pending` owns waiting and deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_hivelock.locks.errors import LockLost, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.model import (
        Blocker,
        ForcedRelease,
        Holder,
        Lease,
        Lock,
        LockObject,
        LockRequest,
        Tenure,
        Waiter,
        Work,
    )


@dataclass(frozen=True)
class Blocked:
    """The request has to wait. It is a value, because only a deadline makes it an error.

    :param by: the blockers, nearest first; never empty.
    :param waited_s: how long the owner had waited when this acquisition began, in seconds by the store's clock. It
        counts from ``request.asked``. If an earlier process of the owner waited at this queue position, it counts from
        the start of that wait.
    :param passing: the only blocker is a request that will soon be granted or withdrawn. So even a request that does
        not wait tries again.
    :param recheck_s: try again after this many seconds even without a wake-up; None if the backend's wake-ups suffice.
    """

    by: tuple[Blocker, ...]
    waited_s: float = 0.0
    passing: bool = False
    recheck_s: float | None = None


@dataclass(frozen=True)
class NeedsSlot:
    """A deferred request has its turn. It took no locks, because its task first needs a worker slot.

    :param waited_s: as in :class:`Blocked`.
    :param until: when its invitation ends, by the store's clock. It keeps its queue position until then. None: it is
        away.
    """

    waited_s: float = 0.0
    until: datetime | None = None


@dataclass(frozen=True)
class Capabilities:
    """The promises of a backend. The conformance suite checks each of them.

    :param acquires: it acquires locks. Otherwise it only lists them.
    :param seen_by_hive: a Hive that locks in this store lists these locks and waits for them.
    :param parents: locks conflict only on the same object, so a request also takes SHARED on every parent. Otherwise
        the server itself knows the hierarchy, and a request locks only the named objects.
    :param fair: conflicting requests go in order of arrival, SHARED and EXCLUSIVE alike.
    :param prioritized: among conflicting waiters, the larger priority goes first. The time of overtaking has a limit.
    :param invites: a deferred request keeps its queue position while its task gets a worker slot. Otherwise it leaves
        the queue.
    :param limits: it counts the leases of a group, and grants no lease above the limit.
    :param watched: it wakes waiters. Otherwise they poll every few seconds.
    :param expires: an expired lease blocks no request. Otherwise time alone frees nothing.
    :param remembers: any process can find an owner's lease. A later attempt takes it over. The lease records its work.
    :param parts: it can release some locks of a lease and keep the others.
    :param withdraws: a person can withdraw a request that waits.
    :param audits: it keeps the history of leases, and an audit trail of force releases.
    """

    acquires: bool = True
    seen_by_hive: bool = False
    parents: bool = True
    fair: bool = True
    prioritized: bool = True
    invites: bool = True
    limits: bool = True
    watched: bool = True
    expires: bool = False
    remembers: bool = True
    parts: bool = True
    withdraws: bool = True
    audits: bool = True


@runtime_checkable
class Explains(Protocol):
    """A backend that may take other locks than the request's, or can show where it keeps them."""

    def takes(self, request: LockRequest) -> Mapping[Lock, str]:
        """The locks that *request* would take, sorted, and how the store keeps each. It makes no network call.

        :raises InvalidRequest: the backend does not accept such a request.
        """
        ...


@runtime_checkable
class Warns(Protocol):
    """A backend that knows which other clients may change its data."""

    def warnings(self) -> Sequence[str]:
        """The gaps in the protection of its data, each with the next step.

        :raises StoreUnavailable: the store does not answer.
        """
        ...


@runtime_checkable
class FreesForeign(Protocol):
    """A backend of a store where Hive's own sessions lock, too. A dead session can leave locks behind."""

    def force_unlock(self, query_id: str, target: LockObject | None, *, reason: str, user: str) -> Sequence[Lock]:
        """Free the locks of one Hive query, and write an entry to the audit trail, in one step.

        It frees no lock of another client, and no lock that the query takes after the start of this call.

        :param query_id: :attr:`.Holder.hive_id`: the query's id in ZooKeeper, the lock's id in a metastore.
        :param target: free only the lock on this object; None: all of them.
        :return: the freed locks; empty if the query holds none there.
        :raises Unsupported: the store cannot free them alone.
        """
        ...


@dataclass(frozen=True)
class NamespaceUse:
    """A node in ZooKeeper that may be the namespace of a Hive.

    :param hives: how many of Hive's own locks are below it now.
    :param objects: nodes of databases or tables are below it, so a client has locked there.
    :param made_here: this package created the node, and has never seen a lock of Hive below it.
    """

    path: str
    hives: int = 0
    objects: bool = False
    made_here: bool = False


@runtime_checkable
class HasNamespaces(Protocol):
    """A lock store with several namespaces. Two Hives with different namespaces do not see each other's locks."""

    def namespaces(self) -> list[NamespaceUse]:
        """The namespace of this backend, and then the other namespaces in which a Hive locks."""
        ...


class Acquisition(Protocol):
    """A request on its way to a lease. Only one thread at a time may use it."""

    @property
    def asked(self) -> datetime | None:
        """When the owner first asked, by the store's clock: ``request.asked``, or when it joined the queue.

        None: the store has not answered yet, or does not keep this time.
        """
        ...

    def step(self) -> Lease | NeedsSlot | Blocked:
        """Advance the request as far as possible now. After Blocked, call this again when ``wake`` is called.

        A deferred request gets NeedsSlot where another request would be granted, unless its owner already holds the
        lease. With its worker slot, a deferred request joins no queue: Blocked then leaves the store unchanged, and
        ``wake`` is not called.

        :raises Superseded: a later attempt of the owner has taken over.
        :raises LeaseMismatch: the owner already waits for or holds other locks.
        :raises StoreUnavailable: the store may have changed. The next call finds out.
        """
        ...

    def withdraw(self) -> None:
        """Leave the queue, and give everything back.

        That includes a lease that was granted to this request: an interrupted caller may not have received it. A lease
        that the owner held before stays held.
        """
        ...

    def hand_over(self) -> None:
        """Leave the queue position to the owner's next process, and stop showing that this request is alive.

        Until that process comes, a waiter may pass this request if only such requests are in its way.
        """
        ...


class Backend(Protocol):
    """A client of a lock store. Several threads may call it at once.

    :class:`.LockManager` describes the calls that it passes on. The methods with a body fit a store that lacks the
    feature. To find one lease, they list all leases.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The promises of this backend."""
        ...

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> Acquisition:
        """Start the owner's request, or continue it. Any thread may call *wake*, so it must not block."""
        ...

    def renew(self, lease: Lease) -> None:
        """Extend the lease by its ``lease_s`` from now, by the store's clock.

        :raises LockLost: the lease is gone, taken over, or known to have lost a lock.
        """
        ...

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Check that the lease and all its locks are still held. *wake* is called once when that may have changed.

        :raises LockLost: the lease is gone or taken over, or one of its locks was removed or released.
        """
        ...

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """See :meth:`.LockManager.start_work`. It raises LockLost as :meth:`renew` does."""
        ...

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """See :meth:`.LockManager.record_work`. It raises LockLost as :meth:`renew` does."""
        ...

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Check that *token* is the newest of the work *name*, and that the lease still holds all its locks.

        :raises LockLost: the check failed, so the work must not publish.
        """
        check_newest(self.find(lease_id), lease_id, name, token)

    def release(self, lease: Lease) -> bool:
        """See :meth:`.LockManager.release`."""
        ...

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        """Release *objects*; see :meth:`.LockManager.release`.

        :return: the lease with its remaining locks; None if none remain, the lease is gone, or a later attempt has it.
        :raises LockLost: the lease is known to have lost a lock.
        """
        raise Unsupported(
            f"{lease.owner}: this lock store cannot release a part of lease {lease.id}. Release it when all its work has ended, "
            "or take a lease for each part"
        )

    def show(self, target: LockObject | None = None) -> Sequence[Holder]:
        """The holders on *target* and below it, or all holders; sorted by object, then by time."""
        ...

    def waiters(self, target: LockObject | None = None) -> Sequence[Waiter]:
        """The waiters for *target* and objects below it, or all waiters, in queue order."""
        ...

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> Sequence[Tenure]:
        """The leases of the last days on *target* and below it, or all of them, held and ended, in order of grant.

        The store keeps only the last lease of each owner.

        :param most: as in :meth:`.LockManager.history`.
        """
        ...

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float | None:
        """Call *wake* once when a lock on one of *targets* is acquired or released.

        :return: None; if the backend cannot watch, the number of seconds after which the caller should poll.
        """
        ...

    def leases(self) -> Sequence[Lease]:
        """All held leases of all owners, including leases that have lost a lock."""
        ...

    def requests(self) -> tuple[Sequence[Lease], Sequence[Waiter]]:
        """:meth:`leases` and :meth:`waiters`, from one snapshot if the store allows it. A request is in only one."""
        return self.leases(), self.waiters()

    def find(self, lease_id: str) -> Lease | None:
        """The held lease with this id, or None."""
        return next((lease for lease in self.leases() if lease.id == lease_id), None)

    def lease_of(self, owner: str) -> Lease | None:
        """See :meth:`.LockManager.lease_of`."""
        return next((lease for lease in self.leases() if lease.owner == owner), None)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """See :meth:`.LockManager.force_release`.

        :param seen: release it only if it is :meth:`~airflow_hivelock.locks.model.Lease.unchanged` since this snapshot.
        """
        ...

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        """See :meth:`.LockManager.forget_deferred`."""
        return False

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        """See :meth:`.LockManager.force_withdraw`. A later call of the owner is a new arrival."""
        raise Unsupported(
            f"{owner}: requests in this lock store cannot be withdrawn from outside. End the process that waits"
        )

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        """See :meth:`.LockManager.force_priority`, and :func:`.queueing.reprioritized` for the request's new position.

        The process of the request takes it over again.
        """
        raise Unsupported(f"{owner}: requests in this lock store have no priority, because it has a queue of its own")

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        """See :meth:`.LockManager.force_record`. The token stays."""
        ...

    def audit(self) -> Sequence[ForcedRelease]:
        """The audit trail, oldest entry first."""
        return ()

    def sweep(self) -> int:
        """See :meth:`.LockManager.sweep`. Leases stay."""
        return 0

    def now(self) -> datetime:
        """The time by the store's clock. All times in the store use it, because a client's clock may be wrong."""
        ...

    def close(self) -> None:
        """Close the connections. Leases stay held."""
        return


def check_newest(lease: Lease | None, lease_id: str, name: str, token: int) -> Lease:
    """Return *lease* if *token* is the newest token of the work *name* under it.

    :raises LockLost: the lease is gone, or the work was started again or ended. The caller must not publish.
    """
    if lease is None:
        raise LockLost(
            f"lease {lease_id} is no longer held, so {name} with token {token} must not publish. Clear the task"
        )
    newest = work.token if (work := lease.work(name)) else None
    if newest != token:
        raise LockLost(
            f"{lease.owner}: {name} with token {token} must not publish under lease {lease_id}: "
            + (f"it was started again, with token {newest}" if newest else "it was ended")
        )
    return lease
