"""Lock nodes: their owners, although Hive unlocks by path and paths are used again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import marking, nodes, queue
from airflow_hivelock.locks.backends.zookeeper.client import Children, Create, Delete, Exists, Listing, Names, Refused
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.errors import LockLost, StoreUnavailable
from tests.simulation import model
from tests.simulation.hive import HiveClient
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import in_place_of_commits, is_record, is_ticket
from tests.simulation.stage import reads, step_by_step, verifies, writes
from tests.simulation.state import NAMESPACE, ROOT
from tests.simulation.themes import DATABASES

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_hivelock.locks.backends.zookeeper.client import Op, Request
    from airflow_hivelock.locks.model import Lease
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
def older_requests_not_marked(patch: Patch) -> None:
    """UNLOCK TABLE deletes my node, another's has the same path, and my release deletes that."""
    patch.setattr(marking, "mark_older", lambda *args: {})


def released_by_its_path_while_the_next_one_looks(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    lease = ours.gets("a", ["w.a/p=1"])
    hive.unlock_table("w/a/p=1")
    other.session.before(reads("a"), lambda: ours.releases(lease))
    other.asks("b", ["w.a/p=1"]).lease()
    assert stage.intact("b")


@mutation(released_by_its_path_while_the_next_one_looks)
def own_nodes_not_looked_at_again(patch: Patch) -> None:
    """The older request released before it was marked, by its path, which was mine by then."""
    edit(patch, nodes, "verify", "if len(again) < len(read_again):", "if False:")


def a_database_is_unlocked(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    lease = ours.gets("a", ["w"])
    hive.unlock_table("w")
    other.gets("b", ["w.b"])
    ours.releases(lease)
    assert stage.intact("b")


@mutation(a_database_is_unlocked, theme=DATABASES)
def only_the_own_tables_queue_read(patch: Patch) -> None:
    """A request for another table of the same database has the path of mine on the new database node."""
    original = queue.Queues.older
    patch.setattr(
        queue.Queues,
        "older",
        lambda self, mine, targets, others: original(
            self, mine, {target: czxid for target, czxid in targets.items() if target.table}, others
        ),
    )


def released_before_all_queues_of_the_database_are_listed(stage: Stage) -> None:
    ours, other, third, hive = (stage.process("ours"), stage.process("other"), stage.process("third"), stage.hive())
    other.releases(other.gets("x", ["w.b"]))  # its queue is there
    hive.clean_up()
    lease = ours.gets("a", ["w.a"])
    for target in ("w/a", "w"):
        hive.unlock_table(target)
    third.session.lose_reply(verifies(f"{NAMESPACE}/w/a"))

    def another_comes_and_mine_is_released() -> None:
        with pytest.raises(StoreUnavailable):
            third.asks("c", ["w.a"]).poll()
        assert ours.releases(lease)

    other.session.before(lambda request: request == Names(f"{ROOT}/queue"), another_comes_and_mine_is_released)
    other.asks("b", ["w.b"]).lease()
    assert stage.intact("b")


@mutation(released_before_all_queues_of_the_database_are_listed)
def a_new_databases_node_not_read_again(patch: Patch) -> None:
    """An older request was released by its path before its ticket was looked for, and my node on the database is gone."""
    edit(patch, marking, "mark_older", "if older.get(target) or not target.table:", "if older.get(target):")


def two_days_are_unlocked_one_after_the_other(stage: Stage) -> None:
    ours, keeper, other, hive = (stage.process("ours"), stage.process("keeper"), stage.process("other"), stage.hive())
    lease = ours.gets("a", ["w.a/p=1", "w.a/p=2"])
    hive.unlock_table("w/a/p=1")
    other.gets("b", ["w.a/p=1"])

    def the_second() -> None:
        hive.unlock_table("w/a/p=2")
        other.gets("c", ["w.a/p=2"])

    keeper.session.before(writes("a", "tombstone"), the_second)
    keeper.releases(lease)
    assert stage.intact("b")
    assert stage.intact("c")


@mutation(two_days_are_unlocked_one_after_the_other)
def lost_marked_once(patch: Patch) -> None:
    """A release has found its other node, which UNLOCK TABLE deletes meanwhile, and deletes a later one at its path."""
    edit(patch, marking, "_had_node", "or str(target) in record.lost:", "or record.state is State.LOST:")


def robbed_and_released_between_two_reads(stage: Stage) -> None:
    ours, other, hive = stage.process("ours"), stage.process("other"), stage.hive()
    other.releases(other.gets("x", [], ["w.a/p=1"]))
    leases: list[Lease] = []

    def robbed() -> None:
        leases.append(ours.gets("a", [], ["w.a/p=1"]))
        hive.unlock_table("w/a/p=1")

    listed = Names(f"{ROOT}/queue/w.a")
    other.session.before(writes("b", "granted"), robbed)
    other.session.before(lambda request: request == listed and bool(leases), lambda: ours.releases(leases[0]))
    other.asks("b", [], ["w.a/p=1"]).lease()
    assert stage.intact("b")


@mutation(robbed_and_released_between_two_reads)
def objects_read_before_the_queues(patch: Patch) -> None:
    """A lease is returned although its node is missing: the ticket that would show it was already deleted."""
    original = nodes.verify

    def reads(store: Any, locks: Any, existing: Any) -> list[Any]:
        return [*store.namespace.listings(existing), *store.queues.reads(locks)]

    def verify(store: Any, mine: Any, position: Any, own: Any, existing: Any, replies: Any) -> Any:
        at = len(existing)
        return original(store, mine, position, own, existing, [*replies[at:], *replies[:at]])

    patch.setattr(nodes, "reads", reads)
    patch.setattr(nodes, "verify", verify)


@mutation(robbed_and_released_between_two_reads)
def created_objects_not_read(patch: Patch) -> None:
    """The same, where the transaction has created the object itself."""
    patch.setattr(nodes, "FEW", 0)
    patch.setattr(queue.Queues, "changes", lambda self, locks: [])
    edit(patch, nodes, "verify", "if not alone or any(", "if any(")


def readers_side_by_side(stage: Stage) -> None:
    ours, other = stage.process("ours"), stage.process("other")
    ours.gets("a", ["w.a/p=1"])
    other.releases(other.gets("b", ["w.a/p=1"]))
    lease = ours.gets("c", ["w.a/p=1"])
    other.gets("d", ["w.a/p=1"])
    other.releases(lease)  # by a process that has to look for its nodes
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
    ours.session.before(lambda request: request == look and stage.state("b").state == "granted", unlocked)
    asked.lease()
    assert stage.intact("b")


@mutation(unlocked_and_made_again_before_the_look)
def age_of_the_object_ignored(patch: Patch) -> None:
    """UNLOCK TABLE and clean-up, a successor makes a node of my node's name, and I believe that it is mine."""
    patch.setattr(model, "Listing", lambda names, czxid: Listing(names, 0))


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
    """The watch is on a successor's node with the same name: the holder is not woken when its lock is deleted."""

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
        tickets = [Delete(op.path) for op in ops if isinstance(op, Create) and is_ticket(op.path)]
        outcome = once(ops)
        if tickets and not isinstance(outcome, Refused) and any(is_record(op, "granted") for op in ops):
            once(tuple(tickets))
        return outcome

    in_place_of_commits(patch, send)
