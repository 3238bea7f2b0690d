"""The way from a task to its locks."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseOperatorLink, task

from airflow_hivelock import HiveLockOperator, HiveLockSensor, HiveUnlockOperator, hold
from airflow_hivelock.links import HiveLocksLink
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.operators.spark_submit import HiveLockedSparkSubmitOperator
from airflow_hivelock.ui.plugin import HiveLocksPlugin
from tests.support.airflow_names import DagSerialization

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

KEY: Any = SimpleNamespace(dag_id="my dag", run_id="manual__1&2", task_id="load", map_index=3)


@pytest.mark.parametrize(
    ("base_url", "start"),
    [
        ("", "/plugin/hivelock/hivelock/?"),
        ("http://airflow:8080", "/plugin/hivelock/hivelock/?"),
        ("https://host/airflow/", "/airflow/plugin/hivelock/airflow/hivelock/?"),
    ],
)
def test_it_leads_to_the_page_wherever_airflow_is_mounted(
    base_url: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    link = HiveLocksLink().get_link(SimpleNamespace(hivelock_conn_id="other"), ti_key=KEY)
    assert link == f"{start}dag=my+dag&run=manual__1%262&task=load&map=3&connection=other"


def test_airflow_knows_the_link_for_the_operators_of_the_package() -> None:
    link, _ = HiveLocksPlugin.operator_extra_links
    assert HiveLockedSparkSubmitOperator in link.operators


def test_the_api_server_makes_it_for_a_task_that_no_worker_has_ever_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DagSerialization, "_load_operator_extra_links", True)  # no scheduler is in this process
    named: dict[str, Any] = {"hivelock_conn_id": "staging"}
    with DAG("dag", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC), default_args=named) as dag:
        HiveLockOperator.partial(task_id="by_default").expand(writes=[["dw.t"], ["dw.u"]])
        HiveLockOperator(task_id="lock", writes=["dw.t"], **named) >> HiveUnlockOperator(task_id="unlock", **named)
        HiveLockSensor(task_id="sensor", writes=["dw.t"], **named)
        HiveLockedSparkSubmitOperator(task_id="spark", writes=["dw.t"], **named)
        HiveLockOperator.partial(task_id="mapped", **named).expand(writes=[["dw.t"], ["dw.u"]])
        BashOperator(task_id="other", bash_command="true")
    served = DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_dict
    made = {task_id: task.operator_extra_link_dict.get("Hive locks") for task_id, task in served.items()}
    assert made.pop("other") is None
    for task_id, link in made.items():
        assert link is not None, task_id
        made_link = link.get_link(served[task_id], ti_key=KEY)
        assert "&task=load&" in made_link, task_id
        assert made_link.endswith("&connection=staging"), f"{task_id}: it opens another lock store"


def test_a_task_that_calls_hold_has_a_link_and_one_that_does_not_has_none(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DagSerialization, "_load_operator_extra_links", True)
    with DAG("holding", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)) as dag:

        @task
        def holds() -> None:
            with hold(writes=["dw.t"]), hold(writes=["dw.u"]):
                pass

        @task
        def plain() -> None:
            pass

        def also() -> None:
            with hold(writes=["dw.t"]):
                pass

        (holds(), plain(), PythonOperator(task_id="also", python_callable=also))
    ran = run(dag)
    assert ran.state == "success"
    served = DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_dict
    links = {}
    for task_id, served_task in served.items():
        key: Any = SimpleNamespace(dag_id="holding", run_id=ran.run_id, task_id=task_id, map_index=-1)
        links[task_id] = served_task.operator_extra_link_dict["Hive locks"].get_link(served_task, ti_key=key)
    assert links["plain"] == "", "Airflow's UI shows no button for that"
    for task_id in ("holds", "also"):
        assert links[task_id].startswith("/plugin/hivelock/hivelock/?dag=holding&")
        assert links[task_id].endswith(f"&task={task_id}&connection=hivelock_default")


def test_an_operator_under_the_mixin_keeps_its_own_links() -> None:
    class Own(BaseOperatorLink):
        name = "own"

        def get_link(self, operator: Any, *, ti_key: Any) -> str:
            return "/own"

    class Linked(BashOperator):
        operator_extra_links = (Own(),)

    class Locked(HiveLockMixin, Linked):
        pass

    class LockedMore(Locked):
        pass

    for kind in (Locked, LockedMore):
        assert [link.name for link in kind.operator_extra_links] == ["own", "Hive locks"]
