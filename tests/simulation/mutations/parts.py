"""A part of a lease is released, and the rest is held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import calls, rules
from airflow_hivelock.locks.backends.zookeeper import marking, nodes, waiting
from airflow_hivelock.locks.backends.zookeeper import start as starting
from airflow_hivelock.locks.backends.zookeeper.client import Children
from airflow_hivelock.locks.backends.zookeeper.namespace import Nodes
from airflow_hivelock.locks.backends.zookeeper.queue import Queues
from airflow_hivelock.locks.backends.zookeeper.turn import Turn
from airflow_hivelock.locks.errors import InvalidRequest, LeaseMismatch, LockLost, StoreUnavailable
from airflow_hivelock.locks.model import Lease
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.stage import writes
from tests.simulation.state import NAMESPACE
from tests.simulation.themes import URGENT

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.model import LockRequest
    from tests.simulation.stage import Stage

    Patch = pytest.MonkeyPatch

DAYS = ["w.a/p=0", "w.a/p=1"]


def a_day_is_waited_for_and_given_back(stage: Stage) -> None:
    ours, other = stage.process("ours"), stage.process("other")
    lease = ours.gets("a", ["w.b"], DAYS)
    waiter = other.asks("b", [], ["w.a/p=0"])
    waiter.poll()
    ours.manager.renew(lease)
    woken = waiter.flag.raised
    assert not woken, "each renewal wakes it"
    left = ours.gives_back(lease, "w.a/p=0")
    assert left is not None
    assert (left.id, left.token) == (lease.id, lease.token)
    assert waiter.flag.raised
    waiter.lease()
    assert stage.intact("a")
    assert stage.intact("b")
    ours.manager.renew(left)
    ours.manager.verify(left)
    with pytest.raises(LockLost):
        ours.manager.verify(lease)
    assert ours.releases(lease)


@mutation(a_day_is_waited_for_and_given_back)
def tickets_keep_what_is_given_back(patch: Patch) -> None:
    """A request for a released day waits until the whole lease is released."""
    patch.setattr(Queues, "shrinks", lambda self, record, left: [])


@mutation(a_day_is_waited_for_and_given_back)
def tickets_are_never_read_again(patch: Patch) -> None:
    """A waiter is woken, and goes by what it remembers of the ticket."""
    edit(patch, Queues, "forget_changed", "self._cached.pop(path, None)", "pass")


@mutation(a_day_is_waited_for_and_given_back)
def what_tickets_say_is_not_asked(patch: Patch) -> None:
    """The same, and it waits on."""
    edit(patch, waiting, "wait", " or store.queues.forget_changed((ticket, at.stat) for ticket, at in both)", "")


@mutation(a_day_is_waited_for_and_given_back)
def parents_are_given_back_with_a_day(patch: Patch) -> None:
    """Hive drops the table under the days that are left."""
    edit(patch, rules, "left", "wanted |= {parent for target in wanted for parent in target.parents}", "")


def all_that_is_left_waits_behind_the_dead(stage: Stage) -> None:
    ours, dead, other = stage.process("ours"), stage.process("dead"), stage.process("other")
    lease = ours.gets("a", [], DAYS)
    dead.asks("dead", [], DAYS).poll()
    waiter = other.asks("b", [], ["w.a/p=0"])
    waiter.poll()
    dead.session.close()
    waiter.poll()
    ours.gives_back(lease, "w.a/p=0")
    waiter.lease()
    assert stage.intact("a")


@mutation(all_that_is_left_waits_behind_the_dead)
def who_is_first_is_not_asked(patch: Patch) -> None:
    """A dead waiter keeps its position behind a request that no longer blocks it."""
    edit(patch, waiting, "wait", "at.stat) for ticket, at in both", "at.stat) for ticket, at in both[:1]")


def a_renewal_looks_while_a_day_is_given_back(stage: Stage) -> None:
    ours, keeper = stage.process("ours"), stage.process("keeper")
    lease = ours.gets("a", DAYS)
    look = f"{NAMESPACE}/w/a/p=0"
    keeper.session.before(
        lambda request: isinstance(request, Children) and request.path == look,
        lambda: ours.gives_back(lease, "w.a/p=0"),
    )
    keeper.manager.renew(lease)
    assert stage.intact("a")


@mutation(a_renewal_looks_while_a_day_is_given_back)
def given_back_is_taken_for_lost(patch: Patch) -> None:
    """The keeper misses a lock that its holder gave back, and stops the work on the other days."""
    old = "[lock.object for lock in record.locks if lock.object in missing]"
    edit(patch, nodes, "look_for_losses", old, "missing")


def a_day_that_was_unlocked_is_given_back_while_a_renewal_tells_the_loss(stage: Stage) -> None:
    ours, keeper, hive = stage.process("ours"), stage.process("keeper"), stage.hive()
    lease = ours.gets("a", DAYS)
    hive.unlock_table("w/a/p=0")
    keeper.session.before(writes("a", "lost"), lambda: ours.gives_back(lease, "w.a/p=0"))
    try:
        keeper.manager.renew(lease)
    except LockLost as error:
        pytest.fail(f"its work is stopped for what it has given back: {error}")
    assert stage.state("a").state == "granted"
    assert ours.releases(lease)


@mutation(a_day_that_was_unlocked_is_given_back_while_a_renewal_tells_the_loss)
def a_refused_write_is_a_loss(patch: Patch) -> None:
    """The holder of a lease stops its work because of a lock that it has given back."""
    old = "store.rewrite(record, record.but(state=State.LOST))"
    edit(patch, nodes, "look_for_losses", old, f"({old} or True)")


def another_has_the_day_that_was_given_back(stage: Stage) -> None:
    ours, unlocks, other = stage.process("ours"), stage.process("unlocks"), stage.process("other")
    lease = ours.gets("a", [], DAYS)
    unlocks.gives_back(lease, "w.a/p=0")
    other.gets("b", [], ["w.a/p=0"])  # at the path that was ours
    ours.session.move(0)
    assert ours.releases(lease)
    assert stage.intact("b")


@mutation(another_has_the_day_that_was_given_back)
def paths_are_remembered_too_long(patch: Patch) -> None:
    """Who made the lock nodes deletes, at a path that was its own, what is another's by now."""
    patch.setattr(Nodes, "on", lambda self, locks: self)


