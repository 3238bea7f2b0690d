"""The queue of a group of leases: who waits for a permit, and at which place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import listings, nodes, permits
from airflow_hivelock.locks.backends.zookeeper import start as starting
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Children, Delete
from airflow_hivelock.locks.backends.zookeeper.permits import GroupLook, Parked
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.backends.zookeeper.waiting import Lookout
from airflow_hivelock.locks.model import DeferredGrant, Lease, LeaseLimit, WaitsFor
from airflow_hivelock.locks.queueing import Position
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import gives_back, is_ticket, leave_out
from tests.simulation.stage import writes
from tests.simulation.themes import LIMITED, LIMITED_AND_LOCKED

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch

ONE = LeaseLimit("g", 1)
THREE = LeaseLimit("g", 3)


def refused_after_it_was_parked(stage: Stage) -> None:
    ours, mine, theirs = (stage.process(name) for name in ("ours", "mine", "theirs"))
    theirs.gets("d", [], ["w.d"])
    ours.releases(ours.gets("x", [], ["w.b"]))
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    waiter = mine.asks("b", [], ["w.b"], limit=ONE)
    assert isinstance(waiter.poll(), Blocked)
    ours.releases(lease)
    mine.session.before(writes("b", "granted"), lambda: theirs.asks("c", [], ["w.b", "w.d"]).poll())
    mine.session.before(writes("b", "granted"), lambda: pytest.fail("it tries again, although c is before it"))
    assert isinstance(waiter.poll(), Blocked)
    assert isinstance(waiter.poll(), Blocked)


@mutation(refused_after_it_was_parked)
def look_kept_while_parked(patch: Patch) -> None:
    """It closes a partition for a grant that it must give back."""
    edit(patch, ZooKeeperAcquisition, "_enter", " if record.queued else None", "")


def a_newcomer_finds_a_free_lease(stage: Stage) -> None:
    ours, mine, late = stage.process("ours"), stage.process("mine"), stage.process("late")
    late.releases(late.gets("x", [], ["w.b", "w.c"]))
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    waiter = mine.asks("b", [], ["w.b"], limit=ONE)
    waiter.poll()
    ours.releases(lease)
    newcomer = late.asks("c", [], ["w.c"], limit=ONE)
    assert isinstance(newcomer.poll(), Blocked)
    mine.releases(waiter.lease())
    assert newcomer.flag.raised
    newcomer.lease()


@mutation(a_newcomer_finds_a_free_lease)
def newcomers_go_first(patch: Patch) -> None:
    """A permit is free, and its first waiter is not yet woken."""
    edit(patch, GroupLook, "free", "else AFTER_ALL", "else Position(0, 0, 0)")


def first_in_its_group_and_blocked_by_locks(stage: Stage) -> None:
    ours, mine, other = stage.process("ours"), stage.process("mine"), stage.process("other")
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    held = ours.gets("h", [], ["w.b"])
    first, second = mine.asks("b", [], ["w.b"], limit=ONE), other.asks("c", [], ["w.c"], limit=ONE)
    first.poll()
    second.poll()
    ours.releases(lease)
    assert isinstance(first.poll(), Blocked)
    assert second.flag.raised
    theirs = second.poll()
    assert isinstance(theirs, Lease)
    ours.releases(held)
    assert first.flag.raised
    assert isinstance(first.poll(), Blocked)
    assert stage.state("b").parked
    third = ours.asks("d", [], ["w.d"], limit=ONE)
    third.poll()
    other.releases(theirs)
    assert isinstance(third.poll(), Blocked)
    assert isinstance(first.poll(), Lease), "it has the place that it had, before newcomers"


@mutation(first_in_its_group_and_blocked_by_locks)
def place_ahead_not_watched(patch: Patch) -> None:
    """The request ahead has left the queue to wait for its locks, and the next one is not notified."""
    edit(patch, Lookout, "front", "Exists(nearest.path, wake)", "Exists(nearest.path)")


@mutation(first_in_its_group_and_blocked_by_locks)
def place_kept_while_blocked_by_locks(patch: Patch) -> None:
    """A lease of the group is free, and the first in line waits for a table."""
    edit(patch, Turn, "advance", "record.share.ticket", "False")


@mutation(first_in_its_group_and_blocked_by_locks)
def tickets_kept_away(patch: Patch) -> None:
    """A request that waits for a lease of its group blocks others that wait for a table."""
    leave_out(patch, lambda old, new, op: isinstance(op, Delete) and is_ticket(op.path) and new.parked)


@mutation(first_in_its_group_and_blocked_by_locks)
def place_lost_while_blocked_by_locks(patch: Patch) -> None:
    """Whoever has waited for a table begins at the end of its group's queue, again and again."""
    edit(
        patch,
        Parked,
        "of",
        "share.place or Position.unclaimed(epoch, record.priority, epoch).number",
        "epoch + record.version + 1",
    )


