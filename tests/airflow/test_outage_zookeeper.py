"""A real ZooKeeper that is away each time that a task comes to its worker slot."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DAG

from airflow_hivelock import HiveLockOperator, HiveUnlockOperator, hooks
from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.url import fingerprint
from tests.airflow.tasks import DAY, Acts
from tests.support.servers import ZooKeeperServer

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run


AWAY_S = 3.0


@pytest.mark.integration
def test_six_of_six_tasks_succeed_although_zookeeper_is_away_when_each_comes_to_its_slot(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker is a new process in Airflow, and connects for itself."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        url = f"{server.url}?timeout_s=1"
        monkeypatch.setattr(hooks.HiveLockHook, "url", property(lambda _: url))
        monkeypatch.setattr(hooks, "_current", {"hivelock_default": fingerprint(url)})
        new_worker = threading.Event()
        new_worker.set()
        dropped: list[LockManager] = []
        outages: list[threading.Thread] = []
        unanswered: list[StoreUnavailable] = []

        def comes_back() -> None:
            time.sleep(AWAY_S)
            server.start()

        def connect_in_an_outage(url: str) -> LockManager:
            if new_worker.is_set():
                new_worker.clear()
                for outage in outages:
                    outage.join()
                server.stop()
                outages.append(threading.Thread(target=comes_back))
                outages[-1].start()
            try:
                return connect(url)
            except StoreUnavailable as error:
                unanswered.append(error)
                raise

        def next_worker() -> None:
            new_worker.set()
            key = fingerprint(url)
            if (manager := hooks._managers.pop(key, None) or hooks._replaced.pop(key, None)) is not None:
                dropped.append(manager)

        monkeypatch.setattr(hooks, "connect", connect_in_an_outage)
        with DAG("outage", schedule=None, start_date=DAY) as dag:
            lock = HiveLockOperator(task_id="lock", writes=["dw.other"])
            under = Acts(task_id="under", lease=lock.output, act=next_worker)
            unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
            before = under
            for number in range(4):
                after = Acts(task_id=f"work_{number}", writes=["dw.delays"], act=next_worker)
                before >> after
                before = after
            before >> unlock
        try:
            ran = run(dag, logical_date=DAY)
        finally:
            for outage in outages:
                outage.join()
            next_worker()
            for manager in dropped:  # while the server is up: a client without one tries to connect during later tests
                manager.close()
        assert set(ran.tasks.values()) == {"success"}, ran.tasks
        assert len(outages) == 6
        assert len(unanswered) >= 6, "a worker that has met no outage shows nothing"
