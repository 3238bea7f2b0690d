"""The rules of the queue: tables for each rule, and what must be true of every queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import calls, queueing
from airflow_hivelock.locks.calls import Call, Earlier, Start
from airflow_hivelock.locks.model import Lock, LockMode, LockObject
from airflow_hivelock.locks.queueing import BEHIND, Other, OvertakingLimit, Position, TimedPosition
from tests.backends.queue_model import exclude
from tests.unit.queued import HOUR, LIMIT, NOW, WEEK, at, holds, waits

S, X = LockMode.SHARED, LockMode.EXCLUSIVE

# Conflict.


@pytest.mark.parametrize(("one", "other", "excluded"), [(S, S, False), (S, X, True), (X, S, True), (X, X, True)])
def test_shared_excludes_exclusive_and_exclusive_excludes_both(one: LockMode, other: LockMode, excluded: bool) -> None:
    assert queueing.conflict(one, other) is excluded
    assert (other in queueing.excluded_by(one)) is excluded


SPECS = [(), (("dt", "1"),), (("dt", "2"),), (("dt", "1"), ("hr", "1"))]
OBJECTS = st.sampled_from([LockObject("a"), *(LockObject("a", table, spec) for table in "tu" for spec in SPECS)])
LOCKS = st.dictionaries(OBJECTS, st.sampled_from(LockMode), max_size=4).map(
    lambda modes: [Lock(target, mode) for target, mode in modes.items()]
)


@given(LOCKS, LOCKS)
def test_two_lock_sets_conflict_mutually_and_on_one_object(mine: list[Lock], theirs: list[Lock]) -> None:
    one, other = queueing.conflicts(mine, theirs), queueing.conflicts(theirs, mine)
    assert {lock.object for lock in one} == {lock.object for lock in other}
    assert set(one) <= set(theirs)
    modes = {lock.object: lock.mode for lock in mine}
    assert queueing.excludes(modes, theirs) is bool(one)
    assert bool(one) is exclude(tuple(mine), tuple(theirs))


# Order and overtaking.

PAUSES = st.integers(0, 2 * HOUR) | st.integers(0, WEEK)


def bound(place: TimedPosition) -> int:
    """For how long a request can be overtaken."""
    return HOUR if place.position.rank < 0 else WEEK


def waited_long(place: TimedPosition, now: int) -> bool:
    return now - place.since >= bound(place)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (at(1), at(2)),
        (at(1, priority=2, arrival=9), at(1, priority=1)),
        (at(1, priority=2, arrival=8), at(1, priority=2, arrival=9)),
        (at(1), at(2, priority=9)),
        (at(9), Position.newcomer(9)),
    ],
)
def test_the_earlier_turn_goes_first_then_the_higher_priority_then_the_earlier_arrival(
    first: Position, second: Position
) -> None:
    assert first < second


@pytest.mark.parametrize(
    ("waiting", "priority", "claimed"),
    [
        ([], 2, None),
        ([(1, 1, 5), (2, 1, 5)], 2, 1),
        ([(1, 1, 5), (2, 1, 5)], 1, None),
        ([(1, 1, 5), (2, 3, 5), (3, 1, 5)], 2, 3),
        ([(1, 1, 5), (2, 2, 5), (3, 1, 5)], 2, 3),
        ([(1, 1, 5), (2, 3, 5)], 2, None),
        ([(1, 1, HOUR), (2, 1, 5)], 2, 2),
        ([(1, 1, 5), (2, 1, HOUR)], 2, None),
        ([(1, 1, HOUR - 1)], 2, 1),
        ([(1, 0, WEEK - HOUR), (2, -3, 5)], 1, None),
        ([(1, 0, 5), (2, 1, 5), (3, 0, 5), (4, 1, 5)], 2, 2),
        ([(1, 0, WEEK - 1), (2, -3, WEEK)], 9, BEHIND + 3),
        ([(1, 0, WEEK), (2, -3, 5)], 9, BEHIND + 2),
        ([(1, 0, 5), (2, -3, 5)], -1, BEHIND + 2),
        ([(60, 1, 5)], 2, None),
    ],
)
def test_a_new_arrival_passes_lower_priorities_from_the_end_within_the_bound(
    waiting: list[tuple[int, int, int]], priority: int, claimed: int | None
) -> None:
    places = [waits(turn, of, age=age).timed for turn, of, age in waiting]
    own = TimedPosition(at(50, priority), NOW)
    joined = queueing.join(own, places, LIMIT)
    assert joined.position == own.position._replace(number=own.position.number if claimed is None else claimed)
    passed = next((place for place in places if place.position.number == claimed), own)
    assert joined.since == min(NOW, passed.since + bound(passed) - bound(joined)), "it reaches the limit no later"


def test_no_request_is_passed_where_the_bound_is_zero() -> None:
    for priority in (0, 1):
        first = waits(1, priority, age=0).timed
        assert queueing.join(TimedPosition(at(50, 9), NOW), [first], OvertakingLimit(NOW, 0)).position > first.position


def test_a_turn_that_was_claimed_again_and_again_is_not_passed_after_the_bound() -> None:
    first = waits(1, age=HOUR - 1).timed
    second = queueing.join(TimedPosition(at(2, 2), NOW), [first], LIMIT)
    assert second.position.number == 1
    later = NOW + 1
    own = TimedPosition(at(3, 3), later)
    assert queueing.join(own, [first, second], OvertakingLimit(later, HOUR)) == own


def test_who_passes_reaches_the_bound_with_the_first_of_all_that_it_passes() -> None:
    """The second has the position of a backfill's run since a moment ago. The third waits behind it for nearly an hour."""
    backfill, third = waits(1, 0, age=2 * HOUR).timed, waits(5, 1, age=HOUR - 9).timed
    second = TimedPosition(at(3, 1), NOW - 1)
    urgent = queueing.join(TimedPosition(at(50, 5), NOW), [backfill, second, third], LIMIT)
    assert urgent == TimedPosition(at(3, 5, 50), third.since)


