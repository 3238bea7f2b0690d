"""The owner's record: which of its processes acts, and the order of its calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import calls
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.backends.zookeeper import nodes, store
from airflow_hivelock.locks.backends.zookeeper import start as starting
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Delete, Refused, SetData
from airflow_hivelock.locks.backends.zookeeper.record import Record, State
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import LockLost, StoreUnavailable, Superseded
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.mutations.wire import in_place_of_commits, is_record
from tests.simulation.session import SimulatedSession
from tests.simulation.stage import verifies, writes
from tests.simulation.state import NAMESPACE
from tests.simulation.themes import DATABASES

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.model import Lease
    from tests.simulation.mutations.wire import Send
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch


@mutation(seed=0)
def no_compare_and_set(patch: Patch) -> None:
    """A slow process writes over what another of its owner has written meanwhile."""
    patch.setattr(store, "SetData", lambda path, data, version: SetData(path, data, -1))


def released_while_it_is_renewed(stage: Stage) -> None:
    keeper, ours = stage.process("keeper"), stage.process("ours")
    lease = ours.gets("a", [], ["w.a"])
    keeper.session.before(writes("a", "granted"), lambda: ours.releases(lease))
    with pytest.raises(LockLost):
        keeper.manager.renew(lease)


@mutation(released_while_it_is_renewed)
def renewal_without_a_version(patch: Patch) -> None:
    """A late renewal brings back a lease that was released."""
    original = ZooKeeperStore.rewrite

    def rewrite(self: ZooKeeperStore, found: Record, changed: Record, *checks: Check) -> Record | None:
        assert found.stat is not None
        return original(self, replace(found, stat=found.stat._replace(version=-1)), changed, *checks)

    patch.setattr(ZooKeeperStore, "rewrite", rewrite)


def released_while_a_slow_call_adopts(stage: Stage) -> None:
    ours, slow = stage.process("ours"), stage.process("slow")
    lease = ours.gets("a", [], ["w.a"])
    slow.session.before(writes("a", "granted"), lambda: ours.releases(lease))
    with pytest.raises(Superseded):
        slow.asks("a", [], ["w.a"]).poll()


@mutation(released_while_a_slow_call_adopts)
def no_tombstone(patch: Patch) -> None:
    """A slow first process of the owner acquires again after the release: no process knows of that lease."""

    def entomb(store: ZooKeeperStore, found: Record, *also: Any) -> Record | None:
        return nodes.remove(store, found, found.freed(), *also)

    patch.setattr(nodes, "entomb", entomb)


def a_later_call_withdraws(stage: Stage) -> None:
    ours, slow, later, last = (stage.process(name) for name in ("ours", "slow", "later", "last"))
    lease = ours.gets("a", [], ["w.a"])
    first = slow.asks("b", [], ["w.a"])
    first.poll()
    second = later.asks("b", [], ["w.a"])
    second.poll()
    later.withdraws(second)
    last.asks("b", [], ["w.a"]).poll()
    ours.releases(lease)
    with pytest.raises(Superseded):
        first.poll()


@mutation(a_later_call_withdraws)
def record_deleted_when_freed(patch: Patch) -> None:
    """Its version restarts at 0, and an old process's compare-and-set passes on a successor's record."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        changed: list[Op] = []
        places: list[int] = []
        for op in ops:
            places.append(len(changed))
            if isinstance(op, SetData) and is_record(op, "free"):
                changed += [Check(op.path, op.version), Delete(op.path)]
            else:
                changed.append(op)
        outcome = once(tuple(changed))
        return outcome if isinstance(outcome, Refused) else tuple(outcome[place] for place in places)

    in_place_of_commits(patch, send)


def swept_and_granted_again(stage: Stage) -> None:
    ours, slow = stage.process("ours"), stage.process("slow")
    ours.releases(ours.gets("a", [], ["w.a"]))
    ended = ours.backend.store.read(stage.key("a"))
    assert ended is not None

    def a_week_passes() -> None:
        ours.session.submit(starting.sweeping(ours.backend.store.layout, ended.key, ended.version))
        ours.manager.renew(ours.gets("a", [], ["w.a"]))  # now its version is that of the record that was swept

    slow.session.before(writes("a", "granted"), a_week_passes)
    with pytest.raises(Superseded):
        slow.asks("a", [], ["w.a"]).poll()
    assert stage.intact("a")


@mutation(swept_and_granted_again)
def sweep_not_noticed(patch: Patch) -> None:
    """A slow process has read a record before the sweep deleted it, and writes over a grant that came since."""
    patch.setattr(store, "unswept", lambda client, layout, ended: Check(layout.records, -1))


