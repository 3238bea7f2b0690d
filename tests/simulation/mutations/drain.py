"""Drains: tickets that exclude everybody, so that a removal is not outrun by readers for ever."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import places, removal, retry
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create, Delete
from airflow_hivelock.locks.backends.zookeeper.queue import Queues
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Lease, owner_key
from tests.simulation import stage as staging
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import Actor
from tests.simulation.state import ROOT
from tests.simulation.themes import DRAINS, SWEPT

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch


def only_a_drain_is_ahead(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    lease = ours.gets("a", ["w.a/p=1"])
    _outrun(ours, "a", mine)
    asked = mine.asks("c", ["w.a/p=3"], wait=False)
    ours.session.before(staging.writes("a", "tombstone"), asked.poll)
    assert ours.releases(lease)
    assert isinstance(asked.poll(), Lease)


@mutation(only_a_drain_is_ahead)
def refused_for_a_drain(patch: Patch) -> None:
    """A reader that does not wait is refused because of another reader, who is about to release."""
    original = Turn._wait_for

    def wait_for(self: Turn, record: Record, nearest: Any, first: Any) -> Any:
        outcome = original(self, record, nearest, first)
        return replace(outcome, passing=False) if outcome and nearest.drains is not None else outcome

    patch.setattr(Turn, "_wait_for", wait_for)


def readers_come_without_a_break(stage: Stage) -> None:
    ours, readers = stage.process("ours"), stage.process("readers")
    lease = ours.gets("a", ["w.a/p=1"])
    passed: list[Lease] = []

    def comes() -> None:
        asked = readers.asks(f"reader{len(passed)}", ["w.a/p=2"])
        if isinstance(outcome := asked.poll(), Lease):
            passed.append(outcome)
            assert len(passed) < 20
            ours.session.before(staging.writes("a", "tombstone"), comes)

    comes()
    assert ours.releases(lease)
    assert not stage.checks.drains


@mutation(readers_come_without_a_break)
def removal_without_a_drain(patch: Patch) -> None:
    """Every one of them raises the guard before the release comes through."""
    patch.setattr(removal, "TRIES_BEFORE_DRAIN", 1_000)


def a_drain_is_left_behind(stage: Stage) -> None:
    ours, keeper, mine = stage.process("ours"), stage.process("keeper"), stage.process("mine")
    lease = ours.gets("a", ["w.a/p=1"])
    _outrun(ours, "a", mine)
    ours.session.lose_reply(lambda request: isinstance(request, Commit) and isinstance(request.ops[0], Create))
    with pytest.raises(StoreUnavailable):
        ours.releases(lease)
    waiter = mine.asks("c", ["w.a/p=3"])
    assert isinstance(waiter.poll(), Blocked)
    keeper.manager.renew(lease)  # a removal would have to compare another version now: the drain is void
    assert waiter.flag.raised
    assert isinstance(waiter.poll(), Lease)


def _outrun(ours: Process, owner: str, readers: Process) -> None:
    """Let as many readers come before *ours* can release what *owner* has as it takes until it drains the queue."""
    for number in range(removal.TRIES_BEFORE_DRAIN):
        ours.session.before(staging.writes(owner, "tombstone"), partial(readers.gets, f"{owner}{number}", ["w.a/p=2"]))


def one_of_several_drains_is_gone(stage: Stage) -> None:
    ours, keeper, mine = stage.process("ours"), stage.process("keeper"), stage.process("mine")
    lease = ours.gets("a", ["w.a/p=1", "w.b/p=1"])
    _outrun(ours, "a", mine)

    def void() -> None:
        keeper.manager.renew(lease)
        mine.gets("c", ["w.a/p=3"])  # deletes what is in its way

    ours.session.before(staging.writes("a", "tombstone"), void)
    assert ours.releases(lease)
    assert not stage.checks.drains


@mutation(one_of_several_drains_is_gone)
def drains_given_back_all_or_none(patch: Patch) -> None:
    """A waiter has deleted one that was void, and the others stand in their queues until the session ends."""
    submit = Actor.submit

    def together(self: Actor, *requests: Any) -> list[Any]:
        deletes = [op for each in requests if isinstance(each, Commit) for op in each.ops if isinstance(op, Delete)]
        return submit(self, Commit(tuple(deletes))) if len(deletes) == len(requests) > 1 else submit(self, *requests)

    patch.setattr(Actor, "submit", together)


def it_gives_up(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    lease = ours.gets("a", ["w.a/p=1"])
    _outrun(ours, "a", mine)
    with (
        mock.patch.object(removal, "TRIES_BEFORE_DRAIN", 1),
        mock.patch.object(retry, "GIVE_UP_S", 0.0),
        pytest.raises(StoreUnavailable),
    ):
        ours.releases(lease)
    assert not stage.checks.drains


@mutation(it_gives_up)
def drains_kept_by_who_gives_up(patch: Patch) -> None:
    """They keep everybody waiting until its session ends."""
    patch.setattr(removal.Removal, "_give_back", lambda self, drains: None)


@mutation(a_drain_is_left_behind)
def drain_stands_while_its_session_lives(patch: Patch) -> None:
    """Its removal was cut short, and nobody else is told when it is over: who waits behind it sleeps on."""
    original = Queues.tickets
    patch.setattr(Queues, "tickets", lambda self, *args: [replace(t, drains=None) for t in original(self, *args)])


def _drain_left_behind(stage: Stage) -> tuple[Process, Lease]:
    """A process that lives, and its lease, the release of which was cut short as it had drained."""
    ours = stage.process("ours")
    lease = ours.gets("a", ["w.a/p=1"])
    _outrun(ours, "a", stage.process("readers"))
    ours.session.lose_reply(lambda request: isinstance(request, Commit) and isinstance(request.ops[0], Create))
    with pytest.raises(StoreUnavailable):
        ours.releases(lease)
    return ours, lease


def a_drain_outlives_its_record(stage: Stage) -> None:
    ours, lease = _drain_left_behind(stage)
    ours.releases(lease)
    assert stage.checks.drains
    record = f"{ROOT}/requests/{owner_key('a')}"
    stage.hive().session.submit(Commit((Delete(record),)))  # a week later
    stage.process("mine").asks("c", ["w.a/p=3"]).lease()


@mutation(a_drain_outlives_its_record, theme=SWEPT)
def ticket_without_a_record_is_read_again(patch: Patch) -> None:
    """A drain whose reply was lost outlives its record: everybody on that table goes round while its session lives."""
    original = Turn._wait_for

    def wait_for(self: Turn, record: Record, nearest: Any, first: Any) -> Any:
        return original(self, record, nearest, first) if self.store.read(nearest.key) else None

    patch.setattr(Turn, "_wait_for", wait_for)


def a_waiter_dies_behind_a_drain(stage: Stage) -> None:
    ours, lease = _drain_left_behind(stage)
    dead = stage.process("dead")
    dead.asks("b", [], ["w.a/p=1"]).poll()
    waiter = stage.process("mine").asks("c", [], ["w.a/p=1"])
    waiter.poll()
    dead.session.close()
    ours.releases(lease)
    waiter.lease()


@mutation(a_waiter_dies_behind_a_drain, theme=DRAINS)
def void_at_the_head_of_the_line(patch: Patch) -> None:
    """A waiter dies behind a drain that is void by now: who comes next neither breaks the one nor deletes the other."""
    edit(
        patch,
        places,
        "wait",
        "owner_of(store, first, head)",
        "owner_of(store, first, head) or (head and Record.decode(head, store.layout.record(first.key)))",
    )
