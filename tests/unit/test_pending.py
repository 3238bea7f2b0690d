"""How long a request waits: its deadline, and its patience with a store that does not answer."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import AccessDenied, LeaseAlreadyExists, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.hive_leases import HiveLeases
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Blocker, Lease, LockMode, LockObject, LockRequest
from airflow_hivelock.locks.pending import LONGEST_PAUSE_S, OUTAGE_S, PASSING_S, PendingLease, PendingLook, Silent
from tests.unit.conftest import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = "dw.flights/dt=2013-01-01"
BY = (Blocker("a", LockObject.parse(T), LockMode.EXCLUSIVE),)
AWAY = StoreUnavailable("zk1 is down")
GRANTED = Lease("scripted-1", 1, 0, 1, "b", (), 60.0, MemoryBackend().now())


@dataclass
class Scripted(MemoryBackend):
    """A backend with given next steps; the last one is repeated. The results of a look are the shown locks."""

    steps: Sequence[Any] = (AWAY,)
    asked_s: list[float] = field(default_factory=list)
    withdrawn: int = 0
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        super().__init__()
        self._script = itertools.chain(self.steps, itertools.repeat(self.steps[-1]))

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> Scripted:  # type: ignore[override]
        return self

    def step(self) -> Any:
        self.asked_s.append(self.clock())
        outcome = next(self._script)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def show(self, target: LockObject | None = None) -> Any:
        return self.step()

    def withdraw(self) -> None:
        self.withdrawn += 1
        if self.withdrawn > 1 or isinstance(self.steps[-1], StoreUnavailable):
            raise StoreUnavailable("nor for the withdrawal")

    def hand_over(self) -> None:
        raise NotImplementedError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The waits of the test's own thread, too, are over at once, and it is that much later."""
    clock, really, own = Clock(), threading.Event.wait, threading.current_thread()

    def wait(event: threading.Event, wait_s: float | None = None) -> bool:
        if threading.current_thread() is not own:  # a lock store's listener, from another test
            return really(event, wait_s)
        assert wait_s is not None, "it would wait for ever"
        assert 0 < wait_s <= PASSING_S, "it never asks again, or without a pause"
        clock.now_s += wait_s
        return False

    monkeypatch.setattr(threading.Event, "wait", wait)
    return clock


def scripted(clock: Clock, *steps: Any) -> tuple[LockManager, Scripted]:
    backend = Scripted(steps=steps, clock=clock)
    return LockManager(backend, clock), backend


def begin(clock: Clock, timeout_s: float | None, *steps: Any) -> PendingLease:
    manager, _ = scripted(clock, *steps)
    return manager.begin(rules.request("b", writes=[T]), lambda: None, timeout_s)


def elapsed(clock: Clock) -> float:
    return clock() - Clock().now_s


# The deadline.


def test_what_an_earlier_process_has_waited_counts(clock: Clock) -> None:
    pending = begin(clock, 60, Blocked(BY, waited_s=50))
    pending.poll()
    assert pending.wait_s() == 10
    clock.now_s += 10
    with pytest.raises(LockTimeout):
        pending.poll()


def test_what_an_earlier_process_has_waited_counts_in_an_outage(clock: Clock) -> None:
    pending = begin(clock, 60, Blocked(BY, waited_s=50), AWAY)
    pending.poll()
    clock.now_s += 9
    assert isinstance(pending.poll(), Silent)
    clock.now_s += 1
    with pytest.raises(StoreUnavailable):
        pending.poll()


