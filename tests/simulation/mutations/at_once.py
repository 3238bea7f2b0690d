"""Granted at once: what may come between the look and the one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import acquisition, nodes, queue
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from tests.simulation.mutations.mutation import mutation
from tests.simulation.stage import writes
from tests.simulation.themes import CLEAN_UP

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch


def _prepared(stage: Stage) -> Process:
    """A process that knows the store's time, with the queues made."""
    ours = stage.process("ours")
    ours.releases(ours.gets("a", [], ["w.a/p=1"]))
    return ours


def another_queues_before_the_grant(stage: Stage) -> None:
    ours, other, hive = _prepared(stage), stage.process("other"), stage.hive()
    hive.query({"w/a/p=1": "SHARED"})
    ours.session.before(writes("a", "granted"), other.asks("b", [], ["w.a/p=1"]).poll)
    assert isinstance(ours.asks("a", ["w.a/p=1"]).poll(), Blocked)


@mutation(another_queues_before_the_grant)
def tickets_not_looked_at(patch: Patch) -> None:
    """A writer that waits for Hive's readers has queued since, and a reader of ours goes by."""
    patch.setattr(nodes, "_before", lambda *args: [])


def the_whole_database_is_wanted(stage: Stage) -> None:
    ours, other, hive = _prepared(stage), stage.process("other"), stage.hive()
    hive.query({"w": "SHARED"})
    ours.session.before(writes("a", "granted"), other.asks("b", [], ["w"]).poll)
    assert isinstance(ours.asks("a", ["w.a/p=1"]).poll(), Blocked)


@mutation(the_whole_database_is_wanted)
def databases_queue_not_looked_at(patch: Patch) -> None:
    """A request for the whole database queues where others only look, and is not seen."""
    original = queue._units
    patch.setattr(queue, "_units", lambda locks: [name for name in original(locks) if "." in name])


def hive_locks_before_the_grant(stage: Stage) -> None:
    ours, hive = _prepared(stage), stage.hive()
    ours.session.before(writes("a", "granted"), lambda: hive.lock_table("w/a", "SHARED"))
    assert isinstance(ours.asks("a", [], ["w.a"]).poll(), Blocked)


@mutation(hive_locks_before_the_grant)
def hive_not_looked_for(patch: Patch) -> None:
    """Hive locked between the look and the grant."""
    original = Namespace.foreign_conflicts
    patch.setattr(
        Namespace,
        "foreign_conflicts",
        lambda self, locks, children, own: [] if own else original(self, locks, children, own),
    )


def _hive_reads(stage: Stage) -> tuple[Process, Callable[[], None]]:
    """One of ours, about to read what Hive reads; and how Hive goes on to write it."""
    ours, hive = stage.process("ours"), stage.hive()
    ours.releases(ours.gets("a", ["w.a"]))
    hive.unlock(hive.query({"w": "SHARED", "w/a": "SHARED"})[::-1])
    read = hive.query({"w": "SHARED", "w/a": "SHARED"})

    def writes() -> None:
        hive.unlock(read[::-1])  # the table's node goes, and the database's
        hive.query({"w": "SHARED", "w/a": "EXCLUSIVE"})

    return ours, writes


def hive_makes_the_database_anew_before_the_grant(stage: Stage) -> None:
    ours, hive_writes = _hive_reads(stage)
    ours.session.before(writes("a", "granted"), hive_writes)
    assert isinstance(ours.asks("a", ["w.a"]).poll(), Blocked)


@mutation(hive_makes_the_database_anew_before_the_grant)
def a_new_database_not_looked_at(patch: Patch) -> None:
    """Hive's clean-up deletes database and table, which are created again with its lock on them."""
    hive_not_looked_for(patch)


def hive_makes_the_namespace_anew_before_the_grant(stage: Stage) -> None:
    ours, hive = _prepared(stage), stage.hive()
    hive.clean_up()
    hive.begin()
    read = hive.query({"w": "SHARED", "w/a": "SHARED"})

    def hive_writes() -> None:
        hive.unlock(read[::-1])
        hive.clean_up()
        hive.begin()
        hive.query({"w": "SHARED", "w/a": "EXCLUSIVE"})

    ours.session.before(writes("a", "granted"), hive_writes)
    assert isinstance(ours.asks("a", ["w.a"]).poll(), Blocked)


@mutation(hive_makes_the_namespace_anew_before_the_grant, theme=CLEAN_UP)
def a_new_namespace_not_looked_at(patch: Patch) -> None:
    """Hive's clean-up deletes the namespace as well, and all of it is created again with its lock on it."""
    hive_not_looked_for(patch)


@mutation(seed=7)
def namespace_waited_for(patch: Patch) -> None:
    """Hive's clean-up has deleted the namespace, and all requests wait until Hive creates it again."""
    patch.setattr(Namespace, "make", lambda self: None)


@mutation(seed=7)
def round_and_round(patch: Patch) -> None:
    """The same without a pause, and without a look at the deadline."""
    patch.setattr(Namespace, "make", lambda self: None)
    patch.setattr(acquisition, "pause_s", lambda taken: 0.0)
    patch.setattr(acquisition, "STEP_S", 86_400.0)