def one_ahead_in_its_group_dies(stage: Stage) -> None:
    ours, dead, mine = stage.process("ours"), stage.process("dead"), stage.process("mine")
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    dead.asks("b", [], ["w.b"], limit=ONE).poll()
    waiter = mine.asks("c", [], ["w.c"], limit=ONE)
    waiter.poll()
    dead.session.close()
    assert waiter.flag.raised
    assert isinstance(waiter.poll(), Blocked)
    assert stage.state("b").parked, "nothing is lost yet: its owner may be back before its turn"
    ours.releases(lease)
    assert waiter.flag.raised
    assert isinstance(waiter.poll(), Lease)


@mutation(one_ahead_in_its_group_dies)
def dead_one_waited_for(patch: Patch) -> None:
    """Its turn has come, and it never comes back."""
    edit(
        patch,
        permits,
        "_wait_behind",
        "if seen.free(leader.record, ahead[0]) is not None or not rules.possible(weight, most):",
        "if False:",
    )


@mutation(one_ahead_in_its_group_dies)
def dead_one_broken_too_soon(patch: Patch) -> None:
    """A triggerer restarts, and its requests have lost their positions in their groups."""
    edit(
        patch,
        permits,
        "_wait_behind",
        "if seen.free(leader.record, ahead[0]) is not None or not rules.possible(weight, most):",
        "if True:",
    )


@mutation(one_ahead_in_its_group_dies)
def life_ahead_not_watched(patch: Patch) -> None:
    """The request ahead dies, and the next one is not notified."""
    edit(patch, Lookout, "front", "Exists(layout.alive(nearest.key), wake)", "Exists(layout.alive(nearest.key))")


def a_more_urgent_one_comes(stage: Stage) -> None:
    ours, low, high, higher = (stage.process(name, passing_s=60.0) for name in ("ours", "low", "high", "higher"))
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    first = low.asks("b", [], ["w.b"], limit=ONE)
    first.poll()
    second = high.asks("c", [], ["w.c"], limit=ONE, priority=2)
    second.poll()
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["c", "b"]
    stage.schedule.sleep(61.0)
    third = higher.asks("d", [], ["w.d"], limit=ONE, priority=3)
    third.poll()
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["c", "b", "d"], "b has been passed for long enough"
    ours.releases(lease)
    high.releases(second.lease())
    low.releases(first.lease())
    third.lease()


@mutation(a_more_urgent_one_comes)
def places_in_groups_not_claimed(patch: Patch) -> None:
    """The more urgent waits for a lease behind the less urgent."""
    patch.setattr(queueing, "may_claim", lambda own, waiting: False)


@mutation(a_more_urgent_one_comes)
def passed_in_groups_for_ever(patch: Patch) -> None:
    """A request of low priority gets none of its group's leases as long as others come."""
    edit(patch, queueing, "may_pass", " and not limit.reached(other)", "")