def test_a_request_whose_withdrawal_had_no_answer_does_not_go_on(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The withdrawal may still happen, and would then free what the request has been granted since."""
    manager, backend = scripted(clock, Blocked(BY), GRANTED)
    answers: list[Exception | None] = [AWAY, None]

    def withdraw() -> None:
        if error := answers.pop(0):
            raise error

    monkeypatch.setattr(backend, "withdraw", withdraw)
    pending = manager.begin(rules.request("b", writes=[T]), lambda: None, 0)
    with pytest.raises(StoreUnavailable):
        pending.poll()
    with pytest.raises(LockTimeout):
        pending.poll()
    assert not answers


@pytest.mark.parametrize("waited_s", [0, 3600])
def test_not_waiting_still_waits_out_one_that_is_passing(clock: Clock, waited_s: float) -> None:
    pending = begin(clock, 0, Blocked(BY, passing=True, waited_s=waited_s))
    pending.poll()
    assert pending.wait_s() == PASSING_S
    clock.now_s += PASSING_S
    with pytest.raises(LockTimeout):
        pending.poll()


@pytest.mark.parametrize(("timeout_s", "wait_s"), [(None, 3), (60, 3), (2, 2)])
def test_a_backend_without_wake_ups_is_looked_at_again(clock: Clock, timeout_s: float | None, wait_s: float) -> None:
    pending = begin(clock, timeout_s, Blocked(BY, recheck_s=3))
    pending.poll()
    assert pending.wait_s() == wait_s


# An outage of the store.


@pytest.mark.parametrize("timeout_s", [None, 60])
def test_an_outage_is_borne_and_said_once(
    clock: Clock, timeout_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    manager, backend = scripted(clock, AWAY, AWAY, AWAY, Blocked(BY, recheck_s=1), AWAY, AWAY, GRANTED)
    assert manager.acquire(owner="b", writes=[T], timeout_s=timeout_s) == GRANTED
    assert backend.withdrawn == 0
    at_most = 600 if timeout_s is None else 60
    first, second = caplog.messages
    assert first == f"The lock store does not answer; asking again for {at_most} s: zk1 is down"
    assert second.endswith("zk1 is down"), "a new outage is said anew"


@pytest.mark.parametrize("timeout_s", [1e10, 10**400], ids=["1e10", "10**400"])
def test_a_time_out_of_centuries_is_no_time_out(timeout_s: float, manager: LockManager) -> None:
    """Python's threads cannot wait for so long: it was an OverflowError, when another request was in the way."""
    manager.acquire(owner="a", writes=[T])
    waiting = manager.begin(rules.request("b", writes=[T]), threading.Event().set, timeout_s)
    assert isinstance(waiting.poll(), Blocked)
    assert waiting.wait_s() is None


def test_an_outage_of_centuries_may_last_without_a_limit(clock: Clock) -> None:
    manager, _ = scripted(clock, AWAY, AWAY, GRANTED)
    assert manager.acquire(owner="b", writes=[T], timeout_s=None, outage_s=10**400) == GRANTED


def test_a_caller_is_told_each_second_how_it_waits(clock: Clock) -> None:
    manager, _ = scripted(clock, Blocked(BY, recheck_s=3), Blocked(BY, recheck_s=1), GRANTED)
    told: list[tuple[Blocked | Silent, float]] = []
    manager.acquire(
        owner="b", writes=[T], timeout_s=None, tell=lambda outcome, waited_s: told.append((outcome, waited_s))
    )
    assert [waited_s for _, waited_s in told] == [0, 1, 2, 3]
    assert all(isinstance(outcome, Blocked) and outcome.by == BY for outcome, _ in told)


def test_the_pause_grows_to_its_longest_and_begins_anew_with_the_next_outage(clock: Clock) -> None:
    manager, backend = scripted(clock, *[AWAY] * 7, Blocked(BY, recheck_s=1), AWAY, GRANTED)
    manager.acquire(owner="b", writes=[T], timeout_s=None)
    pauses = [later - earlier for earlier, later in itertools.pairwise(backend.asked_s)]
    assert pauses == [0.5, 1, 2, 4, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S, 1, 0.5]


@pytest.mark.parametrize(("timeout_s", "outage_s"), [(None, 30), (None, OUTAGE_S), (3600, 30), (30, None), (30, 3600)])
def test_an_outage_that_lasts_too_long_is_an_error_and_leaves_no_place(
    clock: Clock, timeout_s: float | None, outage_s: float | None
) -> None:
    manager, backend = scripted(clock, AWAY)
    with pytest.raises(StoreUnavailable, match="zk1 is down"):
        manager.acquire(owner="b", writes=[T], timeout_s=timeout_s, outage_s=outage_s)
    assert elapsed(clock) == min(one for one in (timeout_s, outage_s) if one is not None)
    assert backend.withdrawn == 1


def test_by_default_ten_minutes_of_an_outage_are_borne(clock: Clock) -> None:
    with pytest.raises(StoreUnavailable):
        scripted(clock, AWAY)[0].acquire(owner="b", writes=[T], timeout_s=None)
    assert elapsed(clock) == OUTAGE_S


def test_each_outage_may_last_that_long(clock: Clock) -> None:
    outage = [AWAY] * 10
    manager, _ = scripted(clock, *outage, Blocked(BY, recheck_s=1), *outage, GRANTED)
    assert manager.acquire(owner="b", writes=[T], timeout_s=None, outage_s=60) == GRANTED
    assert elapsed(clock) > 60


def test_a_deadline_while_others_are_in_the_way_is_a_time_out_whatever_was_before(clock: Clock) -> None:
    manager, backend = scripted(clock, AWAY, AWAY, Blocked(BY, recheck_s=1))
    with pytest.raises(LockTimeout, match="within 10 s: a holds"):
        manager.acquire(owner="b", writes=[T], timeout_s=10)
    assert elapsed(clock) == 10
    assert backend.withdrawn == 1


def test_access_that_is_denied_is_an_error_at_once(clock: Clock) -> None:
    manager, backend = scripted(clock, AccessDenied("no such user"))
    with pytest.raises(AccessDenied):
        manager.acquire(owner="b", writes=[T], timeout_s=None)
    assert elapsed(clock) == 0
    assert backend.withdrawn == 1


@pytest.mark.parametrize("before", [(), (Blocked(BY, passing=True, recheck_s=1),)])
def test_not_waiting_bears_no_outage(clock: Clock, before: tuple[Blocked, ...]) -> None:
    manager, backend = scripted(clock, *before, AWAY)
    with pytest.raises(StoreUnavailable):
        manager.acquire(owner="b", writes=[T])
    assert len(backend.asked_s) == len(before) + 1


def test_an_answer_that_was_lost_is_found_by_the_next_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, manager: LockManager
) -> None:
    begun, lost = manager.backend.begin, iter([True, False])

    def loses(*given: Any) -> Any:
        acquisition = begun(*given)
        step = acquisition.step

        def stepped() -> Any:
            outcome = step()
            if next(lost):
                raise AWAY
            return outcome

        monkeypatch.setattr(acquisition, "step", stepped)
        return acquisition

    monkeypatch.setattr(manager.backend, "begin", loses)
    lease = manager.acquire(owner="b", writes=[T], timeout_s=60)
    assert manager.leases()[0].id == lease.id
    assert len(manager.leases()) == 1


