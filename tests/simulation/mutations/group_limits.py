"""A group's limit in the store, which changes while requests hold and wait, and requests of several permits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import permits as rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import permits
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete
from airflow_hivelock.locks.backends.zookeeper.groups import GroupNodes
from airflow_hivelock.locks.backends.zookeeper.record import State
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import Lease, LeaseLimit, owner_key
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import leave_out
from tests.simulation.stage import writes

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.backend import ZooKeeperBackend
    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from tests.simulation.stage import Process, Stage

    Patch = pytest.MonkeyPatch

ONE, NINE = LeaseLimit("g", 1), LeaseLimit("g", 9)


def heavy(weight: int) -> LeaseLimit:
    return LeaseLimit("g", 9, weight)


def sets(process: Process, leases: int, weight: int = 1) -> None:
    process.manager.set_group("g", leases, weight=weight, user="ops")


def raised_while_one_waits(stage: Stage) -> None:
    ours, mine, ops = stage.process("ours"), stage.process("mine"), stage.process("ops")
    ours.gets("a", [], ["w.a"], limit=ONE)
    waiter = mine.asks("b", [], ["w.b"], limit=ONE)
    assert isinstance(waiter.poll(), Blocked)
    sets(ops, 2)
    assert waiter.flag.raised
    assert isinstance(waiter.poll(), Lease)
    assert isinstance(ours.asks("c", [], ["w.c"], limit=NINE).poll(), Blocked)


@mutation(raised_while_one_waits)
def stored_limit_ignored(patch: Patch) -> None:
    """A person has stored another limit, and each request goes by its own."""
    edit(patch, rules, "limit", "own if stored is None else stored.leases", "own")


@mutation(raised_while_one_waits)
def limit_not_watched(patch: Patch) -> None:
    """The limit is larger now, and the first in line waits for a release."""
    edit(patch, permits, "look_at", "[Exists(limit, wake)] if wake else []", "[]")


def lowered_before_a_grant(stage: Stage) -> None:
    ours, mine, ops = stage.process("ours"), stage.process("mine"), stage.process("ops")
    sets(ops, 2)
    ours.releases(ours.gets("x", [], ["w.a", "w.b"]))
    ours.gets("a", [], ["w.a"], limit=NINE)
    mine.session.before(writes("b", "granted"), lambda: sets(ops, 1))
    assert isinstance(mine.asks("b", [], ["w.b"], limit=NINE).poll(), Blocked)


@mutation(lowered_before_a_grant)
def version_kept_by_a_change(patch: Patch) -> None:
    """A request was decided by the limit from before, and is granted after it was lowered."""
    edit(patch, GroupNodes, "put_group", ', SetData(store.layout.permits(key), b"", -1)', "")


def lowered_below_the_holders(stage: Stage) -> None:
    ours, mine, ops = stage.process("ours"), stage.process("mine"), stage.process("ops")
    leases = [ours.gets(name, [], [f"w.{name}"], limit=heavy(2)) for name in ("a", "b")]
    sets(ops, 1)
    for lease in leases:
        ours.manager.verify(lease)
    waiter = mine.asks("c", [], ["w.c"], limit=NINE)
    for lease in leases:
        assert isinstance(waiter.poll(), Blocked)
        ours.releases(lease)
    assert waiter.flag.raised
    waiter.lease()


@mutation(lowered_below_the_holders)
def holders_robbed_by_a_change(patch: Patch) -> None:
    """The limit is lowered, and two leases are no longer counted."""
    original = GroupNodes.put_group

    def put_group(self: ZooKeeperBackend, name: str, group: Any, **given: Any) -> bool:
        done = original(self, name, group, **given)
        path, most = self.store.layout.permits(owner_key(name)), group.leases if group else 0
        left = [number for number in self.store.names(path) if int(number) >= most]
        self.store.client.submit(*(Commit((Delete(f"{path}/{number}"),)) for number in left))
        return done

    patch.setattr(GroupNodes, "put_group", put_group)


def heavy_one_and_light_ones(stage: Stage) -> None:
    ours, mine, ops = stage.process("ours"), stage.process("mine"), stage.process("ops")
    sets(ops, 3)
    first = ours.gets("a", [], ["w.a"], limit=heavy(2))
    waiter = mine.asks("b", [], ["w.b"], limit=heavy(3))
    assert isinstance(waiter.poll(), Blocked)
    light = ops.asks("c", [], ["w.c"], limit=NINE)
    assert isinstance(light.poll(), Blocked), "one permit is free, and the heavy one waits for it"
    ours.releases(first)
    assert waiter.flag.raised
    lease = waiter.lease()
    assert isinstance(light.poll(), Blocked)
    mine.releases(lease)
    assert light.flag.raised
    light.lease()


@mutation(heavy_one_and_light_ones)
def light_ones_pass_a_heavy_one(patch: Patch) -> None:
    """There is always room for one more light request, and never for the heavy one."""
    edit(patch, rules, "free", " and not any(other < mine for other in waiting)", "")


@mutation(heavy_one_and_light_ones)
def heavy_one_takes_one_permit(patch: Patch) -> None:
    """A heavy request counts like a light one."""
    edit(patch, permits, "permitted", "permits=numbers[1:]", "permits=()")


@mutation(heavy_one_and_light_ones)
def heavy_one_gives_one_permit_back(patch: Patch) -> None:
    """A heavy lease is over, and most of its permits are taken for ever."""
    leave_out(
        patch, lambda old, new, op: _is_permit(op) and new.state is State.TOMBSTONE and not op.path.endswith("/0")
    )


@mutation(heavy_one_and_light_ones)
def heavy_one_needs_one_free_permit(patch: Patch) -> None:
    """A heavy request is granted if one permit is free."""
    edit(patch, rules, "fit", "held + weight", "held + 1")


def by_default(stage: Stage) -> None:
    ours, ops = stage.process("ours"), stage.process("ops")
    sets(ops, 3, weight=2)
    lease = ours.gets("a", [], ["w.a"], limit=NINE)
    waiter = ours.asks("b", [], ["w.b"], limit=NINE)
    assert isinstance(waiter.poll(), Blocked)
    sets(ops, 3)
    assert waiter.flag.raised
    assert isinstance(waiter.poll(), Lease), "it weighs one now, and the other one two as before"
    assert isinstance(ours.asks("c", [], ["w.c"], limit=NINE).poll(), Blocked)
    ours.manager.verify(lease)


@mutation(by_default)
def default_weight_ignored(patch: Patch) -> None:
    """Each request of a group counts for two leases, and is counted once."""
    edit(patch, rules, "weight", "own or (1 if stored is None else stored.weight)", "own or 1")


def above_the_limit(stage: Stage) -> None:
    ours, mine, ops = stage.process("ours"), stage.process("mine"), stage.process("ops")
    sets(ops, 2)
    with pytest.raises(InvalidRequest, match="weighs 3"):
        ours.asks("a", [], ["w.a"], limit=heavy(3)).poll()
    assert not ours.manager.waiters()
    lease = ours.gets("b", [], ["w.b"], limit=NINE)
    waiter = mine.asks("c", [], ["w.c"], limit=heavy(2))
    assert isinstance(waiter.poll(), Blocked)
    behind = ours.asks("d", [], ["w.d"], limit=NINE)
    assert isinstance(behind.poll(), Blocked)
    sets(ops, 1)
    assert waiter.flag.raised
    with pytest.raises(InvalidRequest, match="weighs 2"):
        waiter.poll()
    assert behind.flag.raised
    assert isinstance(behind.poll(), Blocked)
    ours.releases(lease)
    assert behind.flag.raised
    behind.lease()


@mutation(above_the_limit)
def too_heavy_one_waits(patch: Patch) -> None:
    """A request waits for more permits than its group may ever have."""
    patch.setattr(rules, "check", lambda *given: None)


@mutation(above_the_limit)
def too_heavy_one_waits_on(patch: Patch) -> None:
    """The limit is lowered below a waiter's weight, and its group waits behind it for ever."""
    edit(patch, permits, "wait_for_permit", "    seen = fitting(store, record, seen)\n", "")