def a_table_was_asked_for_beside_its_day(stage: Stage) -> None:
    ours = stage.process("ours")
    lease = ours.gets("a", ["w.a"], ["w.a/p=1"])
    left = ours.gives_back(lease, "w.a/p=1")
    assert left is not None
    assert [str(lock) for lock in left.locks] == ["w SHARED", "w.a SHARED"]
    assert stage.intact("a")


@mutation(a_table_was_asked_for_beside_its_day)
def parents_by_themselves_are_not_told(patch: Patch) -> None:
    """A requested object is released with a day, as if it were only a parent of the day."""
    original = starting.start

    def start(existing: Record | None, request: LockRequest, process: str, begin: int) -> Record:
        return original(existing, replace(request, whole=frozenset()), process, begin)

    patch.setattr(starting, "start", start)


def a_retry_asks_for_the_table_too(stage: Stage) -> None:
    ours, retry, third = stage.process("ours"), stage.process("retry"), stage.process("third")
    ours.gets("a", ["w.a/p=0"])
    retry.gets("a", ["w.a", "w.a/p=0"], attempt=1)
    lease = third.gets("a", ["w.a/p=0"], attempt=2)  # what the second has started may run on
    left = third.gives_back(lease, "w.a/p=0")
    assert left is not None
    assert [str(lock) for lock in left.locks] == ["w SHARED", "w.a SHARED"]
    assert stage.intact("a")


@mutation(a_retry_asks_for_the_table_too)
def a_retrys_parents_by_themselves_are_not_told(patch: Patch) -> None:
    """A table goes with a day, for the first attempt did not ask for the table itself."""
    edit(patch, starting, "start", "whole=existing.whole | request.whole,", "")


@mutation(a_retry_asks_for_the_table_too)
def earlier_attempts_parents_by_themselves_are_forgotten(patch: Patch) -> None:
    """A table goes with a day while what an earlier attempt has started still reads it."""
    edit(patch, starting, "start", "whole=existing.whole | request.whole,", "whole=request.whole,")


