"""The servers of the demo, all real, started side by side and stopped in any case."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from airflow_hivelock.locks import LockManager, connect
from tests.support.airflow_server import AirflowServer, locks_in
from tests.support.servers import HiveSession, Metastore, ZooKeeperServer
from tests.system.race.spark import SPARK_SUBMIT, environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.support.airflow_server.database import Database

EXAMPLES = Path(__file__).parents[3] / "dags_examples"
DEMO_DAGS = Path(__file__).parent / "dags"
NOTING_SUBMIT = Path(__file__).parent / "spark_submit.py"


@dataclass
class Stage:
    """Everything that the demo acts on.

    :param notes: where the jobs note when they begin and end.
    """

    zookeeper: ZooKeeperServer
    metastore: Metastore
    hive: HiveSession
    airflow: AirflowServer
    locks: LockManager
    notes: Path
    _stack: ExitStack

    @classmethod
    def up(cls, workdir: Path, database: Database, say: Callable[[str], None]) -> Self:
        """Start all servers; on any failure, and on :meth:`down`, all of them are stopped."""
        with ExitStack() as stack:
            say("starting ZooKeeper and the Hive metastore")
            zookeeper = stack.enter_context(ZooKeeperServer(workdir / "servers"))
            metastore = stack.enter_context(Metastore(workdir / "servers"))
            on = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}[database]
            say(f"starting Hive and, on {on}, Airflow (scheduler, DAG processor, triggerer, API server)")
            hive = HiveSession(workdir / "servers", zookeeper=zookeeper, metastore=metastore)
            notes = workdir / "work.txt"
            notes.touch()
            airflow = _airflow(workdir, zookeeper, metastore, database, _noting(workdir / "bin", notes))
            _enter_together(stack, hive, airflow)
            locks = stack.enter_context(connect(zookeeper.url))
            return cls(zookeeper, metastore, hive, airflow, locks, notes, stack.pop_all())
        raise AssertionError("unreachable")

    def down(self) -> None:
        self._stack.close()


def _airflow(
    workdir: Path, zookeeper: ZooKeeperServer, metastore: Metastore, database: Database, tools: Path
) -> AirflowServer:
    """:param tools: a folder that goes before all others on the path."""
    dags = shutil.copytree(EXAMPLES, workdir / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(DEMO_DAGS, dags, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    hivelock = locks_in(zookeeper.url, "demo", metastore_uri=metastore.uri)
    spark = {
        "conn_type": "spark",
        "host": "local[1]",
        "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
    }
    return AirflowServer(
        workdir / "airflow",
        dags,
        connections={"hivelock_default": hivelock, "spark_default": spark},
        database=database,
        env=environment(metastore)
        | {"PATH": os.pathsep.join([str(tools), str(SPARK_SUBMIT.parent), os.environ["PATH"]])},
    )


def _noting(folder: Path, notes: Path) -> Path:
    """A folder with a spark-submit in it that notes when its job begins and ends."""
    folder.mkdir()
    command = [sys.executable, "-S", str(NOTING_SUBMIT), str(notes), str(SPARK_SUBMIT)]
    script = folder / "spark-submit"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o755)
    return folder


def _enter_together(stack: ExitStack, *managers: AbstractContextManager[object]) -> None:
    """Enter all side by side; those that came up are stopped with the stack, also where another did not."""
    with ThreadPoolExecutor(len(managers)) as pool:
        starting = [(manager, pool.submit(manager.__enter__)) for manager in managers]
        failures = []
        for manager, started in starting:
            if (error := started.exception()) is None:
                stack.push(manager.__exit__)
            else:
                failures.append(error)
    if failures:
        raise failures[0]
