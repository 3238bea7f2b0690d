"""Priority: which requests claim an earlier position, which are notified, and which still block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes, waiting
from airflow_hivelock.locks.backends.zookeeper.client import Exists, Get
from airflow_hivelock.locks.backends.zookeeper.queue import Ticket
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import LockLost
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.locks.queueing import TimedPosition
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import step_by_step, writes
from tests.simulation.themes import URGENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from tests.simulation.stage import Asked, Stage

    Patch = pytest.MonkeyPatch


def _passed(stage: Stage, due: Callable[[Request], bool]) -> None:
    """Somebody's turn has come, and a more urgent one comes before the request that is *due*."""
    ours, mine, urgent = stage.process("ours"), stage.process("mine"), stage.process("urgent")
    held = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    waiter.poll()
    ours.releases(held)
    got: list[object] = []
    mine.session.before(due, lambda: got.append(urgent.asks("u", [], ["w.a"], priority=5).poll()))
    assert isinstance(waiter.poll(), Blocked)
    assert [type(outcome) for outcome in got] == [Lease]


def one_is_passed_as_it_tries(stage: Stage) -> None:
    _passed(stage, writes("b", "granted"))


@mutation(one_is_passed_as_it_tries, theme=URGENT)
def claims_overlooked_after_the_try(patch: Patch) -> None:
    """A request has claimed its position since, and has locks that conflict."""
    edit(patch, nodes, "_before", "if ticket.zxid < since", "if ticket.zxid < min(since, position.arrival)")


def _waits_before(stage: Stage) -> Callable[[], Asked]:
    """Somebody waits for a table that is free by now, who has not heard of that; and how one asks who claims its place."""
    ours, other, urgent = stage.process("first"), stage.process("second"), stage.process("urgent")
    held = ours.gets("a", [], ["w.b"])
    other.asks("b", [], ["w.b"]).poll()
    ours.releases(held)
    return lambda: urgent.asks("u", [], ["w.a", "w.b"], priority=5)


def a_holder_is_behind(stage: Stage) -> None:
    asks, ours = _waits_before(stage), stage.process("ours")
    held = ours.gets("h", [], ["w.a"])
    urgent = asks()
    assert isinstance(urgent.poll(), Blocked)
    ours.releases(held)
    assert urgent.flag.raised
    assert isinstance(urgent.poll(), Lease)


@mutation(a_holder_is_behind, theme=URGENT)
def holder_behind_ignored(patch: Patch) -> None:
    """It came after the place that is claimed, and holds what is wanted."""
    edit(patch, waiting, "in_the_way", "one.path in holding", "False")


def one_claims_a_position_before_a_holder(stage: Stage) -> None:
    asks, ours, again = _waits_before(stage), stage.process("ours"), stage.process("again")
    ours.gets("h", [], ["w.a"])
    assert isinstance(asks().poll(), Blocked)
    again.gets("h", [], ["w.a"], attempt=1)


@mutation(one_claims_a_position_before_a_holder, theme=URGENT)
def claims_after_the_grant_heeded(patch: Patch) -> None:
    """A lease that its caller has got is released when the owner's next process looks again."""
    edit(patch, nodes, "_before", " if ticket.zxid < since", "")


@step_by_step
def one_behind_tries_in_vain(stage: Stage) -> None:
    asks, ours, hive = _waits_before(stage), stage.process("ours"), stage.hive()
    ours.releases(ours.gets("c", [], ["w.a"]))  # the table's node stays
    urgent: list[Asked] = []

    def comes() -> None:
        urgent.append(asks())
        assert isinstance(urgent[0].poll(), Blocked)

    ours.session.before(writes("h", "granted"), lambda: hive.lock_table("w/a", "SHARED"))
    ours.session.before(writes("h", "waiting"), lambda: None)  # its ticket
    waiter = ours.asks("h", [], ["w.a"])
    ours.session.before(_gives_up("h"), comes)
    assert isinstance(waiter.poll(), Blocked)
    assert urgent[0].flag.raised


def _gives_up(owner: str) -> Callable[[Request], bool]:
    """Whether a request takes its lock nodes away, and keeps its place."""
    waits = writes(owner, "waiting")
    return lambda request: waits(request) and "LOCK-" in str(request)


@mutation(one_behind_tries_in_vain, theme=URGENT)
def liveness_of_a_holder_not_watched(patch: Patch) -> None:
    """Its ticket stays when its verification refuses it, and no watch wakes the request that waits for its nodes."""
    patch.setattr(waiting, "Exists", lambda path, wake=None: Exists(path, None if "/alive/" in path else wake))
    patch.setattr(waiting, "Get", lambda path, wake=None: Get(path))


def one_behind_holds_a_place_among_hives(stage: Stage) -> None:
    mine, urgent, hive = stage.process("mine", patience_s=0.0), stage.process("urgent"), stage.hive()
    read = hive.lock_table("w/a", "SHARED")
    waiter = mine.asks("b", [], ["w.a"])
    assert [type(waiter.poll()) for _ in range(2)] == [Blocked] * 2
    assert stage.state("b").places
    asked = urgent.asks("u", [], ["w.a"], priority=5)
    assert isinstance(asked.poll(), Blocked)
    hive.unlock([read])
    assert isinstance(asked.poll(), Blocked)
    mine.releases(waiter.lease())
    assert asked.flag.raised
    assert isinstance(asked.poll(), Lease)


