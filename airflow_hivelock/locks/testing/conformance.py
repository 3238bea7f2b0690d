"""One suite that every backend passes. Subclass it, and give it a ``connect`` fixture::

    class TestMine(BackendConformance, capabilities=MyBackend.capabilities):
        @pytest.fixture
        def connect(self):
            return lambda: LockManager(MyBackend(...))    # a new session with the same empty store

A test that takes a capability is not there for a backend that does not declare it; in its place there is one of what
that backend does instead.

Nothing here sleeps for luck: a request that must wait is polled until the backend says Blocked, and one that must
be granted waits for its wake-up, within :data:`PATIENCE_S`.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked, Capabilities
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, LockTimeout, Superseded, Unsupported
from airflow_hivelock.locks.model import Lease, LockMode, LockRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_hivelock.locks.manager import LockManager

    Connect = Callable[[], LockManager]

PATIENCE_S = 60.0
DAY1, DAY2 = "dw.flights/dt=2013-01-01", "dw.flights/dt=2013-01-02"


class Polling:
    """A request that waits in the open: :meth:`poll` it, or wait for its grant."""

    def __init__(self, manager: LockManager, owner: str, *, attempt: int = 0, **locks: Iterable[str]) -> None:
        self._changed = threading.Event()
        request = rules.request(owner, locks.get("reads", ()), locks.get("writes", ()), attempt=attempt)
        self.pending = manager.begin(request, self._changed.set)

    def blocked(self) -> Blocked:
        """Take the place in the queue; it must not be granted."""
        outcome = self.pending.poll()
        assert isinstance(outcome, Blocked), f"granted, where it had to wait: {outcome}"
        return outcome

    def granted(self, within_s: float = PATIENCE_S) -> Lease:
        """Wait for the grant, polling only when woken."""
        deadline = time.monotonic() + within_s
        while True:
            self._changed.clear()
            outcome = self.pending.poll()
            if isinstance(outcome, Lease):
                return outcome
            left = min(deadline - time.monotonic(), outcome.recheck_s or within_s)
            assert left > 0, f"not granted within {within_s} s: {outcome}"
            assert self._changed.wait(left) or outcome.recheck_s, f"never woken while {outcome}"


def where(**declared: bool | None) -> Callable[[Any], Any]:
    """A test for backends that declare just that, and take locks unless it says ``acquires=False``; None: or not."""

    def mark(test: Any) -> Any:
        test.declared = {"acquires": True} | declared
        return test

    return mark


class BackendConformance:
    """See the module's text."""

    declares = Capabilities()

    def __init_subclass__(cls, capabilities: Capabilities | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.declares = capabilities or cls.declares
        for name in dir(cls):
            if name.startswith("test_"):
                declared = getattr(getattr(cls, name), "declared", {"acquires": True})
                if any(so not in (None, getattr(cls.declares, what)) for what, so in declared.items()):
                    setattr(cls, name, None)

    @pytest.fixture
    def connect(self) -> Connect:
        """Override: a function that gives a new manager, with a session of its own, over one empty store."""
        raise NotImplementedError

    @where(acquires=None)
    def test_it_promises_what_the_suite_was_told(self, manager: LockManager) -> None:
        assert manager.capabilities == self.declares

    @where(acquires=False)
    def test_what_only_looks_takes_and_frees_nothing(self, manager: LockManager) -> None:
        with pytest.raises(Unsupported, match="look"):
            manager.acquire(owner="me", writes=[DAY1])
        lease = Lease("another-1", 1, 0, 0, "me", (), 60.0, manager.now())
        calls = (
            lambda: manager.release(lease),
            lambda: manager.renew(lease),
            lambda: manager.verify(lease),
            lambda: manager.start_work(lease, "delays", "app-1"),
            lambda: manager.check_token(lease.id, "delays", 1),
            lambda: manager.force_release(lease.id, reason="testing", user="ops"),
        )
        for call in calls:
            with pytest.raises(Unsupported, match="another-1"):
                call()
        assert not [*manager.leases(), *manager.history(), *manager.audit()]
        assert manager.find(lease.id) is None
        assert manager.lease_of("me") is None
        assert manager.sweep() == 0

    @pytest.fixture
    def manager(self, connect: Connect) -> Any:
        with connect() as manager:
            yield manager

    @pytest.fixture
    def other(self, connect: Connect) -> Any:
        with connect() as manager:
            yield manager

    @pytest.mark.parametrize(
        ("held", "wanted", "compatible"),
        [("reads", "reads", True), ("reads", "writes", False), ("writes", "reads", False), ("writes", "writes", False)],
    )
    def test_shared_goes_with_shared_and_exclusive_with_nothing(
        self, manager: LockManager, other: LockManager, held: str, wanted: str, compatible: bool
    ) -> None:
        manager.acquire(owner="holder", **{held: [DAY1]})  # type: ignore[arg-type]
        if compatible:
            assert other.acquire(owner="second", **{wanted: [DAY1]})  # type: ignore[arg-type]
        else:
            with pytest.raises(LockTimeout, match="holder"):
                other.acquire(owner="second", **{wanted: [DAY1]})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("held", "wanted", "compatible"),
        [
            ([DAY1], [DAY2], True),
            ([DAY1], ["dw.flights"], False),
            (["dw.flights"], [DAY1], False),
            ([DAY1], ["dw"], False),
            (["dw"], [DAY1], False),
            (["dw"], ["dw.other"], False),
            (["dw.flights"], ["dw.other"], True),
            (["dw"], ["lake"], True),
            (["dw.t/a=1"], ["dw.t/a=1/b=2"], False),
            (["dw.t/a=1/b=1"], ["dw.t/a=1/b=2"], True),
        ],
    )
    def test_writers_exclude_along_the_hierarchy(
        self, manager: LockManager, other: LockManager, held: list[str], wanted: list[str], compatible: bool
    ) -> None:
        manager.acquire(owner="holder", writes=held)
        if compatible:
            assert other.acquire(owner="second", writes=wanted)
        else:
            with pytest.raises(LockTimeout, match="holder"):
                other.acquire(owner="second", writes=wanted)

    @pytest.mark.parametrize(
        ("read", "written", "compatible"),
        [
            (["dw.flights"], [DAY1], None),
            ([DAY1], ["dw.flights"], False),
            ([DAY1], [DAY2], True),
            ([DAY1], ["dw"], False),
            (["dw.flights"], ["dw.other"], True),
            (["dw.t/a=1"], ["dw.t/a=1/b=2"], None),
            (["dw.t/a=1/b=1"], ["dw.t/a=1"], False),
        ],
    )
    @pytest.mark.parametrize("reader_first", [True, False])
    def test_readers_and_writers_meet_where_it_is_declared(
        self,
        manager: LockManager,
        other: LockManager,
        read: list[str],
        written: list[str],
        compatible: bool | None,
        reader_first: bool,
    ) -> None:
        """A reader above a writer: apart with SHARED parents, where one object decides; else they exclude each other."""
        wants: list[tuple[str, dict[str, Any]]] = [("reader", {"reads": read}), ("writer", {"writes": written})]
        (holder, held), (second, wanted) = wants if reader_first else reversed(wants)
        manager.acquire(owner=holder, **held)
        if self.declares.parents if compatible is None else compatible:
            assert other.acquire(owner=second, **wanted)
        else:
            with pytest.raises(LockTimeout, match=holder):
                other.acquire(owner=second, **wanted)

    def test_a_request_is_granted_whole_or_not_at_all(self, manager: LockManager, other: LockManager) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        with pytest.raises(LockTimeout):
            other.acquire(owner="greedy", writes=[DAY1, DAY2])
        assert {holder.owner for holder in manager.show()} == {"holder"}
        assert manager.acquire(owner="third", writes=[DAY2]), "the refused request kept what it could get"

    def test_a_refused_request_leaves_nothing_behind(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        for timeout_s in (0, 0.2):
            with pytest.raises(LockTimeout) as refused:
                other.acquire(owner="late", writes=[DAY1], timeout_s=timeout_s)
            assert refused.value.blocked_by[0].owner == "holder"
        assert manager.waiters() == []
        assert manager.release(lease)
        assert manager.show() == []

    def test_bad_input_is_refused_before_anything_is_acquired(self, manager: LockManager) -> None:
        bad: dict[str, Any]
        for bad in ({"writes": ["dw/x"]}, {"writes": []}, {"writes": [DAY1], "lease_s": 0}, {"writes": "dw.flights"}):
            with pytest.raises(InvalidRequest):
                manager.acquire(owner="me", **bad)
        with pytest.raises(InvalidRequest):
            manager.acquire(owner="", writes=[DAY1])
        assert manager.show() == []

    def test_the_same_owner_gets_the_same_lease(self, manager: LockManager, other: LockManager) -> None:
        first = manager.acquire(owner="me", writes=[DAY1])
        again = other.acquire(owner="me", writes=[DAY1])
        assert (again.id, again.token) == (first.id, first.token)
        with pytest.raises(LeaseMismatch, match="me holds"):
            other.acquire(owner="me", writes=[DAY2])
        assert other.release(again)
        renewed = manager.acquire(owner="me", writes=[DAY1])
        assert renewed.id != first.id

    def test_a_lease_whose_locks_come_back_in_another_order_is_the_same(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first = manager.acquire(
            owner="me", reads=["dw.flights/dt=2013-01-01/hr=1"], writes=["dw.weather/dt=2013-01-01"]
        )
        data = first.to_json()
        data["locks"] = dict(sorted(data["locks"].items(), key=lambda lock: (len(lock[0]), lock[0])))  # as jsonb sorts
        assert list(data["locks"]) != [str(lock.object) for lock in first.locks], "the order that they had"
        copy = Lease.from_json(data)
        assert copy == first
        for locks in (copy.locks, copy.locks[::-1]):
            again = other.begin(LockRequest("me", locks, wait=False), lambda: None).poll()
            assert isinstance(again, Lease)
            assert again.id == first.id

    def test_tokens_only_grow(self, manager: LockManager, other: LockManager) -> None:
        tokens = []
        for number, session in zip(range(6), itertools.cycle([manager, other]), strict=False):
            lease = session.acquire(owner=f"owner-{number}", writes=[DAY1])
            tokens.append(lease.token)
            session.release(lease)
        assert tokens == sorted(set(tokens))

    def test_first_come_first_served(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="reader", reads=[DAY1])
        writer = Polling(other, "writer", writes=[DAY1])
        writer.blocked()
        late = Polling(manager, "late reader", reads=[DAY1])
        assert late.blocked().by[0].owner == "writer", "a stream of readers would starve the writer"
        manager.release(lease)
        other.release(writer.granted())
        assert late.granted()

    def test_waiters_are_listed_in_their_order(self, manager: LockManager, other: LockManager) -> None:
        manager.acquire(owner="holder", writes=[DAY1])
        queue = [Polling(other, name, writes=[DAY1]) for name in ("first", "second", "third")]
        for waiting in queue:
            waiting.blocked()
        waiters = manager.waiters("dw.flights")
        assert [waiter.owner for waiter in waiters] == ["first", "second", "third"]
        assert [waiter.place for waiter in waiters] == [1, 2, 3]
        assert waiters[0].blocked_by[0].owner == "holder"
        assert manager.waiters("dw.other") == []
        leases, waiters = manager.requests()
        assert [lease.owner for lease in leases] == ["holder"]
        assert [waiter.owner for waiter in waiters] == ["first", "second", "third"]
        for waiting in queue:
            waiting.pending.withdraw()
        assert manager.waiters() == []

    @where(remembers=True)
    def test_a_place_that_was_handed_over_keeps_nobody_waiting_and_is_kept_meanwhile(
        self, manager: LockManager, connect: Connect
    ) -> None:
        """Its session lives on: as a triggerer's, whose triggers Airflow has given to another."""
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            early, late = Polling(first, "early", writes=[DAY1]), Polling(second, "late", writes=[DAY1])
            early.blocked()
            late.blocked()
            early.pending.hand_over()
            late.blocked()
            heir = Polling(second, "early", writes=[DAY1])
            heir.blocked()
            early.pending.hand_over()  # it is another's by now
            assert [waiter.owner for waiter in manager.waiters()] == ["early", "late"]
            manager.release(lease)
            second.release(heir.granted())
            lease = late.granted()
            again = Polling(first, "early", writes=[DAY1])
            again.blocked()
            newcomer = Polling(second, "newcomer", writes=[DAY1])
            newcomer.blocked()
            again.pending.hand_over()
            second.release(lease)
            assert newcomer.granted()
            assert manager.waiters() == []

    @where(remembers=True)
    def test_a_place_in_the_queue_outlives_the_process_that_took_it(
        self, manager: LockManager, connect: Connect
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            dying = Polling(first, "early", writes=[DAY1], attempt=1)
            dying.blocked()
            behind = Polling(second, "late", writes=[DAY1])
            behind.blocked()
            heir = Polling(second, "early", writes=[DAY1], attempt=1)
            heir.blocked()
            with pytest.raises(Superseded):
                dying.pending.poll()
            manager.release(lease)
            second.release(heir.granted())
            second.release(behind.granted())

    @where(remembers=False)
    def test_an_owner_finds_its_place_in_the_queue_again(self, manager: LockManager, connect: Connect) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        with connect() as first, connect() as second:
            Polling(first, "early", writes=[DAY1]).blocked()
            behind = Polling(second, "late", writes=[DAY1])
            behind.blocked()
            heir = Polling(second, "early", writes=[DAY1])
            heir.blocked()
            manager.release(lease)
            second.release(heir.granted())
            second.release(behind.granted())

    @where(remembers=True)
    def test_a_later_attempt_takes_over_and_the_late_release_of_the_earlier_frees_nothing(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first = manager.acquire(owner="task", writes=[DAY1], attempt=1)
        second = other.acquire(owner="task", writes=[DAY1], attempt=2)
        assert (second.id, second.attempt) == (first.id, 2)
        assert not manager.release(first)
        with pytest.raises(LockLost):
            manager.renew(first)
        with pytest.raises(Superseded):
            manager.acquire(owner="task", writes=[DAY1], attempt=1)
        assert manager.show(), "the earlier attempt freed what the later one holds"
        other.renew(second)
        assert other.release(second)

    @where(remembers=False)
    def test_attempts_are_told_by_the_one_that_acquired(self, manager: LockManager, other: LockManager) -> None:
        second = manager.acquire(owner="task", writes=[DAY1], attempt=2)
        with pytest.raises(Superseded):
            other.acquire(owner="task", writes=[DAY1], attempt=1)
        assert not other.release(replace(second, attempt=1))
        third = other.acquire(owner="task", writes=[DAY1], attempt=3)
        assert (third.id, third.attempt) == (second.id, 3)
        assert other.release(third)
        assert manager.show() == []

    @where(remembers=True)
    def test_a_call_that_was_taken_over_stays_so_when_the_later_one_has_ended(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="holder", writes=[DAY1])
        slow, heir = (Polling(session, "task", writes=[DAY1]) for session in (manager, other))
        slow.blocked()
        heir.blocked()
        manager.release(lease)
        other.release(heir.granted())
        with pytest.raises(Superseded):
            slow.pending.poll()
        assert manager.show() == [], "a lease that nobody owns"

    def test_a_request_for_two_tables_counts_once_among_those_ahead(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.acquire(owner="holder", writes=["dw.flights"])
        both, whole = (
            Polling(manager, "both", writes=["dw.flights", "dw.delays"]),
            Polling(other, "whole", writes=["dw"]),
        )
        both.blocked()
        whole.blocked()
        waiter = manager.waiters()[1]
        assert (waiter.place, [blocker.owner for blocker in waiter.blocked_by]) == (2, ["both", "holder"])

    def test_release_is_idempotent(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        assert other.release(Lease.from_json(lease.to_json())), "a lease must be releasable from another process"
        assert not manager.release(lease)
        assert manager.show() == []

    def test_renewal_moves_the_end_and_fails_once_the_lease_is_gone(self, manager: LockManager) -> None:
        lease = manager.acquire(owner="me", writes=[DAY1], lease_s=100)
        before = manager.show(DAY1)[0].expires
        assert lease.since <= manager.now() <= lease.since + timedelta(minutes=5), "not the clock that the leases go by"
        manager.renew(lease)
        after = manager.show(DAY1)[0].expires
        assert before
        assert after
        assert after >= before
        manager.release(lease)
        with pytest.raises(LockLost, match="me"):
            manager.renew(lease)

    @where(watched=True)
    def test_a_holder_is_told_when_its_lease_is_gone(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        manager.verify(lease, threading.Event().set)
        manager.renew(lease)
        changed = threading.Event()  # the renewal itself may have been told of
        manager.verify(lease, changed.set)
        assert not changed.is_set()
        other.force_release(lease.id, reason="testing", user="ops")
        assert changed.wait(PATIENCE_S), "a job would go on without its locks"
        with pytest.raises(LockLost, match="me"):
            manager.verify(lease)

    @where(watched=False)
    def test_a_holder_that_looks_sees_that_its_lease_is_gone(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1])
        manager.verify(lease)
        manager.renew(lease)
        other.force_release(lease.id, reason="testing", user="ops")
        for call in (manager.verify, manager.renew):
            with pytest.raises(LockLost, match="me"):
                call(lease)

    def test_force_release_frees_any_lease_once_and_wants_a_reason(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="dead", writes=[DAY1])
        with pytest.raises(InvalidRequest, match="why"):
            other.force_release(lease.id, reason=" ", user="ops")
        assert other.force_release(lease.id, reason="its worker burnt down", user="ops")
        assert not other.force_release(lease.id, reason="its worker burnt down", user="ops")
        with pytest.raises(LockLost):
            manager.renew(lease)
        assert other.acquire(owner="next", writes=[DAY1])

    @where(remembers=True)
    def test_force_release_leaves_alone_what_was_taken_over_since_it_was_seen(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.acquire(owner="cleared", writes=[DAY1], attempt=1)
        (seen,) = other.leases()
        taken = manager.acquire(owner="cleared", writes=[DAY1], attempt=2)
        assert not other.force_release(lease.id, reason="its task has failed", user="ops", seen=seen)
        manager.verify(taken)
        (seen,) = other.leases()
        assert other.force_release(lease.id, reason="its task has failed", user="ops", seen=seen)

    @where(remembers=True)
    def test_force_release_leaves_alone_under_what_work_has_begun_since_it_was_seen(
        self, manager: LockManager, other: LockManager
    ) -> None:
        lease = manager.start_work(manager.acquire(owner="chain", writes=[DAY1]), "first", "app-1")
        (seen,) = other.leases()
        manager.start_work(lease, "second", "app-2")
        assert not other.force_release(lease.id, reason="its run is over", user="ops", seen=seen)
        (seen,) = other.leases()
        manager.record_work(lease, "second", None)
        assert not other.force_release(lease.id, reason="its run is over", user="ops", seen=seen)
        manager.verify(lease)
        (seen,) = other.leases()
        assert other.force_release(lease.id, reason="its run is over", user="ops", seen=seen)

    @where(audits=True)
    def test_leases_are_force_released_by_object_and_by_age_and_the_audit_trail_says_who_why_and_which(
        self, manager: LockManager, other: LockManager
    ) -> None:
        old = manager.acquire(owner="old", writes=[DAY1])
        young = manager.acquire(owner="young", writes=[DAY2])
        elsewhere = manager.acquire(owner="elsewhere", writes=["dw.other"])
        with pytest.raises(InvalidRequest, match="of what"):
            other.force_release_all(reason="all of it?", user="ops")
        assert other.force_release_all("dw.flights", held_s=3600, reason="too old", user="ops") == []
        assert other.force_release_all(DAY1, reason="stuck", user="ops") == [old]
        assert {holder.owner for holder in manager.show()} == {"young", "elsewhere"}
        assert set(other.force_release_all(held_s=0, reason="new cluster", user="ann")) == {young, elsewhere}
        assert manager.show() == []
        entry, *later = manager.audit()
        assert (entry.lease_id, entry.owner, entry.locks) == (old.id, "old", old.locks)
        assert (entry.user, entry.reason) == ("ops", "stuck")
        assert old.since <= entry.at <= manager.now()
        assert {(entry.owner, entry.user, entry.reason) for entry in later} == {
            ("young", "ann", "new cluster"),
            ("elsewhere", "ann", "new cluster"),
        }
        assert [entry.owner for entry in manager.audit("dw.other")] == ["elsewhere"]

    @where(audits=False)
    def test_leases_are_force_released_by_object_and_by_age(self, manager: LockManager, other: LockManager) -> None:
        old = manager.acquire(owner="old", writes=[DAY1])
        young = manager.acquire(owner="young", writes=[DAY2])
        assert other.force_release_all("dw.flights", held_s=3600, reason="too old", user="ops") == []
        assert other.force_release_all(DAY1, reason="stuck", user="ops") == [old]
        assert other.force_release_all(held_s=0, reason="new cluster", user="ann") == [young]
        assert manager.show() == []
        assert manager.audit() == []

    @where(remembers=True)
    def test_a_later_start_of_work_shuts_out_the_earlier_one(self, manager: LockManager, other: LockManager) -> None:
        granted = manager.acquire(owner="task", writes=[DAY1], attempt=1)
        first = manager.start_work(granted, "delays", "app-1")
        beside = manager.start_work(first, "stage", "app-2")
        assert granted.token < first.token < beside.token
        manager.renew(first)
        manager.check_token(granted.id, "delays", first.token)
        again = other.acquire(owner="task", writes=[DAY1], attempt=2)
        assert [(work.name, work.application) for work in again.works] == [("delays", "app-1"), ("stage", "app-2")]
        manager.check_token(granted.id, "delays", first.token)  # taken over: it is the same work that goes on
        with pytest.raises(LockLost):
            manager.start_work(first, "delays", "of the earlier attempt")
        second = other.start_work(again, "delays", "app-3")
        with pytest.raises(LockLost, match="delays"):
            manager.check_token(granted.id, "delays", first.token)
        other.check_token(granted.id, "delays", second.token)
        manager.check_token(granted.id, "stage", beside.token)
        known = other.record_work(second, "delays", "app-3 as driver-7")
        assert known.token == second.token
        assert (work := manager.find(granted.id).work("delays"))  # type: ignore[union-attr]
        assert (work.application, work.token) == ("app-3 as driver-7", second.token)
        ended = other.record_work(known, "delays", None)
        assert [work.name for work in ended.works] == ["stage"]
        other.release(ended)
        with pytest.raises(LockLost):
            other.check_token(granted.id, "stage", beside.token)
        assert manager.acquire(owner="next", writes=[DAY1]).token > second.token

    @where(remembers=False)
    def test_work_has_the_token_of_its_lease(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="task", writes=[DAY1])
        started = manager.start_work(lease, "delays", "app-1")
        (work,) = started.works
        assert (work.name, work.application, work.token) == ("delays", "app-1", lease.token)
        other.check_token(lease.id, "delays", work.token)
        with pytest.raises(LockLost, match="delays"):
            other.check_token(lease.id, "delays", work.token - 1)
        assert manager.record_work(started, "delays", None).works == ()
        manager.release(lease)
        assert other.acquire(owner="next", writes=[DAY1]).token > work.token
        with pytest.raises(LockLost, match="delays"):
            manager.check_token(lease.id, "delays", work.token)
        with pytest.raises(LockLost):
            manager.start_work(lease, "delays", "app-2")

    def test_leases_are_found_by_id_and_by_owner(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", writes=[DAY1])
        assert list(other.leases()) == [lease]
        assert other.leases()[0].expires == manager.show(DAY1)[0].expires
        assert other.find(lease.id) == lease
        assert other.lease_of("me") == lease
        assert other.find("no-such-lease-1") is None
        assert other.lease_of("nobody") is None
        other.release(lease)
        assert list(manager.leases()) == []
        assert manager.find(lease.id) is None
        assert manager.lease_of("me") is None

    def test_show_tells_who_holds_what(self, manager: LockManager) -> None:
        lease = manager.acquire(owner="me", reads=["dw.airports"], writes=[DAY1], query="insert overwrite …")
        shown = {str(holder.object): holder for holder in manager.show()}
        named = {"dw.airports": LockMode.SHARED, DAY1: LockMode.EXCLUSIVE}
        parents = dict.fromkeys(("dw", "dw.flights") if self.declares.parents else (), LockMode.SHARED)
        assert {name: holder.mode for name, holder in shown.items()} == parents | named
        assert {(holder.owner, holder.lease_id, holder.token) for holder in shown.values()} == {
            ("me", lease.id, lease.token)
        }
        assert [str(holder.object) for holder in manager.show("dw.airports")] == ["dw.airports"]
        assert shown[DAY1].query.startswith("insert overwrite")

    @where(audits=True)
    def test_the_history_tells_who_held_what_from_when_to_when(self, manager: LockManager, other: LockManager) -> None:
        first = manager.acquire(owner="first", writes=[DAY1])
        waiting = Polling(other, "second", writes=[DAY1])
        waiting.blocked()
        manager.release(first)
        second = waiting.granted()
        ended, held = manager.history(DAY1)
        assert (ended.owner, ended.lease_id, ended.locks) == ("first", first.id, first.locks)
        assert (held.owner, held.lease_id, held.ended) == ("second", second.id, None)
        assert ended.ended
        assert ended.asked <= ended.granted <= ended.ended
        assert held.asked <= ended.ended <= held.granted
        assert manager.history("dw.other") == []

    @where(audits=False)
    def test_the_history_tells_who_holds_what(self, manager: LockManager) -> None:
        ended = manager.acquire(owner="first", writes=[DAY1])
        manager.release(ended)
        lease = manager.acquire(owner="second", writes=[DAY1])
        (held,) = manager.history(DAY1)
        assert (held.owner, held.lease_id, held.locks, held.ended) == ("second", lease.id, lease.locks, None)
        assert manager.history("dw.other") == []

    @where(expires=True)
    def test_a_lease_that_is_not_renewed_blocks_nobody_for_long(self, manager: LockManager, other: LockManager) -> None:
        dead = manager.acquire(owner="dead", writes=[DAY1], lease_s=1)
        kept = manager.acquire(owner="kept", writes=[DAY2], lease_s=60)
        waiting = Polling(other, "next", writes=[DAY1])
        ends = time.monotonic() + PATIENCE_S
        while isinstance(waiting.pending.poll(), Blocked):
            assert time.monotonic() < ends, "still blocked by a lease that nobody renews"
            manager.renew(kept)
            time.sleep(waiting.pending.wait_s() or 0.1)
        with pytest.raises(LockLost):
            manager.renew(dead)
        manager.verify(kept)

    def test_a_watch_fires_when_a_lock_goes(self, manager: LockManager, other: LockManager) -> None:
        lease = manager.acquire(owner="me", writes=[DAY1])
        changed = threading.Event()
        wanted = rules.request("sensor", writes=[DAY1])
        assert [holder.owner for holder in other.conflicts(wanted)] == ["me"]
        recheck_s = other.watch(wanted, changed.set)
        manager.release(lease)
        assert recheck_s or changed.wait(PATIENCE_S)
        assert other.conflicts(wanted) == []

    def test_an_exclusive_lock_guards_a_counter_among_threads(self, connect: Connect) -> None:
        value, rounds, threads = [0], 10, 4

        def count(number: int) -> None:
            with connect() as session:
                for turn in range(rounds):
                    lease = session.acquire(owner=f"{number}/{turn}", writes=[DAY1], timeout_s=PATIENCE_S)
                    seen = value[0]
                    time.sleep(0)  # let another thread read the same value, if the lock allows it
                    value[0] = seen + 1
                    session.release(lease)

        workers = [threading.Thread(target=count, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE_S)
        assert value[0] == rounds * threads
