"""Airflow's own TriggerRunner in this process; only its supervisor is played."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.models.trigger import Trigger
from airflow.providers.common.compat.sdk import DagRunState
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    DagRunStateResult,
    DRCount,
    GetDagRunState,
    GetDRCount,
    GetTaskStates,
    SetXCom,
    TaskStatesResult,
)
from airflow.triggers.base import BaseTrigger, TaskFailedEvent

from airflow_hivelock import compat
from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.spec import Owner
from tests.airflow import jsonb
from tests.support.airflow_names import DagSerialization, RunTrigger, TaskInstanceDTO

if TYPE_CHECKING:
    from collections.abc import Callable

starts_in_triggerer = pytest.mark.skipif(not compat.TRIGGERS_RENDER, reason="before Airflow 3.3 tasks begin on workers")

DEADLINE_S = 10.0

CANCELLED_AGAIN_S = 0.1
"""Airflow's own is a second."""


class Triggerer:
    """Runs triggers as Airflow does, from their stored form; ``states`` is what Airflow says of its tasks.

    DAGs, XComs and events go through what PostgreSQL's jsonb makes of them, as Airflow's do.

    states: by task id; a task that is not in it is unknown to Airflow.
    runs: the states of runs, by run id; another run goes on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: dict[str, str | None] = {}
        self.runs: dict[str, str] = {}
        self.xcoms: list[SetXCom] = []
        self.asked = 0
        self.runner = TriggerRunner()  # type: ignore[no-untyped-call]
        self.workloads: dict[int, RunTrigger] = {}
        self._ids = iter(range(1, 1000))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", self, raising=False)
        # With it a task sets its trigger's arguments. For an older Airflow the harness sets them.
        monkeypatch.setattr(compat, "TRIGGERS_RENDER", True)

    async def asend(self, message: Any) -> Any:
        """The supervisor's answers."""
        if isinstance(message, SetXCom):
            self.xcoms.append(message.model_copy(update={"value": jsonb.stored(message.value)}))
            return None
        if isinstance(message, GetDagRunState):
            return DagRunStateResult(state=DagRunState(self.runs.get(message.run_id, "running")))
        if isinstance(message, GetDRCount):
            return DRCount(count=0)
        assert isinstance(message, GetTaskStates), message
        assert message.run_ids is not None
        if message.task_ids is None:
            return TaskStatesResult(task_states={message.run_ids[0]: self.states})
        self.asked += 1
        known = {task: self.states[task] for task in message.task_ids if task in self.states}
        return TaskStatesResult(task_states={message.run_ids[0]: known} if known else {})

    async def start(self, task: Any, *, logical_date: datetime | None = None, **ti: Any) -> int:
        """Start a task from its trigger, as the scheduler does with ``start_from_trigger``."""
        encoded, run = _of(task, logical_date, ti.get("run_id", "run"))
        stored = DagSerialization.from_dict(encoded).get_task(task.task_id)
        assert stored.start_from_trigger, "the task starts on a worker"
        args = stored.start_trigger_args
        assert args is not None
        if not hasattr(BaseTrigger, "render_template_fields"):
            kwargs = _rendered(args.trigger_kwargs, logical_date)
            owner = str(Owner("here", task.dag_id, run["run_id"], task.task_id, ti.get("map_index", -1)))
            known = {"owner": owner, "attempt": ti.get("try_number", 1)}
            return await self._create(args.trigger_cls, kwargs | known, {}, task.task_id, task.dag_id, **ti)
        dag = {"dag_data": encoded, "dag_run_data": run}
        return await self._create(args.trigger_cls, args.trigger_kwargs, dag, task.task_id, task.dag_id, **ti)

    async def defer(self, trigger: BaseTrigger, task_id: str = "lock", task: Any = None, **ti: Any) -> int:
        """Start a trigger that a worker has deferred to.

        task: given if it can start in the triggerer. Then Airflow renders each of its triggers.
        """
        dag = {} if task is None else dict(zip(("dag_data", "dag_run_data"), _of(task, None, "run"), strict=True))
        return await self._create(*trigger.serialize(), dag, task_id, "dag", **ti)

    async def event(self, trigger_id: int) -> Any:
        """The trigger's event."""
        await self.until(lambda: trigger_id in self._events() or not self.running(trigger_id), "an event")
        if trigger_id not in self._events():
            with pytest.raises(HiveLockError):  # then Airflow fails the task on a worker
                await self.runner.triggers[trigger_id]["task"]
            assert not compat.TRIGGERS_RETRY
            return TaskFailedEvent()
        event = self._events()[trigger_id]
        return event.model_copy(update={"payload": jsonb.stored(event.payload)})

    async def give(self, workload: RunTrigger) -> None:
        """What Airflow does every second with a trigger that it has given to this triggerer: start it, unless it runs."""
        await self.runner.cleanup_finished_triggers()
        assert not self.runner.failed_triggers, "Airflow fails the task"
        if workload.id not in self.runner.triggers:
            self.workloads[workload.id] = workload
            self.runner.to_create.append(workload)
            await self.runner.create_triggers()  # type: ignore[no-untyped-call]

    def running(self, trigger_id: int) -> bool:
        """Whether the trigger still runs."""
        return not self.runner.triggers[trigger_id]["task"].done()

    async def user_acts(self, trigger_id: int) -> None:
        """A user changes the task's state, or the wait for it ends. This cancels the trigger; wait for its end.

        Airflow repeats the cancellation every second until the trigger has ended.
        """
        async with asyncio.timeout(DEADLINE_S):
            while self.running(trigger_id):
                self.runner.to_cancel.append(trigger_id)
                await self.runner.cancel_triggers()  # type: ignore[no-untyped-call]
                await asyncio.wait([self.runner.triggers[trigger_id]["task"]], timeout=CANCELLED_AGAIN_S)

    async def shut_down(self, trigger_id: int) -> None:
        """SIGTERM cancels the trigger."""
        self.runner.triggers[trigger_id]["task"].cancel()
        await self._end(trigger_id)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
            await asyncio.sleep(0.01)

    def _events(self) -> dict[int, Any]:
        """By trigger; an entry is a pair before Airflow 3.3."""
        entries: Any = self.runner.events
        return {entry[0]: entry[1] for entry in entries}

    async def _create(
        self, classpath: str, kwargs: dict[str, Any] | None, dag: dict[str, Any], task_id: str, dag_id: str, **ti: Any
    ) -> int:
        trigger_id = next(self._ids)
        self.states.setdefault(task_id, "deferred")
        known: dict[str, Any] = {"id": uuid.uuid4(), "dag_version_id": uuid.uuid4(), "queue": "default"}
        known |= {"pool_slots": 1, "priority_weight": 1, "run_id": "run", "try_number": 1, "map_index": -1, **ti}
        workload = self.workloads[trigger_id] = RunTrigger(
            id=trigger_id,
            classpath=classpath,
            encrypted_kwargs=Trigger.encrypt_kwargs(kwargs or {}),
            ti=TaskInstanceDTO(dag_id=dag_id, task_id=task_id, **known),
            **dag,
        )
        self.runner.to_create.append(workload)
        await self.runner.create_triggers()  # type: ignore[no-untyped-call]
        return trigger_id

    async def _end(self, trigger_id: int) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(self.runner.triggers[trigger_id]["task"]), DEADLINE_S)