@mutation(one_behind_holds_a_place_among_hives, theme=URGENT)
def barrier_behind_ignored(patch: Patch) -> None:
    """Its node keeps Hive back, and is the lock later."""
    edit(patch, waiting, "in_the_way", "owner.has_nodes", "owner.holds")


@mutation(one_behind_holds_a_place_among_hives, theme=URGENT)
def barrier_looks_at_tickets(patch: Patch) -> None:
    """It waits for the one that has passed it, which waits for its node."""
    edit(patch, Turn, "look_at", "if record.has_nodes:", "if False:")


def urgent_ones_come_without_end(stage: Stage) -> None:
    ours, mine, urgent = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "urgent"))
    held = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    waiter.poll()
    began_s, passed = stage.clock(), 0
    while True:
        asked = urgent.asks(f"u{passed}", [], ["w.a"], priority=5)
        asked.poll()
        stage.schedule.sleep(1.0)
        ours.releases(held)
        if isinstance(waiter.poll(), Lease):
            break
        passed += 1
        assert passed < 20
        held = asked.lease()
    assert 5 < passed <= 12
    assert stage.clock() - began_s < 15.0


@mutation(urgent_ones_come_without_end, theme=URGENT)
def passed_without_a_bound(patch: Patch) -> None:
    """The request with the lowest priority waits for ever."""
    edit(patch, queueing, "may_pass", " and not limit.reached(other)", "")


def one_is_passed_through_another(stage: Stage) -> None:
    ours, mine, urgent = (stage.process(name, passing_s=10.0) for name in ("ours", "mine", "urgent"))
    held = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    waiter.poll()
    stage.schedule.sleep(6.0)
    between = urgent.asks("u", [], ["w.a", "w.b"], priority=5)
    between.poll()
    stage.schedule.sleep(6.0)
    later = urgent.asks("v", [], ["w.b"], priority=9)
    assert isinstance(later.poll(), Blocked), "it passes the one that has waited for as long through another"
    ours.releases(held)
    urgent.releases(between.lease())
    assert isinstance(later.poll(), Lease)
    assert isinstance(waiter.poll(), Lease)


@mutation(one_is_passed_through_another, theme=URGENT)
def claimed_place_is_as_new(patch: Patch) -> None:
    """The request is passed in its turn, and so is every request that it has passed, for another full bound."""
    patch.setattr(Ticket, "timed", property(lambda self: TimedPosition(self.position, self.since_ms)))


def two_are_as_urgent(stage: Stage) -> None:
    ours, mine, other = stage.process("ours"), stage.process("mine"), stage.process("other")
    held = [ours.gets("a", [], ["w.a"]), ours.gets("b", [], ["w.b"])]
    for asked in (
        mine.asks("low", [], ["w.b"]),
        first := mine.asks("first", [], ["w.a"], priority=5),
        second := other.asks("second", [], ["w.a", "w.b"], priority=5),
    ):
        asked.poll()
    for lease in held:
        ours.releases(lease)
    assert isinstance(second.poll(), Blocked)
    assert isinstance(first.poll(), Lease)


@mutation(two_are_as_urgent, theme=URGENT)
def equals_passed(patch: Patch) -> None:
    """First come, first served does not hold."""
    edit(patch, queueing, "may_pass", "other.position.rank > own.rank", "other.position.rank >= own.rank")
    patch.setattr(queueing, "may_claim", lambda own, waiting: True)


def the_urgent_one_restarts(stage: Stage) -> None:
    ours, mine, first, again = (stage.process(name) for name in ("ours", "mine", "first", "again"))
    held = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    waiter.poll()
    first.asks("u", [], ["w.a"], priority=5).poll()
    first.session.close()
    urgent = again.asks("u", [], ["w.a"], priority=5)
    urgent.poll()
    ours.releases(held)
    assert isinstance(waiter.poll(), Blocked)
    assert isinstance(urgent.poll(), Lease)


@mutation(the_urgent_one_restarts, theme=URGENT)
def place_changed_at_take_over(patch: Patch) -> None:
    """Its next process waits for those that wait for it."""
    edit(patch, Turn, "enters", "tickets[0].position,", "tickets[0].position._replace(number=tickets[0].zxid, rank=0),")


def overtaken_with_a_placeholder_then_unlocked_and_taken_over(stage: Stage) -> None:
    mine, urgent, hive = stage.process("mine", patience_s=0.0), stage.process("urgent"), stage.hive()
    read = hive.lock_table("w/a", "SHARED")
    waiter = mine.asks("b", [], ["w.a"])
    assert [type(waiter.poll()) for _ in range(2)] == [Blocked] * 2
    assert isinstance(urgent.asks("u", [], ["w.a"], priority=5).poll(), Blocked)
    hive.unlock([read])
    waiter.lease()
    stage.hive("hive-other").unlock_table("w/a")
    with pytest.raises(LockLost):
        stage.process("again").asks("b", [], ["w.a"], attempt=2).poll()
    assert stage.state("b").state == "lost"


@mutation(overtaken_with_a_placeholder_then_unlocked_and_taken_over)
def age_of_the_nodes_that_are_left(patch: Patch) -> None:
    """UNLOCK TABLE took its oldest node, so a request that overtook it seems to be older. A returned lease is taken back."""
    edit(patch, nodes, "_before", "min(record.node_zxids)", "record.written")
