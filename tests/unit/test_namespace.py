"""How much is asked for when thousands of lock nodes lie on one object."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_hivelock.locks.backends.zookeeper.client import Children, Exists, Get, Listing, Node, Stat
from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockNode
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace, PlacedLock
from airflow_hivelock.locks.model import Lock, LockMode, LockObject

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Client, Request

DW = LockObject("dw")


class Crowded:
    """A database's node with thousands of SHARED nodes of this package. The nodes *gone* are deleted after they are
    listed.
    """

    def __init__(self, czxids: list[int], data: bytes = b"", gone: frozenset[int] = frozenset()) -> None:
        self.czxids = {f"LOCK-SHARED-0{number:010}": czxid for number, czxid in enumerate(czxids)}
        self.data = data
        self.gone = gone
        self.asked: list[int] = []

    def submit(self, *requests: Request) -> list[Any]:
        self.asked.append(len(requests))
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Any:
        match request:
            case Children():
                return Listing(tuple(self.czxids), 1)
            case Exists(path) | Get(path):
                czxid = self.czxids[path.rpartition("/")[2]]
                stat = Stat(czxid, czxid, 0, 0, 0, ephemeral=False, created=0)
                return None if czxid in self.gone else stat if isinstance(request, Exists) else Node(self.data, stat)
        raise NotImplementedError(request)


def namespace(client: Crowded) -> Namespace:
    return Namespace(cast("Client", client), Layout())


@pytest.mark.parametrize(
    ("size", "together"),
    [(0, [500, 4_500]), (300, [500, 4_500]), (1_000_000, [500] * 10)],
    ids=["0", "300", "1,000,000"],
)
def test_as_many_are_read_together_as_fit(size: int, together: list[int]) -> None:
    crowded = Crowded(list(range(5_000)), b"q" * size)
    placed = namespace(crowded).placed(DW, Listing(tuple(crowded.czxids), 1))
    assert [lock for lock, _ in namespace(crowded).read(placed)] == placed
    assert crowded.asked == together


def mine(crowded: Crowded, *zxids: int) -> dict[LockObject, PlacedLock]:
    return namespace(crowded).own_nodes([Lock(DW, LockMode.SHARED)], zxids)


@pytest.mark.parametrize("place", [0, 1, 31, 32, 500, 4_998, 4_999])
def test_ones_own_among_thousands_is_found_by_few_questions(place: int) -> None:
    random.seed(place)
    czxids = sorted(random.sample(range(1_000_000), 5_000))
    others = [czxid for czxid in czxids if czxid != czxids[place]]
    crowded = Crowded(czxids, gone=frozenset(random.sample(others, 2_000)))
    found = mine(crowded, czxids[place])
    assert found[DW].node == LockNode.parse(f"LOCK-SHARED-0{place:010}")
    assert sum(crowded.asked) < 1_000


def test_one_of_two_transactions_may_have_made_it() -> None:
    crowded = Crowded(list(range(0, 50_000, 10)))
    assert mine(crowded, 77, 40_000)[DW].node.sequence == 4_000
    assert mine(crowded, 77, 49_995) == {}


def test_it_is_found_though_the_numbers_began_anew() -> None:
    """As they do after 2 ** 31 of them."""
    crowded = Crowded([*range(25_000, 50_000, 10), *range(0, 25_000, 10)])
    assert mine(crowded, 25_010)[DW].node.sequence == 1
    assert mine(crowded, 10)[DW].node.sequence == 2_501


def test_hives_lock_nodes_are_told_from_ours_by_their_digits() -> None:
    hives = ["LOCK-SHARED-0000000007", "LOCK-EXCLUSIVE-0000000008", "LOCK-SEMI_SHARED-0000000009", "LOCK-SHARED-7"]
    ours = ["LOCK-SHARED-00000000007", "LOCK-EXCLUSIVE-00000000008"]
    objects = ["flights", "dt=2013-01-01", "LOCK-SHARED-", "LOCK-SHARED-0000000007x"]
    names = [*ours, *objects, *hives]
    assert [node.name for node in LockNode.of_hive(names)] == hives
    assert [node.name for node in LockNode.among(names) if node.ours] == ours
