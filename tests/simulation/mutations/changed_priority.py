"""A person changes the priority of a request that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import start as starting
from airflow_hivelock.locks.backends.zookeeper import waiting
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Exists, SetData
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import DeferredGrant
from tests.conformance.priority import BACKGROUND
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import writes
from tests.simulation.state import ROOT

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch

CHANGED = {"changes": 0.3}


def the_last_is_raised(stage: Stage) -> None:
    ours, first, last, person = (stage.process(name) for name in ("ours", "first", "last", "person"))
    held = ours.gets("a", [], ["w.a"])
    one, two = first.asks("b", [], ["w.a"]), last.asks("c", [], ["w.a"])
    one.poll()
    two.poll()
    assert person.prioritizes("c", 5)
    assert two.flag.raised
    assert isinstance(two.poll(), Blocked)
    ours.releases(held)
    assert two.flag.raised
    lease = two.lease()
    assert isinstance(one.poll(), Blocked)
    last.releases(lease)
    one.lease()


@mutation(the_last_is_raised)
def change_not_noticed(patch: Patch) -> None:
    """It waits on behind the requests that it has overtaken."""
    patch.setattr(
        waiting, "Exists", lambda path, wake=None: Exists(path, None if path.startswith(f"{ROOT}/requests/") else wake)
    )


@mutation(the_last_is_raised)
def own_process_takes_the_place_that_it_knew(patch: Patch) -> None:
    """It takes its own request over, and goes on at its old place."""
    edit(patch, ZooKeeperAcquisition, "_enter", "created=existing is None or not existing.has_tickets", "created=True")


def one_that_was_overtaken_is_raised(stage: Stage) -> None:
    ours, mine, urgent, person = (stage.process(name) for name in ("ours", "mine", "urgent", "person"))
    held = ours.gets("a", [], ["w.b"])
    waiter = mine.asks("b", [], ["w.a", "w.b"])
    waiter.poll()
    lease = urgent.asks("u", [], ["w.a"], priority=5).lease()
    assert person.prioritizes("b", 9)
    ours.releases(held)
    assert isinstance(waiter.poll(), Blocked)
    urgent.releases(lease)
    waiter.lease()


@mutation(one_that_was_overtaken_is_raised)
def changed_tickets_are_old(patch: Patch) -> None:
    """Its tickets are written again: as they are older than the lease of one behind it, it does not look for that."""
    original = ZooKeeperStore._follows

    def follows(self: ZooKeeperStore, old: Record | None, new: Record, claim: Claim | None) -> list[Op]:
        ops = original(self, old, new, claim)
        if old and old.queued and new.queued and old.priority != new.priority:
            ops += [SetData(create.path, create.data, -1) for create in self.queues.creates(new, claim)]
        return ops

    edit(patch, waiting, "reprioritized", "entry=record.entry + 1", "entry=record.entry")
    patch.setattr(ZooKeeperStore, "_follows", follows)


def it_is_granted_as_it_is_changed(stage: Stage) -> None:
    ours, mine, person = (stage.process(name) for name in ("ours", "mine", "person"))
    held = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    waiter.poll()

    def is_granted() -> None:
        ours.releases(held)
        waiter.lease()

    person.session.before(writes("b", "waiting"), is_granted)
    assert not person.prioritizes("b", 5)
    assert stage.intact("b")


@mutation(it_is_granted_as_it_is_changed)
def change_overwrites_the_record(patch: Patch) -> None:
    """The request has been granted since the look, and its lease is taken back."""
    version = "old.version if old else 0"
    changed = "old.queued and old.has_tickets and new.queued and old.priority != new.priority"
    edit(patch, ZooKeeperStore, "transact", version, f"-1 if old and {changed} else {version}")


def one_is_raised_late(stage: Stage) -> None:
    names = ("ours", "mine", "urgent", "person")
    ours, mine, urgent, person = (stage.process(name, passing_s=10.0) for name in names)
    ours.gets("a", [], ["w.a"])
    mine.asks("reached", [], ["w.a"], priority=0).poll()
    stage.schedule.quiet = True  # time may jump
    stage.schedule.sleep(10.0 * BACKGROUND)
    mine.asks("b", [], ["w.a"], priority=0).poll()
    urgent.asks("u", [], ["w.a"], priority=5).poll()
    stage.schedule.sleep(12)
    with pytest.raises(InvalidRequest, match="b can overtake no request"):
        person.prioritizes("b", 9)


@mutation(one_is_raised_late)
def raised_after_the_bound(patch: Patch) -> None:
    """It goes before one that has its turn, and has waited for the bound."""
    edit(patch, queueing, "_overtaking", " if place > stop", "")


def one_is_lowered(stage: Stage) -> None:
    ours, mine, other, person = (stage.process(name) for name in ("ours", "mine", "other", "person"))
    held = ours.gets("a", [], ["w.a"])
    lowered, behind = mine.asks("b", [], ["w.a"], priority=5), other.asks("c", [], ["w.a"], priority=3)
    lowered.poll()
    behind.poll()
    assert person.prioritizes("b", 3)
    assert isinstance(lowered.poll(), Blocked)
    ours.releases(held)
    assert isinstance(lowered.poll(), Blocked)
    other.releases(behind.lease())
    lowered.lease()


@mutation(one_is_lowered)
def lowered_keeps_its_turn(patch: Patch) -> None:
    """It stays before those that are as urgent by now."""
    edit(patch, queueing, "reprioritized", "return join(own, waiting, limit)", "return before")


def one_is_raised_before_equals(stage: Stage) -> None:
    ours, first, between, behind = (stage.process(name) for name in ("ours", "first", "between", "behind"))
    ours.gets("a", [], ["w.a", "w.b"])
    first.asks("b", [], ["w.a"]).poll()
    between.asks("c", [], ["w.b"], priority=5).poll()
    behind.asks("d", [], ["w.a", "w.b"], priority=5).poll()
    assert ours.prioritizes("b", 5)


@mutation(one_is_raised_before_equals)
def raised_goes_to_the_end(patch: Patch) -> None:
    """It loses its place to one that came later, and is as urgent."""
    edit(patch, queueing, "reprioritized", "if own.position.rank > before.position.rank:", "if True:")


def one_among_hives_is_lowered(stage: Stage) -> None:
    mine, other, person, hive = (
        stage.process("mine", patience_s=0.0),
        stage.process("other"),
        stage.process("p"),
        stage.hive(),
    )
    read = hive.lock_table("w/a", "SHARED")
    lowered = mine.asks("b", [], ["w.a"])
    assert [type(lowered.poll()) for _ in range(2)] == [Blocked] * 2
    assert stage.state("b").places
    behind = other.asks("c", [], ["w.a"])
    behind.poll()
    assert person.prioritizes("b", 0)
    assert not stage.state("b").places
    hive.unlock([read])
    other.releases(behind.lease())
    lowered.lease()


@mutation(one_among_hives_is_lowered)
def lowered_keeps_its_placeholder(patch: Patch) -> None:
    """Its record has lock nodes that were deleted with its tickets."""
    edit(patch, waiting, "reprioritized", "placeholders=(), ", "")


def one_comes_back_after_its_invitation(stage: Stage) -> None:
    ours, mine, other, person = (stage.process(name) for name in ("ours", "mine", "other", "person"))
    held = ours.gets("a", [], ["w.a"])
    late = mine.asks("b", [], ["w.a"], deferred=DeferredGrant(1.0))
    late.poll()
    assert person.prioritizes("b", 5)
    ours.releases(held)
    while isinstance(late.poll(), Blocked):
        late.flag.wait(1.0)
    stage.schedule.sleep(2)
    other.releases(other.asks("c", [], ["w.a"]).lease())
    again = mine.asks("b", [], ["w.a"], deferred=DeferredGrant(1.0))
    again.poll()
    assert stage.state("b").priority == 5


@mutation(one_comes_back_after_its_invitation)
def one_away_forgets_its_priority(patch: Patch) -> None:
    """Its task's process puts the weight of the DAG back."""
    edit(patch, starting, "start", "priority=existing.priority,", "")


def one_queues_again_after_its_session(stage: Stage) -> None:
    ours, mine, other, person = (stage.process(name) for name in ("ours", "mine", "other", "person"))
    held = ours.gets("a", [], ["w.a"])
    raised, behind = mine.asks("b", [], ["w.a"]), other.asks("c", [], ["w.a"])
    raised.poll()
    behind.poll()
    assert person.prioritizes("b", 5)
    raised.poll()
    mine.session.expire()
    ours.releases(held)
    lease = behind.lease()
    assert isinstance(raised.poll(), Blocked)
    assert stage.state("b").priority == 5
    other.releases(lease)
    raised.lease()


@mutation(one_queues_again_after_its_session)
def one_that_queues_again_forgets_its_priority(patch: Patch) -> None:
    """Its process gives the weight of the DAG again, because others have removed it as dead."""
    edit(patch, ZooKeeperAcquisition, "_begins", "if mine.priority != self._request.priority:", "if False:")


@mutation(seed=70, theme=CHANGED)
def changed_by_chance_keeps_its_turn(patch: Patch) -> None:
    """As :func:`lowered_keeps_its_turn`."""
    lowered_keeps_its_turn(patch)
