"""The checks of work take few threads of the triggerer, and each lease has its turn."""

from __future__ import annotations

import asyncio
import copy
import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.triggers import keeper as keepers
from airflow_hivelock.triggers import work_checks
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.triggers.threads import Threads
from airflow_hivelock.triggers.work_checks import WorkChecks
from airflow_hivelock.work.stale import Verdict
from tests.airflow.test_keeper_frees import Airflow, airflow, gone, works

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager

__all__ = ["airflow"]

RUNS = Verdict(False, "it runs")


def checking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hivelock-check"]


async def all_ended() -> None:
    """All checks have ended, and the event loop has been notified of that."""
    for thread in checking():
        await asyncio.to_thread(thread.join, 20)
    await asyncio.sleep(0)


async def test_a_thousand_stale_leases_take_few_threads() -> None:
    """As after a triggerer was away for a day."""
    began, answered = threading.Semaphore(0), threading.Event()

    def judge() -> Verdict:
        began.release()
        answered.wait(20)
        return RUNS

    checks = WorkChecks(Threads())
    asked = [asyncio.ensure_future(checks.verdict(f"lease {number}", judge)) for number in range(1000)]
    try:
        await asyncio.to_thread(began.acquire, timeout=20)
        assert len(checking()) == 32
    finally:
        answered.set()
    assert await asyncio.gather(*asked) == [RUNS] * 1000


async def test_a_lease_whose_check_cannot_start_is_checked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_checks, "AT_ONCE", 1, raising=False)
    checks = WorkChecks(Threads())

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await checks.verdict("lease", lambda: RUNS)
    assert await checks.verdict("lease", lambda: RUNS) is RUNS


async def test_leases_of_a_silent_cluster_take_no_turn_of_other_leases(
    airflow: Airflow, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_checks, "AT_ONCE", 2)
    monkeypatch.setattr(work_checks, "CHECK_S", 0.2)
    keeper, answered = HiveLockKeeper(), threading.Event()
    leases = [works(manager, gone(), run=run).id for run in "abc"]
    for run in "abc":
        airflow.knows(run, "failed", load="failed")
    start, started = keeper._checks._start, list[str]()

    def silent(*_: Any) -> Verdict:
        answered.wait(20)
        return RUNS

    def starts(lease_id: str, judge: Any) -> Any:
        started.append(lease_id)
        return start(lease_id, judge)

    monkeypatch.setattr(keepers, "judge_work", silent)
    monkeypatch.setattr(keeper._checks, "_start", starts)
    suspects = await keeper._keep()
    assert set(suspects) == set(leases)
    (waits,) = set(leases) - set(started)
    assert "2 checks of other leases have not ended" in suspects[waits]
    answered.set()
    await all_ended()
    monkeypatch.setattr(work_checks, "CHECK_S", 20.0)
    await keeper._keep()
    assert started[2] == waits
    assert len(started) == 5


def test_a_keeper_can_be_copied() -> None:
    """Airflow copies an asset with its keeper."""
    assert copy.deepcopy(HiveLockKeeper()).serialize() == HiveLockKeeper().serialize()
