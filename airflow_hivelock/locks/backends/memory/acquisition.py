"""One request that the memory backend acquires."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks import calls, invitations, rules
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.memory.entry import Entry
from airflow_hivelock.locks.calls import Call, Earlier, Start
from airflow_hivelock.locks.errors import Superseded
from airflow_hivelock.locks.model import Lease, WaitsFor
from airflow_hivelock.locks.queueing import Ruling

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_hivelock.locks.backends.memory.requests import Requests
    from airflow_hivelock.locks.model import LockRequest
    from airflow_hivelock.locks.queueing import Decision


class MemoryAcquisition:
    """See :class:`~airflow_hivelock.locks.backend.Acquisition`."""

    def __init__(self, requests: Requests, request: LockRequest, wake: Callable[[], None]) -> None:
        self._requests = requests
        self._request = request
        self._wake = wake
        self._epoch: int | None = None
        self._granted: Lease | None = None
        self._begun = 0
        self._waited_s = 0.0
        self.asked: datetime | None = None

    def step(self) -> Lease | NeedsSlot | Blocked:
        with self._requests.lock:
            return self._step_with_slot() if self._request.has_slot else self._step()

    def _step(self) -> Lease | NeedsSlot | Blocked:
        store, request = self._requests, self._request
        entry = self._mine() or self._enter()
        if entry.lease is None and entry.waits_for is not WaitsFor.SLOT:
            decision = store.settle(entry, request)
            match decision.ruling:
                case Ruling.GO_AWAY:
                    entry.wait_for_slot()
                    entry.in_group = None
                case Ruling.INVITE:
                    assert request.deferred is not None
                    entry.wait_for_slot(self._requests.now() + timedelta(seconds=request.deferred.invitation_s))
                case Ruling.GRANT:
                    self._grant(entry)
                case _:
                    return self._blocked(entry, decision)
            store.changed(entry.request)
        return entry.lease or NeedsSlot(self._waited_s, entry.until)

    def _step_with_slot(self) -> Lease | Blocked:
        """Grant the request if it has no blockers; otherwise change nothing."""
        store = self._requests
        mine = self._mine()
        if mine and mine.lease:
            return mine.lease
        # also at each later step: meanwhile its trigger may be invited for other locks
        existing, taken_over = self._found()
        entry = existing if existing and taken_over else self._new(existing)
        self._since(entry)
        if entry.lease is None:
            decision = store.settle(entry, self._request)
            if decision.ruling is not Ruling.GRANT:
                self._epoch = existing.epoch if existing else None
                return self._blocked(entry, decision)
        self._act_for(entry, taken_over=taken_over)
        if entry.lease is None:
            self._grant(entry)
            store.changed(entry.request)
        assert entry.lease is not None
        return entry.lease

    def _blocked(self, entry: Entry, decision: Decision) -> Blocked:
        store, in_group = self._requests, decision.among_locks is None
        blockers = store.blockers(entry, decision.ahead, in_group=in_group)
        return Blocked(blockers, self._waited_s, recheck_s=store.recheck_s(decision.ahead))

    def _grant(self, entry: Entry) -> None:
        number = next(self._requests.numbers)
        entry.until = entry.old = None
        entry.lease = self._granted = Lease(
            f"memory-{number}",
            number,
            self._request.attempt,
            entry.epoch,
            self._request.owner,
            entry.request.locks,
            self._request.lease_s,
            self._requests.now(),
            whole=entry.request.whole,
        )

    def withdraw(self) -> None:
        with self._requests.lock:
            entry = self._requests.entries.get(self._request.owner)
            if entry and entry.epoch == self._epoch and (entry.lease is None or entry.lease is self._granted):
                self._requests.remove(self._request.owner)

    def hand_over(self) -> None:
        with self._requests.lock:
            if (entry := self._waiting()) and not entry.until:  # an invited request needs no process
                entry.left = True
                self._requests.changed(self._request)

    def _waiting(self) -> Entry | None:
        """The entry while it waits, and this acquisition acts for its owner."""
        entry = self._requests.entries.get(self._request.owner)
        return entry if entry and entry.lease is None and entry.epoch == self._epoch else None

    def _mine(self) -> Entry | None:
        """The entry that this acquisition made or took over; None before its first step, or after a force release."""
        entry = self._requests.entries.get(self._request.owner)
        if self._epoch is None or entry is None:
            return None
        if entry.epoch != self._epoch:
            raise Superseded(f"{self._request.owner}: a later attempt has taken over")
        return entry

    def _enter(self) -> Entry:
        existing, taken_over = self._found()
        entry = existing if existing and taken_over else self._new(existing)
        self._act_for(entry, taken_over=taken_over)
        if existing and existing is not entry and existing.until:
            self._requests.changed(existing.request)
        if entry.until:  # no worker has come, or its worker found a blocker: it waits at its position
            entry.waits_for, entry.until = WaitsFor.LOCK, None
            if entry.request.limit:  # its permit is free again
                self._requests.changed(entry.request)
        self._since(entry)
        return entry

    def _found(self) -> tuple[Entry | None, bool]:
        """The owner's entry, and whether this call takes it over."""
        store, request = self._requests, self._request
        self._begun = self._begun or next(store.numbers)
        entry = store.entries.get(request.owner)
        released = entry.lease.released if entry and entry.lease else ()
        earlier = store.calls.get(request.owner)
        if earlier and entry and (not entry.waiting(WaitsFor.SLOT) or entry.until):
            existing = entry.request
            active = Earlier(earlier.call, True, False, existing.locks, existing.named, bool(released))
            other_locks = calls.take_over(self._call, request.locks, request.named, active) is Start.MISMATCH
            if not (entry.until and other_locks):  # an owner that asks for other locks gives up its invitation
                earlier = active
        held = entry is not None and entry.lease is not None
        return entry, rules.takes_over(self._call, request, earlier, held=held, released=released)

    @property
    def _call(self) -> Call:
        return Call(self._request.attempt, self._begun)

    def _new(self, existing: Entry | None) -> Entry:
        """Make the entry of a new arrival; with its old positions if its invitation has ended."""
        store, request = self._requests, self._request
        entry = Entry(request, next(store.numbers), self._requests.now(), 0, self._wake)
        if existing and existing.old and not request.has_slot:
            away = Call(existing.request.attempt, 0)
            if invitations.keeps_position(self._call, away, request.locks, existing.request.locks):
                entry.old, entry.in_group = existing.old, existing.in_group
                entry.request = replace(request, priority=existing.request.priority)  # a person may have changed it
        return entry

    def _act_for(self, entry: Entry, *, taken_over: bool) -> None:
        """Act for the owner with *entry* from now on."""
        store = self._requests
        self._epoch = next(store.numbers)
        if taken_over:
            self._take_over(entry)
        entry.epoch = self._epoch
        store.entries[self._request.owner] = entry
        store.calls[self._request.owner] = Earlier(self._call, False, False, ())

    def _since(self, entry: Entry) -> None:
        self.asked = entry.asked
        self._waited_s = (self._requests.now() - entry.asked).total_seconds()

    def _take_over(self, entry: Entry) -> None:
        """Act for the owner from now on, in place of the earlier process."""
        request, existing, superseded = self._request, entry.request, entry.wake
        whole = existing.whole | request.whole
        entry.request = replace(
            request, locks=existing.locks, priority=existing.priority, limit=existing.limit, whole=whole
        )
        assert self._epoch is not None
        entry.wake, entry.left = self._wake, False
        # The earlier process polls now, and raises Superseded.
        superseded()
        for notice in entry.losses:
            notice()
        entry.losses.clear()
        if entry.lease:
            entry.lease = replace(entry.lease, epoch=self._epoch, attempt=request.attempt, whole=whole)
