"""The lease: renewed, lost, released, and freed by force."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backends.zookeeper import nodes
from airflow_hivelock.locks.backends.zookeeper.namespace import Namespace
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from airflow_hivelock.locks.errors import LockLost
from tests.simulation.mutations.mutation import mutation
from tests.simulation.stage import writes

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


def adopted_before_a_late_release(stage: Stage) -> None:
    first, second = stage.process("first"), stage.process("second")
    lease = first.gets("a", [], ["w.a"])
    second.gets("a", [], ["w.a"], attempt=1)
    assert not first.releases(lease)
    assert stage.intact("a")


@mutation(adopted_before_a_late_release)
def released_by_lease_id_alone(patch: Patch) -> None:
    """The late release of try 1 frees what try 2 has adopted."""

    def standing(self: ZooKeeperStore, lease: Any) -> Record | None:
        found = self.read_lease(lease.id)
        return replace(found, epoch=lease.epoch) if found else None

    patch.setattr(ZooKeeperStore, "record_of", standing)


def renewed_while_it_is_released(stage: Stage) -> None:
    ours, keeper = stage.process("ours"), stage.process("keeper")
    lease = ours.gets("a", [], ["w.a"])
    ours.session.before(writes("a", "tombstone"), lambda: keeper.manager.renew(lease))
    assert ours.releases(lease)
    assert stage.state("a").state == "tombstone"


@mutation(renewed_while_it_is_released)
def release_stops_at_another_version(patch: Patch) -> None:
    """A renewal in between, and the lease is never released."""
    original = nodes.entomb
    patch.setattr(nodes, "entomb", lambda store, found, *also: original(store, found, *also) or found)


def granted_where_the_releaser_lags(stage: Stage) -> None:
    ours, other = stage.process("ours"), stage.process("other", server=1)
    assert other.releases(ours.gets("a", [], ["w.a"]))


@mutation(granted_where_the_releaser_lags)
def gone_by_a_stale_read(patch: Patch) -> None:
    """The server lags behind the grant, so the release finds nothing to release."""
    original = ZooKeeperStore.read
    patch.setattr(ZooKeeperStore, "read", lambda self, key, fresh=False: original(self, key))


@mutation(seed=74)
def loss_not_watched(patch: Patch) -> None:
    """UNLOCK TABLE takes a lock, and its holder sleeps on."""
    original = Namespace.missing
    patch.setattr(Namespace, "missing", lambda self, locks, zxids, wake: original(self, locks, zxids, None))


def unlocked_before_a_renewal(stage: Stage) -> None:
    table = ["w.a/p=1"]
    for reads, written in (table, []), ([], table):
        ours, keeper, hive = stage.process("ours"), stage.process("keeper"), stage.hive()
        for process in ours, keeper:  # who made the nodes, and who has to look for them
            lease = ours.gets("a", reads, written)
            hive.unlock_table("w/a/p=1")
            with pytest.raises(LockLost):
                process.manager.renew(lease)
            assert stage.state("a").state == "lost"
            assert ours.releases(lease)


@mutation(unlocked_before_a_renewal)
def losses_not_looked_for(patch: Patch) -> None:
    """A lease is renewed although one of its locks is missing."""
    patch.setattr(nodes, "look_for_losses", lambda store, lease, found, *more: found)


def freed_by_force(stage: Stage) -> None:
    dead, operator, mine = stage.process("dead"), stage.process("operator"), stage.process("mine")
    lease = dead.gets("a", ["w.b"], ["w.a/p=1"])
    waiter = mine.asks("b", [], ["w.a/p=1"])
    waiter.poll()
    operator.session.before(writes("a", "tombstone"), lambda: dead.manager.renew(lease))
    assert operator.forces(lease)
    assert waiter.flag.raised
    waiter.lease()
    assert not operator.forces(lease)
    assert not dead.releases(lease)  # not so dead after all: it must leave the next one's alone
    with pytest.raises(LockLost):
        dead.manager.renew(lease)
    assert stage.intact("b")
    assert [entry.lease_id for entry in operator.backend.audit()] == [lease.id]


@mutation(freed_by_force)
def force_release_without_a_trace(patch: Patch) -> None:
    """Nobody can tell who took the lock away, and why."""
    original = nodes.entomb
    patch.setattr(nodes, "entomb", lambda store, found, *also: original(store, found))
