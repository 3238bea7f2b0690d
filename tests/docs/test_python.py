"""The Python in the documents and in dags_examples is run: DAGs by ``dag.test()``, jobs over a table of pretence."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from airflow_hivelock.locks import connect
from airflow_hivelock.spark import URL, guard
from tests.docs.blocks import PROJECT, Block, Kind, blocks
from tests.docs.conftest import FOREIGN, Foreign
from tests.unit.test_publication import DEFAULT, Partition, Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Ran

DAY = datetime(2013, 1, 15, tzinfo=UTC)

AROUND_A_PART = """\
from datetime import datetime; from airflow.sdk import DAG; from airflow_hivelock import *
with DAG("part", schedule="@daily", start_date=datetime(2013, 1, 1)):
"""
"""What is written around a part of a DAG, which imports nothing: the names that docs/README.md's table lists."""


EXAMPLES = [
    Block(str(file.relative_to(PROJECT)), 1, "python", file.read_text(encoding="utf-8"))
    for file in sorted((PROJECT / "dags_examples").glob("[!_]*.py"))
]
"""The guides show them by name."""


def of(kind: Kind, *more: Block) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [*blocks(kind), *more], ids=str)


def execute(block: Block, text: str, **given: Any) -> None:
    exec(compile(text, block.page, "exec", dont_inherit=True), {"__name__": "docs", **given})


@pytest.mark.usefixtures("programs", "foreign_operators")
@of(Kind.DAG, *EXAMPLES)
def test_a_dag_runs(block: Block, manager: LockManager, run: Callable[..., Ran], tmp_path: Path) -> None:
    from tests.support.airflow_names import DagBag

    text = block.padded if "import" in block.text else AROUND_A_PART + indent(block.padded.removeprefix("\n\n"), "    ")
    file = tmp_path / "docs.py"
    file.write_text(text, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bag = DagBag(dag_folder=str(file), bundle_path=tmp_path, bundle_name="dags-folder")
    assert not bag.import_errors
    assert bag.dags, "it makes no DAG"
    handed = (
        manager.acquire(owner="here/nightly/run/lock/-1", writes=["dw.handed"])
        if "dag_run.conf['lease']" in block.text
        else None
    )
    for dag in bag.dags.values():
        dag.deadline = None  # it was imported; dag.test() cannot read it back from SQLite
        ran = run(dag, logical_date=DAY, run_conf={"lease": handed.to_json()} if handed else None)
        assert ran.state == "success", ran.tasks
    if handed:
        assert manager.release(handed), "a lease that was handed over was released"
    assert not manager.show(), "a lock was left behind"


@pytest.mark.parametrize(
    "block", [block for block in blocks(Kind.DAG) if any(name in block.text for name in FOREIGN)], ids=str
)
def test_operators_of_other_providers_take_what_they_are_given(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real operators, if they are installed."""
    modules = re.findall(r"from (airflow\.providers\.\S+) import", block.text)
    if not any(importlib.util.find_spec(".".join(name.split(".")[:3])) for name in modules if name.startswith(FOREIGN)):
        pytest.skip("none of them is installed")
    from tests.support.airflow_names import DagSerialization

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Foreign()])
    given: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block.padded, block.page, "exec"), given)
    assert DagSerialization.to_dict(given["dag"])["dag"]["tasks"]


@of(Kind.JOB)
def test_a_job_publishes(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session of Spark's of pretence, ``spark``, with a result of pretence, ``delays``."""
    url = f"memory://{block}"
    manager = connect(url)
    lease = manager.start_work(manager.acquire(owner="job", writes=["dw.delays"]), "job", "")
    told = {"lease": lease.id, "work": "job", "token": str(lease.token)}
    spark, delays, warehouse = MagicMock(), MagicMock(), Warehouse(compares=True)
    spark.conf.get.side_effect = {f"spark.hivelock.{name}": value for name, value in told.items()}.get
    delays.write.parquet.side_effect = warehouse.directories.add
    monkeypatch.setenv(URL, url)
    monkeypatch.setattr(guard, "Target", lambda spark, written: Partition(warehouse))
    execute(block, block.padded, spark=spark, delays=delays)
    assert warehouse.location not in (None, DEFAULT), "it has published nothing"
    assert delays.mock_calls, "it has written nothing"


@pytest.mark.integration
@of(Kind.SCRIPT)
def test_a_script_runs(block: Block, here: Callable[[str], str]) -> None:
    execute(block, here(block.padded))
