"""The memory backend: one lock around everything, and no step that another could see half done."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Backend, Blocked, Capabilities, Free
from airflow_hivelock.locks.backends.memory.queues import Entry, MemoryQueues
from airflow_hivelock.locks.errors import LockLost, Superseded
from airflow_hivelock.locks.model import (
    ForcedRelease,
    Holder,
    Lease,
    LockObject,
    LockRequest,
    Tenure,
    Waiter,
    WaitsFor,
    in_order,
    put_work,
    token_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.locks.model import Blocker, Work

PASSING_S = 3600.0


class MemoryBackend(Backend):
    """See :class:`~airflow_hivelock.locks.backend.Backend`; nothing survives the process.

    :param passing_s: how long a request that waits is passed by more urgent ones, in seconds; 0: never.
    """

    capabilities = Capabilities()

    def __init__(self, passing_s: float = PASSING_S) -> None:
        self.queues = MemoryQueues(passing_s)
        self._audit: list[ForcedRelease] = []
        self._lock = threading.RLock()
        self._ended: dict[str, Tenure] = {}
        self._orders: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._watches: list[tuple[Sequence[LockObject], Callable[[], None]]] = []

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> MemoryAcquisition:
        return MemoryAcquisition(self, request, wake)

    def renew(self, lease: Lease) -> None:
        with self._lock:
            self._held(lease).renewed = self.now()

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        with self._lock:
            entry = self._held(lease)
            rules.check_all(lease, entry.request.locks)
            if wake is not None:
                entry.losses.append(wake)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        with self._lock:
            return self._put_work(lease, name, application, next(self.queues.count))

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        with self._lock:
            held = self.find(lease.id) or lease
            return self._put_work(lease, name, application, token_of(held.works, name, held.token))

    def release(self, lease: Lease) -> bool:
        with self._lock:
            return self._holding(lease) is not None and self._remove(lease.owner)

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        with self._lock:
            entry = self._holding(lease)
            if entry is None or entry.lease is None:
                return None
            standing = entry.lease
            left = rules.left(standing, objects, lease.locks)
            if not left:
                self._remove(lease.owner)
                return None
            gone = tuple(lock for lock in standing.locks if lock not in left)
            if gone:
                entry.request = replace(entry.request, locks=left)
                entry.lease = replace(standing, locks=left, given=in_order((*standing.given, *gone)))
                for wake in entry.losses:
                    wake()
                entry.losses.clear()
                self._changed(replace(entry.request, locks=gone))
            return entry.lease

    def leases(self) -> list[Lease]:
        with self._lock:
            held = [(entry, entry.lease) for entry in self.queues.entries.values() if entry.lease]
            return [replace(lease, expires=_expires(entry, lease)) for entry, lease in held]

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        with self._lock:
            return self.leases(), self.waiters()

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        with self._lock:
            lease = self.find(lease_id)
            if lease is None or not lease.unchanged(seen):
                return False
            self._audit.append(ForcedRelease(lease_id, lease.owner, lease.locks, user, reason, self.now()))
            return self._remove(lease.owner)

    def forget_aside(self, owner: str, attempt: int) -> bool:
        with self._lock:
            entry = self.queues.entries.get(owner)
            aside = entry is not None and entry.waiting(WaitsFor.SLOT) and entry.request.attempt == attempt
            return aside and self._remove(owner)

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        with self._lock:
            lease = self.find(lease_id)
            if lease is None or seen not in lease.works:
                return False
            self._put_work(lease, seen.name, application, seen.token)
            self._audit.append(ForcedRelease(lease_id, lease.owner, lease.locks, user, reason, self.now()))
            return True

    def audit(self) -> list[ForcedRelease]:
        with self._lock:
            return list(self._audit)

    def show(self, target: LockObject | None = None) -> list[Holder]:
        with self._lock:
            held = [(lease, self.queues.entries[lease.owner].request.query) for lease in self.leases()]
        return rules.holders(held, target)

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        with self._lock:
            entries = sorted(self.queues.entries.values(), key=lambda entry: entry.order)
            return [
                _waiter(entry, self.queues.blockers(entry))
                for entry in entries
                if entry.lease is None and rules.concern(entry.request.locks, target)
            ]

    def history(self, target: LockObject | None = None) -> list[Tenure]:
        with self._lock:
            held = [_tenure(entry, entry.lease, None) for entry in self.queues.entries.values() if entry.lease]
            tenures = [*self._ended.values(), *held]
        return sorted(
            (tenure for tenure in tenures if rules.concern(tenure.locks, target)),
            key=lambda tenure: tenure.granted,
        )

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> None:
        with self._lock:
            self._watches.append((targets, wake))

    def now(self) -> datetime:
        return self.queues.now()

    def _put_work(self, lease: Lease, name: str, application: str | None, token: int) -> Lease:
        entry = self._held(lease)
        assert entry.lease is not None
        works = put_work(entry.lease.works, name, application, token)
        entry.lease = replace(entry.lease, token=max(entry.lease.token, token), works=works)
        return entry.lease

    def _held(self, lease: Lease) -> Entry:
        if (entry := self._holding(lease)) is None:
            raise LockLost(f"{lease.owner}: lease {lease.id} no longer stands; stop the work under it")
        return entry

    def _holding(self, lease: Lease) -> Entry | None:
        entry = self.queues.entries.get(lease.owner)
        held = entry and entry.lease
        return entry if held and (held.id, held.epoch) == (lease.id, lease.epoch) else None

    def _remove(self, owner: str) -> bool:
        entry = self.queues.entries.pop(owner, None)
        if entry:
            if entry.lease:
                self._ended[owner] = _tenure(entry, entry.lease, self.now())
            for wake in entry.losses:
                wake()
            self._changed(entry.request)
        return entry is not None

    def _changed(self, request: LockRequest) -> None:
        for entry in self.queues.entries.values():
            if entry.lease is None and entry.waits_for is not WaitsFor.SLOT and not self.queues.in_the_way(entry):
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

    def step(self) -> Lease | Free | Blocked:
        store = self._backend
        with store._lock:
            entry = self._mine() or self._enter()
            if entry.lease is None and entry.waits_for is not WaitsFor.SLOT:
                if store.queues.advance(entry):
                    store._changed(entry.request)
                if blocked := store.queues.blockers(entry):
                    return Blocked(blocked, self._waited_s)
                for left in store.queues.left_before(entry):
                    store._remove(left.request.owner)
                if self._request.late:
                    entry.waits_for, entry.place, entry.in_group = WaitsFor.SLOT, None, None
                else:
                    self._grant(entry)
                store._changed(entry.request)
            return entry.lease or Free(self._waited_s)

    def _grant(self, entry: Entry) -> None:
        number = next(self._backend.queues.count)
        entry.lease = Lease(
            f"memory-{number}",
            number,
            self._request.attempt,
            entry.epoch,
            self._request.owner,
            entry.request.locks,
            self._request.lease_s,
            self._backend.now(),
            whole=entry.request.whole,
        )

    def withdraw(self) -> None:
        with self._backend._lock:
            if self._waiting():
                self._backend._remove(self._request.owner)

    def hand_over(self) -> None:
        with self._backend._lock:
            if entry := self._waiting():
                entry.left = True
                self._backend._changed(self._request)

    def _waiting(self) -> Entry | None:
        """The entry while it waits, and this acquisition acts for its owner."""
        entry = self._backend.queues.entries.get(self._request.owner)
        return entry if entry and entry.lease is None and entry.epoch == self._epoch else None

    def _mine(self) -> Entry | None:
        """The entry that this acquisition made or took over; None before its first step, or when it was freed."""
        entry = self._backend.queues.entries.get(self._request.owner)
        if self._epoch is None or entry is None:
            return None
        if entry.epoch != self._epoch:
            raise Superseded(f"{self._request.owner}: a later attempt acts for it now")
        return entry

    def _enter(self) -> Entry:
        store, request = self._backend, self._request
        self._begun = self._begun or next(store.queues.count)
        latest = store._orders[request.owner]
        if (request.attempt, self._begun) < latest:
            raise Superseded(f"{request.owner}: attempt {latest[0]} has taken over from attempt {request.attempt}")
        self._epoch = next(store.queues.count)
        entry = store.queues.entries.get(request.owner)
        if entry is None or entry.waiting(WaitsFor.SLOT):
            entry = store.queues.entries[request.owner] = Entry(
                request, next(store.queues.count), store.now(), self._epoch, self._wake
            )
        elif not _same(entry, request):
            given = entry.lease.given if entry.lease else ()
            held = entry.lease is not None
            raise rules.mismatch(request.owner, entry.request.locks, request.locks, held=held, given=given)
        else:
            superseded = entry.wake
            standing = entry.request
            whole = standing.whole | request.whole
            entry.request = replace(
                request, locks=standing.locks, priority=standing.priority, limit=standing.limit, whole=whole
            )
            entry.epoch, entry.wake, entry.left = self._epoch, self._wake, False
            superseded()
            self._waited_s = (store.now() - entry.since).total_seconds()
            for notice in entry.losses:
                notice()
            entry.losses.clear()
            if entry.lease:
                entry.lease = replace(entry.lease, epoch=self._epoch, attempt=request.attempt, whole=whole)
        store._orders[request.owner] = request.attempt, self._begun
        return entry


def _same(entry: Entry, request: LockRequest) -> bool:
    """Whether *request* is for what *entry* has, all of it."""
    if request.named and not (entry.lease and entry.lease.given):
        return entry.request.named == request.named
    return entry.request.locks == request.locks


def _waiter(entry: Entry, blockers: tuple[Blocker, ...]) -> Waiter:
    request = entry.request
    place = 0 if entry.waits_for is WaitsFor.SLOT else 1 + sum(blocker.waiting for blocker in blockers)
    return Waiter(
        request.owner,
        request.locks,
        place,
        entry.since,
        blockers,
        request.priority,
        entry.waits_for,
        request.attempt,
    )


def _tenure(entry: Entry, lease: Lease, ended: datetime | None) -> Tenure:
    held = in_order((*lease.locks, *lease.given))
    return Tenure(lease.id, lease.owner, held, entry.since, lease.since, ended)


def _expires(entry: Entry, lease: Lease) -> datetime:
    return (entry.renewed or lease.since) + timedelta(seconds=lease.lease_s)
