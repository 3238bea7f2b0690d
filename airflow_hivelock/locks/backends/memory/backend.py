"""The memory backend: one mutex around every operation, so no other thread sees a half-done step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import groups, rules
from airflow_hivelock.locks.backend import Backend, Capabilities
from airflow_hivelock.locks.backends.memory import entry as entries
from airflow_hivelock.locks.backends.memory.acquisition import MemoryAcquisition
from airflow_hivelock.locks.backends.memory.requests import Requests
from airflow_hivelock.locks.errors import LockLost
from airflow_hivelock.locks.model import (
    ForcedRelease,
    Group,
    GroupUse,
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
from airflow_hivelock.locks.queueing import PASSING_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.backends.memory.entry import Entry
    from airflow_hivelock.locks.model import Lock, Work


class MemoryBackend(Backend):
    """See :class:`~airflow_hivelock.locks.backend.Backend`; the leases end with the process.

    :param passing_s: how long a request of higher priority may overtake a waiter, in seconds; 0: never.
    """

    capabilities = Capabilities()

    def __init__(self, passing_s: float = PASSING_S) -> None:
        self._requests = Requests(passing_s, lambda: self.now())
        self._audit: list[ForcedRelease] = []

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> MemoryAcquisition:
        return MemoryAcquisition(self._requests, request, wake)

    def renew(self, lease: Lease) -> None:
        with self._requests.lock:
            self._held(lease).renewed = self.now()

    def verify(self, lease: Lease, wake: Callable[[], None] | None = None) -> None:
        with self._requests.lock:
            entry = self._held(lease)
            rules.check_all(lease, entry.request.locks)
            if wake is not None:
                entry.losses.append(wake)

    def start_work(self, lease: Lease, name: str, application: str) -> Lease:
        with self._requests.lock:
            return self._put_work(lease, name, application, next(self._requests.numbers))

    def record_work(self, lease: Lease, name: str, application: str | None) -> Lease:
        with self._requests.lock:
            held = self.find(lease.id) or lease
            return self._put_work(lease, name, application, token_of(held.works, name, held.token))

    def release(self, lease: Lease) -> bool:
        with self._requests.lock:
            return self._holding(lease) is not None and self._requests.remove(lease.owner)

    def release_part(self, lease: Lease, objects: frozenset[LockObject]) -> Lease | None:
        with self._requests.lock:
            entry = self._holding(lease)
            if entry is None or entry.lease is None:
                return None
            existing = entry.lease
            left = rules.left(existing, objects, lease.locks)
            if not left:
                self._requests.remove(lease.owner)
                return None
            gone = tuple(lock for lock in existing.locks if lock not in left)
            if gone:
                entry.request = replace(entry.request, locks=left)
                entry.lease = replace(existing, locks=left, released=in_order((*existing.released, *gone)))
                for wake in entry.losses:
                    wake()
                entry.losses.clear()
                self._requests.changed(replace(entry.request, locks=gone))
            return entry.lease

    def leases(self) -> list[Lease]:
        with self._requests.lock:
            held = [(entry, entry.lease) for entry in self._requests.entries.values() if entry.lease]
            return [replace(lease, expires=entry.expires(lease)) for entry, lease in held]

    def requests(self) -> tuple[list[Lease], list[Waiter]]:
        with self._requests.lock:
            return self.leases(), self.waiters()

    def force_release(self, lease_id: str, *, reason: str, user: str, seen: Lease | None = None) -> bool:
        with self._requests.lock:
            lease = self.find(lease_id)
            if lease is None or not lease.unchanged(seen):
                return False
            self._note(lease_id, lease.owner, lease.locks, reason, user)
            return self._requests.remove(lease.owner)

    def forget_deferred(self, owner: str, attempt: int) -> bool:
        with self._requests.lock:
            entry = self._requests.entries.get(owner)
            is_deferred = entry is not None and entry.waiting(WaitsFor.SLOT) and entry.request.attempt == attempt
            return is_deferred and self._requests.remove(owner)

    def force_withdraw(self, owner: str, *, reason: str, user: str) -> bool:
        with self._requests.lock:
            entry = self._requests.entries.get(owner)
            if entry is None or entry.lease or entry.waits_for is WaitsFor.SLOT:
                return False
            self._note(str(entry.number), owner, entry.request.locks, reason, user)
            return self._requests.remove(owner, withdrawn=True)

    def force_priority(self, owner: str, priority: int, *, reason: str, user: str) -> bool:
        with self._requests.lock:
            entry = self._requests.entries.get(owner)
            if entry is None or not entry.waiting(WaitsFor.LOCK) or entry.among_locks is None:
                return False
            self._requests.reprioritize(entry, priority)
            self._note(str(entry.number), owner, entry.request.locks, reason, user)
            return True

    def force_record(self, lease_id: str, seen: Work, application: str, *, reason: str, user: str) -> bool:
        with self._requests.lock:
            lease = self.find(lease_id)
            if lease is None or seen not in lease.works:
                return False
            self._put_work(lease, seen.name, application, seen.token)
            self._note(lease_id, lease.owner, lease.locks, reason, user)
            return True

    def groups(self) -> list[GroupUse]:
        with self._requests.lock:
            return self._requests.group_use()

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        with self._requests.lock:
            before = self._requests.groups.pop(name, None)
            if before is None and group is None:
                return False
            if group is not None:
                self._requests.groups[name] = group
            owner, change = groups.entry(name, before, group, reason)
            self._note("", owner, (), change, user)
            for entry in self._requests.entries.values():
                if entry.waiting(WaitsFor.LEASE):
                    entry.wake()
            return True

    def audit(self) -> list[ForcedRelease]:
        with self._requests.lock:
            return list(self._audit)

    def show(self, target: LockObject | None = None) -> list[Holder]:
        with self._requests.lock:
            held = [(lease, self._requests.entries[lease.owner].request.query) for lease in self.leases()]
        return rules.holders(held, target)

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        with self._requests.lock:
            return [
                entry.waiter(
                    self._requests.blockers(
                        entry, self._requests.ahead(entry), in_group=entry.waits_for is WaitsFor.LEASE
                    )
                )
                for entry in sorted(self._requests.entries.values(), key=lambda entry: entry.timed)
                if entry.lease is None and rules.concern(entry.request.locks, target)
            ]

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> list[Tenure]:
        with self._requests.lock:
            held = [entry.tenure(entry.lease, None) for entry in self._requests.entries.values() if entry.lease]
            tenures = [*held, *reversed(self._requests.ended.values())][:most]
        return sorted(
            (tenure for tenure in tenures if rules.concern(tenure.locks, target)), key=lambda tenure: tenure.granted
        )

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> None:
        with self._requests.lock:
            self._requests.watches.append((targets, wake))

    def now(self) -> datetime:
        return entries.now()

    def _note(self, lease_id: str, owner: str, locks: tuple[Lock, ...], reason: str, user: str) -> None:
        """Write an entry to the audit trail."""
        self._audit.append(ForcedRelease(lease_id, owner, locks, user, reason, self.now()))

    def _put_work(self, lease: Lease, name: str, application: str | None, token: int) -> Lease:
        entry = self._held(lease)
        assert entry.lease is not None
        works = put_work(entry.lease.works, name, application, token)
        entry.lease = replace(entry.lease, token=max(entry.lease.token, token), works=works)
        return entry.lease

    def _held(self, lease: Lease) -> Entry:
        if (entry := self._holding(lease)) is None:
            raise LockLost(f"{lease.owner}: lease {lease.id} is no longer held. Stop the work under it")
        return entry

    def _holding(self, lease: Lease) -> Entry | None:
        entry = self._requests.entries.get(lease.owner)
        held = entry and entry.lease
        return entry if held and (held.id, held.epoch) == (lease.id, lease.epoch) else None
