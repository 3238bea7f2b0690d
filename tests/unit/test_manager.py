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
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, LockTimeout, Superseded
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Blocker, Lease, LockMode, LockObject
from airflow_hivelock.locks.pending import PendingLease, PendingLook, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    attempt: int = 0,
    timeout_s: float | None = None,
) -> Waiting:
    woken = threading.Event()
    request = rules.request(owner, reads, writes, attempt=attempt)
    waiting = Waiting(manager.begin(request, woken.set, timeout_s), woken)
    waiting.pending.poll()
    return waiting


def holders(manager: LockManager, target: str | None = None) -> list[tuple[str, str]]:
    return [(holder.owner, str(holder.object)) for holder in manager.show(target)]


def holders_in(look: PendingLook) -> list[tuple[str, str]]:
    found = look.poll()
    assert not isinstance(found, Silent)
    return [(holder.owner, str(holder.object)) for holder in found]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.001)


def test_a_lease_shows_its_locks_until_its_release(manager: LockManager) -> None:
    lease = manager.acquire(owner="a", reads=[T], writes=["dw.delays"])
    assert [str(lock) for lock in lease.locks] == [
        *("dw SHARED", "dw.delays EXCLUSIVE", "dw.flights SHARED", f"{T} SHARED"),
    ]
    assert {holder.lease_id for holder in manager.show()} == {lease.id}
    assert holders(manager, "dw.flights") == [("a", "dw.flights"), ("a", T)]
    assert manager.find(lease.id) == manager.lease_of("a") == lease
    assert manager.release(lease) is True
    assert manager.show() == []
    assert manager.find(lease.id) is None


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


def test_all_or_nothing(manager: LockManager) -> None:
    held = manager.acquire(owner="a", writes=[U])
    waiting = begin(manager, "b", writes=(T, U))
    assert ("b", T) not in holders(manager)
    manager.release(held)
    assert len(waiting.lease().locks) == 4


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


def test_those_who_do_not_conflict_pass_the_queue(manager: LockManager) -> None:
    manager.acquire(owner="a", writes=[T])
    begin(manager, "b", writes=(T,))
    assert manager.acquire(owner="c", writes=[U])


def test_a_stream_of_readers_does_not_starve_a_writer(manager: LockManager) -> None:
    first = manager.acquire(owner="reader 1", reads=[T])
    writer = begin(manager, "writer", writes=(T,))
    second = begin(manager, "reader 2", reads=(T,))
    assert second.blocked_by() == [f"writer waits ahead for {T} EXCLUSIVE"]
    with pytest.raises(LockTimeout, match="writer waits ahead"):
        manager.acquire(owner="reader 3", reads=[T])
    manager.release(first)
    held = writer.lease()
    manager.release(held)
    assert second.lease()


def test_a_withdrawn_place_lets_the_next_in(manager: LockManager) -> None:
    manager.acquire(owner="reader 1", reads=[T])
    writer = begin(manager, "writer", writes=(T,))
    reader = begin(manager, "reader 2", reads=(T,))
    writer.pending.withdraw()
    assert reader.woken.is_set()
    assert reader.lease()


def test_withdrawing_too_late_keeps_the_lease(manager: LockManager) -> None:
    waiting = begin(manager, "a", writes=(T,))
    lease = waiting.lease()
    waiting.pending.withdraw()
    assert manager.lease_of("a") == lease


def test_asking_again_gives_the_same_lease(manager: LockManager) -> None:
    first = manager.acquire(owner="a", writes=[T])
    again = manager.acquire(owner="a", writes=[T])
    assert (again.id, again.token, again.since) == (first.id, first.token, first.since)
    assert manager.release(again)
    new = manager.acquire(owner="a", writes=[T])
    assert new.id != first.id
    assert new.token > first.token


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