@mutation(swept_and_granted_again)
def sweep_leaves_no_trace(patch: Patch) -> None:
    """The same: the version above the records stays."""
    original = starting.sweeping
    patch.setattr(starting, "sweeping", lambda *of: Commit(original(*of).ops[:2]))


@mutation(seed=0)
def freed_forgets_the_order(patch: Patch) -> None:
    """A slow earlier process goes on where a later one has withdrawn."""
    original = Record.freed
    patch.setattr(Record, "freed", lambda self: replace(original(self), attempt=0, begin=0))


@mutation(seed=0)
def earlier_attempts_take_over(patch: Patch) -> None:
    """Try 2 is at it; slow try 1 reads that and takes it over."""
    original = starting.start

    def start(existing: Record | None, request: Any, process: str, begin: int) -> Record:
        if existing and existing.state is not State.TOMBSTONE:
            existing = replace(existing, attempt=0, begin=0, process="")
        return original(existing, request, process, begin)

    patch.setattr(starting, "start", start)


@mutation(seed=0, theme={"withdraws": 0.2})
def withdrawn_one_comes_back(patch: Patch) -> None:
    """A person withdraws a request, and its process asks again."""
    edit(patch, calls, "take_over", "Start.STALE", "Start.FRESH if earlier.withdrawn else Start.STALE")


def withdrawn_while_it_waits_for_its_group(stage: Stage) -> None:
    ours, mine, other = stage.process("ours"), stage.process("mine"), stage.process("other")
    one, late = LeaseLimit("g", 1), DeferredGrant(1.0)
    assert isinstance(mine.asks("b", [], ["w.b"], limit=one, deferred=late).poll(), NeedsSlot)
    next_one = other.asks("c", [], ["w.b"])
    assert isinstance(next_one.poll(), Blocked)
    stage.schedule.sleep(2.0)
    next_one.lease()
    lease = ours.gets("a", [], ["w.a"], limit=one)
    assert isinstance(mine.asks("b", [], ["w.b"], limit=one, deferred=late).poll(), Blocked)
    assert isinstance(ours.asks("d", [], ["w.b"]).poll(), Blocked)
    stage.checks.claims.withdraws_by_force("b")
    assert ours.manager.force_withdraw("b", reason="no longer wanted", user="ops")
    ours.releases(lease)
    assert isinstance(mine.asks("b", [], ["w.b"], limit=one, deferred=late).poll(), Blocked)
    assert [waiter.owner for waiter in ours.manager.waiters()] == ["d", "b"]


@mutation(withdrawn_while_it_waits_for_its_group)
def withdrawn_one_takes_its_old_place(patch: Patch) -> None:
    """A person withdraws a request that was invited before, and its owner asks again, before those that came meanwhile."""
    edit(patch, starting, "start", "and existing.away", "")


@mutation(seed=48)
def tie_not_broken(patch: Patch) -> None:
    """Two calls of one owner that began at the same zxid take over from each other for ever."""
    edit(patch, calls, "stale", "else call < other", "else call[:2] < other[:2]")


@mutation(seed=0)
def take_over_keeps_the_epoch(patch: Patch) -> None:
    """The release of the process that was taken over frees the lease of the one that took over."""
    original = starting.start

    def start(existing: Record | None, request: Any, process: str, begin: int) -> Record:
        mine = original(existing, request, process, begin)
        same = existing is not None and existing.ticket_epoch == mine.ticket_epoch
        return replace(mine, epoch=existing.epoch) if existing is not None and same else mine

    patch.setattr(starting, "start", start)


def given_up_when_the_grant_was_not_heard_of(stage: Stage) -> None:
    other, ours = stage.process("other"), stage.process("ours")
    other.gets("a", ["w.a"])
    asked = ours.asks("b", ["w.a"])
    ours.session.lose_reply(writes("b", "granted"))
    with pytest.raises(StoreUnavailable):
        asked.poll()
    ours.withdraws(asked)
    assert not stage.state("b").holds


@mutation(given_up_when_the_grant_was_not_heard_of)
def withdrawn_without_the_lost_grant(patch: Patch) -> None:
    """The reply to the grant is lost, the request is withdrawn, and its lease is held for ever."""
    patch.setattr(Turn, "granting", property(lambda self: -1, lambda self, epoch: None), raising=False)


def given_up_after_a_server_showed_what_was_before_the_grant(stage: Stage) -> None:
    other, ours = stage.process("other", server=1), stage.process("ours")
    other.releases(other.gets("a", [], ["w.a"]))
    other.releases(other.gets("b", [], ["w.a"]))
    asked = ours.asks("b", [], ["w.a"])
    # The next server has not seen the grant, and shows that of a.
    ours.session.lose_reply(writes("b", "granted"), server=1, first=lambda: other.gets("a", [], ["w.a"]))
    with pytest.raises(StoreUnavailable):
        asked.poll()
    ours.session.lose_reply(writes("b", "granted"))  # it takes over its own grant
    with pytest.raises(StoreUnavailable):
        asked.poll()
    ours.withdraws(asked)
    assert not stage.state("b").holds


