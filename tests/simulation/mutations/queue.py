"""The queue: positions, turns, the living and the dead."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes, waiting
from airflow_hivelock.locks.backends.zookeeper.abandoned import LONGEST_S, AbandonedRequests
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Create, Exists, Get, Refused
from airflow_hivelock.locks.backends.zookeeper.queue import Queues
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Lease
from tests.simulation import stage as staging
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import in_place_of_commits, is_ticket
from tests.simulation.session import SimulatedSession
from tests.simulation.state import ROOT
from tests.simulation.themes import ABANDONED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from tests.simulation.mutations.wire import Send
    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch


def one_ahead_queues_again(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    first = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    mine.session.before(staging.reads("a"), lambda: (ours.releases(first), ours.asks("a", [], ["w.a"]).poll()))
    assert isinstance(waiter.poll(), Lease)


@mutation(one_ahead_queues_again)
def ticket_known_by_its_owner(patch: Patch) -> None:
    """The one ahead finishes and queues again behind me: each waits for the other."""
    original = Turn.wait_for

    def wait_for(self: Turn, record: Record, ahead: Any) -> Any:
        standing = self.store.read(ahead[0].key)
        epoch = standing.ticket_epoch if standing else 0
        return original(
            self, record, [replace(ahead[0], path=self.store.layout.record(ahead[0].key), epoch=epoch), *ahead[1:]]
        )

    patch.setattr(Turn, "wait_for", wait_for)


def two_tables_at_once(stage: Stage) -> None:
    stage.process("ours").gets("a", [], ["w.a", "w.b"])


@mutation(two_tables_at_once)
def tickets_one_by_one(patch: Patch) -> None:
    """First in one queue and second in the other: each waits for the other."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        tickets = [i for i, op in enumerate(ops) if isinstance(op, Create) and is_ticket(op.path)]
        if len(tickets) < 2:
            return once(ops)
        last = tickets[-1]
        first = once((*ops[:last], *ops[last + 1 :]))
        second = first if isinstance(first, Refused) else once((ops[last],))
        if isinstance(first, Refused) or isinstance(second, Refused):
            return first if isinstance(first, Refused) else second
        return (*first[:last], *second, *first[last:])

    in_place_of_commits(patch, send)


@mutation(seed=0)
def dead_waiter_skipped(patch: Patch) -> None:
    """Whoever takes up the dead waiter's place has the earlier ticket, and both are let in."""
    original = Queues.conflicting

    def conflicting(self: Queues, *args: Any) -> Any:
        found = original(self, *args)
        return [t for t in found if self._client.submit(Exists(self._layout.alive(t.key)))[0]]

    patch.setattr(Queues, "conflicting", conflicting)


def one_ahead_dies_waiting(stage: Stage) -> None:
    ours, other, mine = stage.process("ours"), stage.process("other"), stage.process("mine")
    lease = ours.gets("a", [], ["w.a"])
    other.asks("b", [], ["w.a"]).poll()
    waiter = mine.asks("c", [], ["w.a"])
    waiter.poll()
    other.session.close()
    ours.releases(lease)
    assert waiter.flag.raised
    waiter.lease()


@mutation(one_ahead_dies_waiting)
def dead_waiter_waited_for(patch: Patch) -> None:
    """An abandoned request blocks everyone behind it."""
    patch.setattr(nodes, "free", lambda store, found: None)


