"""The rules of the queue: tables for each rule, and what must be true of every queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import permits, queueing
from airflow_hivelock.locks.invalid import InvalidRequest
from airflow_hivelock.locks.model import DeferredGrant, Group, Lock, LockMode, LockObject
from airflow_hivelock.locks.queueing import Call, Earlier, Other, Position, Ruling, Start, TimedPosition, Undecided

if TYPE_CHECKING:
    from collections.abc import Sequence

S, X = LockMode.SHARED, LockMode.EXCLUSIVE

HOUR = 3_600
NOW = 100_000


def at(turn: int, priority: int = 1, arrival: int | None = None) -> Position:
    return Position(turn, -priority, turn if arrival is None else arrival)


def waits(turn: int, priority: int = 1, *, age: int = 1, gone: bool = False, arrival: int | None = None) -> Other:
    return Other(f"w{turn}", TimedPosition(at(turn, priority, arrival), NOW - age), holds=False, gone=gone)


def holds(turn: int, *, gone: bool = False) -> Other:
    return Other(f"h{turn}", TimedPosition(at(turn), NOW - 1), holds=True, gone=gone)


AWAY_GRANT, INVITED_GRANT, SLOT = DeferredGrant(), DeferredGrant(20.0), DeferredGrant(20.0, has_slot=True)


def invited(turn: int, *, over: bool = False) -> Other:
    return Other(f"i{turn}", TimedPosition(at(turn), NOW - 1), holds=False, invited=True, over=over)


def permitted(turn: int, *, over: bool = False) -> Other:
    """An invited request, as it is in the queue of its group."""
    return invited(turn, over=over)._replace(holds=True)


def asking(number: int = 50, priority: int = 1, **more: object) -> Undecided:
    own = TimedPosition(at(number, priority), NOW)
    return Undecided(own, own, **more)  # type: ignore[arg-type]


def decide(mine: Undecided, conflicting: Sequence[Other] = (), group: Sequence[Other] = ()) -> queueing.Decision:
    return queueing.decide(mine, conflicting, group, NOW - HOUR)


def keys(others: tuple[Other, ...]) -> list[object]:
    return [other.key for other in others]


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
    assert bool(one) is any(a.object == b.object and X in (a.mode, b.mode) for a in mine for b in theirs)


# Order and overtaking.


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
        ([(60, 1, 5)], 2, None),
    ],
)
def test_a_new_arrival_passes_lower_priorities_from_the_end_within_the_bound(
    waiting: list[tuple[int, int, int]], priority: int, claimed: int | None
) -> None:
    places = [waits(turn, of, age=age).timed for turn, of, age in waiting]
    own = TimedPosition(at(50, priority), NOW)
    joined = queueing.join(own, places, NOW - HOUR)
    assert joined.position == own.position._replace(number=claimed or 50)
    ages = {place.position.number: place.since for place in places}
    assert joined.since == ages.get(claimed or 50, NOW), "a claimed turn is as old as it was"


def test_no_request_is_passed_where_the_bound_is_zero() -> None:
    own = TimedPosition(at(50, 9), NOW)
    assert queueing.join(own, [waits(1, age=0).timed], NOW) == own


def test_a_turn_that_was_claimed_again_and_again_is_not_passed_after_the_bound() -> None:
    first = waits(1, age=HOUR - 1).timed
    second = queueing.join(TimedPosition(at(2, 2), NOW), [first], NOW - HOUR)
    assert second.position.number == 1
    later = NOW + 1
    own = TimedPosition(at(3, 3), later)
    assert queueing.join(own, [first, second], later - HOUR) == own


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
    ],
)
def test_a_changed_priority_overtakes_from_its_turn_or_goes_to_the_end(
    waiting: list[tuple[int, int, int]], mine: int, priority: int, turn: int | None
) -> None:
    places = {number: waits(number, of, age=age).timed for number, of, age in waiting}
    others = [place for number, place in places.items() if number != mine]
    moved = queueing.reprioritized(places[mine], TimedPosition(at(50, priority), NOW), others, NOW - HOUR)
    assert (moved and moved.position) == (turn and at(turn, priority, 50))
    if moved:
        assert moved.since == places[turn].since if turn in places else NOW


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, HOUR)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, HOUR)), max_size=8),
)
def test_changed_priorities_keep_the_order_and_the_bound(
    arrivals: list[tuple[int, int]], changes: list[tuple[int, int, int]]
) -> None:
    now, places = NOW, dict[int, tuple[TimedPosition, int]]()  # each with the time from which its bound counts
    for number, (priority, later) in enumerate(arrivals):
        now += later
        own = TimedPosition(at(number, priority), now)
        places[number] = queueing.join(own, [place for place, _ in places.values()], now - HOUR), now
    for number, (which, priority, later) in enumerate(changes, start=len(arrivals)):
        now += later
        key = which % len(places)
        before, began = places.pop(key)
        others = [place for place, _ in places.values()]
        if priority == -before.position.rank:  # the stores refuse it
            places[key] = before, began
            continue
        moved = queueing.reprioritized(before, TimedPosition(at(number, priority), now), others, now - HOUR)
        raised = priority > -before.position.rank
        for other, since in places.values():
            if moved is None:
                assert raised
                assert other.position > before.position or now - other.since >= HOUR, "it could have overtaken"
            elif moved.position < other.position < before.position or (not raised and moved.position < other.position):
                assert -other.position.rank < priority, "equals and higher priorities are not passed"
                assert now - since < HOUR, "no request is passed after the bound"
            elif before.position < other.position < moved.position:
                assert not raised, "a higher priority loses no place"
        places[key] = (before, began) if moved is None else (moved, began if raised else now)
        assert len({place.position for place, _ in places.values()}) == len(places)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2 * HOUR)), max_size=12))
def test_every_queue_keeps_its_order_and_its_bound(arrivals: list[tuple[int, int]]) -> None:
    """Requests arrive one after another; each joins where the rules say."""
    now, places = NOW, list[TimedPosition]()
    for number, (priority, later) in enumerate(arrivals, start=1):
        now += later
        joined = queueing.join(TimedPosition(at(number, priority), now), places, now - HOUR)
        for other in places:
            if joined.position < other.position:
                assert -other.position.rank < priority, "equals and higher priorities are not passed"
                assert now - other.since < HOUR, "no request is passed after the bound"
                assert joined.position.passed(other.position)
        assert joined.position not in [other.position for other in places]
        assert joined.since <= now
        places.append(joined)


# The blockers, and the watched one.


def test_in_the_way_are_earlier_waiters_and_all_holders_nearest_first() -> None:
    others = [waits(1), holds(2), waits(3), holds(9), waits(8)]
    assert [other.key for other in queueing.in_the_way(at(5), others)] == ["h9", "w3", "h2", "w1"]


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), unique_by=lambda one: one[0]), st.integers(1, 40))
def test_of_two_waiters_exactly_one_is_in_the_way_of_the_other(all_: list[tuple[int, bool]], mine: int) -> None:
    others = [holds(turn) if held else waits(turn) for turn, held in all_ if turn != mine]
    ahead = queueing.in_the_way(at(mine), others)
    for other in others:
        assert (other in ahead) is (other.holds or not queueing.in_the_way(other.position, [waits(mine)]))
    assert not ahead or queueing.watched(ahead) == (max(ahead, key=_position), min(ahead, key=_position))


def _position(other: Other) -> Position:
    return other.position


def test_a_request_that_was_parked_passes_no_later_one_of_its_priority_that_joined_the_queue_before_it() -> None:
    low, equal = waits(49, 1), waits(49, 5, arrival=54)
    parked = Undecided(TimedPosition(at(50, 5), NOW), TimedPosition(at(55, 5, arrival=50), NOW))
    decision = decide(parked, [low, equal])
    assert decision.among_locks is not None
    assert decision.among_locks.position > equal.position
    assert keys(decision.ahead)[-1] == equal.key


# Permits.


@pytest.mark.parametrize(
    ("most", "held", "waiting", "free"),
    [(1, 0, [], True), (1, 1, [], False), (2, 1, [], True), (2, 0, [3], False), (2, 0, [7], True), (1, 1, [7], False)],
)
def test_a_permit_is_free_below_the_limit_and_for_the_first_in_the_group(
    most: int, held: int, waiting: list[int], free: bool
) -> None:
    assert permits.free(at(5), 1, most, held, map(at, waiting)) is free
    group = [*map(waits, waiting), *map(holds, range(10, 10 + held))]
    assert (not queueing.in_the_way_of_permit(at(5), 1, most, group)) is free


@pytest.mark.parametrize(
    ("weight", "held", "free"), [(2, 2, True), (3, 2, False), (4, 0, True), (1, 4, False), (1, 9, False)]
)
def test_a_request_takes_as_many_permits_as_it_weighs(weight: int, held: int, free: bool) -> None:
    assert permits.free(at(5), weight, 4, held, ()) is free
    group = [holds(10)._replace(weight=held)] if held else []
    assert (not queueing.in_the_way_of_permit(at(5), weight, 4, group)) is free


def test_the_smallest_numbers_that_are_free_are_taken() -> None:
    assert [permits.numbers(taken, 1) for taken in (set[int](), {0}, {1}, {0, 1, 3})] == [(0,), (1,), (0,), (2,)]
    assert permits.numbers({0, 2}, 3) == (1, 3, 4)


def test_the_limit_in_the_store_counts_and_the_requests_own_is_the_fallback() -> None:
    stored = Group("g", 8, weight=2)
    assert (permits.limit(3, None), permits.limit(3, stored), permits.limit(10, stored)) == (3, 8, 8)
    assert (permits.weight(0, None), permits.weight(0, stored), permits.weight(5, stored)) == (1, 2, 5)


def test_a_request_that_can_never_have_its_permits_is_refused_with_the_next_step() -> None:
    permits.check("me", "g", 8, 8)
    with pytest.raises(InvalidRequest, match=r"me weighs 9, .* 'g' is 8, .*hivelock group set 'g' --leases 9"):
        permits.check("me", "g", 9, 8)


def test_a_heavy_request_at_the_front_is_not_starved_by_light_ones() -> None:
    heavy = waits(10)._replace(weight=3)
    assert decide(asking(most=3), [], [heavy]).ruling is Ruling.PARK, "there is room for it, but not for both"
    first = decide(asking(5, most=3, weight=3, in_group=TimedPosition(at(5), NOW)), [], [holds(1), waits(10)])
    assert (first.ruling, keys(first.ahead)) == (Ruling.PARK, ["h1"])


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
    assert queueing.take_over(call, LOCKED, "", earlier) is start


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
    assert queueing.take_over(Call(0, 5), LOCKED, named, earlier) is start


# The decision.


def test_a_request_that_is_alone_is_granted() -> None:
    assert decide(asking()) == queueing.Decision(Ruling.GRANT, TimedPosition(at(50), NOW), None)


def test_a_deferred_request_goes_away_where_another_is_granted_and_only_there() -> None:
    assert decide(asking(deferred=AWAY_GRANT)).ruling is Ruling.GO_AWAY
    assert decide(asking(deferred=AWAY_GRANT), [holds(1)]).ruling is Ruling.WAIT


def test_a_request_waits_for_holders_and_earlier_waiters_and_watches_the_nearest() -> None:
    decision = decide(asking(), [holds(1), waits(2), waits(60)])
    assert (decision.ruling, keys(decision.ahead), keys(decision.watch)) == (Ruling.WAIT, ["w2", "h1"], ["w2"])
    assert decision.among_locks == TimedPosition(at(50), NOW)
    assert "conflict" in decision.ruling.value


def test_a_higher_priority_passes_waiters_but_no_holder() -> None:
    decision = decide(asking(priority=2), [holds(1), waits(2)])
    assert keys(decision.ahead) == ["h1"]
    assert decision.among_locks == TimedPosition(at(2, 2, 50), NOW - 1)
    assert decide(asking(priority=2), [waits(2, age=HOUR)]).ruling is Ruling.WAIT


def test_a_request_in_the_queue_keeps_its_place() -> None:
    place = TimedPosition(at(7, priority=2, arrival=9), NOW - 5)
    decision = decide(asking(priority=2, among_locks=place), [waits(3)])
    assert decision.among_locks == place
    assert decision.ruling is Ruling.WAIT


def test_requests_without_a_claim_are_removed_only_if_they_alone_are_in_the_way() -> None:
    assert decide(asking(), [waits(1, gone=True), holds(2)]).remove == ()
    decision = decide(asking(), [waits(1, gone=True), holds(2, gone=True), waits(60, gone=True)])
    assert (decision.ruling, keys(decision.remove)) == (Ruling.CLEAR, ["h2", "w1"])
    assert decide(asking(priority=2), [waits(1, gone=True)]).ruling is Ruling.CLEAR, "the dead are not passed"


def test_a_request_without_a_permit_waits_in_its_groups_queue_only() -> None:
    decision = decide(asking(most=1), [holds(3)], [holds(1)])
    assert (decision.ruling, keys(decision.ahead), keys(decision.watch)) == (Ruling.PARK, ["h1"], ["h1"])
    assert decision.among_locks is None
    assert decision.in_group == TimedPosition(at(50), NOW)


def test_of_those_that_wait_for_a_permit_each_watches_the_next_before_it() -> None:
    decision = decide(asking(most=1), [], [holds(1), waits(2), waits(3), waits(60)])
    assert (keys(decision.ahead), keys(decision.watch)) == (["h1", "w3", "w2"], ["w3"])
    decision = decide(asking(most=2), [], [holds(1), waits(3)])
    assert (keys(decision.ahead), keys(decision.watch)) == (["w3"], ["w3"])


def test_with_its_permit_a_request_joins_the_queue_for_its_locks_as_a_new_arrival() -> None:
    in_group = TimedPosition(at(5), NOW - 9)
    decision = decide(asking(most=1, in_group=in_group), [waits(40)], [waits(60)])
    assert (decision.ruling, keys(decision.ahead)) == (Ruling.WAIT, ["w40"])
    assert (decision.among_locks, decision.in_group) == (TimedPosition(at(50), NOW), in_group)


def test_dead_members_of_a_group_keep_no_permit() -> None:
    decision = decide(asking(most=1), [], [holds(1, gone=True), waits(2, gone=True)])
    assert (decision.ruling, keys(decision.remove)) == (Ruling.CLEAR, ["h1", "w2"])
    decision = decide(asking(most=2), [], [holds(1, gone=True)])
    assert decision.ruling is Ruling.GRANT, "there is a permit besides"


# Invitations.


def test_a_deferred_request_is_invited_at_its_turn_where_the_connection_says_so() -> None:
    decision = decide(asking(deferred=INVITED_GRANT))
    assert (decision.ruling, decision.among_locks) == (Ruling.INVITE, TimedPosition(at(50), NOW))


def test_an_invited_request_blocks_what_a_waiting_one_blocks() -> None:
    decision = decide(asking(), [invited(1)])
    assert (decision.ruling, keys(decision.ahead), decision.away) == (Ruling.WAIT, ["i1"], ())
    assert decide(asking(priority=2), [invited(1)]).ruling is Ruling.GRANT, "a more urgent one passes it"


def test_who_waits_behind_invitations_ends_all_that_are_over_in_one_look() -> None:
    decision = decide(asking(), [invited(1, over=True), invited(2, over=True), invited(3), invited(60, over=True)])
    assert (decision.ruling, keys(decision.ahead)) == (Ruling.WAIT, ["i3"])
    assert keys(decision.away) == ["i2", "i1"], "not one behind it"
    decision = decide(asking(), [invited(1, over=True), invited(2, over=True)])
    assert (decision.ruling, keys(decision.away)) == (Ruling.GRANT, ["i2", "i1"])


def test_a_worker_with_a_request_in_its_way_writes_nothing_and_gives_its_slot_back() -> None:
    place = TimedPosition(at(7), NOW - 5)
    decision = decide(asking(among_locks=place, invited=True, deferred=SLOT), [waits(3)])
    assert (decision.ruling, decision.among_locks) == (Ruling.GIVE_SLOT_BACK, place)
    assert decide(asking(among_locks=place, invited=True, deferred=SLOT), [waits(9)]).ruling is Ruling.GRANT
    assert decide(asking(most=1, deferred=SLOT), [], [holds(1)]).ruling is Ruling.GIVE_SLOT_BACK


def test_an_invited_request_has_its_permit() -> None:
    assert decide(asking(most=1), [], [permitted(1)]).ruling is Ruling.PARK
    mine = asking(most=1, among_locks=TimedPosition(at(7), NOW), invited=True, deferred=SLOT)
    assert decide(mine, [], [holds(1)]).ruling is Ruling.GRANT, "it does not need a second one"


def test_the_first_in_a_group_ends_an_invitation_that_keeps_a_permit_for_too_long() -> None:
    decision = decide(asking(most=1), [], [permitted(1, over=True)])
    assert (decision.ruling, keys(decision.away)) == (Ruling.GRANT, ["i1"])
    decision = decide(asking(most=2), [], [permitted(1, over=True), holds(2)])
    assert (decision.ruling, keys(decision.away)) == (Ruling.GRANT, ["i1"])
    decision = decide(asking(most=1), [], [permitted(1, over=True), waits(2)])
    assert (decision.ruling, decision.away) == (Ruling.PARK, ()), "the one before it does that"
    decision = decide(asking(most=2), [], [permitted(1, over=True)])
    assert (decision.ruling, decision.away) == (Ruling.GRANT, ()), "there is a permit besides"


OTHERS_ = st.lists(
    st.builds(
        lambda turn, priority, age, state: Other(
            turn,
            TimedPosition(at(turn, 1 if state.startswith("holds") else priority), NOW - age),
            holds=state.startswith("holds"),
            gone=state.endswith("gone"),
            invited=state.startswith("invited"),
            over=state.endswith("over"),
        ),
        st.integers(1, 99),
        st.integers(1, 3),
        st.integers(0, 2 * HOUR),
        st.sampled_from(("waits", "waits, gone", "holds", "holds, gone", "invited", "invited, over")),
    ),
    max_size=8,
    unique_by=lambda other: other.key,
)


@given(OTHERS_, OTHERS_, st.integers(1, 3), st.integers(0, 2), st.sampled_from((None, AWAY_GRANT, INVITED_GRANT, SLOT)))
def test_every_decision_is_safe_and_lasts(
    conflicting: list[Other], group: list[Other], priority: int, most: int, deferred: DeferredGrant | None
) -> None:
    mine = asking(100, priority, most=most, deferred=deferred)
    group = [other._replace(holds=other.holds or other.invited) for other in group]
    decision = decide(mine, conflicting, group)
    living = [other for other in conflicting if other.holds and not other.gone]
    taken = [other for other in group if other.holds and not other.gone and other not in decision.away]
    assert all(other.over for other in decision.away), "an invitation is ended before its time"
    if decision.ruling in (Ruling.GRANT, Ruling.GO_AWAY, Ruling.INVITE):
        assert not living, "two that conflict would hold"
        assert not most or len(taken) < most, "one lease too many"
        assert decision.ruling is queueing.at_turn(deferred)
    waits_ = (Ruling.WAIT, Ruling.PARK, Ruling.GIVE_SLOT_BACK)
    if decision.ruling in waits_:
        assert (decision.ruling is Ruling.GIVE_SLOT_BACK) is (deferred is SLOT)
        assert decision.ahead
        assert set(decision.watch) <= set(decision.ahead)
        assert decision.watch
        assert not any(other.gone for other in decision.ahead), "no request waits for the dead"
        assert decision.ruling is not Ruling.PARK or decision.among_locks is None
        assert decision.ruling is not Ruling.WAIT or decision.among_locks
        kept = mine._replace(among_locks=decision.among_locks, in_group=decision.in_group)
        left = [[other for other in some if other not in decision.away] for some in (conflicting, group)]
        again = decide(kept, *left)
        assert (again.ruling, again.ahead, again.away) == (decision.ruling, decision.ahead, ()), (
            "it would move without a change"
        )
        if decision.among_locks:
            assert not any(other.over for other in decision.ahead), "it waits for an invitation that is over"
    if decision.ruling is Ruling.CLEAR:
        assert decision.remove
        assert all(other.gone for other in decision.remove)
        rest = [[other for other in some if other not in decision.remove] for some in (conflicting, group)]
        assert decide(mine, *rest).remove != decision.remove, "it would clear for ever"
