"""The way from a task to its locks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import BaseOperatorLink

from airflow_hivelock.links import HiveLocksLink
from airflow_hivelock.operators.mixin import HiveLockMixin
from airflow_hivelock.operators.spark_submit import HiveLockedSparkSubmitOperator
from airflow_hivelock.ui.plugin import HiveLocksPlugin

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
    [link] = HiveLocksPlugin.operator_extra_links
    assert HiveLockedSparkSubmitOperator in link.operators


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