def test_who_passes_the_background_reaches_its_bound_no_later() -> None:
    backfill = waits(1, 0, age=WEEK - 9).timed
    own = TimedPosition(at(50), NOW)
    assert queueing.join(own, [backfill], LIMIT) == own._replace(since=NOW + 9 - HOUR)


def test_the_urgent_goes_behind_the_daily_run_at_its_bound_and_before_the_others() -> None:
    """All daily runs have overtaken the backfill, and the first of them has waited for the bound."""
    backfill = waits(1, 0, age=2 * HOUR).timed
    daily = [waits(number, age=age).timed for number, age in ((2, HOUR), (3, 9), (4, 5))]
    own = TimedPosition(at(50, 9), NOW)
    assert queueing.join(own, [backfill, *daily], LIMIT).position == at(3, 9, 50)
    raised = queueing.reprioritized(daily[2], own, [backfill, *daily[:2]], LIMIT)
    assert raised is not None
    assert raised.position == at(3, 9, 50)


def test_a_position_is_not_claimed_before_one_there_that_has_reached_its_bound() -> None:
    """The two have one number, so there is no number between them."""
    backfill, second = waits(1, 0, age=2 * HOUR).timed, TimedPosition(Position(BEHIND + 1, -1, 7), NOW - HOUR)
    joined = queueing.join(TimedPosition(at(50, 5), NOW), [backfill, second], LIMIT)
    assert joined.position == Position(BEHIND + 2, -5, 50)


def test_an_earlier_request_joins_before_background_work_that_has_reached_its_bound() -> None:
    """It waited for its locks before, and now parks in the queue of its group for the first time."""
    backfill = TimedPosition(at(20, 0), NOW - WEEK)
    assert queueing.join(TimedPosition(at(10, 1), NOW), [backfill], LIMIT).position == at(10, 1)
    assert queueing.join(TimedPosition(at(30, 1), NOW), [backfill], LIMIT).position == Position(BEHIND + 21, -1, 30)


@pytest.mark.parametrize(
    ("number", "before", "after", "moved"),
    [
        (5, 1, 9, 5),
        (5, 1, 0, BEHIND + 5),
        (BEHIND + 5, 0, -3, BEHIND + 5),
        (BEHIND + 5, 0, 1, 5),
        (BEHIND + 5, 1, 9, BEHIND + 5),  # behind background work that has reached its bound
    ],
)
def test_a_changed_priority_moves_a_position_into_the_background_and_out_of_it(
    number: int, before: int, after: int, moved: int
) -> None:
    assert Position(number, -before, 50).reranked(after) == Position(moved, -after, 50)


def test_a_request_that_was_passed_may_hold_all_the_same() -> None:
    earlier, mine = at(1), at(1, priority=2, arrival=5)
    assert mine.passed(earlier)
    assert not mine.passed(at(9))
    assert not earlier.passed(mine)


