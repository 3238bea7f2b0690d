"""Waiters whose process is dead, or was wrongly taken for dead. They block no request, and rejoin in their order."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Withdrawn, connect
from airflow_hivelock.locks.backends.database import candidate, notifier
from airflow_hivelock.locks.backends.database.acquisition import DatabaseAcquisition
from airflow_hivelock.locks.backends.database.store import Store
from airflow_hivelock.locks.backends.zookeeper.acquisition import ZooKeeperAcquisition
from airflow_hivelock.locks.backends.zookeeper.client import Create
from tests.backends import zookeepers
from tests.backends.conftest import DATABASES
from tests.backends.databases import DAY, change, database, wait_until
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager

    Connect = Callable[..., LockManager]


@dataclass(frozen=True)
class Silencing:
    """A store, and how its waiters are taken for dead.

    :param silence: as if that manager had given no sign of life for too long.
    :param acquisition: its method *comes_back* brings removed waiters back.
    """

    connect: Connect
    silence: Callable[[LockManager], None]
    acquisition: type
    comes_back: str


@pytest.fixture(params=[pytest.param("zookeeper", marks=pytest.mark.integration), *DATABASES])
def silencing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Silencing:
    if request.param == "zookeeper":
        expire = partial(zookeepers.expire, request.getfixturevalue("zookeeper"))
        return Silencing(request.getfixturevalue("connect_zookeeper"), expire, ZooKeeperAcquisition, "queue_again")
    request.getfixturevalue("deaf")
    monkeypatch.setattr(Store, "sign", lambda *given: None)
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return Silencing(
        lambda: connect(url), lambda manager: change(manager, seen_us="0"), DatabaseAcquisition, "come_back"
    )


def test_waiters_that_were_taken_for_dead_together_come_back_in_their_order(silencing: Silencing) -> None:
    """As when a triggerer hangs, and its waiters then poll in any order."""
    with silencing.connect() as holder, silencing.connect() as living, silencing.connect() as still:
        lease = holder.acquire(owner="holder", writes=[DAY])
        owners = [f"waiter {number}" for number in range(10)]
        waiters = {owner: Polling.queued(still, owner, writes=[DAY]) for owner in owners}
        waiters.pop("waiter 4").pending.withdraw()
        stays = Polling.queued(living, "stays", writes=[DAY])
        silencing.silence(still)
        holder.release(lease)
        lease = stays.granted()
        for polling in reversed(waiters.values()):
            polling.blocked()
        assert [waiter.owner for waiter in holder.waiters()] == list(waiters)
        living.release(lease)
        for polling in waiters.values():
            still.release(polling.granted())


def test_a_waiter_that_leaves_as_another_brings_it_back_is_gone(
    silencing: Silencing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silencing.connect() as holder, silencing.connect() as living, silencing.connect() as still:
        lease = holder.acquire(owner="holder", writes=[DAY])
        first, second = (Polling.queued(still, owner, writes=[DAY]) for owner in ("first", "second"))
        stays = Polling.queued(living, "stays", writes=[DAY])
        silencing.silence(still)
        holder.release(lease)
        lease = stays.granted()
        comes_back = getattr(silencing.acquisition, silencing.comes_back)

        def as_it_leaves(*given: Any) -> None:
            first.pending.withdraw()
            comes_back(*given)

        monkeypatch.setattr(silencing.acquisition, silencing.comes_back, as_it_leaves)
        second.blocked()
        assert [waiter.owner for waiter in holder.waiters()] == ["second"]
        living.release(lease)
        still.release(second.granted())


def test_a_waiter_that_was_withdrawn_meanwhile_withdraws_no_other(silencing: Silencing) -> None:
    with silencing.connect() as holder, silencing.connect() as living, silencing.connect() as still:
        lease = holder.acquire(owner="holder", writes=[DAY])
        first, second = (Polling.queued(still, owner, writes=[DAY]) for owner in ("first", "second"))
        stays = Polling.queued(living, "stays", writes=[DAY])
        silencing.silence(still)
        assert holder.force_withdraw("first", reason="it hangs", user="ann")
        holder.release(lease)
        lease = stays.granted()
        assert [blocker.owner for blocker in second.blocked().by] == ["stays"]
        with pytest.raises(Withdrawn, match="it hangs"):
            first.blocked()
        living.release(lease)
        still.release(second.granted())


# ZooKeeper: a session ends, as that of a process that is killed.


@pytest.mark.integration
def test_a_dead_waiter_blocks_nobody(connect_zookeeper: Connect) -> None:
    """Its ticket stays, and is broken by who comes behind."""
    with connect_zookeeper() as holder, connect_zookeeper() as living:
        dying = connect_zookeeper()
        lease = holder.acquire(owner="holder", writes=[DAY])
        Polling.queued(dying, "dead", writes=[DAY])
        behind = Polling.queued(living, "alive", writes=[DAY])
        dying.close()
        holder.release(lease)
        living.release(behind.granted())
        assert holder.waiters() == []


@pytest.mark.integration
def test_the_waiters_of_a_dead_process_are_taken_up_in_their_order(connect_zookeeper: Connect) -> None:
    """As when a triggerer dies and another takes over its triggers, in whichever order, after its session has ended."""
    with connect_zookeeper() as holder, connect_zookeeper() as living:
        dying = connect_zookeeper()
        lease = holder.acquire(owner="holder", writes=[DAY])
        owners = [f"waiter {number}" for number in range(5)]
        for owner in owners:
            Polling.queued(dying, owner, writes=[DAY])
        dying.close()
        taken_up = {owner: Polling.queued(living, owner, writes=[DAY]) for owner in reversed(owners)}
        assert [waiter.owner for waiter in holder.waiters()] == owners
        holder.release(lease)
        for owner in owners:
            living.release(taken_up[owner].granted())


@pytest.mark.integration
def test_a_dead_waiters_placeholder_is_swept_and_blocks_hive_no_longer(connect_zookeeper: Connect) -> None:
    with connect_zookeeper() as manager:
        store = zookeepers.store(manager)
        manager.release(manager.acquire(owner="makes the nodes", writes=["dw.flights"]))
        hives = f"{store.layout.namespace}/dw/flights/LOCK-EXCLUSIVE-0000000000"
        zookeepers.commit(manager, Create(hives, b"q:1:IMPLICIT:insert:h"))
        dying = connect_zookeeper(patience_s=0)
        Polling.queued(dying, "dead", reads=["dw.flights"])
        (placeholder,) = (placed for placed in store.namespace.below(None) if placed.node.ours)
        assert [holder.owner for holder in manager.show()] == ["q"], "a placeholder is shown as a lock"
        dying.close()
        assert manager.sweep() == 1
        assert placeholder not in store.namespace.below(None)
        assert manager.waiters() == []
        assert manager.sweep() == 0


# Databases: a process gives no sign of life.


def test_a_dead_waiter_blocks_nobody_for_long_and_queues_again_when_it_wakes_up(
    database_url: str, opened: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    monkeypatch.setattr(candidate, "DEAD_US", 1_000_000)
    manager, other = opened(), opened()
    reader = manager.acquire(owner="reader", reads=[DAY])
    code = (
        "import sys; from airflow_hivelock.locks import connect; from tests.conformance import Polling; "
        f"Polling(connect(sys.argv[1]), 'dead', writes=['{DAY}'], attempt=1).blocked(); print('waits', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, database_url]
    dying = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert dying.stdout
    assert dying.stdout.readline() == b"waits\n"
    late = Polling(other, "late", reads=[DAY])
    dying.kill()
    dying.communicate()
    lease = late.granted()  # although no lease was released
    assert [waiter.owner for waiter in manager.waiters()] == []
    manager.release(reader)
    other.release(lease)


@pytest.mark.usefixtures("deaf")
def test_a_waiter_that_was_taken_for_dead_queues_again(opened: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cut off, say, for longer than its signs of life last."""
    monkeypatch.setattr(candidate, "DEAD_US", 0)
    manager, other = opened(), opened()
    reader = manager.acquire(owner="reader", reads=[DAY])
    cut_off = Polling.queued(manager, "cut off", writes=[DAY])
    late = Polling(other, "late", reads=[DAY]).granted()
    monkeypatch.undo()
    assert manager.waiters() == []
    assert {blocker.owner for blocker in cut_off.blocked().by} == {"reader", "late"}
    assert [waiter.owner for waiter in manager.waiters()] == ["cut off"]
    manager.release(reader)
    other.release(late)
    assert manager.release(cut_off.granted())