def one_ahead_releases(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    lease = ours.gets("a", [], ["w.a"])
    waiter = mine.asks("b", [], ["w.a"])
    waiter.poll()
    ours.releases(lease)
    assert waiter.flag.raised


@mutation(one_ahead_releases)
def next_not_woken(patch: Patch) -> None:
    """The request ahead has ended, and the next one is not notified."""
    patch.setattr(
        waiting, "Exists", lambda path, wake=None: Exists(path, None if path.startswith(f"{ROOT}/queue/") else wake)
    )


def taken_up_while_a_waiter_looks(stage: Stage) -> None:
    ours, dead, mine, heir = (stage.process(name) for name in ("ours", "dead", "mine", "heir"))
    ours.gets("a", [], ["w.b"])
    dead.asks("b", [], ["w.a", "w.b"]).poll()
    dead.session.close()
    mine.session.before(staging.reads("b"), heir.asks("b", [], ["w.a", "w.b"]).poll)
    assert isinstance(mine.asks("c", [], ["w.a"]).poll(), Blocked)


@mutation(taken_up_while_a_waiter_looks)
def alive_read_before_the_record(patch: Patch) -> None:
    """The sign of life of an earlier request is missed, the record of a later one is read, and a living waiter broken."""
    submit = SimulatedSession.submit

    def submit_early(self: SimulatedSession, *requests: Any) -> list[Any]:
        match requests:
            case [Exists(), Exists(), Get(), Exists(), Exists(), Get(), Exists()]:
                early = submit(self, requests[3], requests[6])
                replies = submit(self, *requests)
                return [*replies[:3], early[0], *replies[4:6], early[1]]
        return submit(self, *requests)

    patch.setattr(SimulatedSession, "submit", submit_early)


def taken_up_while_a_waiter_breaks(stage: Stage) -> None:
    ours, dead, mine, heir = (stage.process(name) for name in ("ours", "dead", "mine", "heir"))
    ours.gets("a", [], ["w.b"])
    dead.asks("b", [], ["w.a", "w.b"]).poll()
    dead.session.close()
    mine.session.before(staging.writes("b", "free"), heir.asks("b", [], ["w.a", "w.b"]).poll)
    assert isinstance(mine.asks("c", [], ["w.a"]).poll(), Blocked)


@mutation(taken_up_while_a_waiter_breaks)
def break_without_a_version(patch: Patch) -> None:
    """A request that has come back to life meanwhile is removed in any case."""
    original = nodes.free

    def free(store: ZooKeeperStore, found: Record) -> Any:
        assert found.stat is not None
        return original(store, replace(found, stat=found.stat._replace(version=-1)))

    patch.setattr(nodes, "free", free)


@staging.step_by_step
def two_that_do_not_wait(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    asked = mine.asks("b", [], ["w.a"], wait=False)
    ours.session.before(staging.writes("a", "granted"), asked.poll)
    lease = ours.asks("a", [], ["w.a"], wait=False).poll()
    assert isinstance(lease, Lease)
    ours.releases(lease)
    assert isinstance(asked.poll(), Lease)


@mutation(two_that_do_not_wait)
def refused_for_one_that_does_not_wait(patch: Patch) -> None:
    """Two requests that do not wait refuse each other, and both go for nothing."""
    patch.setattr(waiting, "Blocked", lambda *args, **given: Blocked(*args, **given | {"passing": False}))


def a_process_restarts(stage: Stage) -> None:
    ours, other, first, again = (stage.process(name) for name in ("ours", "other", "first", "again"))
    lease = ours.gets("a", [], ["w.a"])
    first.asks("b", [], ["w.a"]).poll()
    other.asks("c", [], ["w.a"]).poll()
    first.session.close()
    waiter = again.asks("b", [], ["w.a"])
    waiter.poll()
    ours.releases(lease)
    assert isinstance(waiter.poll(), Lease)


@mutation(a_process_restarts)
def place_lost_on_restart(patch: Patch) -> None:
    """A waiter with a new process starts at the end of the queue."""
    original = ZooKeeperAcquisition._start

    def start(self: ZooKeeperAcquisition) -> Any:
        found = self._store.read(self._key)
        if found is not None and found.queued and found.process != self._process:
            nodes.free(self._store, found)
        return original(self)

    patch.setattr(ZooKeeperAcquisition, "_start", start)


@contextmanager
def _fails(withdrawing: Process, owner: str, error: BaseException, *, times: int = 1) -> Iterator[None]:
    """The owner's withdrawal fails with *error*; so do the next tries, if there are more *times*."""

    def fail() -> None:
        raise error

    for _ in range(times):
        withdrawing.session.before(staging.writes(owner, "free"), fail)
    with pytest.raises(type(error)):
        yield


LOST = StoreUnavailable("scripted: connection lost; nothing was sent")


def a_withdrawal_fails(stage: Stage) -> None:
    ours, other, mine = stage.process("ours"), stage.process("other"), stage.process("mine")
    lease = ours.gets("a", [], ["w.a"])
    given_up, interrupted = other.asks("b", [], ["w.a"]), other.asks("c", [], ["w.a"])
    waiter = mine.asks("d", [], ["w.a"])
    for asked in (given_up, interrupted, waiter):
        asked.poll()
    with _fails(other, "b", LOST, times=3):
        other.withdraws(given_up)
    with _fails(other, "c", KeyboardInterrupt()):
        other.withdraws(interrupted)
    ours.releases(lease)
    stage.schedule.sleep(2 * LONGEST_S)  # its process asks for nothing more, and its session lives
    assert isinstance(waiter.poll(), Lease)


@mutation(a_withdrawal_fails, theme=ABANDONED)
def failed_withdrawal_forgotten(patch: Patch) -> None:
    """Its ticket blocks the others for as long as its session lives."""
    patch.setattr(AbandonedRequests, "add", lambda self, process, end: None)


@mutation(a_withdrawal_fails)
def failed_withdrawal_tried_once(patch: Patch) -> None:
    """The store is away for longer, and the ticket stays."""
    edit(patch, AbandonedRequests, "_try", "if self._ends and self._pauses:", "if False:")


@mutation(a_withdrawal_fails)
def interrupted_withdrawal_forgotten(patch: Patch) -> None:
    """A user presses Ctrl-C twice, and the ticket stays."""
    edit(patch, ZooKeeperAcquisition, "_end", "(StoreUnavailable, KeyboardInterrupt)", "StoreUnavailable")


def asked_again_after_a_withdrawal_failed(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    ours.gets("a", [], ["w.a"])
    same, other = mine.asks("b", [], ["w.a"]), mine.asks("c", [], ["w.a"])
    same.poll()
    other.poll()
    for owner, asked in (("b", same), ("c", other)):
        with _fails(mine, owner, LOST):
            mine.withdraws(asked)
    same.poll()
    mine.asks("c", [], ["w.a"]).poll()
    stage.schedule.sleep(2 * LONGEST_S)
    assert [stage.state(owner).waits for owner in ("b", "c")] == [True, True]


@mutation(asked_again_after_a_withdrawal_failed)
def asked_again_in_vain(patch: Patch) -> None:
    """The retried withdrawal ends the request that its owner has made since."""
    edit(patch, ZooKeeperAcquisition, "step", "if self._abandoned:", "if False:")


@mutation(seed=14)
def oldest_tickets_left_out(patch: Patch) -> None:
    """A ticket that is evicted while it is read is left out: its lease is held, and the next one is granted too."""
    original = Queues._get
    patch.setattr(
        Queues,
        "_get",
        lambda self, *args: {path: found for path, found in original(self, *args).items() if path in self._cached},
    )
