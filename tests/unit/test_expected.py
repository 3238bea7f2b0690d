"""The expected wait: tables for each rule, and what must be true of every history and every queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.expected import FEWEST, MOST_NEAR, OUTSIDE, PastHolds, WaitRange, expected_waits, task_of
from airflow_hivelock.locks.model import Blocker, Lease, LockMode, LockObject, Tenure, Waiter, WaitsFor
from airflow_hivelock.spec import Owner

NOW = datetime(2013, 1, 20, 12, tzinfo=UTC)
T = LockObject.parse("dw.t")
MINUTE = 60.0
TEN_MIN_TO_AN_HOUR = [600.0 * each for each in (1, 2, 3, 4, 5, 6)]

_runs = count()


def owner(task: str) -> str:
    return str(Owner("prod", "etl", f"run {next(_runs)}", task))


def past(name: str = "dw.t/dt=2013-01-01", **held_s: list[float]) -> PastHolds:
    """Earlier holds of each task, all of *name*."""
    locks = tuple(rules.with_parents([], [LockObject.parse(name)]))
    return PastHolds(
        Tenure("id", owner(task), locks, NOW, NOW, NOW + timedelta(seconds=each_s))
        for task, all_s in held_s.items()
        for each_s in all_s
    )


def lease(task: str, held_s: float) -> Lease:
    since = NOW - timedelta(seconds=held_s)
    return Lease("id", 1, 1, 1, owner(task), tuple(rules.with_parents([], [T])), 3_600.0, since)


def blocker(of: Lease | Waiter, group: str = "") -> Blocker:
    return Blocker(of.owner, T, LockMode.EXCLUSIVE, waiting=isinstance(of, Waiter), group=group)


def waiter(task: str, *ahead: Lease | Waiter, waits_for: WaitsFor = WaitsFor.LOCK, group: str = "") -> Waiter:
    locks = tuple(rules.with_parents([], [T]))
    return Waiter(owner(task), locks, 1, NOW, tuple(blocker(each, group) for each in ahead), waits_for=waits_for)


def waits(history: PastHolds, leases: list[Lease], *waiters: Waiter) -> list[WaitRange | None]:
    """The expected wait of each waiter."""
    found = expected_waits(history, leases, waiters, NOW)
    return [found.get(each.owner) for each in waiters]


@pytest.mark.parametrize(
    ("held_s", "expected"),
    [
        (0.0, (600.0, 3600.0)),
        (300.0, (300.0, 3300.0)),  # what has passed is taken off
        (900.0, (300.0, 2700.0)),  # and holds that were shorter say nothing any more
        (1500.0, None),  # four are left
        (9000.0, None),
    ],
)
def test_a_hold_lasts_as_long_as_earlier_holds(held_s: float, expected: tuple[float, float] | None) -> None:
    holder = lease("job", held_s)
    assert waits(past(job=TEN_MIN_TO_AN_HOUR), [holder], waiter("me", holder)) == [expected]


def test_a_long_history_leaves_out_its_ends() -> None:
    holder = lease("job", 0.0)
    history = past(job=[MINUTE * each for each in range(1, 40)])  # 39 and the present one: a tenth is 4
    assert waits(history, [holder], waiter("me", holder)) == [(4 * MINUTE, 36 * MINUTE)]


@pytest.mark.parametrize(
    "history",
    [
        past(job=TEN_MIN_TO_AN_HOUR[: FEWEST - 1]),
        past(other=TEN_MIN_TO_AN_HOUR),
        past("dw.other", job=TEN_MIN_TO_AN_HOUR),
        PastHolds(()),
    ],
)
def test_too_little_history_of_the_task_and_its_table_says_nothing(history: PastHolds) -> None:
    holder = lease("job", 0.0)
    assert waits(history, [holder], waiter("me", holder)) == [None]


def test_a_lease_that_is_held_is_no_history() -> None:
    locks = tuple(rules.with_parents([], [T]))
    history = PastHolds(Tenure("id", owner("job"), locks, NOW, NOW, None) for _ in range(FEWEST))
    holder = lease("job", 0.0)
    assert waits(history, [holder], waiter("me", holder)) == [None]


def test_those_ahead_follow_each_other_and_holders_run_together() -> None:
    history = past(quick=[MINUTE] * 5, slow=[10 * MINUTE] * 5)
    quick, slow = lease("quick", 0.0), lease("slow", 4 * MINUTE)
    first = waiter("slow", slow, quick)
    second = waiter("quick", first, slow, quick)
    third = waiter("me", second, first, slow, quick)
    minutes = [
        each and (each.least_s / MINUTE, each.most_s / MINUTE)
        for each in waits(history, [quick, slow], first, second, third)
    ]
    assert minutes == [(6, 6), (16, 16), (17, 17)]


def test_a_stranger_in_the_way_says_nothing_for_it_and_for_those_behind() -> None:
    history = past(job=TEN_MIN_TO_AN_HOUR)
    known, hives = lease("job", 0.0), Lease("id", 1, 1, 1, "root_20130120_1", (), 60.0, NOW)
    first = waiter("job", known, hives)
    assert waits(history, [known], first, waiter("me", first, known)) == [None, None]


def test_a_blocker_that_has_just_gone_says_nothing() -> None:
    assert waits(past(job=TEN_MIN_TO_AN_HOUR), [], waiter("me", lease("job", 0.0))) == [None]


@pytest.mark.parametrize("waits_for", [WaitsFor.LEASE, WaitsFor.SLOT])
def test_only_waits_for_locks_are_expected(waits_for: WaitsFor) -> None:
    holder = lease("job", 0.0)
    one = waiter("me", holder, waits_for=waits_for, group="g" if waits_for is WaitsFor.LEASE else "")
    assert waits(past(job=TEN_MIN_TO_AN_HOUR), [holder], one) == [None]


def test_an_invited_request_ahead_begins_now() -> None:
    invited = waiter("job", waits_for=WaitsFor.SLOT)
    assert waits(past(job=TEN_MIN_TO_AN_HOUR), [], invited, waiter("me", invited)) == [None, (600.0, 3600.0)]


def test_a_torn_listing_in_which_some_wait_for_each_other_says_nothing_and_ends() -> None:
    first, second, third = waiter("job"), waiter("job"), waiter("job")
    tied = [(first, [second, third]), (second, [first]), (third, [first])]
    found = [Waiter(one.owner, one.locks, 1, NOW, tuple(map(blocker, ahead))) for one, ahead in tied]
    assert waits(past(job=TEN_MIN_TO_AN_HOUR), [], *found) == [None, None, None]


def test_more_holders_than_are_considered_say_nothing() -> None:
    holders = [lease("job", 0.0) for _ in range(MOST_NEAR + 1)]
    history = past(job=TEN_MIN_TO_AN_HOUR)
    assert waits(history, holders, waiter("me", *holders)) == [None]
    assert waits(history, holders, waiter("me", *holders[1:])) == [(600.0, 3600.0)]


def test_a_long_queue_has_ranges_to_its_end() -> None:
    queue = [waiter("job")]
    for _ in range(2 * MOST_NEAR):
        queue.append(waiter("job", *queue[::-1]))
    found = waits(past(job=[MINUTE] * 5), [], *queue)
    assert found[-1] == (2 * MOST_NEAR * MINUTE, 2 * MOST_NEAR * MINUTE)


def test_a_long_queue_that_is_listed_backwards_needs_no_deep_stack() -> None:
    queue = [waiter("job")]
    for _ in range(3_000):
        queue.append(waiter("job", queue[-1]))
    assert waits(past(job=[MINUTE] * 5), [], *queue[::-1])[-2] == (MINUTE, MINUTE)


def test_runs_and_map_indexes_of_a_task_are_one_task() -> None:
    odd = "d/a%g"
    tasks = {
        task_of(str(Owner("prod", odd, run, "task", index))) for run in ("a/b", "scheduled__2013") for index in (-1, 7)
    }
    assert len(tasks) == 1
    others = [Owner("test", odd, "r", "task"), Owner("prod", "d", "r", "task"), Owner("prod", odd, "r", "other")]
    others.append(Owner("prod", odd, "r", "task", hold="publish"))
    assert len({task_of(str(each)) for each in others} | tasks) == 5
    assert task_of("cli:ann:1234") is None
    assert task_of("root_20130120103000_1d7b6662") is None


@pytest.mark.parametrize(
    ("least_s", "most_s", "text"),
    [
        (725.0, 1141.0, "12 to 20 min"),
        (719.9999, 1200.0001, "12 to 20 min"),
        (20.0, 50.0, "up to 1 min"),
        (59.0, 300.0, "up to 5 min"),
        (60.0, 60.0, "1 to 1 min"),
        (1800.0, 5400.0, "30 min to 1 h 30 min"),
        (90_000.0, 180_000.0, "1 d 1 h to 2 d 2 h"),
    ],
)
def test_a_range_is_shown_in_whole_minutes_and_never_narrower_than_it_is(
    least_s: float, most_s: float, text: str
) -> None:
    assert str(WaitRange(least_s, most_s)) == f"probably {text} more"


SECONDS = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(SECONDS, min_size=FEWEST + 1, max_size=40))
def test_each_of_a_tasks_holds_is_mostly_inside_the_range_of_the_others(all_s: list[float]) -> None:
    """The promise about one hold: of n holds, at most twice the tenth are outside, or two where the tenth is less."""
    inside = 0
    for index, one_s in enumerate(all_s):
        found = past(job=[*all_s[:index], *all_s[index + 1 :]]).left(owner("job"), T.path)
        assert found
        inside += found.least_s - 1e-3 <= one_s <= found.most_s + 1e-3
    assert inside >= len(all_s) - 2 * max(1, int(len(all_s) * OUTSIDE))


@given(st.lists(SECONDS, min_size=FEWEST, max_size=30), SECONDS, st.integers(1, 4))
def test_a_range_is_in_order_and_never_in_the_past_and_grows_with_the_queue(
    all_s: list[float], held_s: float, length: int
) -> None:
    holder = lease("job", held_s)
    queue: list[Waiter] = []
    for _ in range(length):
        queue.append(waiter("job", *queue[::-1], holder))
    found = waits(past(job=all_s), [holder], *queue)
    ranges = [each for each in found if each]
    assert all(0 <= each.least_s <= each.most_s for each in ranges)
    assert ranges == sorted(ranges)
