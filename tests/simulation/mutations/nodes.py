"""Lock nodes: whose they are, though Hive unlocks by path and paths are used again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import queue, removal
from airflow_hivelock.locks.backends.zookeeper.client import Children, Delete, Exists, Listing, Refused, SetData
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.queue import shared_units
from airflow_hivelock.locks.errors import LockLost
from tests.simulation import model
from tests.simulation.hive import HiveClient
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.wire import in_place_of_commits, is_record
from tests.simulation.stage import step_by_step
from tests.simulation.state import NAMESPACE, ROOT
from tests.simulation.themes import DATABASES

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_hivelock.locks.backends.zookeeper.client import Op, Request
    from tests.simulation.mutations.wire import Send
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


def unlocked_and_made_again_by_another(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    lease = ours.gets("a", ["w.a/p=1"])
    hive.unlock_table("w/a/p=1")
    other.gets("b", ["w.a/p=1"])
    ours.releases(lease)
    assert stage.intact("b")


@mutation(unlocked_and_made_again_by_another)
def removal_without_guards(patch: Patch) -> None:
    """UNLOCK TABLE takes my node, another's has the same path, and my release deletes that."""
    doomed = removal._Doomed
    patch.setattr(removal, "_Doomed", lambda guards, nodes, emptied: doomed((), nodes, emptied))


@mutation(unlocked_and_made_again_by_another)
def guard_not_raised(patch: Patch) -> None:
    """The same: who makes a SHARED node must tell those who are about to delete one."""
    patch.setattr(queue.Queues, "guards", lambda self, locks: [])


def readers_side_by_side(stage: Stage) -> None:
    ours, other = stage.process("ours"), stage.process("other")
    ours.gets("a", ["w.a/p=1"])
    other.releases(other.gets("b", ["w.a/p=1"]))
    lease = ours.gets("c", ["w.a/p=1"])
    other.gets("d", ["w.a/p=1"])
    ours.releases(lease)
    assert all(map(stage.intact, "ad"))


@mutation(readers_side_by_side)
def nodes_known_by_name(patch: Patch) -> None:
    """Whoever's node it is on my object, in my mode, I delete it."""
    original = Namespace.own_nodes

    class Every(frozenset[int]):
        def __contains__(self, zxid: object) -> bool:
            return True

    def own_nodes(self: Namespace, locks: Any, zxids: Collection[int]) -> Any:
        return original(self, locks, Every(zxids))

    patch.setattr(Namespace, "own_nodes", own_nodes)


@step_by_step
def unlocked_and_made_again_before_the_look(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    other.gets("a", ["w.a/p=1"])
    look = Children(f"{NAMESPACE}/w/a/p=1")

    def unlocked() -> None:
        hive.unlock_table("w/a/p=1")
        for owner in "cd":  # the second one's node has the name of mine
            other.gets(owner, ["w.a/p=1"])

    asked = ours.asks("b", ["w.a/p=1"])
    ours.session.before(lambda request: request == look and stage.state("b").state == "trying", unlocked)
    asked.lease()
    assert stage.intact("b")


@mutation(unlocked_and_made_again_before_the_look)
def age_of_the_object_ignored(patch: Patch) -> None:
    """UNLOCK TABLE and clean-up, a successor makes a node of my node's name, and I believe that it is mine."""
    patch.setattr(model, "Listing", lambda names, czxid, created: Listing(names, 0, created))


def unlocked_and_made_again_while_its_holder_looks(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    lease = ours.gets("a", ["w.a/p=1"])

    def robbed() -> None:
        hive.unlock_table("w/a/p=1")
        other.gets("b", ["w.a/p=1"])

    def watches(request: Request) -> bool:
        return isinstance(request, Exists) and request.wake is not None and request.path.startswith(NAMESPACE)

    ours.session.before(watches, robbed)
    with pytest.raises(LockLost):
        ours.manager.verify(lease, lambda: None)


@mutation(unlocked_and_made_again_while_its_holder_looks)
def watch_set_on_whatever_is_there(patch: Patch) -> None:
    """The watch is set on a successor's node, of my node's name: nobody wakes me, and my lock is gone."""

    def missing(self: Namespace, locks: Any, zxids: Any, wake: Any) -> Any:
        own = self.own_nodes(locks, zxids)
        self._client.submit(*(Exists(placed.path, wake) for placed in own.values() if wake))
        return [lock.object for lock in locks if lock.object not in own]

    patch.setattr(Namespace, "missing", missing)


def hive_unlocks_what_it_has_lost(stage: Stage) -> None:
    ours, hive, other = stage.process("ours"), stage.hive(), stage.hive("hive-other")
    lock = hive.lock_table("w/a/p=1", "EXCLUSIVE")
    other.unlock_table("w/a/p=1")
    ours.gets("a", [], ["w.a/p=1"])
    hive.unlock([lock])


@mutation(hive_unlocks_what_it_has_lost)
def ten_digits(patch: Patch) -> None:
    """UNLOCK TABLE takes Hive's lock, mine is made on its path, and Hive unlocks by path."""
    original = HiveClient._write

    def write(self: HiveClient, op: Any) -> str | None:
        done = original(self, op)
        head, lock, number = op.path.rpartition("-")
        if done is None and isinstance(op, Delete) and lock and number.isdigit():
            return original(self, Delete(f"{head}-0{number}"))
        return done

    patch.setattr(HiveClient, "_write", write)


def unlocked_while_it_is_held(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    other.gets("a", ["w.a"])
    ours.gets("b", [], ["w.a/p=1"])
    hive.unlock_table("w/a/p=1")
    assert isinstance(other.asks("c", [], ["w.a/p=1"]).poll(), Blocked)


@mutation(unlocked_while_it_is_held)
def tickets_given_back_at_the_grant(patch: Patch) -> None:
    """UNLOCK TABLE takes a lock, and the next of ours is granted it while its holder still works."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        for granted in ops:
            if isinstance(granted, SetData) and is_record(granted, "granted"):
                named = json.loads(granted.data)["tickets"]
                ops = (*ops, *(Delete(f"{ROOT}/queue/{unit}/{name}") for unit, name in named))
        return once(ops)

    in_place_of_commits(patch, send)


@mutation(seed=5029, theme=DATABASES)
def databases_without_a_guard(patch: Patch) -> None:
    """UNLOCK TABLE and clean-up take my SHARED node on a database, another's has the same path, and my release deletes that."""
    for module in (removal, queue):
        patch.setattr(module, "shared_units", lambda locks: tuple(name for name in shared_units(locks) if "." in name))
