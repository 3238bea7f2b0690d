"""The rules of invitations: who is invited, when that ends, and who comes back to its old place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import invitations, rules
from airflow_hivelock.locks.calls import Call
from airflow_hivelock.locks.model import DeferredGrant
from airflow_hivelock.locks.queueing import OvertakingLimit, Position, TimedPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.invitations import Passed
    from airflow_hivelock.locks.model import Lock, LockObject

HOUR = 3_600
NOW = 100_000


def locks(reads: Sequence[str] = (), writes: Sequence[str] = ()) -> tuple[Lock, ...]:
    return rules.request("me", reads=reads, writes=writes).locks


def named(of: Sequence[Lock]) -> list[LockObject]:
    return [lock.object for lock in rules.named(of)]


def days(first: int, last: int) -> list[str]:
    return [f"dw.t/dt={day}" for day in range(first, last + 1)]


def place(turn: int, priority: int = 1, *, age: int = 1) -> TimedPosition:
    return TimedPosition(Position(turn, -priority, turn), NOW - age)


OWN, OLD = place(50, age=0), place(5, age=90)
DAY = locks(writes=days(3, 3))


def passed(theirs: Sequence[Lock], mine: Sequence[Lock] = DAY, turn: int = 9, **more: int) -> Passed:
    return invitations.passed(place(turn, **more), named(theirs), mine, theirs)


def back(others: Sequence[Passed], mine: Sequence[Lock] = DAY) -> TimedPosition | None:
    return invitations.come_back(OWN, OLD, named(mine), others, OvertakingLimit(NOW, HOUR))


@pytest.mark.parametrize(("rounds", "deferred"), [(0, DeferredGrant(20.0)), (2, DeferredGrant(20.0)), (3, None)])
def test_a_deferred_request_is_invited_for_three_rounds(rounds: int, deferred: DeferredGrant | None) -> None:
    assert invitations.of_round(rounds, 20.0) == deferred


def test_an_invitation_is_over_at_its_end_and_who_waits_looks_again_then() -> None:
    assert [invitations.is_over(end, NOW) for end in (NOW - 1, NOW, NOW + 1)] == [True, True, False]
    assert invitations.next_end([None, NOW + 9, NOW + 3]) == NOW + 3
    assert invitations.next_end([None]) is None


def test_it_comes_back_to_its_old_turn_which_is_as_old_as_it_was() -> None:
    assert back([passed(DAY)]) == TimedPosition(Position(5, -1, 50), NOW - 90)
    assert back([]) == TimedPosition(Position(5, -1, 50), NOW - 90)


@pytest.mark.parametrize(
    ("theirs", "may"),
    [
        (DAY, True),
        (locks(reads=days(3, 3)), True),
        (locks(reads=days(1, 4)), True),
        (locks(reads=days(1, 5)), False),
        (locks(reads=days(1, 60)), False),
        (locks(writes=["dw.t"]), False),
        (locks(writes=["dw"]), False),
    ],
    ids=["the same day", "a reader of it", "four days", "five days", "a report", "ALTER TABLE", "the database"],
)
def test_it_passes_what_waits_for_little_else(theirs: tuple[Lock, ...], may: bool) -> None:
    assert (back([passed(theirs)]) is not None) is may


def test_it_passes_the_whole_table_where_it_names_that_itself() -> None:
    alter = locks(writes=["dw.t"])
    assert back([passed(alter, alter)], alter)
    assert back([passed(DAY, alter)], alter), "a day waits for nothing else than the table"


@pytest.mark.parametrize(
    ("priority", "age", "may"),
    [(1, 1, True), (0, 1, True), (2, 1, False), (1, HOUR - 1, True), (1, HOUR, False), (0, HOUR, True)],
)
def test_it_passes_no_more_urgent_request_and_none_that_has_waited_for_too_long(
    priority: int, age: int, may: bool
) -> None:
    assert (back([passed(DAY, priority=priority, age=age)]) is not None) is may


def test_one_request_that_it_may_not_pass_makes_it_a_new_arrival_and_one_before_it_does_not() -> None:
    assert back([passed(DAY), passed(locks(writes=["dw.t"]))]) is None
    assert back([passed(DAY), passed(locks(writes=["dw.t"]), turn=4)])


@pytest.mark.parametrize(
    ("attempt", "of", "keeps"), [(1, DAY, True), (2, DAY, False), (1, locks(writes=days(4, 4)), False)]
)
def test_a_new_attempt_and_one_for_other_locks_are_new_arrivals(
    attempt: int, of: tuple[Lock, ...], keeps: bool
) -> None:
    assert invitations.keeps_position(Call(attempt, 9), Call(1, 3), of, DAY) is keeps


TASKS = st.lists(st.tuples(st.sampled_from([1, 2, 60]), st.integers(0, 2), st.integers(0, 2 * HOUR)), max_size=6)


@given(TASKS, st.integers(1, 40))
def test_who_comes_back_keeps_the_bounds_of_all_that_it_passes(tasks: list[tuple[int, int, int]], first: int) -> None:
    others = [
        passed(locks(reads=days(first, first + count - 1)), turn=turn, priority=priority, age=age)
        for turn, (count, priority, age) in enumerate(tasks, start=3)
    ]
    others = [other for other in others if other.met]
    found = back(others)
    behind = [other for other in others if other.timed.position > Position(5, -1, 50)]
    if found is None:
        assert behind, "it would pass no request"
        return
    assert found < OWN
    for other in behind:
        assert -other.timed.position.rank <= 1
        assert NOW - other.timed.since < (HOUR if other.timed.position.rank < 0 else 168 * HOUR)
        assert len(other.named) <= 4
