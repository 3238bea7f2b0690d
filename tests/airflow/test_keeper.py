"""The keeper while Airflow does not answer, as when its metadata database is away."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DRCount, GetDRCount, MaskSecret, TaskStatesResult

from airflow_hivelock import comms
from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.spec import Owner
from airflow_hivelock.triggers import keeper as module
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.work.stale import Verdict

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager


class Supervisor:
    """Says that every run is running; to a *silent* kind of message it says nothing."""

    silent: type | tuple[()] = ()

    def __init__(self) -> None:
        self.asked: list[type] = []

    def send(self, message: Any) -> Any:
        raise AssertionError(f"asked from a thread: {message}")

    async def asend(self, message: Any) -> Any:
        self.asked.append(type(message))
        if isinstance(message, self.silent):
            await asyncio.get_running_loop().create_future()
        if isinstance(message, GetDRCount):
            return DRCount(count=len(message.run_ids or ()))
        return TaskStatesResult(task_states={})


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """The answers that the keeper gets from Airflow."""
    played = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", played, raising=False)
    return played


@pytest.fixture
def renewed(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners of the leases that are renewed; three are due."""
    owners = [str(Owner("here", "dag", run, "t")) for run in ("1", "2", "3")]
    leases = [
        manager.acquire(owner=owner, writes=[f"dw.{name}"], lease_s=3)
        for owner, name in zip(owners, "abc", strict=True)
    ]
    found: list[str] = []

    def renew(lease: Lease) -> None:
        found.append(lease.owner)

    monkeypatch.setattr(manager.backend, "renew", renew)
    monkeypatch.setattr(manager.backend, "now", lambda: leases[-1].since + timedelta(seconds=3))
    return found


@pytest.mark.parametrize("silent", [MaskSecret, GetDRCount], ids=["connection", "runs"])
async def test_one_question_without_an_answer_is_enough_and_every_lease_is_renewed(
    silent: type, airflow: Supervisor, renewed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its database hangs, a triggerer's supervisor answers nothing: not even that the connection is unchanged."""
    keeper = HiveLockKeeper()
    await keeper._keep()
    assert len(renewed) == 3
    airflow.silent, airflow.asked = silent, []
    monkeypatch.setattr(comms, "ANSWER_S", 0.5)
    await keeper._keep()
    assert len(renewed) == 6
    assert airflow.asked.count(silent) == 1
    assert airflow.asked[-1] is silent, "it was asked again"


async def test_a_connection_that_cannot_be_found_while_airflow_is_silent_is_gone_by_as_it_was(
    airflow: Supervisor, renewed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's SDK says that there is none where its database could not be asked."""
    keeper = HiveLockKeeper()
    await keeper._keep()
    monkeypatch.delenv("AIRFLOW_CONN_HIVELOCK_DEFAULT")
    airflow.silent = GetDRCount
    monkeypatch.setattr(comms, "ANSWER_S", 0.5)
    await keeper._keep()
    with pytest.raises(CannotTell, match="hivelock_default"):
        await HiveLockKeeper()._keep()
    airflow.silent = ()
    monkeypatch.setattr(comms, "ANSWER_S", 120.0)
    with pytest.raises(InvalidRequest, match="does not exist"):
        await keeper._keep()
    assert len(renewed) == 6


async def test_silence_about_the_runs_of_suspects_delays_no_other_renewal(
    airflow: Supervisor, renewed: list[str], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow falls silent after it has reported the tasks. Each suspect's run cost a wait of its own, up to 120 s."""
    keeper = HiveLockKeeper()
    *suspects, working = manager.leases()
    asked_after: list[list[str]] = []

    async def judge(*_: Any) -> Any:
        return {lease.id: Verdict(True, "its task is unknown", unknown=True) for lease in suspects}, []

    async def run_of(_: Owner) -> Any:
        asked_after.append(list(renewed))
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(keeper, "_judge", judge)
    monkeypatch.setattr(comms, "run_of", run_of)
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    monkeypatch.setattr(module, "RUNS_S", 0.1, raising=False)
    async with asyncio.timeout(20):
        assert set(await keeper._keep()) == {lease.id for lease in suspects}
    assert asked_after == [[working.owner]] * len(suspects), "all were asked about at once, after the other renewals"
    assert renewed == [working.owner, *(lease.owner for lease in suspects)]
