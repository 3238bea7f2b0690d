"""Nothing heavy is imported while a lock is held and no work runs: every locked task imports first, and asks then.

A worker is a new process, so each kind of work is tried in one: what is imported there between the grant and the start of the
operator's own ``execute()``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

MOST = 3
"""How many small modules may be imported: of the standard library, which a codec or a locale needs, say."""

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "empty": ("airflow.providers.standard.operators.empty:EmptyOperator", {}),
    "bash": ("airflow.providers.standard.operators.bash:BashOperator", {"bash_command": "true"}),
    "python": ("airflow.providers.standard.operators.python:PythonOperator", {"python_callable": print}),
    "spark-submit": (
        "airflow.providers.apache.spark.operators.spark_submit:SparkSubmitOperator",
        {"application": "job.py"},
    ),
    "spark-sql": ("airflow.providers.apache.spark.operators.spark_sql:SparkSqlOperator", {"sql": "SELECT 1"}),
    "pyspark": ("airflow.providers.apache.spark.decorators.pyspark:_PySparkDecoratedOperator", {}),
    "hive": ("airflow.providers.apache.hive.operators.hive:HiveOperator", {"hql": "SELECT 1"}),
    "hiveserver2": (
        "airflow.providers.common.sql.operators.sql:SQLExecuteQueryOperator",
        {"sql": "SELECT 1", "conn_id": "hiveserver2_default"},
    ),
}

PROGRAM = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from importlib import import_module
from types import SimpleNamespace
from airflow_hivelock import locked
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
def work(path, given):
    module, _, name = path.partition(":")
    operator = getattr(import_module(module), name)
    if name.startswith("_"):
        given = {"python_callable": lambda: None, "op_args": [], "op_kwargs": {}}
    seen = {}
    step = MemoryAcquisition.step
    def granted(self):
        lease = step(self)
        seen["grant"] = set(sys.modules)
        return lease
    MemoryAcquisition.step = granted
    def begins(self, context):
        seen["work"] = set(sys.modules)
    operator.execute = begins
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="work", map_index=-1, try_number=1)
    locked(operator)(task_id="work", writes=["dw.delays"], **given).execute({"ti": ti})
    return sorted(seen["work"] - seen["grant"])
for kind, (path, given) in eval(sys.argv[1]).items():
    sys.stdout.flush()
    if os.fork() == 0:
        print("IMPORTED", json.dumps([kind, work(path, given)]), flush=True)
        os._exit(0)
    os.wait()
"""
"""All kinds import :mod:`airflow_hivelock` first, so one process does it for all. Each kind goes on in a process of its own."""


@pytest.fixture(scope="module")
def imported() -> tuple[dict[str, list[str]], str]:
    """The modules that each kind imports, and what was written to stderr."""
    kinds = ", ".join(
        f"{kind!r}: ({path!r}, {{"
        + ", ".join(f"{name!r}: {'print' if value is print else repr(value)}" for name, value in given.items())
        + "})"
        for kind, (path, given) in KINDS.items()
    )
    types = {"HIVESERVER2_DEFAULT": "hiveserver2", "HIVE_CLI_DEFAULT": "hive_cli"}
    env = os.environ | {f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": kind}) for name, kind in types.items()}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, f"{{{kinds}}}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    lines = [line.removeprefix("IMPORTED ") for line in done.stdout.splitlines() if line.startswith("IMPORTED ")]
    return dict(map(json.loads, lines)), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_no_module_is_imported_between_the_grant_and_the_work(
    kind: str, imported: tuple[dict[str, list[str]], str]
) -> None:
    found, errors = imported
    if "hive" in kind:
        pytest.importorskip("airflow.providers.apache.hive")
    assert kind in found, errors[-3000:]
    assert len(found[kind]) <= MOST, f"{len(found[kind])} modules with the lock held: {found[kind][:20]}"
