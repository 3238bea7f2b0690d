"""Partial release: the named objects are released in one step, and the rest stays as it was."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, Unsupported
from airflow_hivelock.locks.model import Lease, LeaseLimit
from tests.conformance.suite import DAY1, DAY2, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager

DAY3 = "dw.flights/dt=2013-01-03"


class GivingBack(Suite):
    @where(parts=True)
    def test_a_part_is_given_back_and_the_rest_stands_as_it_was(self, manager: LockManager, other: LockManager) -> None:
        granted = manager.acquire(owner="month", reads=["dw.airports"], writes=[DAY1, DAY2, DAY3])
        granted = manager.start_work(granted, "delays", "app-1")
        waiting = Polling(other, "daily", writes=[DAY2])
        assert waiting.blocked_by() == ["month"]
        left = manager.release(granted, objects=[DAY2])
        assert left is not None
        assert (left.id, left.token, left.epoch, left.works) == (
            granted.id,
            granted.token,
            granted.epoch,
            granted.works,
        )
        assert _names(left) == ["dw", "dw.airports", "dw.flights", DAY1, DAY3]
        waiting.woken()
        daily = waiting.granted()
        assert Polling(other, "reader", reads=[DAY3]).blocked_by() == ["month"]
        assert manager.find(granted.id) == left
        assert [lease.locks for lease in other.leases() if lease.owner == "month"] == [left.locks]
        assert {str(holder.object) for holder in other.show() if holder.owner == "month"} == {*_names(left)}
        manager.verify(left)
        manager.check_token(left.id, "delays", left.token)
        manager.renew(left)
        assert other.release(daily)
        assert manager.release(left)
        assert manager.show() == []

    @where(parts=True)
    def test_the_last_part_is_the_whole_and_giving_back_once_more_is_success(
        self, manager: LockManager, other: LockManager
    ) -> None:
        granted = manager.acquire(owner="month", writes=[DAY1, DAY2])
        left = manager.release(granted, objects=[DAY1])
        assert left is not None
        assert manager.release(granted, objects=[DAY1]) == other.release(left, objects=[DAY1]) == left
        assert other.release(left, objects=[DAY2]) is None
        assert manager.release(left, objects=[DAY2]) is None
        assert manager.release(granted, objects=[DAY1, DAY2]) is None
        assert not manager.release(left)
        assert manager.show() == []
        assert manager.acquire(owner="month", writes=[DAY1, DAY2]).id != granted.id

    @where(parts=True)
    def test_an_older_lease_tells_of_what_was_given_back_and_frees_no_more_than_is_left(
        self, manager: LockManager, other: LockManager
    ) -> None:
        granted = manager.acquire(owner="month", writes=[DAY1, DAY2])
        changed = threading.Event()
        manager.verify(granted, changed.set)
        left = other.release(granted, objects=[DAY1])
        assert left is not None
        assert changed.wait(PATIENCE_S), "the work on that day would go on"
        theirs = other.acquire(owner="daily", writes=[DAY1])
        with pytest.raises(LockLost, match=f"released {DAY1}"):
            manager.verify(granted)
        manager.renew(granted)
        manager.verify(left)
        assert manager.release(granted)
        other.verify(theirs)
        assert [lease.owner for lease in manager.leases()] == ["daily"]

    @where(parts=True)
    def test_what_the_lease_does_not_have_is_refused_and_nothing_is_freed(self, manager: LockManager) -> None:
        granted = manager.acquire(owner="month", writes=[DAY1, "dw.delays"])
        refused: tuple[tuple[Iterable[str], str], ...] = (
            ([DAY1, DAY2], f"{DAY2} .* holds .*{DAY1}"),
            (["dw.delays/dt=2013-01-01"], "dw.delays EXCLUSIVE"),
            ([], "Name"),
            (["dw/x"], "dw/x"),
        )
        for objects, message in refused:
            with pytest.raises(InvalidRequest, match=message):
                manager.release(granted, objects=objects)
        manager.verify(granted)
        assert manager.find(granted.id) == granted

    @where(parts=True)
    def test_what_lies_in_an_object_goes_with_it_and_parents_stay_for_what_is_left(self, manager: LockManager) -> None:
        hours = [f"{DAY1}/hr=0", f"{DAY1}/hr=1", f"{DAY2}/hr=0"]
        granted = manager.acquire(owner="month", reads=["dw.flights", "ods.raw"], writes=hours)
        for objects, kept in (
            ([hours[0]], ["dw", "dw.flights", DAY1, hours[1], DAY2, hours[2], "ods", "ods.raw"]),
            ([DAY1], ["dw", "dw.flights", DAY2, hours[2], "ods", "ods.raw"]),
            ([hours[2], "ods"], ["dw", "dw.flights"]),
        ):
            left = manager.release(granted, objects=objects)
            assert left is not None
            assert _names(left) == kept
        assert manager.release(granted, objects=["dw"]) is None

    @where(parts=True, remembers=True)
    def test_what_is_left_is_not_taken_for_the_whole(self, manager: LockManager, other: LockManager) -> None:
        asked = replace(rules.request("month", [], [DAY1, DAY2]), named="the month")
        granted = manager.begin(asked, lambda: None).poll()
        assert isinstance(granted, Lease)
        left = manager.release(granted, objects=[DAY1])
        assert left is not None
        with pytest.raises(LeaseMismatch, match=f"released {DAY1}"):
            other.begin(replace(asked, attempt=1), lambda: None).poll()
        again = other.acquire(owner="month", writes=[DAY2], attempt=1)
        assert (again.id, again.locks) == (left.id, left.locks)
        assert manager.release(left, objects=[DAY2]) is None, "a later attempt has taken it over"
        other.verify(again)

    @where(parts=True, remembers=True)
    def test_what_any_attempt_read_for_its_own_sake_stays_when_its_parts_are_given_back(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.acquire(owner="month", reads=[DAY1])
        other.acquire(owner="month", reads=["dw.flights", DAY1], attempt=1)
        granted = manager.acquire(owner="month", reads=[DAY1], attempt=2)
        left = manager.release(granted, objects=[DAY1])
        assert left is not None
        assert _names(left) == ["dw", "dw.flights"]

    @where(parts=True)
    def test_a_name_with_a_separator_of_lines_is_one_name(self, manager: LockManager) -> None:
        carrier, hour = "dw.flights/carrier=a\u2028b c", "dw.flights/carrier=a\u2028b c/hr=4"
        left = manager.release(manager.acquire(owner="me", reads=[carrier], writes=[hour]), objects=[hour])
        assert left is not None
        assert _names(left) == ["dw", "dw.flights", carrier]
        assert manager.leases() == [left]
        assert manager.release(left)

    @where(parts=True, limits=True)
    def test_the_lease_of_a_group_goes_with_the_last_part(self, manager: LockManager, other: LockManager) -> None:
        one = LeaseLimit("reruns", 1)
        granted = manager.acquire(owner="month", writes=[DAY1, DAY2], limit=one)
        waiting = Polling.queued(other, "next", writes=[DAY3], limit=one)
        left = manager.release(granted, objects=[DAY1])
        assert left is not None
        waiting.blocked()
        manager.release(left, objects=[DAY2])
        assert waiting.granted()

    @where(parts=True)
    def test_who_watches_an_object_is_told_when_it_is_given_back(
        self, manager: LockManager, other: LockManager
    ) -> None:
        granted = manager.acquire(owner="month", writes=[DAY1, DAY2])
        changed = threading.Event()
        other.backend.watch(rules.objects("targets", [DAY1]), changed.set)
        manager.release(granted, objects=[DAY1])
        assert changed.wait(PATIENCE_S)

    @where(parts=True, audits=True)
    def test_history_tells_of_all_that_a_lease_has_held(self, manager: LockManager) -> None:
        granted = manager.acquire(owner="month", writes=[DAY1, DAY2])
        left = manager.release(granted, objects=[DAY1])
        assert left is not None
        (tenure,) = manager.history(DAY1)
        assert (tenure.locks, tenure.ended) == (granted.locks, None)
        manager.release(left)
        (tenure,) = manager.history(DAY1)
        assert tenure.locks == granted.locks

    @where(parts=False)
    def test_a_store_that_frees_leases_whole_says_so(self, manager: LockManager) -> None:
        granted = manager.acquire(owner="month", writes=[DAY1, DAY2])
        with pytest.raises(Unsupported, match="a part of lease"):
            manager.release(granted, objects=[DAY1])
        manager.verify(granted)


def _names(lease: Lease) -> list[str]:
    return [str(lock.object) for lock in lease.locks]
