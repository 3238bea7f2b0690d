"""Granted without a look: what a process believes of a table that it has locked before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import look
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Listing
from airflow_hivelock.locks.errors import Superseded
from tests.simulation.mutations.mutation import mutation
from tests.simulation.stage import writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.backends.zookeeper.look import Done, Look, Looks
    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch


def _sure(stage: Stage) -> Process:
    """A process that knows what it would see of a table."""
    ours = stage.process("ours")
    for owner in "xyz":
        ours.releases(ours.gets(owner, ["w.a"]))
    return ours


def a_lease_of_its_own_stands(stage: Stage) -> None:
    ours = _sure(stage)
    ours.gets("a", ["w.a"])
    assert isinstance(ours.asks("b", [], ["w.a"]).poll(), Blocked)


@mutation(a_lease_of_its_own_stands)
def own_locks_counted_and_not_remembered(patch: Patch) -> None:
    """A process grants a writer what a reader of its own holds."""
    followed = look._followed

    def counted(looks: Looks, before: Look, done: Iterable[Done]) -> Look:
        def kept(seen: Any, was: Any) -> Any:
            return seen._replace(names=was.names) if isinstance(seen, Listing) else seen

        after = followed(looks, before, done)
        return looks.seen([kept(seen, was) for seen, was in zip(after.all(), before.all(), strict=True)])

    patch.setattr(look, "_followed", counted)


def an_earlier_call_of_the_owner_is_slow(stage: Stage) -> None:
    ours, other = _sure(stage), stage.process("other")
    other.backend.now()  # a write that ours does not hear of
    other.session.before(writes("a"), lambda: ours.gets("a", ["w.a"]))
    with pytest.raises(Superseded):
        other.asks("a", ["w.a"]).poll()
    assert stage.intact("a")


@mutation(an_earlier_call_of_the_owner_is_slow)
def begun_when_last_heard_of(patch: Patch) -> None:
    """An earlier call of the owner takes over from the later, which has not heard of the writes in between."""
    grant = ZooKeeperAcquisition._grant_first

    def begun(self: ZooKeeperAcquisition, mine: Any, *others: Any) -> bool:
        return grant(self, replace(mine, begin=mine.begin or self._store.client.zxid), *others)

    patch.setattr(ZooKeeperAcquisition, "_grant_first", begun)
