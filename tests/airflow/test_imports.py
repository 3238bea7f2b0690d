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
import json, sys, warnings
warnings.simplefilter("ignore")
from importlib import import_module
from types import SimpleNamespace
path, given = sys.argv[1], eval(sys.argv[2])
module, _, name = path.partition(":")
operator = getattr(import_module(module), name)
if name.startswith("_"):
    given = {"python_callable": lambda: None, "op_args": [], "op_kwargs": {}}
from airflow_hivelock import locked
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
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
print("IMPORTED", json.dumps(sorted(seen["work"] - seen["grant"])))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_no_module_is_imported_between_the_grant_and_the_work(kind: str) -> None:
    path, given = KINDS[kind]
    options = (
        "{"
        + ", ".join(f"{name!r}: {'print' if value is print else repr(value)}" for name, value in given.items())
        + "}"
    )
    types = {"HIVESERVER2_DEFAULT": "hiveserver2", "HIVE_CLI_DEFAULT": "hive_cli"}
    env = os.environ | {f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": kind}) for name, kind in types.items()}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, path, options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("IMPORTED ")]
    assert found, done.stderr[-3000:]
    imported = json.loads(found[0].removeprefix("IMPORTED "))
    assert len(imported) <= MOST, f"{len(imported)} modules with the lock held: {imported[:20]}"
