"""One statement under its locks: what a rival has changed before the grant is planned again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import InvalidRequest, LockManager, LockObject
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark.holding import MOST_PLANS, NotPlanned, Planned, hold
from airflow_hivelock.spark.leases import DriverLeases, DriverName

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def manager() -> LockManager:
    return LockManager(MemoryBackend())


@pytest.fixture
def leases(manager: LockManager) -> Iterator[DriverLeases]:
    with closing(DriverLeases(manager, DriverName("local-1", "local"))) as leases:
        yield leases


def reads(*tables: str) -> Plan:
    return Plan([LockObject("dw", table) for table in tables], [], {})


def chain(*plans: Plan) -> Planned:
    """A statement whose plan is another one each time that it is planned."""
    first, *others = plans
    planned = Planned(first, lambda: chain(*others) if others else planned)
    return planned


def held(manager: LockManager) -> list[str]:
    return [str(lock.object) for lease in manager.leases() for lock in lease.locks if lock.object.table]


def test_a_plan_that_has_not_changed_is_the_one_that_runs(manager: LockManager, leases: DriverLeases) -> None:
    planned = chain(reads("a"))
    with hold(leases, lambda: planned, "select") as found:
        assert found is planned
        assert held(manager) == ["dw.a"]


def test_a_plan_that_needs_less_runs_under_the_locks_that_it_has(manager: LockManager, leases: DriverLeases) -> None:
    with hold(leases, lambda: chain(reads("a", "b"), reads("b")), "select") as found:
        assert found is not None
        assert found.plan == reads("b")
        assert held(manager) == ["dw.a", "dw.b"]
    assert len(manager.history()) == 1


def test_a_plan_that_needs_more_is_locked_anew(manager: LockManager, leases: DriverLeases) -> None:
    with hold(leases, lambda: chain(reads("a"), reads("a", "b"), reads("a", "b", "c")), "select") as found:
        assert found is not None
        assert found.plan == reads("a", "b", "c")
        assert held(manager) == ["dw.a", "dw.b", "dw.c"]
    assert not manager.leases()


def test_tables_that_change_each_time_end_the_statement(manager: LockManager, leases: DriverLeases) -> None:
    changing = chain(*(reads(f"t{number}") for number in range(MOST_PLANS + 1)))
    with pytest.raises(InvalidRequest, match="changed 10 times"), hold(leases, lambda: changing, "select"):
        pass
    assert not manager.leases()


def test_what_cannot_be_planned_runs_under_a_lease_that_names_its_data(
    manager: LockManager, leases: DriverLeases
) -> None:
    def plan() -> Planned | None:
        raise NotPlanned

    with pytest.raises(NotPlanned), hold(leases, plan, "execute immediate"):
        pass
    with leases.locked(reads("a"), "for one statement"), pytest.raises(NotPlanned), hold(leases, plan, "execute"):
        pass
    with leases.locked(reads("a"), "for several", named=True), hold(leases, plan, "execute immediate") as found:
        assert found is None
        assert held(manager) == ["dw.a"]