@pytest.mark.parametrize(
    ("waiting", "mine", "priority", "turn"),
    [
        ([(1, 1, 5), (2, 1, 4), (3, 1, 3)], 3, 5, 1),
        ([(1, 5, 5), (2, 1, 4), (3, 1, 3)], 3, 5, 2),
        ([(1, 1, HOUR), (2, 1, 4), (3, 1, 3)], 3, 5, 2),
        ([(1, 1, 5), (2, 1, 4), (3, 5, 3)], 1, 5, 1),
        ([(1, 1, HOUR), (2, 1, HOUR)], 2, 5, None),
        ([(1, 5, 5), (2, 3, 4), (3, 1, 3)], 1, 3, 3),
        ([(1, 5, 5), (2, 5, 4), (3, 5, 3)], 1, 1, 50),
        ([(1, 5, HOUR), (2, 5, 4)], 1, 1, 50),
        ([(1, 5, HOUR), (2, 1, HOUR)], 1, 3, 50),
        ([(1, 0, HOUR), (2, 0, HOUR), (3, 0, HOUR)], 2, 1, 50),
        ([(1, 0, HOUR), (2, 0, HOUR), (3, -1, HOUR)], 3, 0, 3),
        ([(1, 0, HOUR + 1), (2, 1, HOUR)], 2, 5, None),
        ([(1, 1, HOUR), (2, 0, HOUR)], 2, 5, 50),
        ([(1, 0, WEEK), (2, 0, WEEK)], 2, 5, None),
        ([(1, 1, 5), (2, 0, WEEK)], 2, 5, 1),
        ([(1, 5, 5), (2, 0, WEEK)], 2, 5, 50),
    ],
)
def test_a_changed_priority_overtakes_from_its_turn_or_goes_to_the_end(
    waiting: list[tuple[int, int, int]], mine: int, priority: int, turn: int | None
) -> None:
    places = {number: waits(number, of, age=age).timed for number, of, age in waiting}
    others = [place for number, place in places.items() if number != mine]
    moved = queueing.reprioritized(places[mine], TimedPosition(at(50, priority), NOW), others, LIMIT)
    assert (moved and moved.position) == (turn and at(turn, priority, 50))
    if moved:
        passed = places.get(turn or 0, moved)
        raised = [places[mine]] if priority > -places[mine].position.rank else []
        ends = [place.since + bound(place) for place in (passed, *raised)]
        assert moved.since == min(NOW, min(ends) - bound(moved)), "a raised request keeps the limit that it has reached"


@given(
    st.lists(st.tuples(st.integers(-1, 3), PAUSES), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(-1, 3), PAUSES), max_size=8),
)
def test_changed_priorities_keep_the_order_and_the_bound(
    arrivals: list[tuple[int, int]], changes: list[tuple[int, int, int]]
) -> None:
    now, places = NOW, dict[int, tuple[TimedPosition, int]]()  # each with the time from which its bound counts
    for number, (priority, later) in enumerate(arrivals):
        now += later
        own = TimedPosition(at(number, priority), now)
        places[number] = queueing.join(own, [place for place, _ in places.values()], OvertakingLimit(now, HOUR)), now
    for number, (which, priority, later) in enumerate(changes, start=len(arrivals)):
        now += later
        key = which % len(places)
        before, began = places.pop(key)
        others = [place for place, _ in places.values()]
        if priority == -before.position.rank:  # the stores refuse it
            places[key] = before, began
            continue
        moved = queueing.reprioritized(
            before, TimedPosition(at(number, priority), now), others, OvertakingLimit(now, HOUR)
        )
        raised = priority > -before.position.rank
        if moved is None:
            assert raised
            ahead = [other for other in others if other.position < before.position]
            barred = any(-other.position.rank >= priority or waited_long(other, now) for other in ahead)
            assert barred or (not ahead and waited_long(before, now)), "it could have overtaken, or be protected"
            places[key] = before, began
            continue
        for other, since in places.values():
            if moved.position < other.position < before.position or (not raised and moved.position < other.position):
                assert -other.position.rank < priority, "equals and higher priorities are not passed"
                assert now - since < bound(other), "no request is passed after the bound"
            elif before.position < other.position < moved.position:
                assert not raised, "a higher priority loses no place"
        places[key] = moved, began if raised and bound(moved) == bound(before) else now
        assert len({place.position for place, _ in places.values()}) == len(places)


