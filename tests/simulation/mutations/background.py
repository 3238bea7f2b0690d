"""Requests of priority 0 or less wait in the background, behind all others, for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes, waiting
from airflow_hivelock.locks.backends.zookeeper.permits import GroupLook
from airflow_hivelock.locks.model import Lease, LeaseLimit
from airflow_hivelock.locks.queueing import Position, TimedPosition
from tests.conformance.priority import BACKGROUND
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import writes
from tests.simulation.themes import URGENT

if TYPE_CHECKING:
    import pytest

    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch

ONE = LeaseLimit("g", 1)


def the_daily_run_comes_late(stage: Stage) -> None:
    ours, mine, daily, later = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "daily", "later"))
    held = ours.gets("a", [], ["w.a"])
    backfill = mine.asks("b", [], ["w.a"], priority=0)
    backfill.poll()
    stage.schedule.sleep(20.0)
    first = daily.asks("d", [], ["w.a"])
    first.poll()
    urgent = later.asks("u", [], ["w.a"], priority=5)
    urgent.poll()
    ours.releases(held)
    later.releases(urgent.lease())
    daily.releases(first.lease())
    backfill.lease()


@mutation(the_daily_run_comes_late, theme=URGENT)
def background_has_no_bound_of_its_own(patch: Patch) -> None:
    """The daily run waits until the runs of a backfill have ended that have waited for longer than the bound."""
    patch.setattr(queueing, "BACKGROUND", 1)


@mutation(the_daily_run_comes_late, theme=URGENT)
def claimed_place_has_the_time_of_background(patch: Patch) -> None:
    """A more urgent run waits for the daily run, as if that had waited as long as the backfill."""
    edit(patch, TimedPosition, "claiming", "one.since + limit.of(one.position)", "one.since + limit.of(position)")


def the_daily_runs_have_waited_for_long(stage: Stage) -> None:
    names = ("ours", "mine", "daily", "later")
    ours, mine, daily, later = (stage.process(name, passing_s=10.0) for name in names)
    held = ours.gets("a", [], ["w.a"])
    asked = [mine.asks("b", [], ["w.a"], priority=0)]
    asked[0].poll()
    for number in range(3):
        asked.insert(0, daily.asks(f"d{number}", [], ["w.a"]))
        asked[0].poll()
        stage.schedule.sleep(4.0)
    later.asks("u", [], ["w.a"], priority=5).poll()
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["d0", "u", "d1", "d2", "b"]
    assert later.prioritizes("d2", 9)
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["d0", "d2", "u", "d1", "b"]
    ours.releases(held)


@mutation(the_daily_runs_have_waited_for_long, theme=URGENT)
def background_is_not_behind(patch: Patch) -> None:
    """All daily runs have the number of the backfill's run, and none can go between them."""
    edit(patch, Position, "unclaimed", "number if priority > 0 else BEHIND + number", "number")


def background_waits_no_longer(stage: Stage) -> None:
    ours, mine, daily = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "daily"))
    ours.gets("a", [], ["w.a"])
    backfill = mine.asks("b", [], ["w.a"], priority=0)
    backfill.poll()
    stage.schedule.quiet = True  # time may jump
    stage.schedule.sleep(10.0 * BACKGROUND)
    daily.asks("d0", [], ["w.a"]).poll()
    mine.withdraws(backfill)
    daily.asks("d1", [], ["w.a"]).poll()
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["d0", "d1"]


@mutation(background_waits_no_longer, theme=URGENT)
def equals_behind_background_are_passed(patch: Patch) -> None:
    """The first daily run has waited behind the backfill's run, which could not be overtaken any more."""
    edit(patch, queueing, "may_claim", " or other.number >= BEHIND > own.number", "")


def _passes_background_at_its_end(stage: Stage, *daily: str) -> None:
    """The backfill's run waits no longer. It does not conflict with the last request, which must stay behind *u*."""
    ours, mine, urgent, later = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "urgent", "later"))
    held = ours.gets("a", [], ["w.a", "w.b"])
    mine.asks("b", [], ["w.a"], priority=0).poll()
    stage.schedule.quiet = True  # time may jump
    stage.schedule.sleep(10.0 * BACKGROUND - 5.0)
    for owner in daily:
        mine.asks(owner, [], ["w.b"]).poll()
    between, last = urgent.asks("u", [], ["w.a", "w.b"], priority=5), later.asks("v", [], ["w.b"], priority=9)
    between.poll()
    stage.schedule.sleep(6.0)
    last.poll()
    ours.releases(held)
    assert isinstance(last.poll(), Blocked), "it passes the backfill's run through another"
    urgent.releases(between.lease())


def one_passes_background_at_its_end(stage: Stage) -> None:
    _passes_background_at_its_end(stage)


@mutation(one_passes_background_at_its_end, theme=URGENT)
def passed_background_does_not_count(patch: Patch) -> None:
    """A request that keeps its own number is as new, although it has overtaken one that waits no longer."""
    edit(patch, waiting, "claimed", "if joins == own", "if joins.position == own.position")


