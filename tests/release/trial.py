"""``trial.py SUITE``, by the Python of an environment with nothing but the wheel: does the package work there?

It imports each module whose libraries are there, asks Airflow for the provider and the page, passes the conformance suite
in the folder SUITE in memory and in SQLite, and locks by the command line.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points, requires, version
from pathlib import Path
from typing import Any

EXTRAS = (
    *("airflow.providers.openlineage", "gssapi", "hmsclient", "kubernetes", "psycopg", "puresasl", "py4j", "pyhive"),
    *("pymysql", "pyspark", "thrift"),
)
"""Libraries that only an extra brings: a module may need one."""

SUITE = """
import pytest

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.queueing import PASSING_S
from tests.conformance import BackendConformance


class TestMemory(BackendConformance, capabilities=MemoryBackend.capabilities):
    @pytest.fixture
    def connect(self):
        backend = MemoryBackend()

        def connect(passing_s=PASSING_S):
            backend._requests.passing_s = passing_s
            return LockManager(backend)

        return connect


class TestSQLite(BackendConformance):
    @pytest.fixture
    def connect(self, tmp_path):
        def opened(**options):
            given = "".join(f"&{name}={value}" for name, value in options.items())
            return connect(f"sqlite:///{tmp_path}/locks.db?expiry=suspect{given}")

        return opened
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="airflow-") as home:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        imports()
        found_by_airflow()
        conformance(Path(home))
        command_line(Path(home))
    print(
        f"airflow-hivelock {version('airflow-hivelock')} works with {len(requires('airflow-hivelock') or [])} requirements"
    )


def imports() -> None:
    import airflow_hivelock

    where = Path(airflow_hivelock.__file__)
    assert "site-packages" in where.parts, f"{where} is not the installed wheel"
    assert (where.parent / "py.typed").exists()
    assert airflow_hivelock.__version__ == version("airflow-hivelock")
    missing = {}
    for module in pkgutil.walk_packages(airflow_hivelock.__path__, "airflow_hivelock."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = f"{error.name}."
    allowed = tuple(f"{extra}." for extra in EXTRAS)
    assert all(name.startswith(allowed) for name in missing.values()), missing


def found_by_airflow() -> None:
    from airflow.providers_manager import ProvidersManager

    manager: Any = ProvidersManager
    assert "airflow-hivelock" in manager().providers
    (plugin,) = (point for point in entry_points(group="airflow.plugins") if point.name == "hivelock")
    assert plugin.load().name


def conformance(home: Path) -> None:
    shutil.copytree(sys.argv[1], home / "tests" / "conformance")
    (home / "test_stores.py").write_text(SUITE)
    suite = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_stores.py"]
    subprocess.run(suite, cwd=home, timeout=240, check=True)


def command_line(home: Path) -> None:
    script = Path(sys.executable).with_name("hivelock")
    env = {**os.environ, "AIRFLOW_HIVELOCK_URL": f"sqlite:///{home}/locks.db"}
    day = "dw.delays PARTITION (dt='2013-01-01')"
    for statement, wanted in (
        (f"LOCK TABLE {day} EXCLUSIVE", ""),
        (f"SHOW LOCKS {day} EXTENDED", "EXCLUSIVE"),
        (f"UNLOCK TABLE {day}", ""),
    ):
        command = [str(script), "-e", statement]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout, done.stdout


if __name__ == "__main__":
    main()
