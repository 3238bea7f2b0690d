"""Where names are rendered: in the triggerer only if a worker would render the same text, and if nothing there hangs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from airflow.jobs.triggerer_job_runner import ToTriggerSupervisor, TriggerRunner
from airflow.sdk import DAG, Asset
from airflow.sdk.api.datamodels._generated import DagRun, TIRunContext
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ConnectionResult, GetConnection, GetVariable, VariableResult
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from pydantic import TypeAdapter

from airflow_hivelock import HiveLockOperator
from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.spec import Owner
from airflow_hivelock.templates import IN_TRIGGERER
from airflow_hivelock.triggers.lock import HiveLockTrigger
from tests.airflow.triggerer import starts_in_triggerer
from tests.support.airflow_names import DagSerialization, TaskInstanceDTO

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.triggerer import Triggerer

DAY = datetime(2013, 1, 15, tzinfo=UTC)

USES = {
    "conn": "conn.hdfs.host",
    "inlets": "inlets[0].name",
    "macros": "macros.ds_add(ds, -6)",
    "outlets": "outlets[0].extra.partition",
    "params": "params.day",
    "var": "var.value.day",
}
"""How a template uses a name that has no text of its own."""

ONLY_ON_WORKERS = [
    "{{ prev_data_interval_start_success | ds }}",
    "{{ prev_data_interval_end_success | ds }}",
    "{{ prev_start_date_success | ds }}",
    "{{ prev_end_date_success | ds }}",
    "{{ inlet_events['flights'] | length }}",
    "{{ triggering_asset_events | length }}",
    "{{ task_state_store.get('day') }}",
    "{{ ti.get_previous_dagrun().run_id }}",
    "{{ ti.xcom_pull('days') }}",
    "{{ task_instance.xcom_pull('days') }}",
    "{{ ti['xcom_pull']('days') }}",
    "{{ ti | attr('xcom_pull')('days') }}",
    "{% set us = ti %}{{ us.xcom_pull('days') }}",
    "{{ task.op_kwargs['day'] }}",
    "{{ dag_run.triggering_user_name }}",
    "{{ dag_run.run_type }}",
    "{{ ds | unknown_filter }}",
    "{% do params.days.sort() %}{{ params.days[0] }}",
    "{% include 'day.sql' %}",
    "{{ ds",
]


class Supervisor:
    """Answers the messages that the supervisor of a triggerer answers. For others it would never answer."""

    known: TypeAdapter[Any] = TypeAdapter(ToTriggerSupervisor)

    def send(self, message: Any) -> Any:
        self.known.validate_python(message.model_dump())
        if isinstance(message, GetVariable):
            return VariableResult(key=message.key, value="2013-01-15")
        if isinstance(message, GetConnection):
            unset = dict.fromkeys(("schema", "login", "password", "port", "extra"))
            found = {"conn_id": message.conn_id, "conn_type": "hdfs", "host": "nn1", **unset}
            return ConnectionResult.model_validate(found)
        return None


def lock(writes: list[str], **options: Any) -> HiveLockOperator:
    flights = Asset("flights", uri="s3://flights", extra={"partition": "dt"})
    begins, params = DAY.astimezone(ZoneInfo("Europe/Berlin")), {"day": "2013-01-15", "days": []}
    with DAG("dag", schedule=None, start_date=begins, end_date=begins, tags=["etl"], params=params):
        return HiveLockOperator(task_id="lock", writes=writes, inlets=[flights], outlets=[flights], **options)


@starts_in_triggerer
@pytest.mark.parametrize("template", ONLY_ON_WORKERS)
def test_a_name_that_the_triggerer_cannot_render_is_rendered_on_a_worker(template: str) -> None:
    assert not lock([f"dw.delays/dt={template}"]).start_from_trigger
    assert not lock(["dw.delays"], lock_sql=f"SELECT * FROM dw.t WHERE dt = '{template}'").start_from_trigger
    assert not lock(["dw.delays"], lock_database=template).start_from_trigger


@pytest.mark.parametrize("template", ["{{ ds }", "{{ ds | unknown_filter }}"])
def test_a_template_that_jinja_cannot_read_is_named(template: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^\['dw\.delays/dt=.*'\] is not a valid template: .*[^.]\. Correct it$"):
        lock([f"dw.delays/dt={template}"]).render_template_fields({})


@starts_in_triggerer
@pytest.mark.parametrize(
    "template",
    [
        "{{ data_interval_start.subtract(days=1) | ds }}",
        "{{ dag_run.conf.get('day', ds) }}",
        "{% set day = params.day %}{% if day %}{{ day }}{% else %}{{ ds }}{% endif %}",
        "{% for ti in range(2) %}{{ ti.real + loop.index }}{% endfor %}",
        "{{ logical_date.in_timezone(dag.timezone) | ds_nodash }}",
        "{# as in the xcom_pull of task.x #}{{ var.json.get('day', ds) }}",
    ],
)
def test_macros_filters_and_statements_are_rendered_in_the_triggerer(template: str) -> None:
    assert lock([f"dw.delays/dt={template}"]).start_from_trigger


@starts_in_triggerer
def test_sql_that_only_looks_like_such_a_name_starts_in_the_triggerer() -> None:
    assert lock(["dw.delays"], lock_sql="SELECT xcom_pull FROM task.t WHERE dt = '{{ ds }}'").start_from_trigger


@starts_in_triggerer
@pytest.mark.parametrize("name", sorted(IN_TRIGGERER))
def test_a_name_has_the_same_text_in_the_triggerer_as_on_a_worker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(), raising=False)
    task = lock([f"dw.t/d={{{{ {USES.get(name, name)} }}}}"])
    assert task.start_from_trigger
    run: dict[str, Any] = {
        "dag_id": "dag",
        "run_id": "run",
        "conf": {"day": "x"},
        "partition_key": "2013",
        "partition_date": DAY,
    }
    run |= dict.fromkeys(("logical_date", "data_interval_start", "data_interval_end", "run_after", "start_date"), DAY)
    run |= {"run_type": "manual", "state": "running", "end_date": None, "consumed_asset_events": []}
    known: dict[str, Any] = {"id": uuid.uuid4(), "dag_version_id": uuid.uuid4(), "queue": "default", "pool_slots": 1}
    known |= {"priority_weight": 1, "run_id": "run", "try_number": 1, "map_index": -1, "dag_id": "dag"}
    ti = TaskInstanceDTO(task_id="lock", **known)

    there = TriggerRunner.create_runtime_ti(ti, DagSerialization.to_dict(task.dag), run)
    trigger: Any = HiveLockTrigger(hivelock_conn_id="locks", lease_s=60, reads=[], writes=task.writes)
    context = there.get_template_context()
    trigger.task_instance = there
    trigger.render_template_fields(context)

    on_worker = TIRunContext.model_construct(dag_run=DagRun.model_validate(run), max_tries=0)
    here = RuntimeTaskInstance.model_construct(task=task, _ti_context_from_server=on_worker, **ti.model_dump())
    task.render_template_fields(here.get_template_context())
    assert trigger._refused is None
    assert trigger.writes == task.writes


@starts_in_triggerer
async def test_what_a_worker_has_rendered_is_not_rendered_again(triggerer: Triggerer, manager: LockManager) -> None:
    """Who triggers a run chooses its configuration, and so names. They must not read a connection's password."""
    task = lock(["dw.delays/dt={{ params.day }}"])
    text = "{% print(run_id) %}{{ ti.task_id }}"
    made = HiveLockTrigger(
        hivelock_conn_id="hivelock_default",
        reads=[],
        writes=[f"dw.delays/dt={text}"],
        lease_s=3600.0,
        owner=str(Owner("here", "dag", "run", "lock")),
        attempt=1,
    )
    await triggerer.event(await triggerer.defer(made, task=task))
    (lease,) = manager.leases()
    assert str(lease.locks[-1].object) == str(LockObject("dw", "delays", (("dt", text),)))
