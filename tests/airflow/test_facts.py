"""Which leases belong to which task of this process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.spec import Owner
from airflow_hivelock.waiting.rounds import Round
from airflow_hivelock.work import facts
from airflow_hivelock.work.facts import LeaseFacts

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager

LOAD = Owner("prod", "etl", "manual__1", "load")
WAIT = Round(waited_s=60.0, waited_for=("somebody",))


@pytest.fixture(autouse=True)
def nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_facts", {})


def lease_of(manager: LockManager, owner: Owner, work: str = "load") -> Lease:
    return manager.start_work(manager.acquire(owner=str(owner), reads=["dw.t"]), work, "")


def works(lease: Lease) -> None:
    facts.works(lease, lease.works[0])


def test_the_work_under_a_lease_adds_its_token_and_keeps_the_wait(manager: LockManager) -> None:
    granted = manager.acquire(owner=str(LOAD), reads=["dw.t"])
    facts.granted(granted, WAIT)
    working = manager.start_work(granted, "load", "")
    works(working)
    assert facts.of(LOAD) == [LeaseFacts(granted.id, working.token, 60.0, ("somebody",))]
    assert working.token > granted.token


def test_each_task_has_its_own(manager: LockManager) -> None:
    mapped, other_run = replace(LOAD, map_index=3), replace(LOAD, run_id="manual__2")
    for owner in (LOAD, mapped, other_run):
        works(lease_of(manager, owner, work=owner.work))
    ids = [each.lease_id for owner in (LOAD, mapped, other_run) for each in facts.of(owner)]
    assert len(ids) == len(set(ids)) == 3
    assert facts.of(replace(LOAD, task_id="other")) == []


def test_holds_of_a_task_are_its_own(manager: LockManager) -> None:
    for hold in ("a", "b"):
        facts.granted(lease_of(manager, replace(LOAD, hold=hold)), WAIT)
    assert len(facts.of(LOAD)) == 2


def test_a_lease_of_another_dag_belongs_to_the_task_that_works_under_it(manager: LockManager) -> None:
    theirs = replace(LOAD, dag_id="other")
    works(lease_of(manager, theirs, work="etl/manual__1/load"))
    assert len(facts.of(LOAD)) == 1
    assert facts.of(theirs) == []


def test_a_process_that_runs_many_tasks_forgets_the_first(manager: LockManager) -> None:
    for number in range(facts.MOST_TASKS + 1):
        facts.granted(lease_of(manager, replace(LOAD, run_id=str(number))), WAIT)
    assert facts.of(replace(LOAD, run_id="0")) == []
    last = replace(LOAD, run_id=str(facts.MOST_TASKS))
    for number in range(facts.MOST_LEASES + 1):
        facts.granted(lease_of(manager, replace(last, hold=str(number))), WAIT)
    assert len(facts.of(last)) == facts.MOST_LEASES
