"""The store's stamp, which a later version raises while an earlier process is between its reads and its grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backends.zookeeper.backend import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from airflow_hivelock.locks.backends.zookeeper.store_format import StoreFormat
from airflow_hivelock.locks.errors import UpgradeNeeded
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import writes
from tests.simulation.state import ROOT
from tests.simulation.themes import UPGRADED

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


def raised_between_the_reads_and_the_grant(stage: Stage) -> None:
    ours, mine = stage.process("ours"), stage.process("mine")
    ours.releases(ours.gets("b", [], ["w.b"]))  # its queue exists from now on
    held = ours.gets("holder", [], ["w.a"])
    waiter = mine.asks("waiter", [], ["w.a"])
    waiter.poll()
    ours.session.before(writes("b", "granted"), stage.upgrade)
    arrives = ours.asks("b", [], ["w.b"])
    with pytest.raises(UpgradeNeeded):
        arrives.poll()
    ours.withdraws(arrives)
    assert ours.releases(held), "it may end its own lease"
    with pytest.raises(UpgradeNeeded):
        waiter.poll()
    mine.withdraws(waiter)
    assert not any(state.waits or state.holds for state in stage.checks.states.values())


@mutation(raised_between_the_reads_and_the_grant, theme=UPGRADED)
def stamp_read_before_the_grant(patch: Patch) -> None:
    """The check is a read before the transaction: a version that came in between is not noticed."""
    edit(
        patch,
        ZooKeeperStore,
        "transact",
        "[self.format.check(), *write] if acquires else write",
        "(self.format.read() if acquires else None) or write",
    )


@mutation(raised_between_the_reads_and_the_grant, theme=UPGRADED)
def stamp_read_by_the_first_connection_only(patch: Patch) -> None:
    """A process that is connected goes on for as long as it lives."""
    edit(patch, ZooKeeperStore, "transact", "[self.format.check(), *write] if acquires else write", "[*write]")


def raised_before_a_force_release(stage: Stage) -> None:
    dead, operator = stage.process("dead"), stage.process("operator")
    lease = dead.gets("a", [], ["w.a"])
    operator.session.before(writes("a", "tombstone"), stage.upgrade)
    with pytest.raises(UpgradeNeeded):
        operator.forces(lease)
    assert stage.intact("a")


@mutation(raised_before_a_force_release, theme=UPGRADED | {"forces": 0.3})
def force_without_the_stamp(patch: Patch) -> None:
    """An earlier version's user or keeper frees what it misreads."""
    original = ZooKeeperBackend._audited

    def audited(self: ZooKeeperBackend, *of: Any, **more: Any) -> Any:
        return original(self, *of, **more)[1:]

    patch.setattr(ZooKeeperBackend, "_audited", audited)


def deleted_and_made_again_by_a_later_version(stage: Stage) -> None:
    ours = stage.process("ours")
    ours.releases(ours.gets("a", [], ["w.a"]))
    stage.process("person").session.submit(Commit((Delete(f"{ROOT}/format"),)))
    stage.upgrade()
    with pytest.raises(UpgradeNeeded):
        ours.gets("a", [], ["w.a"])


@mutation(deleted_and_made_again_by_a_later_version)
def stamp_numbered_by_its_writes(patch: Patch) -> None:
    """The new stamp has a version by which an earlier process knows the old one."""
    edit(patch, StoreFormat, "_raises", "max(version + 1, stamp.format)", "version + 4")
