"""Invited requests: they keep their position until the invitation is over, and their workers leave nothing that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import waiting
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Delete
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.model import DeferredGrant, Lease, LeaseLimit
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import is_ticket, leave_out
from tests.simulation.stage import writes

if TYPE_CHECKING:
    import pytest

    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch

ONE = LeaseLimit("g", 1)


def invited(process: Process, *names: str, invitation_s: float = 0.2, limit: LeaseLimit | None = None) -> None:
    deferred = process.asks("b", [], names or ["w.a"], deferred=DeferredGrant(invitation_s), limit=limit)
    assert isinstance(deferred.poll(), NeedsSlot)


def worker(process: Process) -> Lease | NeedsSlot | Blocked:
    return process.asks("b", [], ["w.a"], deferred=DeferredGrant(10.0, has_slot=True)).poll()


def an_invitation_lasts(stage: Stage) -> None:
    mine, ours = stage.process("mine"), stage.process("ours")
    invited(mine, invitation_s=10.0)
    behind = ours.asks("c", [], ["w.a"])
    assert isinstance(behind.poll(), Blocked)
    lease = worker(mine)
    assert isinstance(lease, Lease)
    mine.releases(lease)
    assert isinstance(behind.poll(), Lease)


@mutation(an_invitation_lasts)
def end_by_the_processs_clock(patch: Patch) -> None:
    """A process with a fast clock ends an invitation that has just begun."""
    edit(patch, waiting, "end_invitations", "store.time_ms()", "int(store.clock() * 1000)")


@mutation(an_invitation_lasts)
def invited_without_tickets(patch: Patch) -> None:
    """Two that arrive at once do not see each other, and are both invited."""
    edit(patch, ZooKeeperAcquisition, "_arrive", "and self._turn.at_turn(mine) is Ruling.GRANT", "")


@mutation(an_invitation_lasts)
def invited_one_does_not_block(patch: Patch) -> None:
    """Its ticket is taken for one that belongs to no request."""
    edit(patch, waiting, "_of_ticket", "record.has_tickets and", "record.has_tickets and not record.invited and")


def an_invitation_ends(stage: Stage) -> None:
    mine, ours = stage.process("mine"), stage.process("ours")
    invited(mine, "w.a", "w.b", limit=ONE)
    stage.schedule.sleep(1.0)
    assert isinstance(ours.asks("c", [], ["w.a"], limit=ONE).lease(), Lease)
    assert stage.state("b").away


@mutation(an_invitation_ends)
def end_keeps_a_ticket(patch: Patch) -> None:
    """The requests for its second table wait for a request that waits for nothing."""
    leave_out(
        patch, lambda old, new, op: isinstance(op, Delete) and is_ticket(op.path) and "/w.b/" in op.path and new.away
    )


@mutation(an_invitation_ends)
def end_keeps_the_permit(patch: Patch) -> None:
    """Its group has one lease less for ever."""
    leave_out(patch, lambda old, new, op: isinstance(op, Delete) and "/permits/" in op.path and new.away)


def a_worker_comes_as_its_invitation_ends(stage: Stage) -> None:
    mine, ours = stage.process("mine"), stage.process("ours")
    invited(mine)
    stage.schedule.sleep(1.0)
    came: list[object] = []
    ours.session.before(writes("b", "away"), lambda: came.append(worker(mine)))
    behind = ours.asks("c", [], ["w.a"])
    assert isinstance(behind.poll(), Blocked)
    assert isinstance(came[0], Lease)
    assert stage.intact("b")


@mutation(a_worker_comes_as_its_invitation_ends)
def end_compares_nothing(patch: Patch) -> None:
    """A lease that has just been granted is gone."""
    edit(
        patch, waiting, "end_invitations",
        "store.transact(one,", "store.transact(replace(one, stat=one.stat._replace(version=-1)),",
    )  # fmt: skip


def hive_is_quicker_than_a_worker(stage: Stage) -> None:
    mine, hive = stage.process("mine"), stage.hive()
    mine.releases(mine.gets("a", [], ["w.a"]))
    invited(mine)
    mine.session.before(writes("b", "granted"), lambda: hive.lock_table("w/a", "SHARED"))
    assert isinstance(worker(mine), Blocked)
    assert stage.state("b").invited


@mutation(hive_is_quicker_than_a_worker)
def worker_leaves_waiting(patch: Patch) -> None:
    """Its request is taken for dead when the worker's session ends, and its position is gone."""
    edit(patch, Turn, "_give_back", "if self.request.has_slot", "if False")
