"""Random calls of several owners through two sessions, each compared with a plain model."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_hivelock.locks import (
    InvalidRequest,
    Lease,
    LeaseMismatch,
    Lock,
    LockLost,
    LockManager,
    LockObject,
    LockRequest,
    LockTimeout,
    Superseded,
    rules,
)
from airflow_hivelock.locks.backend import Blocked
from tests.backends.queue_model import Model, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks import PendingLease


OBJECTS = [LockObject.parse(f"dw{rest}") for rest in ("", ".flights", ".delays", ".flights/dt=1", ".flights/dt=2")]


Written = dict[LockObject, bool]
"""What a call asks for: whether each object is written, or only read."""


owners = st.sampled_from(["ann", "bob", "cy"])


asked = st.dictionaries(st.sampled_from(OBJECTS), st.sampled_from([True, True, False]), min_size=1, max_size=2)


attempts = st.sampled_from([0, 0, 0, 1, 2])


either = st.integers(0, 1)


picks = st.integers(0, 11)


@dataclass
class Call:
    """One call of an owner's that waits, or has waited."""

    owner: str
    pending: PendingLease
    woken: threading.Event


class Machine(RuleBasedStateMachine):
    """The calls, over two sessions with one empty store; subclasses say which."""

    sessions: Sequence[LockManager]
    wake_s: float

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.calls: list[Call] = []
        self.leases: list[Lease] = []
        self.looks = itertools.count()

    # Asking. A call that began after another of its owner's takes its place, and that one must stop.

    @rule(owner=owners, written=asked, attempt=attempts, session=either)
    def begin(self, owner: str, written: Written, attempt: int, session: int) -> None:
        self._begin(rules.request(owner, *_reads_and_writes(written), attempt=attempt), session)

    @precondition(lambda self: self.calls or self.leases)
    @rule(pick=picks, later=attempts, session=either)
    def begin_again(self, pick: int, later: int, session: int) -> None:
        """As a task does after its process died: the same request, with the same or a later attempt."""
        asked_before: Sequence[LockRequest | Lease] = [call.pending.request for call in self.calls] or self.leases
        before = asked_before[pick % len(asked_before)]
        attempt = self.model.attempts[before.owner] + later
        self._begin(LockRequest(before.owner, before.locks, attempt=attempt, whole=before.whole), session)

    def _begin(self, request: LockRequest, session: int) -> None:
        owner, attempt, woken = request.owner, request.attempt, threading.Event()
        call = Call(owner, self.sessions[session].begin(request, woken.set), woken)
        try:
            self.model.enter(owner, request.locks, attempt, call, request.whole)
        except (Superseded, LeaseMismatch) as error:
            with pytest.raises(type(error), match=owner):
                call.pending.poll()
        else:
            woken.set()
            self.calls.append(call)
            self._poll(call)

    @rule(owner=owners, written=asked, attempt=attempts, session=either)
    def acquire_without_waiting(self, owner: str, written: Written, attempt: int, session: int) -> None:
        reads, writes = _reads_and_writes(written)
        request = rules.request(owner, reads, writes)

        def acquire() -> Lease:
            return self.sessions[session].acquire(owner=owner, reads=reads, writes=writes, attempt=attempt)

        try:
            mine = self.model.enter(owner, request.locks, attempt, object(), request.whole)
        except (Superseded, LeaseMismatch) as error:
            with pytest.raises(type(error), match=owner):
                acquire()
            return
        if mine.lease or self.model.free(mine):
            self._granted(mine, acquire())
        else:
            with pytest.raises(LockTimeout) as refused:
                acquire()
            assert refused.value.blocked_by[0].owner in self._nearest(mine)
            self.model.queue.remove(mine)

    @precondition(lambda self: self.calls)
    @rule(pick=picks)
    def poll(self, pick: int) -> None:
        self._poll(self.calls[pick % len(self.calls)])

    @precondition(lambda self: self.calls)
    @rule(pick=picks)
    def withdraw(self, pick: int) -> None:
        call = self.calls.pop(pick % len(self.calls))
        call.pending.withdraw()
        mine = self.model.place(call.owner)
        if mine and mine.call is call:
            self.model.queue.remove(mine)

    def _poll(self, call: Call) -> None:
        mine = self.model.place(call.owner)
        superseded = mine is None or mine.call is not call
        if superseded or (mine and self.model.free(mine)):
            assert call.woken.wait(self.wake_s), f"{call.owner} was never told that it can go on"
        call.woken.clear()
        if mine is None or mine.call is not call:
            self.calls.remove(call)
            with pytest.raises(Superseded, match=call.owner):
                call.pending.poll()
            return
        outcome = call.pending.poll()
        if isinstance(outcome, Lease):
            self.calls.remove(call)
            self._granted(mine, outcome)
        else:
            assert not mine.lease
            assert isinstance(outcome, Blocked)
            assert outcome.by[0].owner in self._nearest(mine), outcome

    def _granted(self, mine: Place, lease: Lease) -> None:
        assert mine.lease or self.model.free(mine), "granted beside what conflicts, or before its turn"
        assert (lease.owner, lease.locks) == (mine.owner, mine.locks)
        assert lease.attempt == self.model.attempts[mine.owner]
        if mine.lease:
            assert lease.id == mine.lease.id
            assert lease.token >= mine.lease.token
            assert lease.epoch > mine.lease.epoch
        else:
            earlier = [other for other in self.leases if other.id != lease.id]
            assert all(lease.token > other.token for other in earlier), "not after all that were granted before"
        mine.lease = lease
        self.leases.append(lease)

    def _nearest(self, mine: Place) -> list[str]:
        """Who may be named first as being in the way."""
        ahead = self.model.ahead(mine)
        return [ahead[0].owner] if ahead else self.model.hives_ahead(mine.locks)

    # Holding: every lease that was ever returned may be renewed or released, by either session.

    @precondition(lambda self: self.leases)
    @rule(pick=picks, session=either)
    def renew(self, pick: int, session: int) -> None:
        lease = self.leases[pick % len(self.leases)]
        manager, mine = self.sessions[session], self._stands(lease)
        for call, stands in ((manager.renew, mine), (manager.verify, mine and set(lease.locks) <= set(mine.locks))):
            if stands:
                call(lease)
            else:
                with pytest.raises(LockLost, match=lease.owner):
                    call(lease)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, objects=st.lists(st.sampled_from(OBJECTS), min_size=1, max_size=2), session=either)
    def give_back(self, pick: int, objects: list[LockObject], session: int) -> None:
        lease = self.leases[pick % len(self.leases)]
        manager, mine = self.sessions[session], self._stands(lease)
        if mine is None or mine.lease is None:
            assert manager.release(lease, objects=objects) is None
            return
        had = [lock.object for lock in (*mine.locks, *mine.given, *lease.locks)]
        if not all(any(target == named or target.is_below(named) for target in had) for named in objects):
            with pytest.raises(InvalidRequest, match=lease.owner):
                manager.release(lease, objects=objects)
            return
        self.model.give_back(mine, objects)
        left = manager.release(lease, objects=objects)
        if mine.locks:
            assert left is not None
            assert (left.id, left.token, left.locks) == (mine.lease.id, mine.lease.token, mine.locks)
            mine.lease = left
            self.leases.append(left)
        else:
            assert left is None

    @precondition(lambda self: self.leases)
    @rule(pick=picks, session=either)
    def release(self, pick: int, session: int) -> None:
        lease = self.leases[pick % len(self.leases)]
        stood = self._stands(lease)
        assert self.sessions[session].release(lease) is (stood is not None)
        if stood:
            self.model.queue.remove(stood)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, session=either)
    def force_release(self, pick: int, session: int) -> None:
        lease_id = self.leases[pick % len(self.leases)].id
        held = next((place for place in self.model.queue if place.lease and place.lease.id == lease_id), None)
        assert self.sessions[session].force_release(lease_id, reason="stuck", user="ops") is (held is not None)
        if held:
            self.model.queue.remove(held)

    def _stands(self, lease: Lease) -> Place | None:
        mine = self.model.place(lease.owner)
        held = mine and mine.lease
        return mine if held and (held.id, held.epoch) == (lease.id, lease.epoch) else None

    # What either session must tell, in turns.

    @invariant()
    def show_lists_what_is_held(self) -> None:
        held: set[tuple[Lock, str, str | None, int | None]] = {
            (lock, place.owner, place.lease.id, place.lease.token)
            for place in self.model.queue
            if place.lease
            for lock in place.locks
        }
        held |= {(lock, query, None, None) for query, lock in self.model.hive.items()}
        shown = [(Lock(h.object, h.mode), h.owner, h.lease_id, h.token) for h in self._either().show()]
        assert len(shown) == len(held)
        assert set(shown) == held

    @invariant()
    def waiters_are_listed_in_their_order(self) -> None:
        expected = []
        for mine in self.model.queue:
            if mine.lease is None:
                ahead = [(place.owner, place.lease is None) for place in self.model.ahead(mine)]
                place = 1 + sum(waiting for _, waiting in ahead)
                hives = [] if ahead else [(query, False) for query in self.model.hives_ahead(mine.locks)]
                expected.append((mine.owner, mine.locks, place, ahead, set(hives)))
        listed = []
        for waiter in self._either().waiters():
            by = [(blocker.owner, blocker.waiting) for blocker in waiter.blocked_by]
            ours = [entry for entry in by if entry[0] not in self.model.hive]
            listed.append((waiter.owner, waiter.locks, waiter.position, ours, set(by) - set(ours)))
        assert listed == expected

    def _either(self) -> LockManager:
        return self.sessions[next(self.looks) // 2 % 2]

    def teardown(self) -> None:
        """Nothing may stay behind."""
        for call in self.calls:
            call.pending.withdraw()
        for lease in self.leases:
            self.sessions[0].release(lease)
        assert list(self.sessions[0].waiters()) == []
        assert {holder.lease_id for holder in self.sessions[0].show()} <= {None}


def _reads_and_writes(written: Written) -> tuple[list[LockObject], list[LockObject]]:
    return [target for target in written if not written[target]], [target for target in written if written[target]]
