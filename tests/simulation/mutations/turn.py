"""The try, the verification, and Hive's clients, which neither queue nor give way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import nodes
from airflow_hivelock.locks.backends.zookeeper.client import Listing
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.nodes import Verification
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import step_by_step, writes
from tests.simulation.themes import IMPATIENT_HIVE

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


@step_by_step
def hive_locks_before_the_try(stage: Stage) -> None:
    ours, hive = stage.process("ours"), stage.hive()
    ours.releases(ours.gets("b", [], ["w.a"]))  # the table's node stays
    ours.session.before(writes("a", "granted"), lambda: hive.lock_table("w/a", "SHARED"))
    assert isinstance(ours.asks("a", [], ["w.a"]).poll(), Blocked)


@mutation(hive_locks_before_the_try)
def verify_skipped(patch: Patch) -> None:
    """Hive locked between the look and the try."""
    patch.setattr(nodes, "verify", lambda store, found, position, own, *more: Verification(own=own.paths))


def hive_has_locked(stage: Stage) -> None:
    ours, hive = stage.process("ours"), stage.hive()
    hive.lock_table("w/a", "SHARED")
    ours.session.before(writes("a", "granted"), lambda: pytest.fail("it tries, and Hive's own clients are refused"))
    assert isinstance(ours.asks("a", [], ["w.a"]).poll(), Blocked)


@mutation(hive_has_locked)
def try_against_hive(patch: Patch) -> None:
    """Tries that must fail make Hive's own retries fail."""
    original = Namespace.foreign_conflicts
    patch.setattr(
        Namespace,
        "foreign_conflicts",
        lambda self, locks, children, own: original(self, locks, children, own) if own else [],
    )


def hive_has_locked_a_partition(stage: Stage) -> None:
    ours, hive = stage.process("ours"), stage.hive()
    hive.lock_table("w/a/p=1", "SHARED")
    assert isinstance(ours.asks("a", [], ["w.a"]).poll(), Blocked)


@mutation(hive_has_locked_a_partition)
def locks_below_ignored(patch: Patch) -> None:
    """Hive's LOCK TABLE … PARTITION does not lock the table, and EXCLUSIVE on the table is granted too."""
    patch.setattr(Namespace, "foreign_below", lambda self, locks, children, before_zxid: [])


def hive_holds_the_first_and_wants_the_second(stage: Stage) -> None:
    ours, hive, other = stage.process("ours", patience_s=0.0), stage.hive(), stage.hive("hive-other")
    held = hive.lock_table("w/a/p=2", "EXCLUSIVE")
    asked = ours.asks("a", [], ["w.a/p=1", "w.a/p=2"])
    asked.poll()
    asked.poll()
    assert stage.state("a").places.keys() == {"w/a/p=2"}
    stage.meanwhile("hive", lambda: other.unlock(other.query({"w/a/p=1": "EXCLUSIVE", "w/a/p=2": "EXCLUSIVE"})))
    stage.schedule.sleep(1.0)
    hive.unlock([held])
    asked.lease()


@mutation(hive_holds_the_first_and_wants_the_second)
def barrier_kept_behind(patch: Patch) -> None:
    """I wait at one object with a node on a later one; Hive holds the first and waits for the second."""

    def place(self: Turn, record: Record, target: Any) -> None:
        lock = next(lock for lock in record.locks if lock.object == target)
        created = self.store.namespace.lock_nodes([lock], {target: Listing((), 0)}, self._lock_data())
        changed = replace(record, placeholders=(*record.placeholders, (str(target), 0)))
        self.record = self.store.rewrite(record, changed, *created)

    patch.setattr(Turn, "_place", place)


@mutation(theme=IMPATIENT_HIVE)
def gone_before_it_is_watched(patch: Patch) -> None:
    """Hive's lock is deleted between the look and the watch, and the waiter is not woken."""
    edit(patch, Turn, "_wait_for_hive", "if there is None:", "if False:")


def hive_unlocks_one_of_two_partitions(stage: Stage) -> None:
    ours, hive = stage.process("ours"), stage.hive()
    locked = [hive.lock_table(f"w/a/p={number}", "SHARED") for number in range(2)]
    asked = ours.asks("a", [], ["w.a"])
    asked.poll()
    hive.unlock(locked[:1])
    assert isinstance(asked.poll(), Blocked)
    assert not asked.flag.raised, "it is told at once of what it has written itself"
    hive.unlock(locked[1:])
    asked.lease()


@mutation(hive_unlocks_one_of_two_partitions)
def tries_in_vain_again_and_again(patch: Patch) -> None:
    """Each try against a lock of Hive's below mine writes my own record, which wakes me: for the next one, without a pause."""
    edit(patch, Turn, "foreign", "self._refused_at is not None", "False")
