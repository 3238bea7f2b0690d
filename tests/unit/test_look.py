"""What a process believes of a table without a look at it, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from airflow_hivelock.locks.backends.zookeeper.client import Children, Create, Delete, Get, Listing, Node, Stat
from airflow_hivelock.locks.backends.zookeeper.look import MOST_FOLLOWED, SURE_FOR_S, Look, Looks, Memory

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Client
    from airflow_hivelock.locks.backends.zookeeper.look import Done

LOOKS = Looks(Get("/queue"), (Children("/queue/dw.a"),), (Get("/hive"), Children("/hive/dw"), Children("/hive/dw/a")))
GRANT: list[Done] = [
    (Create("/queue/dw.a/me-", sequential=True), "/queue/dw.a/me-0000000003"),
    (Create("/hive/unchanged-", sequential=True), "/hive/unchanged-0000000002"),
    (Delete("/hive/unchanged-0000000002"), True),
    (Create("/hive/dw/a/LOCK-SHARED-0", sequential=True), "/hive/dw/a/LOCK-SHARED-00000000005"),
]
RELEASE = [Delete("/queue/dw.a/me-0000000003"), Delete("/hive/dw/a/LOCK-SHARED-00000000005")]


@dataclass
class _Client:
    connection: int = 0


class _Told:
    """A memory that has been told of some grants, each with its release, and what a look shows next."""

    def __init__(self) -> None:
        self.client = _Client()
        self.now_s = 0.0
        self.memory = Memory(cast("Client", self.client), lambda: self.now_s)

    def granted(self, look: Look, done: list[Done] | None = None) -> None:
        ops, replies = zip(*(GRANT if done is None else done), strict=True)
        self.memory.granted(LOOKS, look, ops, replies)
        self.memory.removed(RELEASE)


def _look(queued: int, databases: int, locks: int, *others: str) -> Look:
    node = Node(b"", Stat(1, 1, 0, 0, 0, False, databases))
    queue, of_database, of_table = (), ("a", "b"), others
    tops = [node, Listing(of_database, 1, 9), Listing(of_table, 2, locks)]
    return Look(Node(b"", Stat(1, 1, 7, 0, 0, False, 4)), [Listing(queue, 1, queued)], tops)


@pytest.fixture
def told() -> _Told:
    """Two looks in a row have found what was expected."""
    found = _Told()
    found.granted(_look(3, 2, 5, "LOCK-SHARED-0000000004"))
    assert found.memory.recall(LOOKS) is None, "nothing was expected of the first look"
    found.granted(_look(4, 3, 6, "LOCK-SHARED-0000000004"))
    return found


def test_it_is_as_last_time_but_for_what_was_done_since(told: _Told) -> None:
    assert told.memory.recall(LOOKS) == _look(5, 4, 7, "LOCK-SHARED-0000000004")


def test_what_stands_is_remembered(told: _Told) -> None:
    told.memory.granted(LOOKS, _look(5, 4, 7, "LOCK-SHARED-0000000004"), *zip(*GRANT, strict=True))
    assert (now := told.memory.recall(LOOKS)) is not None
    assert now.queues == [Listing(("me-0000000003",), 1, 6)]
    assert now.objects[-1] == Listing(("LOCK-SHARED-0000000004", "LOCK-SHARED-00000000005"), 2, 8)


def test_where_something_was_not_as_expected_the_next_look_is_taken(told: _Told) -> None:
    told.granted(_look(5, 4, 7))  # a lock of Hive's has gone
    assert told.memory.recall(LOOKS) is None


def test_another_table_is_looked_at(told: _Told) -> None:
    assert told.memory.recall(LOOKS._replace(queues=(Children("/queue/dw.b"),))) is None


def test_after_a_while_it_is_looked_at(told: _Told) -> None:
    told.now_s = SURE_FOR_S + 1
    assert told.memory.recall(LOOKS) is None


def test_over_another_connection_it_is_looked_at(told: _Told) -> None:
    told.client.connection = 1
    assert told.memory.recall(LOOKS) is None, "the store may have lost its data meanwhile"


def test_who_was_outrun_looks(told: _Told) -> None:
    told.memory.forget()
    assert told.memory.recall(LOOKS) is None


def test_large_transactions_are_not_followed(told: _Told) -> None:
    told.granted(_look(5, 4, 7, "LOCK-SHARED-0000000004"), GRANT * MOST_FOLLOWED)
    assert told.memory.recall(LOOKS) is None
    told.memory.removed(RELEASE * MOST_FOLLOWED)


def test_what_was_not_there_is_looked_at(told: _Told) -> None:
    look = _look(5, 4, 7)
    told.granted(look._replace(objects=[*look.objects[:2], None]))
    assert told.memory.recall(LOOKS) is None
