"""Grants and refusals of one request, and take-over: a later attempt of an owner takes over from an earlier one."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, LockTimeout, Superseded
from airflow_hivelock.locks.model import Lease, LockRequest
from tests.conformance.suite import DAY1, DAY2, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from tests.conformance.suite import Connect


class Acquiring(Suite):
    @pytest.mark.parametrize(
        ("held", "wanted", "compatible"),
        [
            ({"reads": [DAY1]}, {"reads": [DAY1]}, True),
            ({"reads": [DAY1]}, {"writes": [DAY1]}, False),
            ({"writes": [DAY1]}, {"reads": [DAY1]}, False),
            *(
                ({"writes": [held]}, {"writes": [wanted]}, compatible)
                for held, wanted, compatible in (
                    (DAY1, DAY1, False),
                    (DAY1, DAY2, True),
                    (DAY1, "dw.flights", False),
                    ("dw.flights", DAY1, False),
                    (DAY1, "dw", False),
                    ("dw", DAY1, False),
                    ("dw", "dw.other", False),
                    ("dw.flights", "dw.other", True),
                    ("dw", "lake", True),
                    ("dw.t/a=1", "dw.t/a=1/b=2", False),
                    ("dw.t/a=1/b=1", "dw.t/a=1/b=2", True),
                )
            ),
        ],
    )
    def test_shared_goes_with_shared_and_exclusive_with_nothing_at_or_below_it(
        self, manager: LockManager, other: LockManager, held: Any, wanted: Any, compatible: bool
    ) -> None:
        manager.acquire(owner="holder", **held)
        if compatible:
            assert other.acquire(owner="second", **wanted)
        else:
            with pytest.raises(LockTimeout, match="holder"):
                other.acquire(owner="second", **wanted)

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
        assert again.id == first.id
        assert again.since >= first.since  # metastores from Hive 3 on note each take-over as an acquisition
        assert again.token >= first.token  # a take-over may raise it: the grant may not have been verified yet
        with pytest.raises(LeaseMismatch, match="me holds"):
            other.acquire(owner="me", writes=[DAY2])
        assert other.release(again)
        renewed = manager.acquire(owner="me", writes=[DAY1])
        assert renewed.id != first.id

    def test_a_lease_whose_caller_was_interrupted_before_it_got_it_is_given_back(
        self, manager: LockManager, other: LockManager
    ) -> None:
        pending = manager.begin(rules.request("me", writes=[DAY1]), lambda: None)
        assert isinstance(pending.poll(), Lease)
        pending.withdraw()
        assert other.leases() == []
        assert other.acquire(owner="next", writes=[DAY1], timeout_s=0)

    def test_an_interrupted_call_keeps_the_lease_that_its_owner_held_before(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.acquire(owner="me", writes=[DAY1])
        pending = other.begin(rules.request("me", writes=[DAY1]), lambda: None)
        lease = pending.poll()
        assert isinstance(lease, Lease)
        pending.withdraw()
        other.verify(lease)

    @where(remembers=True)
    def test_a_new_plan_of_the_same_text_gets_the_lease_with_the_locks_that_it_has(
        self, manager: LockManager, other: LockManager
    ) -> None:
        """The table has more partitions at the second attempt."""
        first, second = (
            rules.request("me", writes=days, attempt=attempt, named="the month")
            for attempt, days in enumerate(([DAY1], [DAY1, DAY2]))
        )
        granted = manager.begin(first, lambda: None).poll()
        again = other.begin(second, lambda: None).poll()
        assert isinstance(granted, Lease)
        assert isinstance(again, Lease)
        assert (again.id, again.locks) == (granted.id, granted.locks)
        other.verify(again)

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

    @where(remembers=True)
    def test_a_later_attempt_takes_over_and_the_late_release_of_the_earlier_frees_nothing(
        self, manager: LockManager, other: LockManager
    ) -> None:
        first = manager.acquire(owner="task", writes=[DAY1], attempt=1)
        second = other.acquire(owner="task", writes=[DAY1], attempt=2)
        assert (second.id, second.attempt) == (first.id, 2)
        assert not manager.release(first)
        with pytest.raises(LockLost, match="is no longer held"):
            manager.renew(first)
        with pytest.raises(Superseded, match=r"attempt 2 has taken over, so this call \(attempt 1\)"):
            manager.acquire(owner="task", writes=[DAY1], attempt=1)
        assert manager.show(), "the earlier attempt freed what the later one holds"
        other.renew(second)
        assert other.release(second)

    @where(remembers=True)
    def test_a_refused_attempt_is_told_which_one_has_ended_and_gets_the_lease_with_its_number(
        self, manager: LockManager, other: LockManager
    ) -> None:
        """As a task asks whose run was created again, so that its tries count from 1 again."""
        manager.release(manager.acquire(owner="task", writes=[DAY1], attempt=3))
        for _ in range(2):
            with pytest.raises(Superseded) as refused:
                other.acquire(owner="task", writes=[DAY1], attempt=1)
            assert refused.value.attempt == 3
        lease = other.acquire(owner="task", writes=[DAY1], attempt=refused.value.attempt)
        assert lease.attempt == 3
        assert other.release(lease)

    @where(remembers=False)
    def test_attempts_are_told_by_the_one_that_acquired(self, manager: LockManager, other: LockManager) -> None:
        second = manager.acquire(owner="task", writes=[DAY1], attempt=2)
        with pytest.raises(Superseded) as refused:
            other.acquire(owner="task", writes=[DAY1], attempt=1)
        assert refused.value.attempt == 2
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
        slow, successor = (Polling.queued(session, "task", writes=[DAY1]) for session in (manager, other))
        manager.release(lease)
        other.release(successor.granted())
        with pytest.raises(Superseded):
            slow.pending.poll()
        assert manager.show() == [], "a lease that nobody owns"
