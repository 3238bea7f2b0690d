"""The verdict of a trace on leases that overlap and requests that are passed, and that of the deaths on who held: by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockData
from tests.conformance.priority import BACKGROUND
from tests.system.deaths.verdict import locks_on
from tests.system.histories.trace.episodes import STALE_S, Episodes
from tests.system.histories.trace.state import Life, Owner, Record, State, Step
from tests.system.histories.transactions import Transaction, Write

PASSING_S = 1.0
RETURNED = {f"{key}-0" for key in "abpw"}


class Story:
    """Requests for one day by owners' keys, and when what became of them."""

    def __init__(self) -> None:
        self.episodes, self.state = Episodes(PASSING_S), State()
        self.late: list[str] = []
        self._zxid = 0

    @property
    def broken(self) -> list[str]:
        return [*self.late, *self.episodes.overlaps(RETURNED)]

    def write(self, at_s: float, key: str, state: str, priority: int = 1, alive: bool = True, **fields: Any) -> None:
        self._zxid += 1
        record = Record(state=state, locks={"dw/t/dt=1": "X"}, priority=priority, **fields)
        after = Owner(record, alive=Life(key) if alive else None)
        step = Step(key, self._zxid, int(1000 * at_s), 0, self.state, self.state.of(key), after)
        self.late += self.episodes.note(step)
        self.state.owners[key] = after

    def wait(self, at_s: float, key: str, priority: int = 1) -> None:
        self.write(at_s, key, "waiting", priority)

    def die(self, at_s: float, key: str) -> None:
        self.write(at_s, key, "waiting", alive=False)

    def grant(self, at_s: float, key: str, priority: int = 1) -> None:
        self.write(at_s, key, "granted", priority)

    def end(self, at_s: float, key: str, state: str) -> None:
        """Its lock nodes are deleted."""
        self.write(at_s, key, state)


@pytest.mark.parametrize(
    ("waiting", "priority", "after_s", "dies", "broken"),
    [
        (1, 10, PASSING_S + STALE_S - 0.1, False, False),
        (1, 10, PASSING_S + STALE_S + 0.1, False, True),
        (1, 1, STALE_S - 0.1, False, False),
        (1, 1, STALE_S + 0.1, False, True),
        (1, 10, 60.0, True, False),
        (0, 1, BACKGROUND * PASSING_S + STALE_S - 0.1, False, False),
        (0, 1, BACKGROUND * PASSING_S + STALE_S + 0.1, False, True),
        (0, 0, STALE_S + 0.1, False, True),
    ],
)
def test_whoever_waits_and_lives_is_passed_for_no_longer_than_the_bound(
    waiting: int, priority: int, after_s: float, dies: bool, broken: bool
) -> None:
    story = Story()
    story.wait(0, "w", waiting)
    if dies:
        story.die(after_s / 2, "w")
    story.wait(after_s, "p", priority)
    story.grant(after_s + 0.1, "p", priority)
    assert bool(story.broken) == broken, story.broken
    assert story.episodes.passed == 1


@pytest.mark.parametrize(("after_s", "broken"), [(STALE_S + PASSING_S - 0.1, False), (STALE_S + PASSING_S + 0.1, True)])
def test_a_request_with_another_priority_has_joined_the_queue_again(after_s: float, broken: bool) -> None:
    story = Story()
    story.wait(0, "w", 5)
    story.wait(3, "w", 1)
    story.wait(3 + after_s, "p", 2)
    story.grant(3 + after_s, "p", 2)
    assert bool(story.broken) == broken, story.broken


def test_the_time_in_line_counts_and_not_the_time_until_the_grant() -> None:
    story = Story()
    story.wait(0, "w")
    story.wait(0.5, "p", 10)
    story.grant(60, "p", 10)
    assert (story.broken, story.episodes.passed) == ([], 1)


@pytest.mark.parametrize(("ends", "broken"), [("waiting", False), ("tombstone", True)])
def test_two_that_conflict_are_told_unless_one_has_given_its_nodes_back(ends: str, broken: bool) -> None:
    story = Story()
    story.grant(0, "a")
    story.grant(1, "b")
    story.end(2, "b", ends)
    story.end(3, "a", "tombstone")
    if ends == "waiting":
        story.grant(4, "b")
    assert bool(story.broken) == broken, story.broken


def test_what_was_never_returned_is_in_no_ones_way() -> None:
    story = Story()
    story.grant(0, "a")
    story.grant(1, "u")
    story.end(2, "u", "tombstone")
    assert story.broken == []


def test_a_grant_that_was_given_back_keeps_its_place() -> None:
    story = Story()
    story.grant(0, "w")
    story.end(1, "w", "waiting")
    story.wait(STALE_S + 0.1, "p")
    story.grant(STALE_S + 0.2, "p")
    assert story.episodes.passed == 1


@pytest.mark.parametrize("ended", [False, True])
def test_an_invited_request_keeps_its_place_and_passes_no_later_one(ended: bool) -> None:
    story = Story()
    story.wait(0, "w")
    story.write(1, "w", "invited")
    story.wait(2, "p")
    if ended:
        story.write(3, "w", "away", kept=1)
        story.wait(2 + STALE_S + 0.05, "w")
    story.grant(2 + STALE_S + 0.1, "w")
    assert story.broken == []


@pytest.mark.parametrize(
    ("goes_on_as", "held"), [("tombstone", ["a"]), ("granted", ["a"]), ("waiting", []), ("away", [])]
)
def test_a_grant_that_lost_its_verification_was_not_held(goes_on_as: str, held: list[str]) -> None:
    layout = Layout()
    node = f"{layout.namespace}/dw/t/dt=1/LOCK-EXCLUSIVE-0000000000"
    made = Write(node, LockData("a", 0, True, "", "a").encode())
    record = Write(layout.record("a"), json.dumps({"state": goes_on_as}).encode())
    log = [Transaction(1, 1_000, (made,)), Transaction(2, 2_000, (record, Write(node, None)))]
    assert [lock.owner for lock in locks_on("dw.t/dt=1", log, layout)] == held
