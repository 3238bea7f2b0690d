"""Leases that are counted, in a real ZooKeeper: how soon the next in its group has one, and who is woken for it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from airflow_hivelock.locks import Lease, LeaseLimit, LockManager, StoreCorrupted, WaitsFor, rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper.client import Create, Names, SetData
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.model import owner_key
from tests.backends.zookeepers import commit, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from airflow_hivelock.locks.pending import PendingLease

pytestmark = pytest.mark.integration

FOUR = LeaseLimit("rerun", 4)
ALL = 40
PATIENCE_S = 10.0


class Asked(NamedTuple):
    """A request, the session that it was asked through, and what wakes it."""

    manager: LockManager
    pending: PendingLease
    woken: threading.Event

    @classmethod
    def by(cls, manager: LockManager, number: int, limit: LeaseLimit | None = FOUR) -> Asked:
        woken = threading.Event()
        request = rules.request(f"day {number}", [], [day(number)], limit=limit)
        return cls(manager, manager.begin(request, woken.set), woken)

    def granted(self) -> Lease:
        ends = time.monotonic() + PATIENCE_S
        while True:
            self.woken.clear()
            if isinstance(outcome := self.pending.poll(), Lease):
                return outcome
            assert time.monotonic() < ends, outcome
            self.woken.wait(ends - time.monotonic())


def day(number: int) -> str:
    return f"dw.flights/dt=2013-{1 + number // 28:02}-{1 + number % 28:02}"


def test_each_of_forty_gets_its_turn_of_four_in_order_and_few_are_woken(
    connect_zookeeper: Callable[[], LockManager], record_property: Callable[[str, object], None]
) -> None:
    with connect_zookeeper() as one, connect_zookeeper() as two, connect_zookeeper() as other:
        asked = [Asked.by((one, two)[number % 2], number) for number in range(ALL)]
        first = [request.pending.poll() for request in asked]
        assert [isinstance(outcome, Lease) for outcome in first] == [True] * 4 + [False] * (ALL - 4)
        assert [waiter.owner for waiter in other.waiters()] == [f"day {number}" for number in range(4, ALL)]
        assert {waiter.waits_for for waiter in other.waiters()} == {WaitsFor.LEASE}
        other.release(other.acquire(owner="hive", writes=[day(ALL - 1)]))  # it blocks no lock
        held = [outcome for outcome in first if isinstance(outcome, Lease)]
        took_ms, woken = [], []
        for number in range(4, ALL):
            looks = [request for request in asked[number:] if request.woken.is_set()]
            woken.append(len(looks))
            for request in looks:
                request.woken.clear()
                assert isinstance(request.pending.poll(), Blocked)
            began = time.monotonic()
            asked[number - 4].manager.release(held[number - 4])
            assert asked[number].woken.wait(PATIENCE_S)
            held.append(asked[number].granted())
            took_ms.append(1000 * (time.monotonic() - began))
            assert len(other.leases()) == 4
        assert max(woken) <= 1, "only the next one looks"
        for lease in held[-4:]:
            one.release(lease)
        assert other.waiters() == []
        record_property("ms", sorted(took_ms)[len(took_ms) // 2])
        print(f"released and granted to the next within {sorted(took_ms)[len(took_ms) // 2]:.1f} ms (median)")


def test_a_group_that_another_program_wrote_is_in_no_other_groups_way(
    connect_zookeeper: Callable[[], LockManager], caplog: pytest.LogCaptureFixture
) -> None:
    with connect_zookeeper() as manager:
        manager.set_group("good", 2, user="ops")
        manager.set_group(FOUR.group, 4, user="ops")
        lease = manager.acquire(owner="day 1", writes=[day(1)], limit=FOUR)
        limit = store(manager).layout.limit(owner_key(FOUR.group))
        commit(manager, SetData(limit, b'{"leases": "many"}', -1))
        with pytest.raises(StoreCorrupted, match="limit is not a group of airflow-hivelock"):
            manager.acquire(owner="day 2", writes=[day(2)], limit=FOUR)
        assert {use.name: use.stored and use.stored.leases for use in manager.groups()} == {"good": 2, FOUR.group: None}
        assert manager.waiters() == []
        assert "is not a group of airflow-hivelock" in caplog.text
        assert manager.release(lease)


def test_a_permit_of_nobodys_is_taken_away(connect_zookeeper: Callable[[], LockManager]) -> None:
    with connect_zookeeper() as manager:
        lease = manager.acquire(owner="holder", writes=[day(1)], limit=FOUR)
        permits = store(manager).layout.permits(owner_key(FOUR.group))
        left = [Create(f"{permits}/{number}", b"0000000000000000-1") for number in (1, 2)]
        commit(manager, *left)
        assert manager.sweep() == 2
        assert store(manager).client.submit(Names(permits))[0].names == ("0",)
        commit(manager, *left, Create(f"{permits}/3", b"?"))
        asked = Asked.by(manager, 2)
        asked.granted()
        manager.release(lease)


def test_without_a_limit_there_are_no_groups(
    connect_zookeeper: Callable[[], LockManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []
    submit = KazooSession.submit

    def submit_noted(self: KazooSession, *requests: Request) -> list[Any]:
        asked.extend(requests)
        return submit(self, *requests)

    monkeypatch.setattr(KazooSession, "submit", submit_noted)
    with connect_zookeeper() as manager:
        lease = manager.acquire(owner="holder", writes=[day(1)])
        waiter = Asked.by(manager, 1, None)
        assert isinstance(waiter.pending.poll(), Blocked)
        manager.release(lease)
        manager.release(waiter.granted())
        assert asked
        assert not [request for request in asked if "/groups" in str(request)]
