"""What a lock backend is: few methods, none of which waits. Waiting and deadlines are the pending request's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_hivelock.locks.errors import LockLost

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
    """A request that has to wait: a value, not an error, until a deadline makes it one.

    :param by: who is in the way, nearest first; never empty.
    :param waited_s: how long, by the store's clock, the owner had waited when this acquisition began: since
        ``request.asked``, or since an earlier process of the owner took the place that this one found.
    :param passing: in the way is only a request that is itself about to be granted or withdrawn,
        so that even one that does not wait looks again.
    :param recheck_s: look again after this many seconds even without a wake-up; None where the
        backend's wake-ups suffice.
    """

    by: tuple[Blocker, ...]
    waited_s: float = 0.0
    passing: bool = False
    recheck_s: float | None = None


@dataclass(frozen=True)
class Free:
    """A late request could have had its locks, and has stepped aside: it holds nothing and is in nobody's way.

    :param waited_s: as of :class:`Blocked`.
    """

    waited_s: float = 0.0


@dataclass(frozen=True)
class Capabilities:
    """What a backend promises; the conformance suite holds each one to what it declares.

    :param acquires: takes locks; otherwise it only looks.
    :param seen_by_hive: a Hive that locks in this store lists these locks and honours them.
    :param parents: the hierarchy is made by SHARED on all that lies above, and one object decides a conflict;
        otherwise the server has a hierarchy of its own, and only what is named is locked.
    :param fair: first come, first served among conflicting requests, readers and writers alike.
    :param prioritized: among conflicting requests that wait, the larger priority goes first, within a bound.
    :param limits: counts the leases of a group, and grants no more than a request's limit.
    :param watched: wakes those who wait; otherwise they look again every few seconds.
    :param expires: a lease that is not renewed in time blocks nobody any longer; otherwise time alone frees nothing.
    :param remembers: knows an owner's lease again from any process, orders its attempts, and records what runs under it.
    :param parts: a part of a lease can be given back, and the rest stands.
    :param audits: keeps the history of leases, and an audit trail of force releases.
    """

    acquires: bool = True
    seen_by_hive: bool = False
    parents: bool = True
    fair: bool = True
    prioritized: bool = True
    limits: bool = True
    watched: bool = True
    expires: bool = False
    remembers: bool = True
    parts: bool = True
    audits: bool = True


@runtime_checkable
class Explains(Protocol):
    """A backend that takes something else for a request than the locks which the request has, or tells where."""

    def takes(self, request: LockRequest) -> Mapping[Lock, str]:
        """Each lock that it would take, sorted, and how the store keeps it. Asks nobody.

        :raises InvalidRequest: it does not take such a request.
        """
        ...


@runtime_checkable
class Warns(Protocol):
    """A backend that knows who else may change what it keeps."""

    def warnings(self) -> Sequence[str]:
        """What leaves its locks unprotected in the store itself, each with the next step.

        :raises StoreUnavailable: the store does not answer.
        """
        ...


@runtime_checkable
class FreesForeign(Protocol):
    """A backend whose locks Hive's own sessions take, too, and leave behind."""

    def force_unlock(self, query_id: str, target: LockObject | None, *, reason: str, user: str) -> Sequence[Lock]:
        """Free the locks of a query of Hive's, on *target* alone where one is given, in one step with its entry of the audit
        trail; no lock of anybody else's, and none that has come since.

        :return: what was freed; nothing where that query holds nothing there.
        """
        ...


