"""``locks="assets"``: a task's inlets and outlets say what it locks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetAlias, task

from airflow_hivelock import locked
from airflow_hivelock.locks import InvalidRequest
from tests.airflow.tasks import DAY

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run

DELAYS = Asset("hive://hive:10000/dw/delays", extra={"partition": "dt={{ ds }}"})
FLIGHTS = Asset("hive://metastore:9083/dw/flights", extra={"partition": "dt={{ ds }}"})
FILE = Asset("s3://bucket/file")

Locked: Any = locked(EmptyOperator)


@pytest.mark.parametrize("waiting", ["trigger", "defer"])
def test_it_locks_what_its_assets_name_and_tells_of_them_once_they_are_free(
    waiting: str, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.assets.manager import AssetManager

    seen: list[Any] = []
    register = AssetManager.register_asset_change

    def note(_: Any, *, asset: Any, **kwargs: Any) -> Any:
        seen.append((asset.uri, len(list(manager.show()))))
        return register(asset=asset, **kwargs)

    monkeypatch.setattr(AssetManager, "register_asset_change", note)
    with DAG("assets", schedule=None, start_date=DAY) as works:

        @task.hivelock(locks="assets", inlets=[FLIGHTS, FILE], outlets=[DELAYS], waiting=waiting)
        def load() -> None:
            seen.append(sorted(f"{holder.object} {holder.mode.value}" for holder in manager.show()))

        load()
    assert run(works, logical_date=DAY).tasks == {"load": "success"}
    assert seen == [
        [
            "dw SHARED",
            "dw.delays SHARED",
            "dw.delays/dt=2013-01-15 EXCLUSIVE",
            "dw.flights SHARED",
            "dw.flights/dt=2013-01-15 SHARED",
        ],
        ("hive://hive:10000/dw/delays", 0),
    ]


def test_its_own_names_and_those_of_its_assets_are_locked() -> None:
    made = Locked(
        task_id="work",
        locks="assets",
        reads=["dw.own"],
        inlets=[DELAYS],
        outlets=Asset("hive://hive:10000/dw/whole"),
        writes=(),
    )
    assert (made.reads, made.writes) == (["dw.own", "dw.delays/dt={{ ds }}"], ["dw.whole"])


def test_names_and_assets_in_default_args_are_locked() -> None:
    default_args = {"outlets": [DELAYS], "reads": ["dw.own"]}
    with DAG("defaults", schedule=None, start_date=DAY, default_args=default_args):
        made = Locked(task_id="work", locks="assets", inlets=[FLIGHTS])
    assert made.outlets == [DELAYS]
    assert (made.reads, made.writes) == (["dw.own", "dw.flights/dt={{ ds }}"], ["dw.delays/dt={{ ds }}"])


def test_mapped_tasks_lock_by_their_assets(manager: LockManager, run: Run) -> None:
    with DAG("mapped", schedule=None, start_date=DAY) as works:
        Locked.partial(task_id="work", locks="assets", outlets=[DELAYS]).expand(doc=["a", "b"])
    assert run(works, logical_date=DAY).state == "success"
    assert not manager.show()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"outlets": [FILE, AssetAlias("later")]}, "its inlets and outlets have no asset of Hive"),
        ({"outlets": [DELAYS], "locks": "datasets"}, "Use 'assets' or remove it"),
        ({"outlets": [SimpleNamespace(uri="hive://dw")]}, "names no table"),
        ({"outlets": [SimpleNamespace(uri="hive://hive/dw/a/b")]}, "names no table"),
        ({"outlets": [Asset("hive://hive:10000/dw/t", extra={"partition": 5})]}, "must be a text"),
        ({"outlets": [DELAYS], "writes": "dw.t"}, "must be a list of names"),
        ({"outlets": [DELAYS], "lease": {}}, "pass one of lease, lock_sql, or reads and writes"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_written(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Locked(**{"task_id": "work", "locks": "assets", **given})