@given(st.lists(st.tuples(st.integers(-1, 3), PAUSES), max_size=12))
def test_every_queue_keeps_its_order_and_its_bound(arrivals: list[tuple[int, int]]) -> None:
    """Requests arrive one after another; each joins where the rules say."""
    now, places = NOW, list[TimedPosition]()
    for number, (priority, later) in enumerate(arrivals, start=1):
        now += later
        joined = queueing.join(TimedPosition(at(number, priority), now), places, OvertakingLimit(now, HOUR))
        for other in places:
            if joined.position < other.position:
                assert -other.position.rank < priority, "equals and higher priorities are not passed"
                assert not waited_long(other, now), "no request is passed after the bound"
                assert joined.position.passed(other.position)
        ahead = [other for other in places if other.position < joined.position]
        # Behind background work that has reached its bound, several requests have one number.
        if ahead and not any(
            place.position.rank < 0 and place.position.number >= BEHIND for place in [joined, *places]
        ):
            last = max(ahead)
            assert -last.position.rank >= priority or waited_long(last, now), "it goes as far as it may"
        assert joined.position not in [other.position for other in places]
        assert joined.since <= now
        places.append(joined)


# The blockers, and the watched one.


def test_in_the_way_are_earlier_waiters_and_all_holders_nearest_first_and_overtaken_holders_last() -> None:
    others = [waits(1), holds(2), waits(3), holds(9), waits(8)]
    assert [other.key for other in queueing.in_the_way(at(5), others)] == ["w3", "h2", "w1", "h9"]


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), unique_by=lambda one: one[0]), st.integers(1, 40))
def test_of_two_waiters_exactly_one_is_in_the_way_of_the_other(all_: list[tuple[int, bool]], mine: int) -> None:
    others = [holds(turn) if held else waits(turn) for turn, held in all_ if turn != mine]
    ahead = queueing.in_the_way(at(mine), others)
    for other in others:
        assert (other in ahead) is (other.holds or not queueing.in_the_way(other.position, [waits(mine)]))
    before = [other for other in ahead if other.position < at(mine)]
    assert not before or queueing.watched(ahead)[0] == max(before, key=_position)


def _position(other: Other) -> Position:
    return other.position


# Take-over.

LOCKED = (Lock(LockObject("dw", "t"), X),)
OTHERS = (Lock(LockObject("dw", "u"), X),)


@pytest.mark.parametrize(
    ("call", "earlier", "start"),
    [
        (Call(0, 5), None, Start.FRESH),
        (Call(0, 5), Earlier(Call(0, 3), True, False, LOCKED), Start.TAKE_OVER),
        (Call(1, 2), Earlier(Call(0, 3), True, False, LOCKED), Start.TAKE_OVER),
        (Call(0, 5), Earlier(Call(1, 3), True, False, LOCKED), Start.STALE),
        (Call(0, 2), Earlier(Call(0, 3), True, False, LOCKED), Start.STALE),
        (Call(0, 3, "a"), Earlier(Call(0, 3, "b"), True, False, LOCKED), Start.STALE),
        (Call(0, 3, "a"), Earlier(Call(0, 3, "a"), False, False, LOCKED), Start.FRESH),
        (Call(0, 3, "a"), Earlier(Call(0, 3, "a"), False, True, LOCKED), Start.STALE),
        (Call(0, 5), Earlier(Call(0, 3), True, False, OTHERS), Start.MISMATCH),
        (Call(0, 2), Earlier(Call(0, 3), True, False, OTHERS), Start.STALE),
        (Call(0, 5), Earlier(Call(0, 3), False, False, OTHERS), Start.FRESH),
        (Call(0, 5), Earlier(Call(0, 3), False, True, OTHERS), Start.FRESH),
    ],
)
def test_of_two_calls_of_an_owner_the_later_acts(call: Call, earlier: Earlier | None, start: Start) -> None:
    assert calls.take_over(call, LOCKED, "", earlier) is start


@pytest.mark.parametrize(
    ("named", "earlier", "start"),
    [
        ("INSERT …", Earlier(Call(0, 3), True, False, OTHERS, "INSERT …"), Start.TAKE_OVER),
        ("INSERT …", Earlier(Call(0, 3), True, False, LOCKED, "DROP …"), Start.MISMATCH),
        ("INSERT …", Earlier(Call(0, 3), True, False, OTHERS, "INSERT …", gave_back=True), Start.MISMATCH),
        ("INSERT …", Earlier(Call(0, 3), True, False, LOCKED, "INSERT …", gave_back=True), Start.TAKE_OVER),
        ("", Earlier(Call(0, 3), True, False, LOCKED, "INSERT …"), Start.TAKE_OVER),
    ],
)
def test_a_planned_request_is_the_same_if_its_plan_is(named: str, earlier: Earlier, start: Start) -> None:
    assert calls.take_over(Call(0, 5), LOCKED, named, earlier) is start
