"""An owner in the lock store may be written by a stranger: it forges no line of a log and drives no terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
import structlog

from airflow_hivelock import waiting
from airflow_hivelock.locks import Lease, LockRequest, rules
from airflow_hivelock.locks.model import DeferredGrant, Work
from airflow_hivelock.spec import Owner
from airflow_hivelock.triggers.ahead import RunsAhead
from airflow_hivelock.ui.works import how
from airflow_hivelock.waiting import MarkedBlocker
from airflow_hivelock.work.applications import encode
from tests.airflow.page import ASKED, LEASES, Login
from tests.airflow.test_keeper_frees import Airflow, airflow, gone, keep

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Lines

__all__ = ["airflow"]

RUN = "run\n2026-01-01 INFO Released lease 7\r\x1b[2J\u202eb"
SHOWN = r"run\n2026-01-01 INFO Released lease 7\r\x1b[2J\u202eb"
QUOTED = "run%0A2026-01-01 INFO Released lease 7%0D%1B[2J%E2%80%AEb"
"""Printable as it is in the store; its run is not."""

OBJECT = "dw.t"


@pytest.fixture(autouse=True)
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are not checked, as those that a stranger writes into the store."""
    monkeypatch.setattr(LockRequest, "__post_init__", lambda request: None)


def is_clean(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n")) and "\n2026" not in text


class TestKeeper:
    def failed(self, run: str, airflow: Airflow, manager: LockManager) -> Lease:
        """The lease of a task that has failed. Its process is gone."""
        lease = manager.acquire(owner=f"here/dag/{run}/load/-1", writes=[OBJECT])
        manager.start_work(lease, "load", encode(gone()))
        airflow.knows(run, "failed", load="failed")
        return lease

    @pytest.mark.parametrize("run", [RUN, QUOTED])
    def test_of_a_lease_that_no_task_can_have(
        self, run: str, airflow: Airflow, manager: LockManager, lines: Lines
    ) -> None:
        self.failed(run, airflow, manager)
        pending = manager.begin(
            rules.request(f"here/dag/{run}/wait/-1", writes=["dw.u"], deferred=DeferredGrant()), lambda: None
        )
        pending.poll()
        assert not keep()
        assert len(manager.leases()) == len(manager.waiters()) == 1
        assert not lines()
        pending.withdraw()

    def test_of_a_lease_that_it_keeps(
        self, airflow: Airflow, manager: LockManager, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.failed("run", airflow, manager)
        monkeypatch.setattr("airflow_hivelock.work.stale.running", lambda works: ["process 7\x1b[2J\nof a stranger"])
        assert not keep()
        assert "Keeping lease" in lines()
        assert is_clean(lines())

    def test_of_a_lease_that_it_cannot_judge(
        self, airflow: Airflow, manager: LockManager, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = self.failed("run", airflow, manager)
        monkeypatch.setattr("airflow_hivelock.triggers.keeper.judge_work", Mock(side_effect=RuntimeError("it\nbroke")))
        assert is_clean(keep()[lease.id])
        assert "is kept, because it cannot be checked" in lines()
        assert is_clean(lines())


class TestWaiter:
    def test_of_those_in_its_way(self, manager: LockManager, lines: Lines) -> None:
        held = manager.acquire(owner=RUN, writes=[OBJECT])
        first = manager.begin(rules.request(f"second {RUN}", writes=[OBJECT]), lambda: None)
        first.poll()
        log = structlog.get_logger()
        request = rules.request("waiter", writes=[OBJECT])
        wait = waiting.Wait(lambda: (manager, request), None, lambda: None, log)
        wait.poll()
        manager.release(held)
        lease = first.poll()
        assert isinstance(lease, Lease)
        wait.poll()
        manager.release(lease)
        assert isinstance(wait.poll(), Lease)
        for said in ("In the way", "No longer in the way", "after waiting"):
            assert said in lines()
        assert lines().count(SHOWN) >= 4
        assert is_clean(lines())
        assert is_clean(wait.round().past)

    async def test_of_what_became_of_those_ahead(
        self, manager: LockManager, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = f"here/dag/{RUN}/load/-1"
        manager.force_release(manager.acquire(owner=owner, writes=[OBJECT]).id, reason="over", user="ann")
        (entry,) = manager.audit()
        forged = replace(entry, user=f"ann{RUN}", reason=f"over{RUN}")
        monkeypatch.setattr(manager.backend, "audit", lambda: [forged])
        async with RunsAhead(Owner("here", "dag", "today", "load"), lambda: manager, structlog.get_logger()) as runs:
            await runs.ask_last([MarkedBlocker(owner, False, datetime(2013, 1, 1, tzinfo=UTC))])
        assert "force-released" in lines()
        assert lines().count(SHOWN) == 3
        assert is_clean(lines())


class TestPage:
    def test_of_a_change_with_its_reason(self, login: Login, manager: LockManager, lines: Lines) -> None:
        held = manager.acquire(owner="ann", writes=[OBJECT])
        body = {"reason": "stuck\n2026-01-01 INFO Lease 7 freed by force by bob"}
        assert login("op").post(f"{LEASES}/{held.id}/release", json=body, headers=ASKED).status_code == 200
        assert "freed by force by some op" in lines()
        assert is_clean(lines())

    def test_of_work_that_cannot_be_checked(self, lines: Lines) -> None:
        how(Work(RUN, "odd", 1))
        assert SHOWN in lines()
        assert is_clean(lines())
