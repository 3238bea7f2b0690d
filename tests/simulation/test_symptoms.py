"""Bugs that the simulation found, each as a script of its own and named for its symptom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper.client import Get
from airflow_hivelock.locks.model import LockMode
from tests.simulation.stage import play
from tests.simulation.state import ROOT

if TYPE_CHECKING:
    from tests.simulation.stage import Stage


def test_a_table_waits_for_a_partition_that_hive_holds_when_patience_is_spent() -> None:
    def script(stage: Stage) -> None:
        ours = stage.process("ours", patience_s=0.0)
        stage.hive().lock_table("w/a/p=1", "SHARED")
        asked = ours.asks("o", [], ["w.a"])
        assert [type(asked.poll()) for _ in range(2)] == [Blocked, Blocked]

    play(script)


def test_waiters_come_back_in_another_order_than_they_had_and_each_has_its_place_still() -> None:
    def script(stage: Stage) -> None:
        ours, gone, back = (stage.process(name) for name in ("ours", "gone", "back"))
        held = ours.gets("holder", [], ["w.a"])
        order = [f"waiter-{number}" for number in range(5)]
        for owner in order:
            gone.asks(owner, [], ["w.a"]).poll()
        gone.session.close()
        again = {owner: back.asks(owner, [], ["w.a"]) for owner in reversed(order)}
        assert all(isinstance(waiter.poll(), Blocked) for waiter in again.values())
        for owner in order:
            ours.releases(held)
            held = again[owner].lease()

    play(script)


def test_a_dead_waiter_behind_others_is_passed_once_they_have_gone() -> None:
    def script(stage: Stage) -> None:
        ours, dead, mine = (stage.process(name) for name in ("ours", "dead", "mine"))
        held = ours.gets("holder", [], ["w.a"])
        dead.asks("dead", [], ["w.a"]).poll()
        dead.session.close()
        waiter = mine.asks("mine", [], ["w.a"])
        blocked = waiter.poll()
        assert isinstance(blocked, Blocked)
        assert blocked.recheck_s, "nobody tells it when the holder goes"
        ours.releases(held)
        waiter.lease()

    play(script)


def test_a_session_that_ends_meanwhile_does_not_make_the_wait_longer() -> None:
    def script(stage: Stage) -> None:
        ours, mine = stage.process("ours"), stage.process("mine")
        ours.gets("holder", [], ["w.a"])
        waiter = mine.asks("waiter", [], ["w.a"])
        waiter.poll()
        stage.schedule.sleep(60.0)
        mine.session.move(0)
        blocked = waiter.poll()
        assert isinstance(blocked, Blocked)
        assert blocked.waited_s < 1.0, "this acquisition has counted its own minute already"

    play(script)


@pytest.mark.parametrize("mode", [LockMode.EXCLUSIVE, LockMode.SHARED])
def test_a_hand_over_takes_the_longer_the_more_requests_wait(mode: LockMode) -> None:
    def script(stage: Stage) -> None:
        ours, many = stage.process("ours"), stage.process("many")
        held = ours.gets("holder", [], ["w.a/p=1"])
        day, writes = ["w.a/p=1"], mode is LockMode.EXCLUSIVE
        wanted: tuple[list[str], list[str]] = ([], day) if writes else (day, [])
        waiters = [many.asks(f"waiter-{number}", *wanted) for number in range(20)]
        assert all(isinstance(waiter.poll(), Blocked) for waiter in waiters)
        before = len(stage.schedule.trace)
        for waiter in waiters:
            stage.schedule.sleep(1.0)
            ours.releases(held) if writes or waiter is waiters[0] else None
            held = waiter.lease()
        done = [what for _, _, what in stage.schedule.trace[before:]]
        records = sum(isinstance(each, Get) and each.path.startswith(f"{ROOT}/requests/") for each in done)
        assert records < 2 * len(waiters), "each new holder reads the records of all that wait"

    play(script)