def a_retry_asks_for_all_days(stage: Stage) -> None:
    ours, retry = stage.process("ours"), stage.process("retry")
    plan = replace(rules.request("a", [], DAYS), named="the month")
    asked = ours.manager.begin(plan, lambda: None)
    stage.begins(asked)
    lease: Any = asked.poll()
    stage.checks.claims.granted(lease, stage.key("a"))
    ours.gives_back(lease, "w.a/p=0")
    again = retry.manager.begin(replace(plan, attempt=1), lambda: None)
    stage.begins(again)
    with pytest.raises(LeaseMismatch, match="has released"):
        again.poll()


@mutation(a_retry_asks_for_all_days)
def what_is_left_is_taken_for_all(patch: Patch) -> None:
    """A retry gets the rest of the lease, and also writes the released days."""
    edit(patch, calls, "take_over", "if named and not earlier.gave_back", "if named")


def the_reply_is_lost(stage: Stage) -> None:
    ours = stage.process("ours")
    lease = ours.gets("a", [], DAYS)
    ours.session.lose_reply(writes("a", "granted"))
    with pytest.raises(StoreUnavailable):
        ours.gives_back(lease, "w.a/p=0")
    try:
        left = ours.gives_back(lease, "w.a/p=0")
        assert left is not None
        assert ours.gives_back(left, "w.a/p=0") == left
    except InvalidRequest as error:
        pytest.fail(f"given back twice, and refused: {error}")
    assert ours.gives_back(left, "w.a/p=1") is None
    assert ours.gives_back(lease, *DAYS) is None


@mutation(the_reply_is_lost)
def what_was_given_back_is_forgotten(patch: Patch) -> None:
    """A second release after a lost reply is refused."""
    edit(patch, rules, "left", "(standing.locks, standing.released, known)", "(standing.locks,)")


def a_ticket_was_read_before_a_day_was_given_back(stage: Stage) -> None:
    ours, other = stage.process("ours"), stage.process("other")
    lease = ours.gets("a", DAYS)
    other.releases(other.gets("c", ["w.a/p=2"]))  # it reads the ticket of the lease
    ours.gives_back(lease, "w.a/p=0")
    other.gets("b", ["w.a/p=0"])  # on an object that is younger than that ticket
    assert stage.intact("a")


@mutation(a_ticket_was_read_before_a_day_was_given_back)
def given_back_is_marked_as_lost(patch: Patch) -> None:
    """Another request's lease is marked LOST for a lock that it has given back, and its work on the other days stops."""
    edit(patch, marking, "_had_node", "any(lock.object == target for lock in record.locks) and 0", "0")


def a_ticket_was_read_before_its_day_was_given_back(stage: Stage) -> None:
    first, second, other = stage.process("first"), stage.process("second"), stage.process("other")
    days = other.gets("x", [], DAYS)
    second.releases(second.gets("c", ["w.a/p=2"]))  # it reads the ticket of the days
    other.gives_back(days, "w.a/p=0")
    first.gets("a", [], ["w.a/p=0"])
    second.session.before(writes("a", "waiting"), lambda: pytest.fail("its lease is taken back"))
    second.gets("a", [], ["w.a/p=0"])


@mutation(a_ticket_was_read_before_its_day_was_given_back)
def taken_back_for_what_was_given_back(patch: Patch) -> None:
    """A lease that its owner has got is taken back, because of a lock that another request no longer has."""
    edit(patch, Turn, "_verify", "if self.store.queues.forget_changed", "if False and self.store.queues.forget_changed")


def the_object_of_its_placeholder_is_given_back(stage: Stage) -> None:
    ours, retry, other = stage.process("ours", patience_s=0.0), stage.process("retry"), stage.process("other")
    hive = stage.hive()
    locked = hive.lock_table("w/a", "EXCLUSIVE")
    asked = ours.asks("a", [], ["w.a", "w.b"])
    asked.poll()
    asked.poll()
    other.asks("b", [], ["w.b"], priority=5).poll()  # younger than the placeholder, older than the grant
    hive.unlock([locked])
    ours.gives_back(asked.lease(), "w.a")
    assert isinstance(retry.asks("a", [], ["w.b"], attempt=1).poll(), Lease), "its lease is taken back"
    assert stage.intact("a")


@mutation(the_object_of_its_placeholder_is_given_back, theme=URGENT | {"gives_back": 0.5, "partitions": 2})
def a_returned_rest_is_verified(patch: Patch) -> None:
    """The next process of an owner takes back what is left of its lease, while its work runs."""
    edit(patch, nodes, "_before", "if record.given:", "if False:")
