"""Deferred requests: at their turn they go away, and hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import calls
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import listings
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Delete
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import DeferredGrant, Lease
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import is_ticket, leave_out
from tests.simulation.stage import writes

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


def a_late_one_has_its_turn(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    held = ours.gets("a", [], ["w.a"])
    deferred = mine.asks("b", [], ["w.a"], deferred=DeferredGrant())
    assert isinstance(deferred.poll(), Blocked)
    ours.releases(held)
    assert deferred.flag.raised
    assert isinstance(deferred.poll(), NeedsSlot)
    held = ours.gets("c", [], ["w.a"])
    back = mine.asks("b", [], ["w.a"])
    assert isinstance(back.poll(), Blocked)
    ours.releases(held)
    assert isinstance(back.poll(), Lease)


@mutation(a_late_one_has_its_turn)
def ticket_kept_away(patch: Patch) -> None:
    """Everybody waits behind a request that waits for its worker slot."""
    leave_out(patch, lambda old, new, op: isinstance(op, Delete) and is_ticket(op.path) and new.away)


@mutation(a_late_one_has_its_turn)
def late_one_tries(patch: Patch) -> None:
    """It holds while it waits for its worker slot, and Hive is locked out."""
    edit(patch, Turn, "attempt", "if ruling is not Ruling.GRANT:", "if ruling is not Ruling.GRANT and not queued:")


@mutation(a_late_one_has_its_turn)
def mark_kept_on_return(patch: Patch) -> None:
    """It is listed as away for as long as its owner lives."""
    leave_out(patch, lambda old, new, op: isinstance(op, Delete) and "/away/" in op.path)


@mutation(a_late_one_has_its_turn)
def away_is_taken_over(patch: Patch) -> None:
    """Its owner comes back, and gets NeedsSlot again."""
    edit(patch, calls, "take_over", "or not earlier.active:", "or earlier.ended:")


def a_late_one_finds_all_free(stage: Stage) -> None:
    ours = stage.process("ours")
    ours.releases(ours.gets("a", [], ["w.a"]))
    assert isinstance(ours.asks("b", [], ["w.a"], deferred=DeferredGrant()).poll(), NeedsSlot)


@mutation(a_late_one_finds_all_free)
def late_one_is_granted_at_once(patch: Patch) -> None:
    """Nobody was in the way, and it holds while it waits for its worker slot."""
    edit(patch, Turn, "attempt", "if ruling is not Ruling.GRANT:", "if False:")


def hive_reads_what_a_late_one_writes(stage: Stage) -> None:
    mine, hive = stage.process("mine", patience_s=0.0), stage.hive()
    read = [hive.lock_table("w/a", "SHARED")]
    deferred = mine.asks("b", [], ["w.a"], deferred=DeferredGrant())
    assert [type(deferred.poll()) for _ in range(3)] == [Blocked] * 3
    hive.unlock(read)
    assert deferred.flag.raised
    assert isinstance(deferred.poll(), NeedsSlot)


@mutation(hive_reads_what_a_late_one_writes)
def late_one_holds_a_place(patch: Patch) -> None:
    """Its barrier keeps Hive out for one who has no work to do yet."""
    edit(patch, Turn, "_wait_for_hive", "below or deferred", "below")


@mutation(hive_reads_what_a_late_one_writes)
def late_one_overlooks_hive(patch: Patch) -> None:
    """It is given its worker slot, and is blocked by Hive there."""
    patch.setattr(Turn, "foreign", lambda self, locks, children, held: [])


def hive_reads_below_what_a_late_one_writes(stage: Stage) -> None:
    stage.hive().lock_table("w/a/p=1", "SHARED")
    assert isinstance(stage.process("mine").asks("b", [], ["w.a"], deferred=DeferredGrant()).poll(), Blocked)


@mutation(hive_reads_below_what_a_late_one_writes)
def late_one_overlooks_locks_below(patch: Patch) -> None:
    """The same for Hive's locks on partitions."""
    edit(patch, Turn, "foreign", " or queueing.reads_decide(self.request.deferred)", "")


