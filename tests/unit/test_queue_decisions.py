"""The decision over a request: tables for permits, turns and invitations, and what must be true of every decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import permits, queueing
from airflow_hivelock.locks.invalid import InvalidRequest
from airflow_hivelock.locks.model import DeferredGrant, Group
from airflow_hivelock.locks.queueing import Other, Ruling, TimedPosition, Undecided
from tests.unit.queued import (
    AWAY_GRANT,
    HOUR,
    INVITED_GRANT,
    NOW,
    SLOT,
    WEEK,
    asking,
    at,
    decide,
    holds,
    invited,
    keys,
    permitted,
    waits,
)


def test_a_request_that_was_parked_passes_no_later_one_of_its_priority_that_joined_the_queue_before_it() -> None:
    low, equal = waits(49, 1), waits(49, 5, arrival=54)
    parked = Undecided(TimedPosition(at(50, 5), NOW), TimedPosition(at(55, 5, arrival=50), NOW))
    decision = decide(parked, [low, equal])
    assert decision.among_locks is not None
    assert decision.among_locks.position > equal.position
    assert keys(decision.ahead)[-1] == equal.key


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


def test_a_daily_run_passes_the_runs_of_a_backfill_for_a_week() -> None:
    backfill = [waits(turn, 0, age=WEEK - turn) for turn in (1, 2, 3)]
    assert decide(asking(), backfill).ruling is Ruling.GRANT
    assert decide(asking(most=1), [], backfill).ruling is Ruling.GRANT
    assert keys(decide(asking(), [waits(1, 0, age=WEEK)]).ahead) == ["w1"], "it has waited for its limit, too"
    daily = waits(1, age=WEEK - 1, arrival=9)
    assert keys(decide(asking(), [*backfill, daily]).ahead) == ["w1"], "the earlier daily run goes first"


def test_a_request_in_the_queue_keeps_its_place() -> None:
    place = TimedPosition(at(7, priority=2, arrival=9), NOW - 5)
    decision = decide(asking(priority=2, among_locks=place), [waits(3)])
    assert decision.among_locks == place
    assert decision.ruling is Ruling.WAIT


def test_requests_without_a_claim_are_removed_only_if_they_alone_are_in_the_way() -> None:
    assert decide(asking(), [waits(1, gone=True), holds(2)]).remove == ()
    decision = decide(asking(), [waits(1, gone=True), holds(2, gone=True), waits(60, gone=True)])
    assert (decision.ruling, keys(decision.remove)) == (Ruling.CLEAR, ["h2", "w1"])
    assert decide(asking(priority=2), [waits(1, gone=True)]).ruling is Ruling.GRANT, "a dead one may come back"


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


def test_an_invitation_that_keeps_a_permit_and_is_in_the_way_of_locks_ends_once() -> None:
    """A store notes the position of the request when it writes AWAY. Written twice, the position would be lost."""
    decision = decide(asking(most=1), [invited(1, over=True)], [permitted(1, over=True)])
    assert (decision.ruling, keys(decision.away)) == (Ruling.GRANT, ["i1"])


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
    states = {other.key: other for other in conflicting}  # a request in both lists has one state
    group = [states[other.key]._replace(timed=other.timed) if other.key in states else other for other in group]
    group = [other._replace(holds=other.holds or other.invited) for other in group]
    decision = decide(mine, conflicting, group)
    ended = keys(decision.away)
    living = [other for other in conflicting if other.holds and not other.gone]
    taken = [other for other in group if other.holds and not other.gone and other.key not in ended]
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
        left = [[other for other in some if other.key not in ended] for some in (conflicting, group)]
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