def one_passes_background_and_another(stage: Stage) -> None:
    _passes_background_at_its_end(stage, "d")


@mutation(one_passes_background_and_another, theme=URGENT)
def only_the_last_of_the_passed_counts(patch: Patch) -> None:
    """Others pass it for longer than they may pass one that waits behind it."""
    edit(patch, TimedPosition, "claiming", "for one in passed)", "for one in passed[-1:])")


def one_in_the_background_is_quicker(stage: Stage) -> None:
    mine, urgent = stage.process("mine"), stage.process("urgent")
    mine.releases(mine.gets("a", [], ["w.a"]))  # the table's node stays
    held: list[Lease] = []
    urgent.session.before(writes("u", "granted"), lambda: held.append(mine.asks("b", [], ["w.a"], priority=0).lease()))
    asked = urgent.asks("u", [], ["w.a"])
    assert isinstance(asked.poll(), Blocked)
    mine.releases(held[0])
    asked.lease()


@mutation(one_in_the_background_is_quicker, theme=URGENT)
def overtaken_overlooked_at_once(patch: Patch) -> None:
    """A request is granted at once, and one that it overtakes has the lock since the look."""
    edit(patch, nodes, "_before", "AFTER_ALL if position.arrival == since else position", "position")


def background_waits_no_longer_for_a_lease(stage: Stage) -> None:
    ours, mine, late = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "late"))
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    waiter = mine.asks("b", [], ["w.b"], limit=ONE, priority=0)
    waiter.poll()
    stage.schedule.quiet = True  # time may jump
    stage.schedule.sleep(10.0 * BACKGROUND)
    ours.releases(lease)
    newcomer = late.asks("c", [], ["w.c"], limit=ONE)
    assert isinstance(newcomer.poll(), Blocked)
    mine.releases(waiter.lease())
    newcomer.lease()


@mutation(background_waits_no_longer_for_a_lease)
def newcomers_go_before_background(patch: Patch) -> None:
    """A permit is free, and a backfill's run that waits for it can no longer be overtaken."""
    edit(patch, GroupLook, "free", "else AFTER_ALL", "else Position.newcomer(mine.priority)")


def an_earlier_request_parks_late(stage: Stage) -> None:
    ours, mine, daily = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "daily"))
    held = ours.gets("a", [], ["w.a"])
    earlier = daily.asks("d", [], ["w.a"], limit=ONE)
    earlier.poll()
    lease = ours.gets("c", [], ["w.b"], limit=ONE)
    backfill = mine.asks("b", [], ["w.c"], limit=ONE, priority=0)
    backfill.poll()
    stage.schedule.quiet = True  # time may jump
    stage.schedule.sleep(10.0 * BACKGROUND)
    ours.releases(held)
    earlier.poll()
    ours.releases(lease)
    daily.releases(earlier.lease())
    backfill.lease()


@mutation(an_earlier_request_parks_late)
def all_background_is_ahead(patch: Patch) -> None:
    """A request that waited for its locks parks behind a later one that can no longer be overtaken."""
    edit(patch, queueing, "join", "range(BEHIND, BEHIND + mine.number)", "range(BEHIND, 2 * BEHIND)")


def one_that_has_parked_is_raised(stage: Stage) -> None:
    ours, mine, daily = stage.process("ours"), stage.process("mine"), stage.process("daily")
    held, lease = ours.gets("a", [], ["w.a"]), ours.gets("c", [], ["w.b"], limit=ONE)
    backfill = mine.asks("b", [], ["w.a"], limit=ONE, priority=0)
    backfill.poll()
    ours.releases(lease)
    backfill.poll()  # it waits for its locks, and keeps its place
    lease = ours.gets("e", [], ["w.c"], limit=ONE)
    later = daily.asks("d", [], ["w.d"], limit=ONE)
    later.poll()
    assert daily.prioritizes("b", 5)
    ours.releases(held)
    backfill.poll()
    ours.releases(lease)
    mine.releases(backfill.lease())
    later.lease()


@mutation(one_that_has_parked_is_raised)
def raised_request_parks_in_the_background(patch: Patch) -> None:
    """A request that a person has raised waits for its permit behind all daily runs."""
    edit(patch, waiting, "reprioritized", "and share.place:", "and not share.place:")


def a_lease_of_the_background_ends(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    lease = ours.asks("b", [], ["w.a"], priority=0).lease()
    daily = [mine.asks(f"d{number}", [], ["w.a"]) for number in range(3)]
    for one in daily:
        one.poll()
    ours.manager.renew(lease)
    ours.releases(lease)
    stage.schedule.sleep(1.0)
    assert [one.flag.raised for one in daily] == [True, False, False]


@mutation(a_lease_of_the_background_ends)
def overtaken_holders_come_first(patch: Patch) -> None:
    """The end of a backfill's lease wakes all waiters, and not only the next one."""
    edit(patch, queueing, "in_the_way", "(other.position < mine, other.position)", "other.position")