def test_hive_leases_wait_out_an_outage_too(clock: Clock) -> None:
    manager, _ = scripted(clock, AWAY, AWAY, GRANTED)
    assert HiveLeases(manager).grab_lease([(T, "x")], 60, 60) == GRANTED.id
    manager, _ = scripted(clock, AWAY, Blocked(BY, recheck_s=1))
    with pytest.raises(LeaseAlreadyExists):
        HiveLeases(manager).grab_lease([(T, "x")], 60, 60)


# Looks, which wait alike.


@pytest.fixture
def manager(clock: Clock) -> LockManager:
    return LockManager(MemoryBackend(), clock)


def look(clock: Clock, timeout_s: float | None, *steps: Any) -> PendingLook:
    return scripted(clock, *steps)[0].look(rules.request("b", writes=[T]), None, timeout_s)


def test_a_look_bears_an_outage(clock: Clock) -> None:
    looking = look(clock, None, AWAY, [])
    assert isinstance(looking.poll(), Silent)
    assert looking.wait_s() == 0.5
    assert looking.poll() == []
    assert looking.wait_s() is None


def test_a_look_bears_no_outage_past_its_deadline(clock: Clock) -> None:
    looking = look(clock, 5, AWAY)
    looking.poll()
    clock.now_s += 5
    with pytest.raises(StoreUnavailable):
        looking.poll()


def test_a_look_that_is_too_late_names_the_holder(clock: Clock, manager: LockManager) -> None:
    manager.acquire(owner="a", writes=[T])
    looking = manager.look(rules.request("b", writes=[T]), None, 5)
    looking.poll()
    clock.now_s += 5
    with pytest.raises(LockTimeout, match=f"b did not find free {T} EXCLUSIVE within 5 s: a .*holds {T} EXCLUSIVE"):
        looking.poll()