def test_a_later_attempt_takes_the_lease_over(manager: LockManager) -> None:
    first = manager.acquire(owner="a", writes=[T], attempt=1)
    second = manager.acquire(owner="a", writes=[T], attempt=2)
    assert second.id == first.id
    assert second.attempt == 2
    with pytest.raises(LockLost, match="is no longer held"):
        manager.renew(first)
    manager.renew(second)
    with pytest.raises(Superseded, match=r"attempt 2 has taken over, so this call \(attempt 1\)"):
        manager.acquire(owner="a", writes=[T], attempt=1)


def test_a_late_release_of_attempt_1_frees_nothing_of_attempt_2(manager: LockManager) -> None:
    first = manager.acquire(owner="a", writes=[T], attempt=1)
    second = manager.acquire(owner="a", writes=[T], attempt=2)
    assert manager.release(first) is False
    assert ("a", T) in holders(manager)
    assert manager.release(second) is True


def test_a_late_release_frees_nothing_of_the_next_lease(manager: LockManager) -> None:
    first = manager.acquire(owner="a", writes=[T])
    manager.release(first)
    manager.acquire(owner="a", writes=[T])
    assert manager.release(first) is False
    assert ("a", T) in holders(manager)


def test_an_earlier_attempt_does_not_come_back_after_the_release(manager: LockManager) -> None:
    manager.release(manager.acquire(owner="a", writes=[T], attempt=2))
    with pytest.raises(Superseded):
        manager.acquire(owner="a", writes=[T], attempt=1)
    assert manager.show() == []


def test_a_later_attempt_keeps_the_place_and_the_earlier_one_is_told(manager: LockManager) -> None:
    lease = manager.acquire(owner="a", writes=[T])
    slow = begin(manager, "b", writes=(T,), attempt=1)
    begin(manager, "c", writes=(T,))
    retry = begin(manager, "b", writes=(T,), attempt=2)
    assert slow.woken.is_set(), "a superseded process that nobody wakes waits for ever"
    with pytest.raises(Superseded):
        slow.pending.poll()
    slow.pending.withdraw()
    manager.release(lease)
    assert retry.lease().owner == "b"


def test_releasing_twice_is_success(manager: LockManager) -> None:
    lease = manager.acquire(owner="a", writes=[T])
    assert [manager.release(lease), manager.release(lease)] == [True, False]


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


def test_a_waiting_thread_goes_on_when_the_lock_is_freed() -> None:
    manager = LockManager(MemoryBackend())
    held = manager.acquire(owner="a", writes=[T])
    got: list[Lease] = []
    thread = threading.Thread(
        target=lambda: got.append(manager.acquire(owner="b", writes=[T], timeout_s=DEADLINE_S)), daemon=True
    )
    thread.start()
    wait_until(manager.waiters)
    manager.release(held)
    thread.join(DEADLINE_S)
    assert [lease.owner for lease in got] == ["b"]


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


def test_a_force_release_is_audited_and_noticed(manager: LockManager) -> None:
    lease = manager.acquire(owner="a", writes=[T])
    waiting = begin(manager, "b", writes=(T,))
    for reason, user in (("", "ann"), ("stuck", " ")):
        with pytest.raises(InvalidRequest, match="audit trail"):
            manager.force_release(lease.id, reason=reason, user=user)
    assert manager.force_release(lease.id, reason="stuck", user="ann") is True
    assert manager.force_release(lease.id, reason="stuck", user="ann") is False
    with pytest.raises(LockLost):
        manager.renew(lease)
    assert waiting.lease()
    (entry,) = manager.audit()
    assert (entry.lease_id, entry.owner, entry.reason, entry.user) == (lease.id, "a", "stuck", "ann")


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


@pytest.mark.parametrize("name", ["timeout_s", "outage_s"])
@pytest.mark.parametrize("given", [-1.0, float("nan")])
def test_a_timeout_that_cannot_be_meant_is_refused(manager: LockManager, name: str, given: Any) -> None:
    with pytest.raises(InvalidRequest, match=name):
        manager.acquire(owner="a", writes=[T], **{name: given})
    assert manager.show() == []
