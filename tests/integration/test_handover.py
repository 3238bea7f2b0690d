"""What a lock costs, counted rather than timed, so that a busy machine cannot blur it: see also ``tests/benchmarks``."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.benchmarks.measure import zxid
from tests.benchmarks.relay import OurRelay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from tests.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

ROUND_TRIPS_TO_ACQUIRE = 4
ROUND_TRIPS_TO_RELEASE = 2
WATCH_EVENTS_A_HAND_OVER = 3

_numbers = itertools.count()


@dataclass(frozen=True)
class Cost:
    """What went over the wire."""

    round_trips: int = 0
    packets: int = 0

    def __sub__(self, before: Cost) -> Cost:
        return Cost(self.round_trips - before.round_trips, self.packets - before.packets)


class CountingSession(KazooSession):
    """Keeps account."""

    cost = Cost()

    def submit(self, *requests: Request) -> list[Any]:
        if requests:
            self.cost = Cost(self.cost.round_trips + 1, self.cost.packets + len(requests))
        return super().submit(*requests)


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> CountingSession:
    return CountingSession(zookeeper.hosts, 30)


@pytest.fixture
def manager(session: CountingSession) -> Iterator[LockManager]:
    number = next(_numbers)
    with LockManager(ZooKeeperBackend(session, Layout(f"/hive-cost-{number}", f"/hivelock-cost-{number}"))) as manager:
        yield manager


def days(count: int) -> list[str]:
    return [f"dw.delays/n={number}" for number in range(count)]


def cycle(session: CountingSession, manager: LockManager, count: int) -> tuple[Cost, Cost]:
    """What it takes to lock *count* partitions, and to free them."""
    begun = session.cost
    lease = manager.acquire(owner=f"of {count}", writes=days(count))
    acquired = session.cost
    assert len(lease.locks) == count + 2
    assert manager.release(lease)
    return acquired - begun, session.cost - acquired


def test_a_thousand_partitions_take_as_many_round_trips_as_one(session: CountingSession, manager: LockManager) -> None:
    manager.release(manager.acquire(owner="who makes the queue and the table", writes=days(1)))
    to_acquire, to_release = cycle(session, manager, 1)
    assert to_acquire.round_trips <= ROUND_TRIPS_TO_ACQUIRE
    assert to_release.round_trips <= ROUND_TRIPS_TO_RELEASE
    assert cycle(session, manager, 10) == cycle(session, manager, 1_000) == (to_acquire, to_release)


def test_who_is_alone_is_granted_by_one_write(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    manager.release(manager.acquire(owner="who makes the queue and the table", writes=days(1)))
    for number, count in enumerate((1, 1_000)):
        before = zxid(zookeeper)
        lease = manager.acquire(owner=f"run {number}", writes=days(count))
        assert zxid(zookeeper) == before + 1
        manager.release(lease)
        assert zxid(zookeeper) == before + 2


def test_a_renewal_is_one_write(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    lease = manager.acquire(owner="rerun", writes=days(1_000))
    before = zxid(zookeeper)
    manager.renew(lease)
    assert zxid(zookeeper) == before + 1


@pytest.mark.parametrize("waiters", [1, 50])
def test_a_release_wakes_who_is_next_and_no_crowd(manager: LockManager, waiters: int) -> None:
    rounds = 20
    with closing(OurRelay(manager, waiters)) as relay:
        assert relay.wakes == 0, "somebody was woken for nothing"
        for _ in range(rounds):
            relay.hand_over()
            relay.join()
        assert rounds <= relay.wakes <= WATCH_EVENTS_A_HAND_OVER * rounds