def raised_where_the_asker_lags(stage: Stage) -> None:
    ops, mine = stage.process("ops"), stage.process("mine", server=1)
    sets(ops, 1)
    mine.releases(mine.gets("a", [], ["w.a"], limit=NINE))
    sets(ops, 2)
    try:
        mine.gets("b", [], ["w.b"], limit=heavy(2))
    except InvalidRequest as error:
        raise AssertionError("the limit is 2") from error


@mutation(raised_where_the_asker_lags)
def refused_by_a_stale_limit(patch: Patch) -> None:
    """A server lags behind a limit that was raised, and the request fails."""
    edit(patch, permits, "fitting", "        store.client.submit(Sync())\n", "")


def dead_and_above_the_limit(stage: Stage) -> None:
    ours, dead, mine = stage.process("ours"), stage.process("dead"), stage.process("mine")
    sets(ours, 2)
    lease = ours.gets("a", [], ["w.a"], limit=NINE)
    dead.asks("b", [], ["w.b"], limit=heavy(2)).poll()
    waiter = mine.asks("c", [], ["w.c"], limit=NINE)
    assert isinstance(waiter.poll(), Blocked)
    sets(ours, 1)
    dead.session.close()
    ours.releases(lease)
    assert waiter.flag.raised
    assert isinstance(waiter.poll(), Lease)


@mutation(dead_and_above_the_limit)
def dead_and_too_heavy_one_waited_for(patch: Patch) -> None:
    """Its turn never comes, and it never leaves."""
    edit(patch, permits, "_wait_behind", " or not rules.possible(weight, most)", "")


def _is_permit(op: Op) -> bool:
    return isinstance(op, Delete) and "/groups/" in op.path and "/permits/" in op.path
