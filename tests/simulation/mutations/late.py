"""Late requests: at their turn they step aside, and hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked, Free
from airflow_hivelock.locks.backends.zookeeper import listings
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Delete
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Lease
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import is_ticket, leave_out
from tests.simulation.stage import writes

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


def a_late_one_has_its_turn(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    held = ours.gets("a", [], ["w.a"])
    late = mine.asks("b", [], ["w.a"], late=True)
    assert isinstance(late.poll(), Blocked)
    ours.releases(held)
    assert late.flag.raised
    assert isinstance(late.poll(), Free)
    held = ours.gets("c", [], ["w.a"])
    back = mine.asks("b", [], ["w.a"])
    assert isinstance(back.poll(), Blocked)
    ours.releases(held)
    assert isinstance(back.poll(), Lease)


@mutation(a_late_one_has_its_turn)
def ticket_kept_aside(patch: Patch) -> None:
    """Everybody waits behind a request that waits for its worker slot."""
    leave_out(patch, lambda old, new, op: isinstance(op, Delete) and is_ticket(op.path) and new.aside)


@mutation(a_late_one_has_its_turn)
def late_one_tries(patch: Patch) -> None:
    """It holds while it waits for its worker slot, and Hive is locked out."""
    edit(patch, Turn, "attempt", "if self.steps_aside:", "if self.steps_aside and not queued:")


@mutation(a_late_one_has_its_turn)
def mark_kept_on_return(patch: Patch) -> None:
    """It is listed as aside for as long as its owner lives."""
    leave_out(patch, lambda old, new, op: isinstance(op, Delete) and "/away/" in op.path)


@mutation(a_late_one_has_its_turn)
def aside_is_taken_over(patch: Patch) -> None:
    """Its owner comes back, and is told again that it could have its locks."""
    edit(patch, queueing, "take_over", "if not earlier.active:", "if earlier.ended:")


def a_late_one_finds_all_free(stage: Stage) -> None:
    ours = stage.process("ours")
    ours.releases(ours.gets("a", [], ["w.a"]))
    assert isinstance(ours.asks("b", [], ["w.a"], late=True).poll(), Free)


@mutation(a_late_one_finds_all_free)
def late_one_is_granted_at_once(patch: Patch) -> None:
    """Nobody was in the way, and it holds while it waits for its worker slot."""
    edit(patch, Turn, "attempt", "if self.steps_aside:", "if self.steps_aside and queued:")


def hive_reads_what_a_late_one_writes(stage: Stage) -> None:
    mine, hive = stage.process("mine", patience_s=0.0), stage.hive()
    read = [hive.lock_table("w/a", "SHARED")]
    late = mine.asks("b", [], ["w.a"], late=True)
    assert [type(late.poll()) for _ in range(3)] == [Blocked] * 3
    hive.unlock(read)
    assert late.flag.raised
    assert isinstance(late.poll(), Free)


@mutation(hive_reads_what_a_late_one_writes)
def late_one_holds_a_place(patch: Patch) -> None:
    """Its barrier keeps Hive out for one who has no work to do yet."""
    edit(patch, Turn, "_wait_for_hive", "below or self.steps_aside", "below")


@mutation(hive_reads_what_a_late_one_writes)
def late_one_overlooks_hive(patch: Patch) -> None:
    """It is given its worker slot, and is blocked by Hive there."""
    patch.setattr(Turn, "foreign", lambda self, locks, children, held: [])


def hive_reads_below_what_a_late_one_writes(stage: Stage) -> None:
    stage.hive().lock_table("w/a/p=1", "SHARED")
    assert isinstance(stage.process("mine").asks("b", [], ["w.a"], late=True).poll(), Blocked)


@mutation(hive_reads_below_what_a_late_one_writes)
def late_one_overlooks_locks_below(patch: Patch) -> None:
    """The same for Hive's locks on partitions."""
    edit(patch, Turn, "foreign", " or self.steps_aside", "")


def a_late_one_takes_up_a_barrier(stage: Stage) -> None:
    first, again, hive = stage.process("first", patience_s=0.0), stage.process("again"), stage.hive()
    hive.lock_table("w/a", "SHARED")
    asked = first.asks("b", [], ["w.a"])
    assert [type(asked.poll()) for _ in range(2)] == [Blocked] * 2
    assert stage.state("b").places
    first.session.close()
    assert isinstance(again.asks("b", [], ["w.a"], late=True).poll(), Blocked)
    assert not stage.state("b").places


@mutation(a_late_one_takes_up_a_barrier)
def barrier_taken_up(patch: Patch) -> None:
    """Its owner's earlier process was not late, and had made lock nodes."""
    edit(patch, Turn, "_advance", "self.steps_aside and", "False and")


def nobody_hears_that_it_has_stepped_aside(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    late = mine.asks("b", [], ["w.a"], late=True)
    mine.session.lose_reply(writes("b", "away"))
    with pytest.raises(StoreUnavailable):
        late.poll()
    ours.gets("c", [], ["w.a"])
    assert isinstance(late.poll(), Free)


@mutation(nobody_hears_that_it_has_stepped_aside)
def lost_reply_begins_anew(patch: Patch) -> None:
    """It had its turn, and queues once more."""
    edit(patch, ZooKeeperAcquisition, "_start", "if existing and existing.aside and", "if False and")


def a_late_one_gives_up(stage: Stage) -> None:
    mine = stage.process("mine")
    late = mine.asks("b", [], ["w.a"], late=True)
    assert isinstance(late.poll(), Free)
    mine.withdraws(late)
    assert not stage.process("other").manager.waiters()


@mutation(a_late_one_gives_up)
def aside_after_a_withdrawal(patch: Patch) -> None:
    """It is listed as waiting for a slot, and nobody waits for one."""
    edit(patch, ZooKeeperAcquisition, "_withdraw", " or mine.aside", "")


def its_return_is_listed(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    ours.gets("a", ["w.a/p=1"], ["w.a/p=2"])
    assert isinstance(mine.asks("b", ["w.a/p=1"], late=True).poll(), Free)
    waiters = ours.manager.waiters("w.a")
    assert [(waiter.owner, waiter.place, waiter.blocked_by) for waiter in waiters] == [("b", 0, ())]
    assert not ours.manager.waiters("w.b")
    assert isinstance(mine.asks("b", ["w.a/p=1"]).poll(), Lease)
    assert not ours.manager.waiters("w.a")


@mutation(its_return_is_listed)
def nobody_lists_it(patch: Patch) -> None:
    """People cannot see that it waits for its worker slot."""
    patch.setattr(listings, "_aside", lambda records, target: [])
