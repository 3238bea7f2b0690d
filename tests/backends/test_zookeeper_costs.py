"""The cost of a lock on a real ZooKeeper in counts and not in time, so that a busy machine does not matter: see also
``tests/bench``.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Lease, LockManager, rules
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Children, Commit, Exists, Get, Refused, Request
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.model import DeferredGrant
from tests.backends.zookeepers import store
from tests.bench.relay import OurRelay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

CLIENTS = 16
ROUNDS = 5
WATCH_EVENTS_A_HAND_OVER = 3

Three = tuple["Counting", LockManager, LockManager]
"""A counting session, its manager, and another one."""


class Counting(KazooSession):
    """Counts what it sends: round trips, packets, transactions, those that were refused, and reads by path."""

    def __init__(self, hosts: str) -> None:
        self.read: Counter[str] = Counter()
        self.reset()
        super().__init__(hosts)

    def submit(self, *requests: Request) -> list[Any]:
        replies = super().submit(*requests)
        self.round_trips += bool(requests)
        for request, reply in zip(requests, replies, strict=True):
            match request:
                case Commit():
                    self.writes += 1
                    self.refused += isinstance(reply, Refused)
                case Get(path) | Exists(path) | Children(path):
                    self.read[path] += 1
        return replies

    def _send(self, *given: Any) -> Any:
        self.packets += 1
        return super()._send(*given)

    def reset(self) -> None:
        self.round_trips = self.packets = self.writes = self.refused = 0
        self.read.clear()


@pytest.fixture
def counting(zookeeper: ZooKeeperServer, connect_zookeeper: Callable[[], LockManager]) -> Iterator[Three]:
    """A counting session's manager, and another one, over a table that exists: each process has locked it once before."""
    with connect_zookeeper() as others:
        session = Counting(zookeeper.hosts)
        with LockManager(ZooKeeperBackend(session, store(others).layout)) as manager:
            for one in (manager, others):
                one.release(one.acquire(owner="the first of the process", writes=["dw.t/n=0"]))
            session.reset()
            yield session, manager, others


@pytest.mark.parametrize("holders", [0, CLIENTS - 1])
def test_a_partition_costs_two_writes_and_four_requests_however_many_hold_others_of_its_table(
    counting: Three, holders: int
) -> None:
    session, manager, others = counting
    for number in range(holders):
        others.acquire(owner=f"holder {number}", writes=[f"dw.t/n={number + 1}"])
    manager.release(manager.acquire(owner="me", writes=["dw.t/n=100"]))
    assert (session.writes, session.refused) == (2, 0)
    assert session.packets <= 4, session.read


def test_a_partition_that_others_read_costs_its_reader_two_writes_and_six_requests(
    counting: Three,
) -> None:
    """Once its process has read the ticket of the reader that created the partition's node."""
    session, manager, others = counting
    for number in range(CLIENTS - 1):
        others.acquire(owner=f"reader {number}", reads=["dw.t/n=1"])
    manager.release(manager.acquire(owner="before", reads=["dw.t/n=1"]))
    session.reset()
    manager.release(manager.acquire(owner="me", reads=["dw.t/n=1"]))
    assert (session.writes, session.refused) == (2, 0)
    assert session.packets <= 6, session.read


