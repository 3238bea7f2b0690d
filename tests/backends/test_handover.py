"""The cost of a lock in counts and not in time, so that a busy machine does not matter: see also ``tests/bench``."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Lease, LockManager
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.bench.measure import zxid
from tests.bench.relay import OurRelay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

ROUND_TRIPS_TO_ACQUIRE = 2
ROUND_TRIPS_TO_RELEASE = 1
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


def _names(manager: LockManager) -> tuple[str, str]:
    layout = manager.backend.store.layout  # type: ignore[attr-defined]
    return layout.namespace, layout.root


def cycle(session: CountingSession, manager: LockManager, count: int) -> tuple[Cost, Cost]:
    """The cost for a new owner to lock *count* partitions, and to free them."""
    begun = session.cost
    lease = manager.acquire(owner=f"run {next(_numbers)}", writes=days(count))
    acquired = session.cost
    assert len(lease.locks) == count + 2
    assert manager.release(lease)
    return acquired - begun, session.cost - acquired


def writes(zookeeper: ZooKeeperServer, *acts: Callable[[], object]) -> int:
    """The most that one of *acts* writes: of five tries each the least, for sessions of earlier tests end meanwhile."""

    def written(act: Callable[[], object]) -> int:
        before = zxid(zookeeper)
        act()
        return zxid(zookeeper) - before

    tries = [[written(act) for act in acts] for _ in range(5)]
    return int(max(map(min, zip(*tries, strict=True))))


def test_a_thousand_partitions_take_as_many_round_trips_as_one(session: CountingSession, manager: LockManager) -> None:
    manager.release(manager.acquire(owner="who makes the queue and the table", writes=days(1)))
    costs = [cycle(session, manager, count) for count in (1, 10, 1_000)]
    assert max(to_acquire.round_trips for to_acquire, _ in costs) <= ROUND_TRIPS_TO_ACQUIRE
    assert max(to_release.round_trips for _, to_release in costs) <= ROUND_TRIPS_TO_RELEASE


def test_who_shares_a_table_tries_nothing_in_vain(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    with LockManager(ZooKeeperBackend.connect(zookeeper.hosts, *_names(manager))) as other:
        for each in (manager, other):
            each.release(each.acquire(owner=f"run {next(_numbers)}", writes=days(1)))

        def take_turns() -> None:
            for each in (manager, other) * 5:
                each.release(each.acquire(owner=f"run {next(_numbers)}", writes=days(1)))

        assert writes(zookeeper, take_turns) == 20, "a grant and a release each, and nothing that was refused"


def test_who_is_alone_is_granted_by_one_write(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    manager.release(manager.acquire(owner="who makes the queue and the table", writes=days(1)))
    leases: list[Lease] = []

    def acquire(count: int) -> None:
        leases.append(manager.acquire(owner=f"run {next(_numbers)}", writes=days(count)))

    for count in (1, 1_000):
        assert writes(zookeeper, partial(acquire, count), lambda: manager.release(leases.pop())) == 1


def test_a_renewal_is_one_write(zookeeper: ZooKeeperServer, manager: LockManager) -> None:
    lease = manager.acquire(owner="rerun", writes=days(1_000))
    assert writes(zookeeper, lambda: manager.renew(lease)) == 1


@pytest.mark.parametrize("waiters", [1, 50])
def test_a_release_wakes_who_is_next_and_no_crowd(manager: LockManager, waiters: int) -> None:
    rounds = 20
    with closing(OurRelay(manager, waiters)) as relay:
        assert relay.wakes == 0, "somebody was woken for nothing"
        for _ in range(rounds):
            relay.hand_over()
            relay.join()
        assert rounds <= relay.wakes <= WATCH_EVENTS_A_HAND_OVER * rounds