@mutation(seed=549)
def equals_passed_in_groups(patch: Patch) -> None:
    """A later request goes before an earlier one of the same priority."""
    edit(patch, queueing, "may_pass", "other.position.rank > own.rank", "other.position.rank >= own.rank")
    patch.setattr(queueing, "may_claim", lambda own, waiting: True)


def a_more_urgent_one_is_left_alone(stage: Stage) -> None:
    ours, low, high, higher = (stage.process(name, passing_s=60.0) for name in ("ours", "low", "high", "higher"))
    ours.gets("a", [], ["w.a"], limit=ONE)
    first = low.asks("b", [], ["w.b"], limit=ONE)
    first.poll()
    stage.schedule.sleep(40.0)
    high.asks("c", [], ["w.c"], limit=ONE, priority=2).poll()
    low.withdraws(first)
    stage.schedule.sleep(25.0)
    higher.asks("d", [], ["w.d"], limit=ONE, priority=3).poll()
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["c", "d"]


@mutation(a_more_urgent_one_is_left_alone)
def age_of_a_claimed_place_forgotten(patch: Patch) -> None:
    """Whoever claims a place makes it young again, and the next one passes."""
    edit(patch, permits, "park", "placed_ms=own.since", "placed_ms=store.time_ms()")


def taken_up_while_it_is_parked(stage: Stage) -> None:
    ours, first, again, other = (stage.process(name) for name in ("ours", "first", "again", "other"))
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    first.asks("b", [], ["w.b"], limit=ONE).poll()
    behind = other.asks("c", [], ["w.c"], limit=ONE)
    behind.poll()
    first.session.close()
    waiter = again.asks("b", [], ["w.b"], limit=ONE)
    assert isinstance(waiter.poll(), Blocked)
    ours.releases(lease)
    assert isinstance(behind.poll(), Blocked)
    assert isinstance(waiter.poll(), Lease)


@mutation(taken_up_while_it_is_parked)
def parked_one_begins_anew(patch: Patch) -> None:
    """A parked request with a new process starts at the end of its group's queue."""
    original = ZooKeeperAcquisition._start

    def start(self: ZooKeeperAcquisition) -> Any:
        found = self._store.read(self._key)
        if found is not None and found.state is State.PARKED and found.process != self._process:
            nodes.free(self._store, found)
        return original(self)

    patch.setattr(ZooKeeperAcquisition, "_start", start)


