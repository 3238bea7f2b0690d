"""The cost of a full listing: the number of requests does not grow with the locks, and the answers are the same."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.backends.zookeeper.client import Children, Commit, Create, Get, Names
from airflow_hivelock.locks.backends.zookeeper.listings import MOST_NAMED, Lanes
from airflow_hivelock.locks.backends.zookeeper.queue import Ticket
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from airflow_hivelock.locks.backends.zookeeper.wire import knows_multi_read
from airflow_hivelock.locks.errors import AccessDenied
from airflow_hivelock.locks.model import Blocker, Lock, LockMode, LockObject
from airflow_hivelock.locks.queueing import Position
from tests.backends.zookeepers import kazoo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockManager
    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> Iterator[KazooSession]:
    with closing(KazooSession(zookeeper.hosts)) as session:
        yield session


def test_many_knows_multi_read_say_what_each_says_alone(session: KazooSession, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"/bulk/{number}" for number in range(120)]
    session.submit(Commit((Create("/bulk"), *(Create(path, path.encode()) for path in paths[::2]))))
    session.submit(Commit(tuple(Create(f"{path}/ä {path[6:]}") for path in paths[::4])))
    wanted = [request(path) for path in paths for request in (Get, Names)]
    mixed = [*wanted, Children("/bulk"), *wanted[:60], Children("/nowhere")]
    together = session.submit(*mixed)
    assert session._knows_multi_read(), "this server does"
    monkeypatch.setattr(session, "_knows_multi_read", lambda: False)
    alone = session.submit(*mixed)
    assert together[:240:2] == alone[:240:2]
    assert [found and found.names for found in together[1:240:2]] == [found and found.names for found in alone[1:240:2]]
    assert set(together[240].names) == {path[6:] for path in paths[::2]}
    assert together[240][1:] == alone[240][1:] == (alone[240].czxid,)
    assert together[241::2] == alone[241::2]
    assert together[-1] is None
    assert together[2] is None
    assert together[0].data == b"/bulk/0"


def test_a_server_that_does_not_say_its_version_is_asked_once(
    session: KazooSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps it from answering may take as long as a time-out."""
    asked: list[bytes] = []

    def ask(word: bytes) -> str:
        asked.append(word)
        raise TimeoutError

    monkeypatch.setattr(session._zk, "command", ask)
    for _ in range(3):
        assert session.submit(Names("/nowhere"), Get("/nowhere")) == [None, None]
    assert asked == [b"srvr"]