def test_clients_that_want_different_partitions_never_refuse_each_other(
    counting: Three, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[str] = []
    give_back = Turn._give_back

    def noted(self: Turn, *given: Any) -> Any:
        given_back.append(self.request.owner)
        return give_back(self, *given)

    monkeypatch.setattr(Turn, "_give_back", noted)
    layout = store(counting[1]).layout
    sessions = [Counting(zookeeper.hosts) for _ in range(4)]
    managers = [LockManager(ZooKeeperBackend(session, layout)) for session in sessions]
    for number, manager in enumerate(managers):
        manager.release(manager.acquire(owner=f"the first of process {number}", writes=["dw.t/n=0"]))
        sessions[number].reset()

    def client(number: int) -> None:
        manager = managers[number % len(managers)]
        for turn in range(ROUNDS):
            manager.release(manager.acquire(owner=f"client {number}-{turn}", writes=[f"dw.t/n={number}"], timeout_s=60))

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    for manager in managers:
        manager.close()
    assert given_back == []
    assert sum(session.refused for session in sessions) == 0
    assert sum(session.writes for session in sessions) == 2 * CLIENTS * ROUNDS


def test_a_thousand_partitions_take_as_many_round_trips_as_one(counting: Three) -> None:
    session, manager, _ = counting
    costs = []
    for count in (1, 10, 1_000):
        lease = manager.acquire(owner=f"run of {count}", writes=[f"dw.t/n={number}" for number in range(count)])
        assert len(lease.locks) == count + 2
        acquired = session.round_trips
        assert manager.release(lease)
        costs.append((acquired, session.round_trips - acquired))
        session.reset()
    assert all(to_acquire <= 2 and to_release <= 1 for to_acquire, to_release in costs), costs


def test_a_renewal_is_one_write(counting: Three) -> None:
    session, manager, _ = counting
    lease = manager.acquire(owner="rerun", writes=[f"dw.t/n={number}" for number in range(1_000)])
    session.reset()
    manager.renew(lease)
    assert (session.writes, session.refused) == (1, 0)


@pytest.mark.parametrize("waiters", [1, 50])
def test_a_release_wakes_who_is_next_and_no_crowd(connect_zookeeper: Callable[[], LockManager], waiters: int) -> None:
    rounds = 20
    with connect_zookeeper() as manager, closing(OurRelay(manager, waiters)) as relay:
        assert relay.wakes == 0, "somebody was woken for nothing"
        for _ in range(rounds):
            relay.hand_over()
            relay.join()
        assert rounds <= relay.wakes <= WATCH_EVENTS_A_HAND_OVER * rounds


def test_partitions_that_the_grant_has_created_are_not_read(
    counting: Three,
) -> None:
    """A thousand reads behind each grant, and before each release, would be most of the time that it takes."""
    session, manager, _ = counting
    names = [f"dw.t/day=d{number:04d}" for number in range(1_000)]
    lease = manager.acquire(owner="rerun", writes=names)
    assert len(lease.locks) == 1_002
    below = [path for path in session.read if "/day=" in path]
    assert below == []
    manager.verify(lease)
    session.read.clear()
    assert manager.release(lease)
    assert [path for path in session.read if "/day=" in path] == []
    assert isinstance(manager.acquire(owner="next", writes=names[:1]), Lease)
    assert (session.writes, session.refused) == (3, 0)


def test_an_invited_grant_costs_four_writes_two_of_them_the_workers(
    counting: Three,
) -> None:
    session, worker, triggerer = counting
    invited = triggerer.begin(rules.request("late", [], ["dw.t/n=1"], deferred=DeferredGrant(60)), lambda: None)
    assert isinstance(invited.poll(), NeedsSlot)
    granted = worker.begin(
        rules.request("late", [], ["dw.t/n=1"], deferred=DeferredGrant(60, has_slot=True)), lambda: None
    ).poll()
    assert isinstance(granted, Lease)
    worker.release(granted)
    assert (session.writes, session.refused) == (2, 0)
    assert session.packets <= 6, session.read


def test_an_invitation_costs_two_writes_its_arrival_and_its_turn(
    counting: Three,
) -> None:
    session, triggerer, _ = counting
    invited = triggerer.begin(rules.request("late", [], ["dw.t/n=1"], deferred=DeferredGrant(60)), lambda: None)
    assert isinstance(invited.poll(), NeedsSlot)
    assert (session.writes, session.refused) == (2, 0)
    assert session.packets <= 5, session.read


def test_a_worker_that_has_to_give_its_slot_back_writes_nothing(
    counting: Three,
) -> None:
    session, worker, others = counting
    others.acquire(owner="holder", writes=["dw.t/n=1"])
    asked = worker.begin(
        rules.request("late", [], ["dw.t/n=1"], deferred=DeferredGrant(60, has_slot=True)), lambda: None
    )
    assert isinstance(asked.poll(), Blocked)
    assert session.writes == 0