def a_late_one_takes_up_a_barrier(stage: Stage) -> None:
    first, again, hive = stage.process("first", patience_s=0.0), stage.process("again"), stage.hive()
    hive.lock_table("w/a", "SHARED")
    asked = first.asks("b", [], ["w.a"])
    assert [type(asked.poll()) for _ in range(2)] == [Blocked] * 2
    assert stage.state("b").places
    first.session.close()
    assert isinstance(again.asks("b", [], ["w.a"], deferred=DeferredGrant()).poll(), Blocked)
    assert not stage.state("b").places


@mutation(a_late_one_takes_up_a_barrier)
def barrier_taken_up(patch: Patch) -> None:
    """Its owner's earlier process was not deferred, and had created lock nodes."""
    edit(patch, Turn, "advance", "record.node_zxids and", "False and")


def a_placeholder_is_unlocked_before_a_worker_asks(stage: Stage) -> None:
    first, worker, hive = stage.process("first", patience_s=0.0), stage.process("worker"), stage.hive()
    hive.lock_table("w/a", "SHARED")
    asked = first.asks("b", [], ["w.a"])
    assert [type(asked.poll()) for _ in range(2)] == [Blocked] * 2
    hive.unlock_table("w/a")
    late = worker.asks("b", [], ["w.a"], deferred=DeferredGrant(has_slot=True))
    assert isinstance(late.poll(), Blocked)
    assert isinstance(asked.poll(), Lease)


@mutation(a_placeholder_is_unlocked_before_a_worker_asks)
def worker_takes_over_a_placeholder(patch: Patch) -> None:
    """Its request waits in the name of a process that has gone, and the one that waits must stop."""
    edit(patch, Turn, "_placeholders", "self.request.has_slot", "False")


def nobody_hears_that_it_is_away(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    deferred = mine.asks("b", [], ["w.a"], deferred=DeferredGrant())
    mine.session.lose_reply(writes("b", "away"))
    with pytest.raises(StoreUnavailable):
        deferred.poll()
    ours.gets("c", [], ["w.a"])
    assert isinstance(deferred.poll(), NeedsSlot)


@mutation(nobody_hears_that_it_is_away)
def lost_reply_begins_anew(patch: Patch) -> None:
    """It had its turn, and queues again."""
    edit(patch, ZooKeeperAcquisition, "_start", "if existing and own and", "if existing and False and")


def a_late_one_gives_up(stage: Stage) -> None:
    mine = stage.process("mine")
    deferred = mine.asks("b", [], ["w.a"], deferred=DeferredGrant())
    assert isinstance(deferred.poll(), NeedsSlot)
    mine.withdraws(deferred)
    assert not stage.process("other").manager.waiters()


@mutation(a_late_one_gives_up)
def away_after_a_withdrawal(patch: Patch) -> None:
    """It is listed as waiting for a slot, although its task no longer waits."""
    edit(patch, ZooKeeperAcquisition, "_withdraw", " or mine.away", "")


def its_return_is_listed(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    ours.gets("a", ["w.a/p=1"], ["w.a/p=2"])
    assert isinstance(mine.asks("b", ["w.a/p=1"], deferred=DeferredGrant()).poll(), NeedsSlot)
    waiters = ours.manager.waiters("w.a")
    assert [(waiter.owner, waiter.position, waiter.blocked_by) for waiter in waiters] == [("b", 0, ())]
    assert not ours.manager.waiters("w.b")
    assert isinstance(mine.asks("b", ["w.a/p=1"]).poll(), Lease)
    assert not ours.manager.waiters("w.a")


@mutation(its_return_is_listed)
def nobody_lists_it(patch: Patch) -> None:
    """People cannot see that it waits for its worker slot."""
    patch.setattr(listings, "_away", lambda records, target: [])