def test_an_answer_that_comes_late_is_not_taken_for_the_next_servers(
    session: KazooSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that is asked goes away, and the next is older: sent what it does not know, it would end the session."""
    answers = ["Zookeeper version: 3.5.10--1", "Zookeeper version: 3.9.4--1"]

    def ask(word: bytes) -> str:
        if len(answers) == 2:
            for state in (KazooState.SUSPENDED, KazooState.CONNECTED):
                session._on_state(session._connected, state)
        return answers.pop()

    monkeypatch.setattr(session._zk, "command", ask)
    session._knows_multi_read()
    assert not session._knows_multi_read()


def test_long_names_go_in_requests_that_the_server_takes(session: KazooSession) -> None:
    assert session.submit(*(Children(f"/{'n' * 900}{number}") for number in range(1_000))) == [None] * 1_000
    assert session._knows_multi_read()


def test_what_may_not_be_read_is_named_though_many_are_read_together(
    zookeeper: ZooKeeperServer, session: KazooSession
) -> None:
    with kazoo(zookeeper.hosts, auth_data=[("digest", "ann:secret")]) as owner:
        owner.create("/anns", acl=CREATOR_ALL_ACL)
    for read in (Get, Children, Names):
        with pytest.raises(AccessDenied, match=r"at /anns\. Nothing was changed"):
            session.submit(Get("/"), Children("/"), read("/anns"), Get("/nowhere"))
    assert session._knows_multi_read()


@pytest.mark.parametrize(
    ("said", "knows"),
    [
        ("Zookeeper version: 3.9.4-7246445ec281f3dbf53dc54e970c914f39713903, built on 2025-08-19", True),
        ("Zookeeper version: 3.6.0--b4c89dc7f6083829e18fae6e446907ae0b1f22d7, built on 02/25/2020", True),
        ("Zookeeper version: 3.5.10--1, built on 05/11/2022", False),
        ("Zookeeper version: 3.4.6-1569965, built on 02/20/2014", False),
        ("srvr is not executed because it is not in the whitelist.", False),
        ("", False),
    ],
)
def test_an_old_server_is_never_sent_what_would_end_the_session(said: str, knows: bool) -> None:
    assert knows_multi_read(said) is knows


def test_looking_costs_as_many_requests_for_many_locks_as_for_few(connect_zookeeper: Callable[[], LockManager]) -> None:
    writer = connect_zookeeper()
    costs: list[dict[str, int]] = []
    for batch in range(2):
        for number in range(60 * batch, 60 * (batch + 1)):
            writer.acquire(owner=f"holder {number}", writes=[f"dw.t/dt={number}"])
            waiting = rules.request(f"waiter {number}", writes=[f"dw.t/dt={number}"])
            writer.begin(waiting, lambda: None).poll()
        costs.append({})
        for look in ("show", "requests", "leases", "waiters", "history"):
            reader = connect_zookeeper()
            reader.leases()
            costs[-1][look] = _requests(reader, look)
            reader.close()
    writer.close()
    assert costs[0] == costs[1]


def test_who_is_ahead_is_found_as_by_comparing_all_with_all() -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    dice = random.Random(seed)
    tickets = [_ticket(dice, zxid) for zxid in range(150)]
    waiting = {ticket.key: dice.random() < 0.5 for ticket in tickets}
    for zxid in (0, 40, 150):
        mine = _ticket(dice, zxid)
        modes = {lock.object: lock.mode for lock in mine.locks}
        line = Lanes(tickets, {key: None for key, waits in waiting.items() if waits}, modes)
        ahead = [t for t in reversed(tickets) if t.zxid < zxid and queueing.excludes(modes, t.locks)]
        expected = [
            Blocker(t.owner, lock.object, lock.mode, waiting[t.key])
            for t in ahead
            for lock in queueing.conflicts(mine.locks, t.locks)[:1]
        ]
        blockers, waiters = line.ahead(mine.locks, mine.position)
        assert list(blockers) == expected
        assert waiters == sum(blocker.waiting for blocker in expected)


def test_of_a_long_line_the_nearest_are_named_and_all_are_counted() -> None:
    lock = Lock(LockObject.parse("dw.t/dt=1"), LockMode.EXCLUSIVE)
    tickets = [
        Ticket(f"/{zxid}", f"key{zxid}", 1, f"owner {zxid}", zxid, 0, (lock,)) for zxid in range(MOST_NAMED + 500)
    ]
    line = Lanes(tickets, {ticket.key: None for ticket in tickets[1:]}, {lock.object: lock.mode})
    blockers, waiters = line.ahead((lock,), Position(MOST_NAMED + 400, -1, MOST_NAMED + 400))
    assert [blocker.owner for blocker in blockers[:2]] == [f"owner {MOST_NAMED + 399}", f"owner {MOST_NAMED + 398}"]
    assert (len(blockers), waiters) == (MOST_NAMED, MOST_NAMED + 399)


def _ticket(dice: random.Random, zxid: int) -> Ticket:
    names = sorted(dice.sample(["dw.t", "dw.t/dt=1", "dw.t/dt=2", "dw.t/dt=3"], k=dice.randint(1, 3)))
    locks = tuple(Lock(LockObject.parse(name), dice.choice(list(LockMode))) for name in names)
    return Ticket(f"/{zxid}", f"key{zxid}", 1, f"owner {zxid}", zxid, 0, locks)


def _requests(reader: LockManager, look: str) -> int:
    """How many packets a look sends."""
    sent: list[Any] = []
    session: Any = reader.backend.store.client  # type: ignore[attr-defined]
    send = session._send

    def count(*requests: Any) -> Any:
        sent.append(requests)
        return send(*requests)

    session._send = count
    getattr(reader, look)()
    return len(sent)