@dataclass(frozen=True)
class NamespaceUse:
    """What is below a node in ZooKeeper that a Hive may lock in.

    :param hives: how many locks of Hive's own are there now.
    :param objects: databases or tables are there: a client has locked them.
    :param made_here: this package made the node: no Hive had locked below it before, or has been seen there since.
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
    """One request on its way. Used by one thread at a time."""

    @property
    def asked(self) -> datetime | None:
        """When the owner first asked, by the store's clock: ``request.asked``, or the first request of this place.

        None before the first answer, and in a store that does not know.
        """
        ...

    def step(self) -> Lease | Free | Blocked:
        """Bring the request as far as it can go now. After Blocked, ``wake`` is called once it is worth another step.

        A late request ends Free where it would be granted; a lease of its owner that stands is returned all the same.

        :raises Superseded: a later attempt of the owner has taken over.
        :raises LeaseMismatch: the owner already waits for or holds other locks.
        :raises StoreUnavailable: nothing is known to have changed; another step settles it.
        """
        ...

    def withdraw(self) -> None:
        """Give up: leave the queue and hold nothing. Keeps a lease that has been returned by :meth:`step`."""
        ...

    def hand_over(self) -> None:
        """Leave the place in the queue to the owner's next process: without a sign of life from now on, so that the place
        keeps nobody waiting once nobody else is in the way."""
        ...


class Backend(Protocol):
    """Where locks are kept. All calls are safe from several threads.

    What has a body here does for a subclass that keeps nothing else, and looks at all leases for one.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it promises."""
        ...

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> Acquisition:
        """Start (or take up again) the owner's request. *wake* may be called from any thread and must not block."""
        ...

    def renew(self, lease: Lease) -> None:
        """Extend the lease by its ``lease_s`` from now, by the store's clock.

        :raises LockLost: the lease is gone, taken over, or known to have lost a lock.
        """
        ...

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        """Look whether the lease and all of its locks still stand; *wake* is called once when that may have changed.

        :raises LockLost: it is gone, taken over, or one of its locks was removed, or given back.
        """
        ...

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        """Record that *application* starts under the lease, with a new token; in the place of what had that name.

        :raises LockLost: the lease is gone, taken over, or known to have lost a lock.
        """
        ...

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        """Record what runs under that name by now, with its token as it is; ``""``: nothing for now; None: it has ended.

        :raises LockLost: as :meth:`start_work`.
        """
        ...

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        """Look whether work still has the newest token of its name, and its lease and all of its locks still stand.

        :raises LockLost: it must not publish.
        """
        check_newest(self.find(lease_id), lease_id, name, token)

    def release(self, lease: Lease) -> bool:
        """Free the lease. True if this call freed it; False if there was nothing left to free, or if a later
        attempt has taken the lease over (which is then left alone)."""
        ...

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        """Free what the lease holds on *objects* and in them, with SHARED on the parents that nothing left needs, and
        nothing else, in one step. The rest stands: the same id, tokens and work.

        :return: the lease with what is left; None if nothing is, or if it is gone, or a later attempt's.
        :raises InvalidRequest: one of *objects* was never in it; nothing was freed.
        :raises LockLost: it is known to have lost a lock.
        :raises Unsupported: the store can only free it whole.
        """
        ...

    def show(self, target: LockObject | None = None) -> Sequence[Holder]:
        """Who holds locks on *target* and below it, or on anything; sorted by object, then by time."""
        ...

    def waiters(self, target: LockObject | None = None) -> Sequence[Waiter]:
        """Who waits for *target* or something below it, or for anything, in their order."""
        ...

    def history(self, target: LockObject | None = None) -> Sequence[Tenure]:
        """The leases on *target* and below it, or on anything, that are held or ended within the last days, by grant.

        Of an owner that has acquired more than once, the last."""
        ...

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float | None:
        """Call *wake* once when a lock on one of *targets* comes or goes.

        :return: None, or after how many seconds to look again where the backend cannot watch.
        """
        ...

    def leases(self) -> Sequence[Lease]:
        """Every lease that stands, whoever's it is, those that have lost a lock included."""
        ...

    def requests(self) -> tuple[Sequence[Lease], Sequence[Waiter]]:
        """:meth:`leases` and :meth:`waiters`, of one look where the store allows it: a request is among one of them."""
        return self.leases(), self.waiters()

    def find(self, lease_id: str) -> Lease | None:
        """The lease of that id while it stands, else None."""
        return next((lease for lease in self.leases() if lease.id == lease_id), None)

    def lease_of(self, owner: str) -> Lease | None:
        """The lease that *owner* holds, whichever attempt acquired it, else None."""
        return next((lease for lease in self.leases() if lease.owner == owner), None)

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        """Free somebody else's lease, and write who, when, which and why to the audit trail.

        :param seen: free it only while it is :meth:`~airflow_hivelock.locks.model.Lease.unchanged` from that.
        :return: False if no such lease stands.
        """
        ...

    def forget_aside(self, owner: str, attempt: int) -> bool:
        """Take the owner's request off the list of those that wait, if it has stepped aside as that very attempt.

        :return: whether this call did.
        """
        return False

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        """Record *application* in the place of what somebody else's work has recorded, and write who, when, which and why
        to the audit trail; its token stays.

        :return: False if no such lease stands, or if that work is no longer as it was *seen*.
        :raises Unsupported: the store does not record what runs under a lease.
        """
        ...

    def audit(self) -> Sequence[ForcedRelease]:
        """Every force release and every record by force, oldest first."""
        return ()

    def sweep(self) -> int:
        """Take away what the dead have left that holds nothing: half-made requests, and history past its time.

        :return: how much of it there was.
        """
        return 0

    def now(self) -> datetime:
        """The store's clock, by which all its times are; a client's own may be wrong."""
        ...

    def close(self) -> None:
        """Give back connections. What is held stays held."""
        return


def check_newest(lease: Lease | None, lease_id: str, name: str, token: int) -> Lease:
    """The lease of that id, as it stands, under which the work *name* was started last with *token*.

    :raises LockLost: there is none, or the work was started again or ended: it must not publish.
    """
    if lease is None:
        raise LockLost(f"lease {lease_id} no longer stands: {name} with token {token} must not publish")
    newest = work.token if (work := lease.work(name)) else None
    if newest != token:
        raise LockLost(
            f"{lease.owner}: {name} with token {token} must not publish under lease {lease_id}: "
            + (f"it was started again, with token {newest}" if newest else "it was ended")
        )
    return lease
