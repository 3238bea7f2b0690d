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
    """A request that has to wait: a value, and no error before a deadline.

    :param by: the blockers, nearest first; never empty.
    :param waited_s: how long, by the store's clock, the owner had waited when this acquisition began. It counts from
        ``request.asked``, or from when an earlier process of the owner joined the queue at the position that this one
        took over.
    :param passing: the only blocker is a request that is about to be granted or withdrawn. So even a request that does
        not wait tries again.
    :param recheck_s: try again after this many seconds even without a wake-up; None if the backend's wake-ups suffice.
    """

    by: tuple[Blocker, ...]
    waited_s: float = 0.0
    passing: bool = False
    recheck_s: float | None = None


@dataclass(frozen=True)
class NeedsSlot:
    """A deferred request could have its locks. It has taken none, because its task needs a worker slot first.

    :param waited_s: as in :class:`Blocked`.
    :param until: it is invited, and keeps its queue position until then, by the store's clock. None: it is away.
    """

    waited_s: float = 0.0
    until: datetime | None = None


@dataclass(frozen=True)
class Capabilities:
    """The promises of a backend; the conformance suite checks each promise.

    :param acquires: acquires locks; otherwise it only lists them.
    :param seen_by_hive: a Hive that locks in this store lists these locks and waits for them.
    :param parents: a request takes SHARED on every parent of its objects, and locks conflict on one object only;
        otherwise the server has a hierarchy of its own, and only the named objects are locked.
    :param fair: first come, first served among conflicting requests, shared and exclusive alike.
    :param prioritized: among conflicting waiters, the larger priority goes first, within a bound.
    :param invites: a deferred request keeps its queue position while its task gets a worker slot; otherwise it goes
        away.
    :param limits: counts the leases of a group, and grants at most a request's limit.
    :param watched: wakes waiters; otherwise they poll every few seconds.
    :param expires: a lease that is not renewed in time blocks no request any longer; otherwise time alone releases
        nothing.
    :param remembers: finds an owner's lease from any process, orders the owner's attempts, and records the work under
        the lease.
    :param parts: supports partial release: a part of a lease is released, and the rest stays held.
    :param withdraws: a person can withdraw a request that waits.
    :param audits: keeps the history of leases, and an audit trail of force releases.
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
    """A backend that does not take exactly the locks of a request, or that can show where it keeps them."""

    def takes(self, request: LockRequest) -> Mapping[Lock, str]:
        """The locks that it would take, sorted, and how the store keeps each. Makes no network call.

        :raises InvalidRequest: the backend does not accept such a request.
        """
        ...


@runtime_checkable
class Warns(Protocol):
    """A backend that knows which other clients may change its data."""

    def warnings(self) -> Sequence[str]:
        """What leaves its locks unprotected in the store itself, each with the next step.

        :raises StoreUnavailable: the store does not answer.
        """
        ...


@runtime_checkable
class FreesForeign(Protocol):
    """A backend that shares its locks with Hive's own sessions, which may leave some behind."""

    def force_unlock(self, query_id: str, target: LockObject | None, *, reason: str, user: str) -> Sequence[Lock]:
        """Free the locks of one Hive query, and write an entry to the audit trail, in one step.

        No lock of another client is freed, and none that the query has taken since.

        :param query_id: :attr:`.Holder.hive_id`: the query's id in ZooKeeper, the lock's id in a metastore.
        :param target: free only the lock on this object; None: all of them.
        :return: the freed locks; empty if the query holds none there.
        :raises Unsupported: the store cannot free them alone.
        """
        ...


@dataclass(frozen=True)
class NamespaceUse:
    """A node in ZooKeeper that may be the namespace of a Hive.

    :param hives: how many locks of Hive's own are below it now.
    :param objects: databases or tables are below it, so a client has locked them.
    :param made_here: this package made the node: it has seen no lock of Hive below it, before or since.
    """

    path: str
    hives: int = 0
    objects: bool = False
    made_here: bool = False


@runtime_checkable
class HasNamespaces(Protocol):
    """A lock store with several namespaces. Two Hives with different namespaces do not see each other's locks."""

    def namespaces(self) -> list[NamespaceUse]:
        """Its own namespace, then the others that a Hive locks in."""
        ...


class Acquisition(Protocol):
    """One request that is being acquired. Used by one thread at a time."""

    @property
    def asked(self) -> datetime | None:
        """When the owner first asked, by the store's clock: ``request.asked``, or when it joined the queue.

        None before the first answer, and in a store that does not know.
        """
        ...

    def step(self) -> Lease | NeedsSlot | Blocked:
        """Do as many steps of the request as are possible now. After Blocked, another step may help when ``wake`` is
        called.

        A deferred request ends with NeedsSlot when another request would be granted. A lease that its owner already holds is returned
        all the same. A deferred request with its worker slot joins no queue: after Blocked, the store is unchanged, and
        no wake-up comes.

        :raises Superseded: a later attempt of the owner has taken over.
        :raises LeaseMismatch: the owner already waits for or holds other locks.
        :raises StoreUnavailable: it is unknown whether anything changed; another step settles it.
        """
        ...

    def withdraw(self) -> None:
        """Leave the queue and hold nothing. A lease that :meth:`step` has returned is kept."""
        ...

    def hand_over(self) -> None:
        """Leave the queue position to the owner's next process, and give no sign of life from now on.

        Until that process comes, the request blocks no other one once only such requests are in the way.
        """
        ...