def a_parked_one_gives_up(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    ours.gets("a", [], ["w.a"], limit=ONE)
    asked = mine.asks("b", [], ["w.b"], limit=ONE)
    asked.poll()
    listed = ours.manager.waiters()
    assert [(waiter.owner, waiter.position, waiter.waits_for) for waiter in listed] == [("b", 1, WaitsFor.LEASE)]
    assert [(by.owner, by.group, by.waiting) for by in listed[0].blocked_by] == [("a", "g", False)]
    mine.withdraws(asked)
    assert not ours.manager.waiters()
    assert not stage.state("b").waits


@mutation(a_parked_one_gives_up)
def place_kept_after_a_withdrawal(patch: Patch) -> None:
    """Nobody waits, and those behind wait for it."""
    edit(patch, ZooKeeperAcquisition, "_withdraw", "elif mine.waits or", "elif mine.queued or")


@mutation(a_parked_one_gives_up)
def nobody_lists_the_parked(patch: Patch) -> None:
    """People cannot see that it waits for a lease of its group."""
    patch.setattr(listings, "_parked", lambda every, records, target: [])


def one_comes_before_and_goes(stage: Stage) -> None:
    ours, other, mine = stage.process("ours"), stage.process("other"), stage.process("mine")
    two = LeaseLimit("g", 2)
    held = ours.gets("h", [], ["w.c"])
    earlier = other.asks("z", [], ["w.c"], limit=two)
    earlier.poll()
    ours.gets("a", [], ["w.a"], limit=two)
    lease = ours.gets("b", [], ["w.b"], limit=two)

    def comes() -> None:
        ours.releases(held)
        assert isinstance(earlier.poll(), Blocked)
        ours.releases(lease)

    mine.session.before(
        lambda request: isinstance(request, Children) and bool(request.wake) and request.path.endswith("/permits"),
        comes,
    )
    waiter = mine.asks("c", [], ["w.d"], limit=two)
    assert isinstance(waiter.poll(), Blocked)
    other.withdraws(earlier)
    assert waiter.flag.raised
    waiter.lease()


@mutation(one_comes_before_and_goes)
def one_that_is_gone_watched(patch: Patch) -> None:
    """A request arrives ahead between two looks, and leaves without a permit. The next one is not notified."""
    edit(
        patch,
        permits,
        "wait_for_permit",
        "if seen.ahead(mine):\n            return None",
        "if False:\n            return None",
    )


def parked_and_back_behind_another(stage: Stage) -> None:
    ours, mine, other = stage.process("ours"), stage.process("mine"), stage.process("other")
    held = ours.gets("h", [], ["w.b"])
    back = mine.asks("b", [], ["w.b"], limit=ONE)
    back.poll()
    looked = other.asks("x", [], ["w.b"])
    looked.poll()  # it reads the ticket
    other.withdraws(looked)
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    ours.releases(held)
    assert isinstance(back.poll(), Blocked)
    assert stage.state("b").parked
    held = ours.gets("g", [], ["w.b"])
    before = other.asks("d", [], ["w.b"])
    before.poll()
    ours.releases(lease)
    back.poll()
    ours.releases(held)
    assert isinstance(before.poll(), Lease)


@mutation(parked_and_back_behind_another, theme=LIMITED_AND_LOCKED)
def tickets_named_alike(patch: Patch) -> None:
    """A request was parked, and comes back with tickets at the same paths: others go by the positions that they had before."""
    edit(patch, ZooKeeperAcquisition, "_arrive", "entry=mine.entry + 1", "entry=1")


def two_park_that_began_at_once(stage: Stage) -> None:
    ours, mine, other = stage.process("ours"), stage.process("mine"), stage.process("other")
    for process in mine, other:
        process.releases(
            process.gets("x", [], ["w.b", "w.c"])
        )  # it knows the time, and has nothing to write before it parks
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    first, second = sorted("bc", key=stage.key)
    behind = other.asks(second, [], [f"w.{second}"], limit=ONE)
    before = mine.asks(first, [], [f"w.{first}"], limit=ONE)
    mine.session.before(writes(first, "parked"), behind.poll)
    assert isinstance(before.poll(), Blocked)
    assert stage.state(first).ticket_epoch == stage.state(second).ticket_epoch
    ours.releases(lease)
    assert isinstance(behind.poll(), Blocked)
    assert isinstance(before.poll(), Lease)


@mutation(two_park_that_began_at_once)
def equals_in_a_group_not_ordered(patch: Patch) -> None:
    """Of two requests that began at once neither is before the other, and the later one in the list is counted first."""
    patch.setattr(Parked, "position", property(lambda self: Position(self.number, self.rank, self.epoch)))


def a_late_one_is_limited(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    late = mine.asks("b", [], ["w.b"], limit=ONE, deferred=DeferredGrant())
    assert isinstance(late.poll(), Blocked)
    ours.releases(lease)
    assert isinstance(late.poll(), NeedsSlot)
    assert isinstance(ours.gets("c", [], ["w.b"], limit=ONE), Lease)


@mutation(a_late_one_is_limited)
def late_one_keeps_its_place(patch: Patch) -> None:
    """It is away, and its group waits for it."""
    leave_out(patch, lambda old, new, op: gives_back(op, "queue") and new.away and old is not None and old.queued)


@mutation(seed=0, theme=LIMITED)
def new_request_has_a_place(patch: Patch) -> None:
    """A new request parks before those that have waited in its group."""
    share = "Share(request.limit.group, request.limit.most"
    edit(patch, starting, "start", f"{share})", f"{share}, place=1, placed_ms=1)")
