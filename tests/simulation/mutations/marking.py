"""Marking: which requests may have a node at my path, although a list of the waiters shows most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import marking
from airflow_hivelock.locks.backends.zookeeper.client import Names
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.locks.model import Lease
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.schedule import Flag
from tests.simulation.stage import verifies, writes
from tests.simulation.state import NAMESPACE, ROOT
from tests.simulation.themes import DATABASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.stage import Asked, Process, Stage

    Patch = pytest.MonkeyPatch

DAY = "w.a/p=1"
LISTED = Names(f"{ROOT}/alive")


class Later:
    """A request that goes on in a task of its own, up to each of its writes in turn."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._goes_on: list[Flag] = []
        self._stops: list[Flag] = []

    def stop(self, process: Process, owner: str, state: str) -> None:
        """It stops before its next write of *owner*'s record as *state*."""
        goes_on, stops = Flag(self._stage.schedule), Flag(self._stage.schedule)
        self._goes_on.append(goes_on)
        self._stops.append(stops)

        def wait() -> None:
            stops.set()
            goes_on.wait()

        process.session.before(writes(owner, state), wait)

    def begin(self, act: Callable[[], object]) -> None:
        """Begin, and return when it stops."""
        ended = Flag(self._stage.schedule)
        self._stops.append(ended)

        def run() -> None:
            act()
            ended.set()

        self._stage.meanwhile("later", run)
        self._stops.pop(0).wait()

    def go_on(self) -> None:
        """Return when it stops again, or has ended."""
        self._goes_on.pop(0).set()
        self._stops.pop(0).wait()


def enters_beside_a_waiter(stage: Stage) -> tuple[Later, Process, Asked]:
    """One waits. Another has not seen that, enters, and is about to give back what UNLOCK TABLE has deleted."""
    late, mine, third, hive = (stage.process("late"), stage.process("mine"), stage.process("third"), stage.hive())
    third.releases(third.gets("c", [], [DAY]))  # the table's node and its queue are there
    later = Later(stage)
    later.stop(late, "a", "granted")
    later.stop(late, "a", "waiting")
    later.begin(lambda: late.asks("a", [], [DAY]).poll())
    held = third.gets("c", [], [DAY])
    asked = mine.asks("b", [], [DAY])
    assert isinstance(asked.poll(), Blocked)
    third.releases(held)
    later.go_on()
    hive.unlock_table("w/a/p=1")
    return later, mine, asked


def a_grant_is_given_back_by_its_path(stage: Stage) -> None:
    later, _, asked = enters_beside_a_waiter(stage)
    asked.lease()
    later.go_on()
    assert stage.intact("b")


@mutation(a_grant_is_given_back_by_its_path)
def all_behind_taken_for_waiters(patch: Patch) -> None:
    """A request behind me holds for a moment, and gives that back by a path that is mine by then."""
    edit(patch, marking, "_without_waiters", " or one[0].key not in alive", "")


def a_grant_is_given_back_before_the_waiters_are_listed(stage: Stage) -> None:
    later, mine, asked = enters_beside_a_waiter(stage)
    mine.session.before(lambda request: request == LISTED, later.go_on)
    asked.lease()
    assert stage.intact("b")


@mutation(a_grant_is_given_back_before_the_waiters_are_listed)
def own_nodes_not_read_after_the_waiters(patch: Patch) -> None:
    """A request behind me waits again, and has given its nodes back by a path that was mine by then."""
    edit(
        patch,
        marking,
        "mark_older",
        "    # The request's own",
        "    if not suspects:\n        return {}\n    # The request's own",
    )


def a_reader_withdraws_after_unlock(stage: Stage) -> None:
    late, mine, hive = stage.process("late", patience_s=0.0), stage.process("mine"), stage.hive()
    hive.lock_table("w/a", "EXCLUSIVE")
    earlier = [mine.asks(owner, ["w.a"]) for owner in "bc"]
    assert [type(asked.poll()) for asked in earlier] == [Blocked] * 2
    waiter = late.asks("a", ["w.a"])
    assert [type(waiter.poll()) for _ in range(2)] == [Blocked] * 2  # with a placeholder

    def granted() -> None:
        hive.unlock_table("w/a")
        for asked in earlier:
            assert isinstance(asked.poll(), Lease)

    late.session.before(writes("a", "free"), granted)
    late.withdraws(waiter)
    assert all(map(stage.intact, "bc"))


@mutation(a_reader_withdraws_after_unlock)
def others_than_rivals_skipped(patch: Patch) -> None:
    """A reader that waits beside me for Hive has a placeholder, and withdraws by a path that is mine by then."""
    edit(patch, marking, "_without_waiters", "for one in rivals if", "for one, _, _ in suspects if")


def overtaken_and_unlocked(stage: Stage) -> None:
    late, mine, hive, other = (
        stage.process("late", patience_s=0.0),
        stage.process("mine"),
        stage.hive(),
        stage.hive("hive-other"),
    )
    mine.releases(mine.gets("b", [], ["w.a"]))  # its queue is there
    later = Later(stage)
    late.session.before(writes("a", "waiting"), lambda: None)  # its tickets
    later.stop(late, "a", "waiting")  # its placeholder
    later.stop(late, "a", "waiting")  # it gives that back
    read = hive.lock_table("w/a", "SHARED")
    later.begin(lambda: late.asks("a", [], ["w.a"]).poll())
    hive.unlock([read])
    other.leave_empty("w/a/p=1")
    asked = mine.asks("b", [], ["w.a"], priority=5)

    def placed() -> None:
        later.go_on()
        other.unlock_table("w/a")
        other.clean_up()
        other.begin()
        other.leave_empty("w/a/p=1")

    mine.session.before(writes("b", "granted"), placed)
    asked.lease()
    later.go_on()
    assert stage.intact("b")


@mutation(overtaken_and_unlocked)
def overtaken_ones_skipped(patch: Patch) -> None:
    """A request that I overtook did not see me, has a placeholder, and gives it back by a path that is mine by then."""
    edit(patch, marking, "_without_waiters", " and not position.passed(one.position)", "")


def released_between_two_reads_of_two_databases(stage: Stage) -> None:
    ours, other, third, hive = (stage.process("ours"), stage.process("other"), stage.process("third"), stage.hive())
    for name in ("v.b", "w.b", "w.c"):
        other.releases(other.gets("x", [name]))  # their queues are there
    hive.clean_up()
    lease = ours.gets("a", ["w.a"])
    for target in ("w/a", "w"):
        hive.unlock_table(target)
    third.session.lose_reply(verifies(f"{NAMESPACE}/w/a"))

    def released() -> None:
        with pytest.raises(StoreUnavailable):
            third.asks("d", ["w.a"]).poll()
        assert ours.releases(lease)
        other.gets("c", ["w.c"])

    def granted() -> None:
        other.session.before(verifies(f"{NAMESPACE}/w/b"), released)  # w has been read

    other.session.before(writes("b", "granted"), granted)
    other.asks("b", ["v.b", "w.b"]).lease()
    assert stage.intact("b")


@mutation(released_between_two_reads_of_two_databases, theme=DATABASES)
def settled_since_my_reads(patch: Patch) -> None:
    """A thread of my process settled the database, but a request had deleted my node after my look, and before that."""
    edit(patch, marking, "_is_settled", " and settled[1] <= record.stat.mzxid", "")