@mutation(given_up_after_a_server_showed_what_was_before_the_grant)
def a_record_of_before_the_grant_taken_for_a_later_one(patch: Patch) -> None:
    """A withdrawn request keeps its lease: the reply to the grant was lost, and the next server lags."""
    edit(patch, ZooKeeperAcquisition, "_begins", "existing.holds and existing.ticket_epoch == granting", "True")


def two_calls_begin_at_once_and_one_gives_up(stage: Stage) -> None:
    first, second = stage.process("first"), stage.process("second")
    for process in (first, second):
        process.releases(process.gets("b", [], ["w.a"]))
    one, other = first.asks("a", [], ["w.a"]), second.asks("a", [], ["w.a"])
    second.session.before(writes("a", "granted"), one.poll)
    second.session.lose_reply(writes("a", "granted"))
    with pytest.raises(StoreUnavailable):
        other.poll()  # the first was quicker; it takes over its lease without a notification
    second.withdraws(other)
    assert stage.intact("a")


@mutation(two_calls_begin_at_once_and_one_gives_up)
def another_ones_grant_taken_for_mine(patch: Patch) -> None:
    """The lease under which the first process works goes by the epoch that the second, too, would have had."""

    def keep(self: Turn, epoch: int) -> None:
        self.__dict__["kept"] = epoch or self.__dict__.get("kept", 0)

    patch.setattr(Turn, "granting", property(lambda self: self.__dict__["kept"], keep), raising=False)


def the_next_server_lags(stage: Stage) -> None:
    ours = stage.process("ours")
    lease = ours.gets("a", ["w.a"])
    ours.session.move(1)
    assert ours.manager.show("w.a")
    ours.manager.renew(lease)


@mutation(the_next_server_lags)
def forgetful_session(patch: Patch) -> None:
    """The next session's server lags: a held lock is not seen."""
    patch.setattr(
        SimulatedSession, "_synced", property(lambda self: self._session, lambda self, session: None), raising=False
    )


@mutation(seed=200012, theme=DATABASES)
def lost_taken_over(patch: Patch) -> None:
    """A second call of the owner gets a lease with a removed lock, and begins to work under it."""
    edit(patch, ZooKeeperAcquisition, "_begins", "mine.state is State.LOST and", "False and")


def one_dies_before_it_has_looked(stage: Stage) -> None:
    first, second, other = stage.process("first"), stage.process("second"), stage.process("other")
    held: list[Lease] = []
    other.releases(other.gets("x", [], ["w.a"]))  # queue and table are there
    first.session.before(writes("a", "granted"), lambda: held.append(other.gets("b", [], ["w.a"])))
    first.session.lose_reply(verifies(f"{NAMESPACE}/w"))
    with pytest.raises(StoreUnavailable):
        first.asks("a", [], ["w.a"]).poll()
    first.session.close()
    asked = second.asks("a", [], ["w.a"], attempt=1)
    assert isinstance(asked.poll(), Blocked)
    other.releases(held[0])
    asked.lease()


@mutation(one_dies_before_it_has_looked)
def taken_over_without_a_look(patch: Patch) -> None:
    """A process died between its grant and its verification, and the next one works although it conflicts with a
    holder.
    """
    patch.setattr(Turn, "verify_existing", lambda self, found: found.lease())


def it_looks_after_a_lease_with_a_larger_token(stage: Stage) -> None:
    first, other, third = stage.process("first"), stage.process("other"), stage.process("third")
    other.releases(other.gets("x", [], ["w.a"]))  # queue and table are there
    first.session.before(writes("a", "granted"), lambda: other.gets("b", [], ["w.a"]))
    first.session.lose_reply(verifies(f"{NAMESPACE}/w"))
    asked = first.asks("a", [], ["w.a"])
    with pytest.raises(StoreUnavailable):
        asked.poll()
    later = third.gets("b", [], ["w.a"], attempt=1)
    third.releases(later)
    assert asked.lease().token > later.token


@mutation(it_looks_after_a_lease_with_a_larger_token)
def token_of_the_first_look(patch: Patch) -> None:
    """A grant is verified late, and its token is smaller than that of a lease which came and went meanwhile."""
    old = "existing.state is State.GRANTED"
    edit(patch, starting, "start", f"unverified = {old}", f"unverified = {old} and existing.process != process")
