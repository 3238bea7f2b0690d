"""Random calls of several owners through two sessions, each compared with a plain model.

The examples are the same in every run. ``FULL=1`` makes many new ones, and prints how to repeat one that fails.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete

from airflow_hivelock.locks import (
    InvalidRequest,
    Lease,
    LeaseMismatch,
    Lock,
    LockLost,
    LockManager,
    LockMode,
    LockObject,
    LockRequest,
    LockTimeout,
    Superseded,
    connect,
    rules,
)
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete, Exists
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.backends.databases import database
from tests.backends.queue_model import Model, Place, exclude

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from airflow_hivelock.locks import PendingLease
    from tests.support.servers import ZooKeeperServer

FULL = bool(os.environ.get("FULL"))
OBJECTS = [LockObject.parse(f"dw{rest}") for rest in ("", ".flights", ".delays", ".flights/dt=1", ".flights/dt=2")]
Written = dict[LockObject, bool]
"""What a call asks for: whether each object is written, or only read."""

owners = st.sampled_from(["ann", "bob", "cy"])
asked = st.dictionaries(st.sampled_from(OBJECTS), st.sampled_from([True, True, False]), min_size=1, max_size=2)
attempts = st.sampled_from([0, 0, 0, 1, 2])
either = st.integers(0, 1)
picks = st.integers(0, 11)
numbers = itertools.count()


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


class InMemory(Machine):
    wake_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        backend = MemoryBackend()
        self.sessions = [LockManager(backend), LockManager(backend)]


class InSQLite(Machine):
    wake_s = 10.0

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        url = f"sqlite:///{self.folder}/machine-{next(numbers)}.db"
        self.sessions = [connect(url), connect(url)]

    def teardown(self) -> None:
        super().teardown()
        for manager in self.sessions:
            manager.close()


class InPostgreSQL(Machine):
    wake_s = 10.0

    url: str

    def __init__(self) -> None:
        super().__init__()
        url = f"{self.url}&prefix=machine_{next(numbers)}_"
        self.sessions = [connect(url), connect(url)]

    def teardown(self) -> None:
        super().teardown()
        for manager in self.sessions:
            manager.close()


class InZooKeeper(Machine):
    """With Hive's own sessions: their ``LOCK TABLE … [PARTITION]`` locks one object, and none of its parents."""

    wake_s = 10.0

    clients: Sequence[KazooSession]

    def __init__(self) -> None:
        super().__init__()
        number = next(numbers)
        self.client = self.clients[0]
        self.layout = Layout(f"/hive-machine-{number}", f"/hivelock-machine-{number}")
        self.sessions = [LockManager(ZooKeeperBackend(client, self.layout)) for client in self.clients]
        self.paths: dict[str, str] = {}

    @rule(locked=st.sampled_from(OBJECTS), mode=st.sampled_from(LockMode))
    def hive_locks(self, locked: LockObject, mode: LockMode) -> None:
        """As its lock manager does: a sequential node of its own, unless there is one before it that conflicts."""
        lock = Lock(locked, mode)
        if any(exclude((lock,), place.locks) for place in self.model.queue if place.lease):
            return
        if any(exclude((lock,), (its,)) for its in self.model.hive.values()):
            return
        for path in map(self.layout.object, (*locked.parents, locked)):
            if self.client.submit(Exists(path))[0] is None:
                self.client.submit(Commit((Create(path),)))
        query = f"hive{len(self.paths)}"
        data = f"{query}:1:EXPLICIT:lock table:127.0.0.1".encode()
        path = f"{self.layout.object(locked)}/LOCK-{mode.value}-"
        self.paths[query] = self.client.submit(Commit((Create(path, data, sequential=True),)))[0][0]
        self.model.hive[query] = lock

    @precondition(lambda self: self.model.hive)
    @rule(pick=picks)
    def hive_unlocks(self, pick: int) -> None:
        query = list(self.model.hive)[pick % len(self.model.hive)]
        del self.model.hive[query]
        self.client.submit(Commit((Delete(self.paths[query]),)))


class InMySQL(Machine):
    """Told by their own looks, which come once a second at least."""

    wake_s = 10.0

    managers: Sequence[LockManager]

    def __init__(self) -> None:
        super().__init__()
        self.sessions = list(self.managers)
        kept = database(self.managers[0])
        for table in (kept.tables.request, kept.tables.lock):
            kept.transact(lambda transaction: transaction.ask(delete(table)))  # noqa: B023


def _reads_and_writes(written: Written) -> tuple[list[LockObject], list[LockObject]]:
    return [target for target in written if not written[target]], [target for target in written if written[target]]


def check(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples * (50 if FULL else 1),
            stateful_step_count=30,
            derandomize=not FULL,
            print_blob=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3600)
def test_memory_does_as_the_model() -> None:
    check(InMemory, 400)


@pytest.mark.timeout(3600)
def test_sqlite_does_as_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InSQLite, "folder", tmp_path, raising=False)
    check(InSQLite, 10)


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_postgresql_does_as_the_model(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InPostgreSQL, "url", postgres_url, raising=False)
    check(InPostgreSQL, 10)


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_zookeeper_does_as_the_model(zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [KazooSession(zookeeper.hosts, 20) for _ in range(2)]
    monkeypatch.setattr(InZooKeeper, "clients", clients, raising=False)
    try:
        check(InZooKeeper, 20)
    finally:
        for client in clients:
            client.close()


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_mysql_does_as_the_model(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(mysql_url) as one, connect(mysql_url) as other:
        monkeypatch.setattr(InMySQL, "managers", (one, other), raising=False)
        check(InMySQL, 20)
