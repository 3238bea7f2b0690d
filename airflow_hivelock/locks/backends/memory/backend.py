"""The memory backend: one lock around everything, and no step that another could see half done."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backend import Backend, Blocked, Capabilities, Free
from airflow_hivelock.locks.backends.memory import entry as entries
from airflow_hivelock.locks.backends.memory.entry import Entry, microseconds
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
    WaitsFor,
    in_order,
    put_work,
    token_of,
)
from airflow_hivelock.locks.queueing import Call, Decision, Earlier, Ruling, Undecided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.model import Work
    from airflow_hivelock.locks.queueing import Other

PASSING_S = 3600.0


class MemoryBackend(Backend):
    """See :class:`~airflow_hivelock.locks.backend.Backend`; nothing survives the process.

    :param passing_s: how long a request that waits is passed by more urgent ones, in seconds; 0: never.
    """

    capabilities = Capabilities()

    def __init__(self, passing_s: float = PASSING_S) -> None:
        self.passing_s = passing_s
        self._entries: dict[str, Entry] = {}
        self._numbers = count(1)
        self._audit: list[ForcedRelease] = []
        self._lock = threading.RLock()
        self._ended: dict[str, Tenure] = {}
        self._calls: dict[str, Earlier] = {}
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
            return self._put_work(lease, name, application, next(self._numbers))

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
            held = [(entry, entry.lease) for entry in self._entries.values() if entry.lease]
            return [replace(lease, expires=entry.expires(lease)) for entry, lease in held]

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
            entry = self._entries.get(owner)
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
            held = [(lease, self._entries[lease.owner].request.query) for lease in self.leases()]
        return rules.holders(held, target)

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        with self._lock:
            return [
                entry.waiter(self._blockers(entry, self._ahead(entry)))
                for entry in sorted(self._entries.values(), key=lambda entry: entry.place)
                if entry.lease is None and rules.concern(entry.request.locks, target)
            ]

    def history(self, target: LockObject | None = None) -> list[Tenure]:
        with self._lock:
            held = [entry.tenure(entry.lease, None) for entry in self._entries.values() if entry.lease]
            tenures = [*self._ended.values(), *held]
        return sorted(
            (tenure for tenure in tenures if rules.concern(tenure.locks, target)),
            key=lambda tenure: tenure.granted,
        )

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> None:
        with self._lock:
            self._watches.append((targets, wake))

    def now(self) -> datetime:
        return entries.now()

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
        entry = self._entries.get(lease.owner)
        held = entry and entry.lease
        return entry if held and (held.id, held.epoch) == (lease.id, lease.epoch) else None

    def _remove(self, owner: str) -> bool:
        entry = self._entries.pop(owner, None)
        if entry:
            if entry.lease:
                self._ended[owner] = entry.tenure(entry.lease, self.now())
                self._calls[owner] = self._calls[owner]._replace(ended=True)
            for wake in entry.losses:
                wake()
            self._changed(entry.request)
        return entry is not None

    def _changed(self, request: LockRequest) -> None:
        """Wake the waiters that have no request in the way any more, and those that watch the objects of *request*."""
        for entry in self._entries.values():
            waits = entry.lease is None and entry.waits_for is not WaitsFor.SLOT
            if waits and all(other.gone for other in self._ahead(entry)):
                entry.wake()
        touched = {lock.object for lock in request.locks}
        fired = [watch for watch in self._watches if touched.intersection(watch[0])]
        self._watches = [watch for watch in self._watches if watch not in fired]
        for _, wake in fired:
            wake()

    # The queues: the candidates, what is decided of them, and what is written of that.

    def _settle(self, entry: Entry) -> Decision:
        """Decide a request that holds nothing, and put it into the queue where it then waits."""
        while (decision := self._decide(entry)).ruling is Ruling.CLEAR:
            for other in decision.remove:
                self._remove(str(other.key))
        waited_for, had_place = entry.waits_for, entry.among_locks is not None
        entry.among_locks, entry.in_group = decision.among_locks, decision.in_group
        entry.waits_for = WaitsFor.LEASE if decision.ruling is Ruling.PARK else WaitsFor.LOCK
        if entry.waits_for is not waited_for and (had_place or waited_for is WaitsFor.LEASE):
            self._changed(entry.request)  # it is in no request's way in the queue that it has left
        return decision

    def _decide(self, entry: Entry) -> Decision:
        limit, now = entry.request.limit, self.now()
        asking = Undecided(
            entry.arrival,
            entry.own_place(next(self._numbers), now),
            entry.among_locks,
            entry.in_group,
            limit.most if limit else 0,
            entry.request.late,
        )
        oldest = microseconds(now) - round(self.passing_s * 1_000_000)
        return queueing.decide(asking, self._conflicting(entry), self._group(entry), oldest)

    def _ahead(self, entry: Entry) -> list[Other]:
        """The requests in its way, in the queue that it is in."""
        limit = entry.request.limit
        if entry.waits_for is WaitsFor.LOCK:
            return queueing.in_the_way(entry.place.position, self._conflicting(entry))
        if entry.waits_for is WaitsFor.LEASE and limit:
            return queueing.in_the_way_of_permit(entry.place.position, limit.most, self._group(entry))
        return []

    def _blockers(self, entry: Entry, ahead: Iterable[Other]) -> tuple[Blocker, ...]:
        """The requests *ahead*, each with a lock of its that is in the way."""
        limit, locks = entry.request.limit, entry.request.locks
        group = limit.group if limit and entry.waits_for is WaitsFor.LEASE else ""
        found = [(other, self._entries[str(other.key)].request.locks) for other in ahead]
        return tuple(
            Blocker(str(other.key), met.object, met.mode, waiting=not other.holds, group=group)
            for other, theirs in found
            for met in (theirs[-1:] if group else queueing.conflicts(locks, theirs)[:1])
        )

    def _conflicting(self, entry: Entry) -> list[Other]:
        return [
            other.other
            for other in self._entries.values()
            if other is not entry
            and (other.lease or other.among_locks)
            and queueing.conflicts(entry.request.locks, other.request.locks)
        ]

    def _group(self, entry: Entry) -> list[Other]:
        """The others that wait for or have a lease of its group."""
        name = entry.request.limit.group if entry.request.limit else None
        others = [(other, other.request.limit) for other in self._entries.values() if other is not entry]
        return [
            other.other
            for other, limit in others
            if limit and limit.group == name and (other.lease or other.waits_for is WaitsFor.LEASE)
        ]


class MemoryAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(self, backend: MemoryBackend, request: LockRequest, wake: Callable[[], None]) -> None:
        self._backend = backend
        self._request = request
        self._wake = wake
        self._epoch: int | None = None
        self._begun = 0
        self._waited_s = 0.0
        self.asked: datetime | None = None

    def step(self) -> Lease | Free | Blocked:
        store = self._backend
        with store._lock:
            entry = self._mine() or self._enter()
            if entry.lease is None and entry.waits_for is not WaitsFor.SLOT:
                decision = store._settle(entry)
                match decision.ruling:
                    case Ruling.STEP_ASIDE:
                        entry.waits_for, entry.among_locks, entry.in_group = WaitsFor.SLOT, None, None
                    case Ruling.GRANT:
                        self._grant(entry)
                    case _:
                        return Blocked(store._blockers(entry, decision.ahead), self._waited_s)
                store._changed(entry.request)
            return entry.lease or Free(self._waited_s)

    def _grant(self, entry: Entry) -> None:
        number = next(self._backend._numbers)
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
        entry = self._backend._entries.get(self._request.owner)
        return entry if entry and entry.lease is None and entry.epoch == self._epoch else None

    def _mine(self) -> Entry | None:
        """The entry that this acquisition made or took over; None before its first step, or when it was freed."""
        entry = self._backend._entries.get(self._request.owner)
        if self._epoch is None or entry is None:
            return None
        if entry.epoch != self._epoch:
            raise Superseded(f"{self._request.owner}: a later attempt acts for it now")
        return entry

    def _enter(self) -> Entry:
        store, request = self._backend, self._request
        self._begun = self._begun or next(store._numbers)
        call = Call(request.attempt, self._begun)
        entry = store._entries.get(request.owner)
        given = entry.lease.given if entry and entry.lease else ()
        earlier = store._calls.get(request.owner)
        if earlier and entry and not entry.waiting(WaitsFor.SLOT):
            standing = entry.request
            earlier = Earlier(earlier.call, True, False, standing.locks, standing.named, bool(given))
        held = entry is not None and entry.lease is not None
        taken_over = rules.takes_over(call, request, earlier, held=held, given=given)
        self._epoch = next(store._numbers)
        if entry is None or not taken_over:
            entry = Entry(request, next(store._numbers), store.now(), self._epoch, self._wake)
            store._entries[request.owner] = entry
        else:
            self._take_over(entry)
        self.asked = entry.asked
        self._waited_s = (store.now() - entry.asked).total_seconds()
        store._calls[request.owner] = Earlier(call, False, False, ())
        return entry

    def _take_over(self, entry: Entry) -> None:
        """Act for the owner in the place of the process that has done so."""
        request, standing, superseded = self._request, entry.request, entry.wake
        whole = standing.whole | request.whole
        entry.request = replace(
            request, locks=standing.locks, priority=standing.priority, limit=standing.limit, whole=whole
        )
        assert self._epoch is not None
        entry.epoch, entry.wake, entry.left = self._epoch, self._wake, False
        superseded()
        for notice in entry.losses:
            notice()
        entry.losses.clear()
        if entry.lease:
            entry.lease = replace(entry.lease, epoch=self._epoch, attempt=request.attempt, whole=whole)
