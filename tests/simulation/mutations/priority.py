"""Priority: who claims a place before others, who is told, and who is waited for all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import places
from airflow_hivelock.locks.backends.zookeeper.client import Get, Names
from airflow_hivelock.locks.backends.zookeeper.queue import Queues, Ticket
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.backends.zookeeper.store import Snapshot, ZooKeeperStore
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Lease
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import step_by_step, writes
from tests.simulation.state import NAMESPACE, ROOT
from tests.simulation.themes import URGENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backends.zookeeper.client import Request
    from airflow_hivelock.locks.backends.zookeeper.record import Record
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
    _passed(stage, writes("b", "trying"))


@mutation(one_is_passed_as_it_tries, theme=URGENT)
def claim_without_a_word(patch: Patch) -> None:
    """Who is passed has looked before, and tries beside the one that has passed it."""
    patch.setattr(Queues, "claims", lambda self, locks: [])


@mutation(one_is_passed_as_it_tries, theme=URGENT)
def try_though_passed(patch: Patch) -> None:
    """It is told, and does not listen."""
    patch.setattr(Turn, "_still_first", lambda self, record: [])


def one_is_passed_as_it_looks(stage: Stage) -> None:
    _passed(stage, lambda request: isinstance(request, Get) and request.path.startswith(f"{ROOT}/urgent/"))


@mutation(one_is_passed_as_it_looks, theme=URGENT)
def claims_looked_at_last(patch: Patch) -> None:
    """The claim is counted, and its tickets are not seen."""

    def look(self: ZooKeeperStore, locks: Any) -> Snapshot:
        urgents = self.queues.urgents(locks)
        names = [Names(read.path) for read in self.queues.reads(locks)]
        replies = self.client.submit(*names, *urgents)
        return Snapshot(replies[len(names) :], None, replies[: len(names)], None)

    patch.setattr(ZooKeeperStore, "look", look)


def one_is_passed_between_its_look_and_its_try(stage: Stage) -> None:
    _passed(stage, lambda request: request == Get(NAMESPACE))


@mutation(one_is_passed_between_its_look_and_its_try, theme=URGENT)
def try_with_newer_claims(patch: Patch) -> None:
    """What has been claimed since the look counts as seen."""

    def still_first(self: Turn, record: Record) -> Any:
        queues = self.store.queues
        return queues.unpassed(record.locks, self.store.client.submit(*queues.urgents(record.locks)))

    patch.setattr(Turn, "_still_first", still_first)


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
    patch.setattr(places, "holds", lambda ticket, owner: False)


@step_by_step
def one_behind_tries(stage: Stage) -> None:
    asks, ours = _waits_before(stage), stage.process("ours")
    outcomes: list[object] = []
    ours.session.before(writes("h", "granted"), lambda: outcomes.append(asks().poll()))
    assert isinstance(ours.asks("h", [], ["w.a"]).poll(), Lease)
    assert [type(outcome) for outcome in outcomes] == [Blocked]


@mutation(one_behind_tries, theme=URGENT)
def try_behind_ignored(patch: Patch) -> None:
    """It is about to be granted what is wanted."""
    patch.setattr(places, "holds", lambda ticket, owner: ticket.drains is not None or owner.holds)


@step_by_step
def one_behind_tries_in_vain(stage: Stage) -> None:
    asks, ours, hive = _waits_before(stage), stage.process("ours"), stage.hive()
    ours.releases(ours.gets("c", [], ["w.a"]))  # the table's node stays
    urgent: list[Asked] = []

    def comes() -> None:
        urgent.append(asks())
        assert isinstance(urgent[0].poll(), Blocked)

    ours.session.before(writes("h", "trying"), lambda: hive.lock_table("w/a", "SHARED"))
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
def try_behind_not_watched(patch: Patch) -> None:
    """Its ticket stays when Hive refuses it, and nobody tells the one that waits for that."""
    edit(patch, places, "wait", "if drain or passed else None", "if drain else None")


@step_by_step
def one_behind_dies_as_it_tries(stage: Stage) -> None:
    asks, dead = _waits_before(stage), stage.process("dead")
    dead.session.lose_reply(writes("h", "trying"))
    with pytest.raises(StoreUnavailable):
        dead.asks("h", [], ["w.a"]).poll()
    dead.session.close()
    assert isinstance(asks().poll(), Lease)


@mutation(one_behind_dies_as_it_tries, theme=URGENT)
def dead_try_behind_kept(patch: Patch) -> None:
    """Nobody else is behind it, to break it."""
    patch.setattr(ZooKeeperStore, "break_dead", lambda self, found: None)


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
    patch.setattr(places, "holds", lambda ticket, owner: owner.holds or owner.state is State.TRYING)


@mutation(one_behind_holds_a_place_among_hives, theme=URGENT)
def barrier_looks_at_tickets(patch: Patch) -> None:
    """It waits for the one that has passed it, which waits for its node."""
    edit(patch, Turn, "_advance", "if record.has_nodes:", "if False:")


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
    """Who has the lowest priority waits for ever."""
    edit(patch, rules, "passed", " or not passable(other)", "")


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
    """It is passed in turn, and so is whoever it has passed, for as long again."""
    patch.setattr(Ticket, "placed_ms", property(lambda self: self.since_ms))


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
    """First come, first served, is no more."""
    edit(patch, rules, "passed", "other.priority >= priority", "other.priority > priority")


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
    edit(patch, Turn, "take_place", "tickets[0].place", "(tickets[0].zxid, 0, tickets[0].zxid)")