@pytest.mark.usefixtures("deaf")
def test_a_waiter_that_was_not_removed_is_not_decided_as_another_comes_back(
    opened: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its own step decides it: that step also tells its caller."""
    monkeypatch.setattr(Store, "sign", lambda *given: None)
    manager, other = opened(), opened()
    lease = other.acquire(owner="holder", writes=[DAY])
    first = Polling.queued(manager, "first", writes=[DAY])
    second = Polling.queued(manager, "second", writes=[DAY, "dw.other"])
    change(manager, seen_us="CASE WHEN owner = 'second' THEN 0 ELSE seen_us END")
    late = Polling(other, "late", writes=["dw.other"]).granted()
    other.release(lease)
    second.blocked()
    assert manager.leases() == [late]
    manager.release(first.granted())
    other.release(late)
    manager.release(second.granted())


def test_a_waiter_that_lives_keeps_its_place(opened: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    monkeypatch.setattr(candidate, "DEAD_US", 5_000_000)
    manager, other = opened(), opened()
    reader = manager.acquire(owner="reader", reads=[DAY])
    writer = Polling.queued(manager, "writer", writes=[DAY])
    kept = database(manager)
    queued = manager.now().timestamp() * 1e6

    def signs() -> bool:
        (record,) = kept.records(kept.queued)
        return bool(record.seen_us > queued + candidate.DEAD_US)

    wait_until(signs)
    assert Polling(other, "late", reads=[DAY]).blocked().by[0].owner == "writer"
    manager.release(reader)
    manager.release(writer.granted())


@pytest.mark.integration
def test_a_release_wakes_the_one_behind_a_dead_waiter(connect_zookeeper: Connect) -> None:
    """A dead waiter keeps its position until it is the first. So the one behind it would see the release a pause later."""
    with connect_zookeeper() as manager, connect_zookeeper() as still, connect_zookeeper() as other:
        lease = manager.acquire(owner="holder", writes=[DAY])
        Polling.queued(still, "dead", writes=[DAY]).pending.hand_over()
        behind = Polling.queued(other, "behind", writes=[DAY])
        manager.release(lease)
        behind.woken()
        assert behind.granted()
