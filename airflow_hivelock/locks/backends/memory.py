"""Locks in this process's memory: for trying things out, and the plainest statement of what a backend does.

``memory://`` is shared by all who connect within the process; ``memory://name`` keeps apart.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked, Capabilities
from airflow_hivelock.locks.errors import LockLost, Superseded
from airflow_hivelock.locks.model import (
    Blocker,
    ForcedRelease,
    Holder,
    Lease,
    LockObject,
    LockRequest,
    Tenure,
    Waiter,
    Work,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass
class _Entry:
    """An owner's place in the queue; it stays there while the lease is held."""

    request: LockRequest
    place: int
    since: datetime
    epoch: int
    wake: Callable[[], None]
    lease: Lease | None = None
    renewed: datetime | None = None
    losses: list[Callable[[], None]] = field(default_factory=list)
    left: bool = False
    """Whether its process has handed it over, and no other has taken it up."""


class MemoryBackend:
    """First come, first served among conflicting requests; nothing survives the process."""

    capabilities = Capabilities(prioritized=False, limits=False)

    def __init__(self) -> None:
        self._audit: list[ForcedRelease] = []
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._ended: dict[str, Tenure] = {}
        self._orders: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._count = itertools.count(1)
        self._watches: list[tuple[Sequence[LockObject], Callable[[], None]]] = []

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> MemoryAcquisition:
        return MemoryAcquisition(self, request, wake)

    def renew(self, lease: Lease) -> None:
        with self._lock:
            if (entry := self._holding(lease)) is None:
                raise LockLost(f"{lease.owner}: lease {lease.id} no longer stands; stop the work under it")
            entry.renewed = self.now()

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        with self._lock:
            if (entry := self._holding(lease)) is None:
                raise LockLost(f"{lease.owner}: lease {lease.id} no longer stands; stop the work under it")
            if wake is not None:
                entry.losses.append(wake)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        with self._lock:
            return self._put_work(lease, Work(name, application, next(self._count)), name)

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        with self._lock:
            held = self.find(lease.id) or lease
            token = work.token if (work := held.work(name)) else held.token
            return self._put_work(lease, Work(name, application, token) if application is not None else None, name)

    def check_token(self, lease_id: str, name: str, token: int) -> None:
        lease = self.find(lease_id)
        work = lease.work(name) if lease else None
        if work is None or work.token != token:
            raise LockLost(f"lease {lease_id} no longer stands for {name} with token {token}, which must not publish")

    def release(self, lease: Lease) -> bool:
        with self._lock:
            return self._holding(lease) is not None and self._remove(lease.owner)

    def leases(self) -> list[Lease]:
        with self._lock:
            held = [(entry, entry.lease) for entry in self._entries.values() if entry.lease]
            return [replace(lease, expires=_expires(entry, lease)) for entry, lease in held]

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        with self._lock:
            return self.leases(), self.waiters()

    def find(self, lease_id: str) -> Lease | None:
        return next((lease for lease in self.leases() if lease.id == lease_id), None)

    def lease_of(self, owner: str) -> Lease | None:
        with self._lock:
            entry = self._entries.get(owner)
            return entry.lease if entry else None

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        with self._lock:
            lease = self.find(lease_id)
            if lease is None or not lease.unchanged(seen):
                return False
            self._audit.append(ForcedRelease(lease_id, lease.owner, lease.locks, user, reason, self.now()))
            return self._remove(lease.owner)

    def audit(self) -> list[ForcedRelease]:
        with self._lock:
            return list(self._audit)

    def show(self, target: LockObject | None = None) -> list[Holder]:
        with self._lock:
            holders = [
                Holder(
                    lock.object,
                    lock.mode,
                    entry.lease.owner,
                    entry.lease.since,
                    entry.lease.id,
                    entry.lease.token,
                    _expires(entry, entry.lease),
                    True,
                    entry.request.query,
                )
                for entry in self._entries.values()
                if entry.lease
                for lock in entry.request.locks
                if rules.concern([lock], target)
            ]
        return sorted(holders, key=lambda holder: (holder.object, holder.since, holder.owner))

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        with self._lock:
            return [
                Waiter(
                    owner, entry.request.locks, 1 + sum(blocker.waiting for blocker in blocked), entry.since, blocked
                )
                for owner, entry in sorted(self._entries.items(), key=lambda item: item[1].place)
                if entry.lease is None and rules.concern(entry.request.locks, target)
                for blocked in [self._ahead(entry)]
            ]

    def history(self, target: LockObject | None = None) -> list[Tenure]:
        with self._lock:
            held = [_tenure(entry, entry.lease, None) for entry in self._entries.values() if entry.lease]
            tenures = [*self._ended.values(), *held]
        return sorted(
            (tenure for tenure in tenures if rules.concern(tenure.locks, target)),
            key=lambda tenure: tenure.granted,
        )

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> None:
        with self._lock:
            self._watches.append((targets, wake))

    def sweep(self) -> int:
        return 0  # nothing here outlives its process

    def now(self) -> datetime:
        return datetime.now(UTC)  # the store is this process, so this is the store's clock

    def close(self) -> None:
        """Nothing to give back."""

    def _put_work(self, lease: Lease, work: Work | None, name: str) -> Lease:
        if (entry := self._holding(lease)) is None or entry.lease is None:
            raise LockLost(f"{lease.owner}: lease {lease.id} no longer stands; stop the work under it")
        others = tuple(other for other in entry.lease.works if other.name != name)
        token = max(entry.lease.token, work.token if work else 0)
        entry.lease = replace(entry.lease, token=token, works=(*others, work) if work else others)
        return entry.lease

    def _holding(self, lease: Lease) -> _Entry | None:
        entry = self._entries.get(lease.owner)
        held = entry and entry.lease
        return entry if held and (held.id, held.epoch) == (lease.id, lease.epoch) else None

    def _ahead(self, entry: _Entry) -> tuple[Blocker, ...]:
        """Who conflicts with *entry* and came before it, nearest first; nobody if nobody acts for any of them."""
        earlier = self._earlier(entry)
        if all(other.left for other in earlier):
            return ()
        return tuple(
            Blocker(other.request.owner, lock.object, lock.mode, waiting=other.lease is None)
            for other in earlier
            for lock in rules.conflicts(entry.request.locks, other.request.locks)[:1]
        )

    def _earlier(self, entry: _Entry) -> list[_Entry]:
        """Whose requests conflict with *entry* and came before it, nearest first."""
        before = sorted((e for e in self._entries.values() if e.place < entry.place), key=lambda e: -e.place)
        return [other for other in before if rules.conflicts(entry.request.locks, other.request.locks)]

    def _remove(self, owner: str) -> bool:
        entry = self._entries.pop(owner, None)
        if entry:
            if entry.lease:
                self._ended[owner] = _tenure(entry, entry.lease, self.now())
            for wake in entry.losses:
                wake()
            self._changed(entry.request)
        return entry is not None

    def _changed(self, request: LockRequest) -> None:
        for entry in self._entries.values():
            if entry.lease is None and not self._ahead(entry):
                entry.wake()
        touched = {lock.object for lock in request.locks}
        fired = [watch for watch in self._watches if touched.intersection(watch[0])]
        self._watches = [watch for watch in self._watches if watch not in fired]
        for _, wake in fired:
            wake()


class MemoryAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(self, backend: MemoryBackend, request: LockRequest, wake: Callable[[], None]) -> None:
        self._backend = backend
        self._request = request
        self._wake = wake
        self._epoch: int | None = None
        self._begun = 0
        self._waited_s = 0.0

    def step(self) -> Lease | Blocked:
        store = self._backend
        with store._lock:
            entry = self._mine() or self._enter()
            if entry.lease is None:
                if blocked := store._ahead(entry):
                    return Blocked(blocked, self._waited_s)
                for left in store._earlier(entry):
                    store._remove(left.request.owner)
                number = next(store._count)
                since = store.now()
                entry.lease = Lease(
                    f"memory-{number}",
                    number,
                    self._request.attempt,
                    entry.epoch,
                    self._request.owner,
                    self._request.locks,
                    self._request.lease_s,
                    since,
                )
                store._changed(self._request)
            return entry.lease

    def withdraw(self) -> None:
        with self._backend._lock:
            entry = self._backend._entries.get(self._request.owner)
            if entry and entry.lease is None and entry.epoch == self._epoch:
                self._backend._remove(self._request.owner)

    def hand_over(self) -> None:
        with self._backend._lock:
            entry = self._backend._entries.get(self._request.owner)
            if entry and entry.lease is None and entry.epoch == self._epoch:
                entry.left = True
                self._backend._changed(self._request)

    def _mine(self) -> _Entry | None:
        """The entry that this acquisition made or took over; None before its first step, or when it was freed."""
        entry = self._backend._entries.get(self._request.owner)
        if self._epoch is None or entry is None:
            return None
        if entry.epoch != self._epoch:
            raise Superseded(f"{self._request.owner}: a later attempt acts for it now")
        return entry

    def _enter(self) -> _Entry:
        store, request = self._backend, self._request
        self._begun = self._begun or next(store._count)
        latest = store._orders[request.owner]
        if (request.attempt, self._begun) < latest:
            raise Superseded(f"{request.owner}: attempt {latest[0]} has taken over from attempt {request.attempt}")
        self._epoch = next(store._count)
        entry = store._entries.get(request.owner)
        if entry is None:
            entry = store._entries[request.owner] = _Entry(
                request, next(store._count), store.now(), self._epoch, self._wake
            )
        elif not (entry.request.named == request.named if request.named else entry.request.locks == request.locks):
            raise rules.mismatch(request.owner, entry.request.locks, request.locks, held=entry.lease is not None)
        else:
            superseded = entry.wake
            entry.request = replace(request, locks=entry.request.locks)
            entry.epoch, entry.wake, entry.left = self._epoch, self._wake, False
            superseded()
            self._waited_s = (store.now() - entry.since).total_seconds()
            for notice in entry.losses:
                notice()
            entry.losses.clear()
            if entry.lease:
                entry.lease = replace(entry.lease, epoch=self._epoch, attempt=request.attempt)
        store._orders[request.owner] = request.attempt, self._begun
        return entry


def _tenure(entry: _Entry, lease: Lease, ended: datetime | None) -> Tenure:
    return Tenure(lease.id, lease.owner, lease.locks, entry.since, lease.since, ended)


def _expires(entry: _Entry, lease: Lease) -> datetime:
    return (entry.renewed or lease.since) + timedelta(seconds=lease.lease_s)
