"""Groups of leases: how many may be held, and their permits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import permits as rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import permits
from airflow_hivelock.locks.backends.zookeeper.acquisition import STEP_S, ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Create
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.model import Lease, LeaseLimit
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import gives_back, leave_out
from tests.simulation.stage import reads, step_by_step, writes

if TYPE_CHECKING:
    import pytest

    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch

ONE = LeaseLimit("g", 1)
THREE = LeaseLimit("g", 3)


def one_after_the_other(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    waiter = mine.asks("b", [], ["w.b"], limit=ONE)
    assert isinstance(waiter.poll(), Blocked)
    ours.releases(ours.gets("c", [], ["w.b"]))  # a request that waits for a lease of its group blocks no other
    ours.releases(lease)
    assert waiter.flag.raised
    waiter.lease()


@mutation(one_after_the_other)
def granted_without_a_permit(patch: Patch) -> None:
    """Whoever comes next counts one lease too few."""
    leave_out(patch, lambda old, new, op: isinstance(op, Create) and "/permits/" in op.path)


@mutation(one_after_the_other)
def permits_not_counted(patch: Patch) -> None:
    """The group holds more leases than allowed."""
    edit(patch, rules, "free", "fit(weight, most_leases, held) and ", "")


@mutation(one_after_the_other)
def permits_not_watched(patch: Patch) -> None:
    """A permit is released, and no waiter is notified."""
    edit(patch, permits, "wait_for_permit", "look(store, record.share, lookout.wake)", "look(store, record.share)")


@mutation(one_after_the_other)
def permit_kept_at_release(patch: Patch) -> None:
    """Its lease is over, and is counted for ever."""
    leave_out(patch, lambda old, new, op: gives_back(op, "permits") and new.state is State.TOMBSTONE)


def granted_by_a_step_that_takes_long(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    ours.releases(ours.gets("x", [], ["w.b"]))  # its queue is there
    lease = ours.gets("a", [], ["w.a"], limit=ONE)
    waiter = mine.asks("b", [], ["w.b"], limit=ONE)
    assert isinstance(waiter.poll(), Blocked)
    ours.releases(lease)
    mine.session.before(writes("b", "granted"), lambda: stage.schedule.sleep(2 * STEP_S))
    assert isinstance(waiter.poll(), Lease), (
        "somebody was quicker, it is told; at its deadline it would give the lease up"
    )


@mutation(granted_by_a_step_that_takes_long)
def granted_and_not_told(patch: Patch) -> None:
    """A request with granted locks times out."""
    edit(patch, ZooKeeperAcquisition, "_permitted", "return self._arrive(", "self._arrive(")


@step_by_step
def hive_refuses_a_limited_request(stage: Stage) -> None:
    ours, hive = stage.process("ours"), stage.hive()
    ours.releases(ours.gets("b", [], ["w.a"]))
    ours.session.before(writes("a", "granted"), lambda: hive.lock_table("w/a", "SHARED"))
    assert isinstance(ours.asks("a", [], ["w.a"], limit=ONE).poll(), Blocked)
    assert isinstance(stage.process("other").gets("c", [], ["w.b"], limit=ONE), Lease)


@mutation(hive_refuses_a_limited_request)
def permit_kept_at_refusal(patch: Patch) -> None:
    """Hive's client was quicker, and the request that waits for Hive blocks its group."""
    leave_out(patch, lambda old, new, op: gives_back(op, "permits") and new.state is State.WAITING)


@step_by_step
def seen_before_a_release_and_after(stage: Stage) -> None:
    ours, slow, mine = stage.process("ours"), stage.process("slow"), stage.process("mine")
    for process in slow, mine:
        process.releases(process.gets("x", [], ["w.a", "u.b", "v.c"]))
    lease = ours.gets("a", [], ["w.a"], limit=THREE)
    slow.session.before(writes("b", "granted"), lambda: stage.schedule.sleep(1.0))
    stage.meanwhile("slow", slow.asks("b", [], ["u.b"], limit=THREE).poll)
    stage.schedule.sleep(0.5)
    ours.releases(lease)
    mine.session.before(writes("c", "granted"), lambda: stage.schedule.sleep(1.0))
    assert isinstance(mine.asks("c", [], ["v.c"], limit=ONE).poll(), Blocked)


@mutation(seen_before_a_release_and_after)
def numbers_alone(patch: Patch) -> None:
    """Number 1 is taken by one that saw number 0 taken, and number 0, free since, by one that saw none taken."""
    edit(patch, permits, "permitted", "seen.version", "-1")


def given_back_and_taken_between_two_looks(stage: Stage) -> None:
    ours, other, mine = stage.process("ours"), stage.process("other"), stage.process("mine")
    held = ours.gets("h", [], ["w.c"])
    earlier = other.asks("z", [], ["w.c"], limit=ONE)
    earlier.poll()
    lease = ours.gets("a", [], ["w.a"], limit=ONE)

    def another_takes_it() -> None:
        ours.releases(lease)
        ours.releases(held)
        assert isinstance(earlier.poll(), Lease)

    mine.session.before(reads("a"), another_takes_it)
    assert isinstance(mine.asks("b", [], ["w.b"], limit=ONE).poll(), Blocked)
    assert stage.intact("z")


@mutation(given_back_and_taken_between_two_looks)
def another_ones_permit_struck(patch: Patch) -> None:
    """A permit was given back between two looks and taken by another, who is no longer counted."""
    edit(patch, permits, "delete_void", "unchanged, Delete", "*(), Delete")
