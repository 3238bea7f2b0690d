"""Bugs that the simulation found, each as a script of its own and named for its symptom."""

from __future__ import annotations

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Create
from airflow_hivelock.locks.manager import LockManager
from tests.simulation.dice import Dice
from tests.simulation.model import ZooKeeper
from tests.simulation.schedule import Flag, Schedule
from tests.simulation.session import Network, SimulatedSession
from tests.simulation.state import NAMESPACE


def test_a_table_waits_for_a_partition_that_hive_holds_when_patience_is_spent() -> None:
    dice = Dice(0)
    schedule = Schedule(dice, 0.0, 0.0, lambda: None)
    network = Network(ZooKeeper(1, lambda: schedule.now_ms, lambda write: None), schedule, dice)
    seen: list[object] = []

    def run() -> None:
        manager = LockManager(ZooKeeperBackend(SimulatedSession(network, "ours"), patience_s=0.0))
        hive = SimulatedSession(network, "hive")
        for name in ("w", "w/a", "w/a/p=1"):
            hive.submit(Commit((Create(f"{NAMESPACE}/{name}"),)))
        hive.submit(Commit((Create(f"{NAMESPACE}/w/a/p=1/LOCK-SHARED-", b"q:0:EXPLICIT:q:h", sequential=True),)))
        pending = manager.begin(rules.request("o", [], ["w.a"]), Flag(schedule).set)
        seen.extend(pending.poll() for _ in range(2))

    schedule.spawn("script", run)
    schedule.run()
    assert [type(outcome) for outcome in seen] == [Blocked, Blocked]