class Backend(Protocol):
    """A lock store's client. All calls are safe from several threads.

    The default methods suit a subclass that keeps nothing more. To find one lease they list all.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The promises of this backend."""
        ...

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> Acquisition:
        """Start the owner's request, or continue it. *wake* may be called from any thread and must not block."""
        ...

    def renew(self, lease: Lease) -> None:
        """Extend the lease by its ``lease_s`` from now, by the store's clock.

        :raises LockLost: the lease is gone, taken over, or known to have lost a lock.
        """
        ...

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Check that the lease and all of its locks are still held; *wake* is called once when that may have changed.

        :raises LockLost: the lease is gone or taken over, or one of its locks was removed or released.
        """
        ...

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Record that *application* starts under the lease, with a new token. It replaces the work of the same *name*.

        :raises LockLost: the lease is gone, taken over, or known to have lost a lock.
        """
        ...

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """Replace what is recorded under *name*, and keep its token.

        :param application: ``""``: nothing runs now; None: the work has ended.
        :raises LockLost: as :meth:`start_work`.
        """
        ...

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Check that work has the newest token of its name, and that its lease still holds all of its locks.

        :raises LockLost: the work must not publish.
        """
        check_newest(self.find(lease_id), lease_id, name, token)

    def release(self, lease: Lease) -> bool:
        """Release the lease. True if this call released it; False if it was already gone, or a later attempt has taken
        it over.

        A lease that a later attempt has taken over is left alone.
        """
        ...

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        """Release what the lease holds on *objects* and inside them, in one step.

        SHARED on a parent is released too if no remaining lock needs it. The rest stays held, with the same id, tokens
        and work.

        :return: the lease with its remaining locks; None if none remain, the lease is gone, or a later attempt has it.
        :raises InvalidRequest: one of *objects* was never in it; nothing was released.
        :raises LockLost: the lease is known to have lost a lock.
        :raises Unsupported: the store can only release it whole.
        """
        ...

    def show(self, target: LockObject | None = None) -> Sequence[Holder]:
        """The holders of locks on *target* and below it, or of all locks; sorted by object, then by time."""
        ...

    def waiters(self, target: LockObject | None = None) -> Sequence[Waiter]:
        """The waiters for *target* and objects below it, or all waiters, in their order."""
        ...

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> Sequence[Tenure]:
        """The leases on *target* and below it, or all leases, that are held or ended in the last days; in the order of
        their grants.

        For an owner that has acquired more than once, only the last lease is kept.

        :param most: how many requests to read at most: the newest, or any where the store does not order them. None:
            all.
        """
        ...

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float | None:
        """Call *wake* once when a lock on one of *targets* is acquired or released.

        :return: None, or after how many seconds to poll where the backend cannot watch.
        """
        ...

    def leases(self) -> Sequence[Lease]:
        """Every lease of every owner that is held, including those that have lost a lock."""
        ...

    def requests(self) -> tuple[Sequence[Lease], Sequence[Waiter]]:
        """:meth:`leases` and :meth:`waiters`, of one snapshot where the store allows it: each request is in one of the
        two."""
        return self.leases(), self.waiters()

    def find(self, lease_id: str) -> Lease | None:
        """The lease with that id while it is held, else None."""
        return next((lease for lease in self.leases() if lease.id == lease_id), None)

    def lease_of(self, owner: str) -> Lease | None:
        """The lease that *owner* holds, whichever attempt acquired it, else None."""
        return next((lease for lease in self.leases() if lease.owner == owner), None)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Release another owner's lease, and write the user, the time, the lease and the reason to the audit trail.

        :param seen: release it only if it is :meth:`~airflow_hivelock.locks.model.Lease.unchanged` since this snapshot.
        :return: False if no such lease is held.
        """
        ...

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        """Drop the owner's request if it waits for a worker slot and is of exactly this *attempt*.

        :return: whether this call dropped it.
        """
        return False

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        """Withdraw the owner's request while it waits for locks or for a permit. It is audited like a force release.

        The process that waits gets :class:`~airflow_hivelock.locks.errors.Withdrawn`. A later call is a new arrival.

        :return: False if the owner has no such request.
        :raises Unsupported: the store keeps its queue elsewhere.
        """
        raise Unsupported(
            f"{owner}: requests in this lock store cannot be withdrawn from outside. End the process that waits"
        )

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        """Give the owner's request another priority while it waits for its locks. It is audited like a force release.

        The request gets a new place in the queue: see :func:`.queueing.reprioritized`. Its process takes it over again.

        :return: False if the owner has no such request.
        :raises InvalidRequest: no request before it may be overtaken any more.
        :raises Unsupported: the store keeps its queue elsewhere.
        """
        raise Unsupported(f"{owner}: requests in this lock store have no priority, because it has a queue of its own")

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        """Replace what another owner's work has recorded by *application*, and keep its token. It is audited like a
        force release.

        :return: False if no such lease is held, or if the work has changed since *seen*.
        :raises Unsupported: the store does not record work.
        """
        ...

    def audit(self) -> Sequence[ForcedRelease]:
        """Every force release and every record by force, oldest first."""
        return ()

    def sweep(self) -> int:
        """Remove what dead processes have left and no lease needs: unfinished requests, and history past its time.

        :return: how many entries it removed.
        """
        return 0

    def now(self) -> datetime:
        """The store's clock. All times are by this clock, because a client's own may be wrong."""
        ...

    def close(self) -> None:
        """Close the connections. Every lease stays held."""
        return


def check_newest(lease: Lease | None, lease_id: str, name: str, token: int) -> Lease:
    """Return the lease with that id if the work *name* under it was last started with *token*.

    :raises LockLost: there is no lease, or the work was started again or ended: it must not publish.
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
