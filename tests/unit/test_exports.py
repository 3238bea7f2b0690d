"""What an import loads: a Spark job or a script that only locks loads neither Airflow nor a client library."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("airflow", "kazoo", "hmsclient", "thrift", "pyspark", "sqlalchemy", "psycopg")


@pytest.mark.parametrize(
    "module",
    [
        "airflow_hivelock",
        "airflow_hivelock.locks",
        "airflow_hivelock.locks.plan",
        "airflow_hivelock.locks.hive.catalog",
    ],
)
def test_importing_the_core_imports_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
