"""The requests in the memory backend and its queues: collect the candidates, decide, and write the decision."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from airflow_hivelock.locks import invitations, permits, queueing, rules
from airflow_hivelock.locks.backends.memory.entry import Entry, microseconds
from airflow_hivelock.locks.model import Blocker, GroupUse, LockObject, LockRequest, Member, Tenure, WaitsFor
from airflow_hivelock.locks.queueing import OvertakingLimit, Position, Ruling, TimedPosition, Undecided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.calls import Earlier
    from airflow_hivelock.locks.model import Group, LeaseLimit
    from airflow_hivelock.locks.queueing import Decision, Other


class Requests:
    """All requests by their owner. The caller of each method holds the *lock*.

    :param passing_s: how long a request of higher priority may overtake a waiter, in seconds; 0: never.
    :param now: the store's clock.
    """

    def __init__(self, passing_s: float, now: Callable[[], datetime]) -> None:
        self.passing_s = passing_s
        self.now = now
        self.lock = threading.RLock()
        self.numbers = count(1)
        self.entries: dict[str, Entry] = {}
        self.calls: dict[str, Earlier] = {}
        self.ended: dict[str, Tenure] = {}
        self.watches: list[tuple[Sequence[LockObject], Callable[[], None]]] = []
        self.groups: dict[str, Group] = {}

    def remove(self, owner: str, *, withdrawn: bool = False) -> bool:
        """Drop the owner's request, or end its lease; False if it has none.

        :param withdrawn: a person does so while it waits, and its process must stop.
        """
        entry = self.entries.pop(owner, None)
        if entry:
            if entry.lease:
                self.ended[owner] = entry.tenure(entry.lease, self.now())
                self.calls[owner] = self.calls[owner]._replace(ended=True)
            elif withdrawn:
                self.calls[owner] = self.calls[owner]._replace(ended=True, withdrawn=True)
                entry.wake()
            for wake in entry.losses:
                wake()
            self.changed(entry.request)
        return entry is not None

    def changed(self, request: LockRequest) -> None:
        """Wake the waiters without blockers, and the watchers of the objects of *request*.

        A waiter with only invited blockers looks again too: it has to know when the invitations end.
        """
        for entry in self.entries.values():
            waits = entry.lease is None and entry.waits_for is not WaitsFor.SLOT
            if waits and all(other.gone or other.invited for other in self.ahead(entry)):
                entry.wake()
        touched = {lock.object for lock in request.locks}
        fired = [watch for watch in self.watches if touched.intersection(watch[0])]
        self.watches = [watch for watch in self.watches if watch not in fired]
        for _, wake in fired:
            wake()

    # The queues.

    def settle(self, entry: Entry, asked: LockRequest) -> Decision:
        """Decide a request that holds nothing, and put it into the queue that it waits in.

        :param asked: the request of the process that acts for the owner now.
        """
        while (decision := self._decide(entry, asked)).ruling is Ruling.CLEAR:
            for other in decision.remove:
                self.remove(str(other.key))
        for other in decision.away:
            away = self.entries[str(other.key)]
            away.wait_for_slot(old=away.among_locks)
            self.changed(away.request)
        if decision.ruling is Ruling.GIVE_SLOT_BACK:
            return decision
        waited_for, had_position = entry.waits_for, entry.among_locks is not None
        entry.among_locks, entry.in_group = decision.among_locks, decision.in_group
        if not entry.holds_permit:  # the default weight may change, and then it is as heavy as it was
            entry.weight = 0 if decision.among_locks is None else self._terms(entry.request.limit)[1]
        entry.waits_for = WaitsFor.LEASE if decision.ruling is Ruling.PARK else WaitsFor.LOCK
        if entry.waits_for is not waited_for and (had_position or waited_for is WaitsFor.LEASE):
            self.changed(entry.request)  # it no longer blocks the requests in the queue that it has left
        return decision

    def _decide(self, entry: Entry, asked: LockRequest) -> Decision:
        at, conflicting = self.now(), self._conflicting(entry)
        most, weight = self._terms(entry.request.limit)
        if entry.request.limit and not entry.holds_permit:
            permits.check(entry.request.owner, entry.request.limit.group, weight, most)
        limit = self._limit(at)
        own = entry.timed_by(next(self.numbers), at)
        asking = Undecided(
            entry.arrival,
            self._back(entry, own, conflicting, limit) or own,
            entry.among_locks,
            entry.in_group,
            most,
            asked.deferred,
            invited=entry.until is not None,
            weight=weight,
        )
        return queueing.decide(asking, conflicting, self._group(entry), limit)

    def _terms(self, limit: LeaseLimit | None) -> tuple[int, int]:
        """How many leases the group of a request may hold, and how many permits the request takes; 0: it has no group."""
        if limit is None:
            return 0, 0
        stored = self.groups.get(limit.group)
        return permits.limit(limit.most, stored), permits.weight(limit.weight, stored)

    def reprioritize(self, entry: Entry, priority: int) -> None:
        """Give a request that waits for its locks another priority, and its new position.

        :raises InvalidRequest: it can overtake no other request.
        """
        assert entry.among_locks is not None
        owner, at = entry.request.owner, self.now()
        own = TimedPosition(Position.unclaimed(number := next(self.numbers), priority, number), microseconds(at))
        waiting = queueing.overtakable(self._conflicting(entry))
        moved = rules.reprioritized(owner, entry.among_locks, own, waiting, self._limit(at))
        entry.request = replace(entry.request, priority=priority)
        entry.among_locks, entry.number = moved, number
        if kept := entry.in_group:
            entry.in_group = kept._replace(position=kept.position.reranked(priority))
        entry.wake()
        self.changed(entry.request)

    def _limit(self, at: datetime) -> OvertakingLimit:
        return OvertakingLimit(microseconds(at), round(self.passing_s * 1_000_000))

    def _back(
        self, entry: Entry, own: TimedPosition, conflicting: Iterable[Other], limit: OvertakingLimit
    ) -> TimedPosition | None:
        """The position of a request that comes back after its invitation; None: it is a new arrival."""
        if entry.old is None:
            return None
        passed = [
            invitations.passed(other.timed, _named(theirs), entry.request.locks, theirs.locks)
            for other in conflicting
            for theirs in [self.entries[str(other.key)].request]
            if not (other.holds or other.gone or other.over)
        ]
        return invitations.come_back(own, entry.old, _named(entry.request), passed, limit)

    def recheck_s(self, ahead: Iterable[Other]) -> float | None:
        """In how many seconds a request with the blockers *ahead* looks again for the end of an invitation; None: no
        need."""
        ends = [self.entries[str(other.key)].until for other in ahead]
        end = invitations.next_end(microseconds(until) if until else None for until in ends)
        return None if end is None else max(0.0, (end - microseconds(self.now())) / 1_000_000)

    def ahead(self, entry: Entry) -> list[Other]:
        """Its blockers in the queue that it is in."""
        most, weight = self._terms(entry.request.limit)
        if entry.waits_for is WaitsFor.LOCK or entry.until:
            return queueing.in_the_way(entry.timed.position, self._conflicting(entry))
        if entry.waits_for is WaitsFor.LEASE and most:
            return queueing.in_the_way_of_permit(entry.timed.position, weight, most, self._group(entry))
        return []

    def group_use(self) -> list[GroupUse]:
        """The groups that have settings or requests, by name."""
        members = [(one.request.limit.group, one) for one in self.entries.values() if one.request.limit]
        found = []
        for name in sorted({*self.groups, *(group for group, one in members if self._counts(one))}):
            mine = sorted((one for group, one in members if group == name), key=lambda one: one.timed)
            holding = tuple(self._member(one) for one in mine if one.holds_permit)
            waiting = tuple(self._member(one) for one in mine if one.waiting(WaitsFor.LEASE))
            found.append(GroupUse(name, self.groups.get(name), holding, waiting))
        return found

    def _member(self, entry: Entry) -> Member:
        return Member(entry.request.owner, entry.weight or self._terms(entry.request.limit)[1])

    def _counts(self, entry: Entry) -> bool:
        """Whether it waits for or has permits of its group."""
        return entry.holds_permit or entry.waiting(WaitsFor.LEASE)

    def blockers(self, entry: Entry, ahead: Iterable[Other], *, in_group: bool) -> tuple[Blocker, ...]:
        """The requests *ahead* as blockers: each with a conflicting lock, or with the group."""
        limit, locks = entry.request.limit, entry.request.locks
        group = limit.group if limit and in_group else ""
        found = [(other, self.entries[str(other.key)]) for other in ahead]
        return tuple(
            Blocker(str(other.key), met.object, met.mode, not other.holds, group, theirs.until)
            for other, theirs in found
            for met in (theirs.request.locks[-1:] if group else queueing.conflicts(locks, theirs.request.locks)[:1])
        )

    def _conflicting(self, entry: Entry) -> list[Other]:
        at = self.now()
        return [
            other.other(at)
            for other in self.entries.values()
            # a worker's call replaces its owner's invited request, so the two do not block each other
            if other.request.owner != entry.request.owner
            and (other.lease or other.among_locks)
            and queueing.conflicts(entry.request.locks, other.request.locks)
        ]

    def _group(self, entry: Entry) -> list[Other]:
        """The other requests that wait for or have a lease of its group."""
        name, at = entry.request.limit.group if entry.request.limit else None, self.now()
        return [
            other.other(at, in_group=True)._replace(weight=self._member(other).weight)
            for other in self.entries.values()
            if other.request.owner != entry.request.owner
            and other.request.limit
            and other.request.limit.group == name
            and self._counts(other)
        ]


def _named(request: LockRequest) -> frozenset[LockObject]:
    """The objects that a request names itself."""
    return frozenset(lock.object for lock in rules.leaves(request))