def _of(task: Any, logical_date: datetime | None, run_id: str) -> tuple[Any, dict[str, Any]]:
    """The task's DAG and run, as Airflow gives them to the triggers of a task that can start in the triggerer."""
    run = {
        "dag_id": task.dag_id,
        "run_id": run_id,
        "logical_date": logical_date,
        "data_interval_start": logical_date,
        "data_interval_end": logical_date,
        "run_after": datetime.now(UTC),
        "start_date": datetime.now(UTC),
        "run_type": "manual",
        "state": "running",
        "end_date": None,
        "partition_key": None,
        "consumed_asset_events": [],
    }
    return jsonb.stored(DagSerialization.to_dict(task.dag)), run


async def fails(events: Any) -> None:
    """A trigger fails its task: by an event, or, before Airflow 3.3, by what it raises."""
    if compat.TRIGGERS_RETRY:
        assert isinstance(await anext(events), TaskFailedEvent)
        await events.aclose()
    else:
        with pytest.raises(HiveLockError):
            await anext(events)


def _rendered(given: Any, logical_date: datetime | None) -> Any:
    """As a worker does it, before Airflow 3.3."""
    if isinstance(given, dict):
        return {name: _rendered(value, logical_date) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [_rendered(value, logical_date) for value in given]
    if not isinstance(given, str) or "{{" not in given:
        return given
    known = {} if logical_date is None else {"ds": logical_date.date().isoformat()}
    try:
        return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(given).render(known)
    except Exception:  # noqa: BLE001 - as on a worker, where the error is the task's own
        pytest.skip("before Airflow 3.3 nothing is rendered in a triggerer")
