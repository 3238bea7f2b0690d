"""The manager over the memory backend: which request is granted, in which order, and what an old process may still do."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Blocker, Lease, LockMode, LockObject
from airflow_hivelock.locks.pending import Patience, PendingLease, PendingLook, Silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.conftest import Clock

DEADLINE_S = 30.0
T = "dw.flights/dt=2013-01-01"
U = "dw.flights/dt=2013-01-02"


@dataclass
class Waiting:
    """A pending request that counts its wake-ups."""

    pending: PendingLease
    woken: threading.Event

    def lease(self) -> Lease:
        outcome = self.pending.poll()
        assert isinstance(outcome, Lease), outcome
        return outcome

    def blocked_by(self) -> list[str]:
        outcome = self.pending.poll()
        assert isinstance(outcome, Blocked), "granted"
        return [str(blocker) for blocker in outcome.by]


@pytest.fixture
def manager(clock: Clock) -> Iterator[LockManager]:
    with LockManager(MemoryBackend(), clock) as opened:
        yield opened


def begin(
    manager: LockManager,
    owner: str,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    timeout_s: float | None = None,
) -> Waiting:
    woken = threading.Event()
    request = rules.request(owner, reads, writes)
    waiting = Waiting(manager.begin(request, woken.set, timeout_s), woken)
    waiting.pending.poll()
    return waiting


def holders_in(look: PendingLook) -> list[tuple[str, str]]:
    found = look.poll()
    assert not isinstance(found, Silent)
    return [(holder.owner, str(holder.object)) for holder in found]


def test_a_refusal_names_the_holder_and_leaves_the_queue(manager: LockManager) -> None:
    manager.acquire(owner="a", writes=[T])
    with pytest.raises(
        LockTimeout, match=rf"b did not get .*{T} EXCLUSIVE.* within 0 s: a holds {T} EXCLUSIVE"
    ) as late:
        manager.acquire(owner="b", writes=[T])
    assert late.value.blocked_by == (Blocker("a", LockObject.parse(T), LockMode.EXCLUSIVE),)
    assert manager.waiters() == []


def test_a_deadline_ends_the_wait_and_not_before(manager: LockManager, clock: Clock) -> None:
    manager.acquire(owner="a", writes=[T])
    late = begin(manager, "b", writes=(T,), timeout_s=5)
    clock.now_s += 4.5
    late.blocked_by()
    assert late.pending.wait_s() == pytest.approx(0.5, abs=0.01)  # a little has passed by the store's clock
    clock.now_s += 0.5
    with pytest.raises(LockTimeout, match="within 5 s: a holds"):
        late.pending.poll()
    assert manager.waiters() == []


def test_first_come_first_served_and_only_the_next_is_woken(manager: LockManager) -> None:
    lease = manager.acquire(owner="a", writes=[T])
    queue = [begin(manager, owner, writes=(T,)) for owner in "bcd"]
    assert [(waiter.owner, waiter.position) for waiter in manager.waiters()] == [("b", 1), ("c", 2), ("d", 3)]
    while queue:
        manager.release(lease)
        assert [waiting.woken.is_set() for waiting in queue] == [True] + [False] * (len(queue) - 1)
        for later in queue[1:]:
            assert later.blocked_by()
        lease = queue.pop(0).lease()


def test_a_withdrawn_place_lets_the_next_in(manager: LockManager) -> None:
    manager.acquire(owner="reader 1", reads=[T])
    writer = begin(manager, "writer", writes=(T,))
    reader = begin(manager, "reader 2", reads=(T,))
    writer.pending.withdraw()
    assert reader.woken.is_set()
    assert reader.lease()


def test_an_owner_cannot_ask_for_something_else_meanwhile(manager: LockManager) -> None:
    held = manager.acquire(owner="a", writes=[T])
    with pytest.raises(LeaseMismatch) as refused:
        manager.acquire(owner="a", writes=[U])
    assert str(refused.value) == (
        f"a holds other locks than it now asks for (only held: {T} EXCLUSIVE; only asked for: {U} EXCLUSIVE). "
        "Release them first"
    )
    assert manager.lease_of("a") == held
    begin(manager, "b", writes=(T,))
    with pytest.raises(LeaseMismatch, match="b already waits for other locks"):
        manager.acquire(owner="b", reads=[T])


def test_an_interrupted_wait_leaves_the_queue(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    really, own = threading.Event.wait, threading.current_thread()

    def interrupt(event: threading.Event, timeout_s: float | None = None) -> bool:
        if threading.current_thread() is not own:  # a lock store's listener, from another test
            return really(event, timeout_s)
        assert [waiter.owner for waiter in manager.waiters()] == ["b"]
        raise KeyboardInterrupt

    manager.acquire(owner="a", writes=[T])
    monkeypatch.setattr(threading.Event, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        manager.acquire(owner="b", writes=[T], timeout_s=None)
    assert manager.waiters() == []


def test_an_interrupt_between_the_grant_and_the_return_leaves_no_lease(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_patience: Patience) -> None:
        assert manager.lease_of("a")
        raise KeyboardInterrupt

    monkeypatch.setattr(Patience, "answered", interrupt)
    with pytest.raises(KeyboardInterrupt):
        manager.acquire(owner="a", writes=[T])
    assert manager.leases() == []


def test_an_interrupted_wait_stays_interrupted_if_the_store_is_away(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_pending: PendingLease) -> None:
        raise StoreUnavailable("the store is away")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    manager.acquire(owner="a", writes=[T])
    monkeypatch.setattr(PendingLease, "withdraw", away)
    with pytest.raises(KeyboardInterrupt):
        manager.acquire(owner="b", writes=[T], timeout_s=None, tell=interrupt)


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads that are interrupted as often as Python can, so that what is not atomic shows."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("restless_threads")
def test_an_exclusive_lock_guards_a_counter_among_threads() -> None:
    manager = LockManager(MemoryBackend())
    counter = [0]
    tokens: list[int] = []

    def count(thread: int) -> None:
        for turn in range(20):
            lease = manager.acquire(owner=f"{thread}/{turn}", writes=[T], timeout_s=DEADLINE_S)
            seen = counter[0]
            time.sleep(0)
            counter[0] = seen + 1
            tokens.append(lease.token)
            manager.release(lease)

    threads = [threading.Thread(target=count, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert counter == [8 * 20]
    assert tokens == sorted(set(tokens)), "a later lease has a larger token"


@pytest.mark.parametrize("said", ["a\0b", "\ud800", "\x1b[2J", "x" * 2_001, 5])
def test_a_force_release_says_who_and_why_in_what_a_trail_can_keep(manager: LockManager, said: str) -> None:
    lease = manager.acquire(owner="a", writes=[T])
    for reason, user in ((said, "ann"), ("stuck", said)):
        with pytest.raises(InvalidRequest, match="printable characters"):
            manager.force_release(lease.id, reason=reason, user=user)
    assert manager.force_release(lease.id, reason=" its host\nis gone ", user="ann\tb")
    assert [(entry.reason, entry.user) for entry in manager.audit()] == [("its host is gone", "ann b")], "one line each"


def test_of_a_query_as_much_is_kept_as_people_read(manager: LockManager) -> None:
    manager.acquire(owner="a", writes=[T], query="select '\ud800\0' " + "x" * 1_000_000)
    query = manager.show(T)[0].query
    assert query.startswith("select '?' xxx")
    assert len(query) < 20_000


@pytest.mark.parametrize(
    "wrong", [{"lease_s": "5"}, {"timeout_s": "5"}, {"attempt": 2**63}, {"query": 5}, {"reads": None}]
)
def test_what_is_of_another_type_is_refused(manager: LockManager, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        manager.acquire(**{"owner": "a", "writes": [T], **wrong})


def test_a_look_finds_the_locks_of_others_only(manager: LockManager) -> None:
    manager.acquire(owner="a", writes=[T])
    manager.acquire(owner="b", writes=[U])
    assert holders_in(manager.look(rules.request("b", reads=[T, U]))) == [("a", T)]


def test_a_look_is_called_once_when_a_lock_goes(manager: LockManager) -> None:
    calls: list[None] = []
    leases = [manager.acquire(owner=owner, writes=[name]) for owner, name in (("a", T), ("b", "x.y"))]
    assert holders_in(manager.look(rules.request("c", writes=[T]), lambda: calls.append(None))) == [("a", T)]
    manager.release(leases[1])
    assert not calls
    manager.release(leases[0])
    manager.release(manager.acquire(owner="d", writes=[T]))
    assert len(calls) == 1


@pytest.mark.parametrize("held_s", [-1, float("nan"), 1e300])
def test_an_age_that_is_no_number_of_seconds_frees_nothing(manager: LockManager, held_s: float) -> None:
    lease = manager.acquire(owner="a", writes=[T])
    with pytest.raises(InvalidRequest, match="held_s"):
        manager.force_release_all(held_s=held_s, reason="too old", user="ops")
    assert manager.leases() == [lease]


@pytest.mark.parametrize("name", ["timeout_s", "outage_s"])
@pytest.mark.parametrize("given", [-1.0, float("nan")])
def test_a_timeout_that_cannot_be_meant_is_refused(manager: LockManager, name: str, given: Any) -> None:
    with pytest.raises(InvalidRequest, match=name):
        manager.acquire(owner="a", writes=[T], **{name: given})
    assert manager.show() == []
