"""The verdict of a history on a passed request, and on a group with too many leases: with transactions written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockData
from airflow_hivelock.locks.model import locks_to_json, owner_key
from tests.system.deaths.verdict import locks_on
from tests.system.histories.checks import STALE_S, History
from tests.system.histories.transactions import Transaction, Write

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import Lock

LAYOUT = Layout()
PASSING_S = 1.0
RETURNED = {f"{key}-0" for key in "abpw"}
DAY = rules.request("any", writes=["dw.t/dt=1"]).locks


class Story:
    """Requests for one day by owners' keys, and when what became of them."""

    def __init__(self) -> None:
        self.history = History(LAYOUT, RETURNED, PASSING_S)
        self._zxid = 0

    def write(self, at_s: float, key: str, state: str, *more: Write, priority: int = 1, **fields: Any) -> None:
        """One transaction: the record, with the lock nodes of what holds from then on."""
        self._zxid += 1
        record = {"state": state, "locks": locks_to_json(DAY), "priority": priority, **fields}
        writes = [Write(LAYOUT.record(key), json.dumps(record).encode()), *more]
        self.history.replay(Transaction(self._zxid, int(1000 * at_s), tuple(writes)))

    def wait(self, at_s: float, key: str, priority: int = 1) -> None:
        self.write(at_s, key, "waiting", Write(LAYOUT.alive(key), b""), priority=priority)

    def die(self, at_s: float, key: str) -> None:
        self._zxid += 1
        self.history.replay(Transaction(self._zxid, int(1000 * at_s), (Write(LAYOUT.alive(key), None),)))

    def grant(self, at_s: float, key: str, priority: int = 1, **fields: Any) -> None:
        self.write(at_s, key, "granted", *nodes(key, DAY), priority=priority, **fields)


def nodes(key: str, locks: tuple[Lock, ...]) -> list[Write]:
    data = LockData(key, 0, True, "", key).encode()
    return [Write(f"{LAYOUT.object(lock.object)}/LOCK-{lock.mode.value}-0000000000{ord(key)}", data) for lock in locks]


@pytest.mark.parametrize(
    ("priority", "after_s", "dies", "broken"),
    [
        (10, PASSING_S + STALE_S - 0.1, False, False),
        (10, PASSING_S + STALE_S + 0.1, False, True),
        (1, STALE_S - 0.1, False, False),
        (1, STALE_S + 0.1, False, True),
        (10, 60.0, True, False),
    ],
)
def test_whoever_waits_and_lives_is_passed_for_no_longer_than_the_bound(
    priority: int, after_s: float, dies: bool, broken: bool
) -> None:
    story = Story()
    story.wait(0, "w")
    if dies:
        story.die(after_s / 2, "w")
    story.wait(after_s, "p", priority)
    story.grant(after_s + 0.1, "p", priority)
    assert bool(story.history.broken) == broken, story.history.broken
    assert [lease.passed for lease in story.history.leases if lease.key == "p"] == [1]


def test_the_time_in_line_counts_and_not_the_time_until_the_grant() -> None:
    story = Story()
    story.wait(0, "w")
    story.wait(0.5, "p", 10)
    story.grant(60, "p", 10)
    assert (story.history.broken, [lease.passed for lease in story.history.leases]) == ([], [1])


def end(story: Story, at_s: float, key: str, state: str) -> None:
    """Its lock nodes are deleted."""
    gone = [Write(write.path, None) for write in nodes(key, DAY)]
    story.write(at_s, key, state, *gone)


@pytest.mark.parametrize(("ends", "broken"), [("waiting", False), ("tombstone", True)])
def test_two_that_conflict_are_told_unless_one_has_given_its_nodes_back(ends: str, broken: bool) -> None:
    story = Story()
    story.grant(0, "a")
    story.grant(1, "b")
    end(story, 2, "b", ends)
    end(story, 3, "a", "tombstone")
    if ends == "waiting":
        story.grant(4, "b")
        assert story.history.given_back == 1
    assert bool(story.history.broken) == broken, story.history.broken
    assert len(story.history.leases) == 2


def test_what_was_never_returned_is_in_no_ones_way() -> None:
    story = Story()
    story.grant(0, "a")
    story.grant(1, "u")
    end(story, 2, "u", "tombstone")
    assert story.history.broken == []


def test_a_grant_that_was_given_back_keeps_its_place() -> None:
    story = Story()
    story.grant(0, "w")
    end(story, 1, "w", "waiting")
    story.wait(STALE_S + 0.1, "p")
    story.grant(STALE_S + 0.2, "p")
    assert [lease.passed for lease in story.history.leases if lease.key == "p"] == [1]


@pytest.mark.parametrize("ended", [False, True])
def test_an_invited_request_keeps_its_place_and_passes_no_later_one(ended: bool) -> None:
    story = Story()
    story.wait(0, "w")
    story.write(1, "w", "invited")
    story.wait(2, "p")
    if ended:
        story.write(3, "w", "away", old_turn=1)
        story.wait(2 + STALE_S + 0.05, "w")
    story.grant(2 + STALE_S + 0.1, "w")
    assert story.history.broken == []


def test_more_leases_of_a_group_than_it_bears_are_told() -> None:
    story = Story()
    other = rules.request("any", writes=["dw.u/dt=1"]).locks
    share = ["few", 1, 0, "", 0]
    story.grant(0, "a", share=share)
    story.write(1, "b", "granted", *nodes("b", other)[1:], share=share, locks=locks_to_json(other[1:]))
    assert [line for line in story.history.broken if "leases of 'few'" in line] == [
        "0x2: 2 leases of 'few' stand, and 1 may"
    ]
    assert story.history.most == {"few": 2}


def test_a_smaller_limit_and_a_heavy_lease_are_counted() -> None:
    story = Story()
    other = rules.request("any", writes=["dw.u/dt=1"]).locks

    def limit(zxid: int, leases: int) -> None:
        data = json.dumps({"leases": leases}).encode()
        story.history.replay(Transaction(zxid, 0, (Write(LAYOUT.limit(owner_key("few")), data),)))

    limit(0, 2)
    story.grant(0, "a", share=["few", 9, 0, "", 0], permits=[1])
    limit(1, 1)
    story.write(1, "a", "granted", share=["few", 9, 0, "", 0], permits=[1])
    assert story.history.broken == [], "no lease is taken from a holder"
    story.write(2, "b", "granted", *nodes("b", other)[1:], share=["few", 9, 2, "", 0], locks=locks_to_json(other[1:]))
    assert [line for line in story.history.broken if "leases of 'few'" in line] == [
        "0x3: 3 leases of 'few' stand, and 1 may"
    ]


@pytest.mark.parametrize(
    ("goes_on_as", "held"), [("tombstone", ["a"]), ("granted", ["a"]), ("waiting", []), ("away", [])]
)
def test_a_grant_that_lost_its_verification_was_not_held(goes_on_as: str, held: list[str]) -> None:
    gone = [Write(write.path, None) for write in nodes("a", DAY)]
    record = Write(LAYOUT.record("a"), json.dumps({"state": goes_on_as}).encode())
    log = [Transaction(1, 1_000, tuple(nodes("a", DAY))), Transaction(2, 2_000, (record, *gone))]
    assert [lock.owner for lock in locks_on("dw.t/dt=1", log, LAYOUT)] == held
