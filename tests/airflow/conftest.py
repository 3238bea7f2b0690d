"""An Airflow in this process: a throw-away SQLite, locks in memory, DAGs that are run by ``dag.test()``."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from sqlalchemy import event

from tests.airflow import jsonb
from tests.support.airflow_server.database import SQLITE_FILE, create_sqlite, sqlite_url
from tests.support.airflow_server.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import DAG
    from fastapi.testclient import TestClient

    from airflow_hivelock.locks import LockManager
    from tests.airflow.triggerer import Triggerer

    Lines = Callable[[], str]
    Run = Callable[..., "Ran"]

# Airflow reads its settings when it is imported, so they are set here and not in a fixture.
HOME = Path(tempfile.mkdtemp(prefix="airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
(HOME / "dags").mkdir()
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
    # Tests reuse the ids of DAGs, and Airflow 3.1 would keep the first one of an id for half a minute.
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW__API_AUTH__JWT_SECRET": "Airflow 3.2 wants one for dag.test(), in which nobody logs in",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": sqlite_url(HOME),
    "AIRFLOW_CONN_HIVELOCK_DEFAULT": json.dumps(
        {"conn_type": "hivelock", "extra": {"backend": "memory", "installation": "here"}}
    ),
}

# Airflow's own; the project's code is still held to "warnings are errors".
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import airflow.models
    import airflow.providers_manager
    import airflow.serialization.serialized_objects  # noqa: F401
    from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
    from airflow.sdk.execution_time import supervisor, task_runner

_api = functools.cache(supervisor.in_process_api_server)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in an event loop of its own, as a triggerer has one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in given}))
    return True


def _migrate(url: str) -> None:
    env = os.environ | {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url}
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=env, check=True, capture_output=True)


@pytest.fixture(scope="session", autouse=True)
def database() -> None:
    """Airflow's database, once for all tests of this process. The tests of the documents use it too."""
    from airflow import settings

    if not (HOME / SQLITE_FILE).exists():
        create_sqlite(HOME, _migrate)
    assert settings.engine is not None
    settings.engine.dialect._json_serializer = jsonb.dumps
    # Most of a commit is the wait for the disk.
    event.listen(settings.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[LockManager]:
    """The lock manager of the default connection, without leases."""
    from airflow_hivelock import hooks
    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.backends.memory import MemoryBackend

    fresh = LockManager(MemoryBackend())
    monkeypatch.setitem(hooks._managers, "memory://", fresh)
    yield fresh
    assert not list(fresh.waiters()), "a place in the queue was left behind"


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], TestClient]:
    """A browser on the page's application, signed in with that role; None is signed out."""
    from tests.airflow.page import logins

    return logins(monkeypatch)


@pytest.fixture
def triggerer(monkeypatch: pytest.MonkeyPatch) -> Triggerer:
    """Airflow's triggerer, in this process."""
    from tests.airflow.triggerer import Triggerer

    return Triggerer(monkeypatch)


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here has to hear that a worker has ended before its task resumes."""
    from airflow_hivelock.waiting import rounds

    monkeypatch.setattr(rounds, "RESUME_S", 0.0)


@pytest.fixture(autouse=True)
def dag_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """``dag.test()`` as from Airflow 3.3 on: its API is created once, and callbacks get the error, as those of a real
    task do.
    """
    if AIRFLOW_V_3_3_PLUS:
        return
    finalize = task_runner.finalize

    def told(ti: Any, state: Any, context: Any, log: Any, error: Any = None) -> None:
        context["exception"] = error
        finalize(ti, state, context, log, error)

    monkeypatch.setattr(task_runner, "finalize", told)
    monkeypatch.setattr(supervisor, "in_process_api_server", _api)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Everything logged so far, as one text."""
    with structlog.testing.capture_logs() as entries:
        yield lambda: "\n".join(f"{entry['log_level']}: {entry['event']}" for entry in entries)


@dataclass(frozen=True)
class Ran:
    """A run that ``dag.test()`` made: its state, and its tasks' by task id, with ``[map_index]`` where mapped."""

    run_id: str
    state: str
    tasks: dict[str, str | None]


@pytest.fixture
def run() -> Run:
    """Run a DAG to its end in this process."""

    def run(dag: DAG, **options: Any) -> Ran:
        from airflow.dag_processing.bundles.manager import DagBundlesManager

        from tests.support.airflow_names import DagBag, sync_bag_to_db

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
            bag = DagBag(dag_folder=str(HOME / "dags"), bundle_path=HOME / "dags", bundle_name="dags-folder")
            bag.bag_dag(dag)
            sync_bag_to_db(bag, "dags-folder", None)
            run_id = dag.test(**options).run_id
        database = Metadata(sqlite_url(HOME))
        tasks = {
            f"{task.task_id}[{task.map_index}]" if task.map_index >= 0 else task.task_id: task.state
            for task in database.tasks(dag_id=dag.dag_id, run_id=run_id)
        }
        return Ran(run_id, database.runs(dag_id=dag.dag_id, run_id=run_id)[0].state, tasks)

    return run


@pytest.fixture
def python(run: Run) -> Run:
    """Run a function in a task: ``python(function, **what @task takes)``."""
    from airflow.sdk import DAG, task

    from tests.airflow.tasks import DAY

    def python(function: Callable[[], Any], decorator: Any = task, **options: Any) -> Ran:
        with DAG("holds", schedule=None, start_date=DAY) as works:
            decorator(task_id="work", **options)(function)()
        return run(works, logical_date=DAY)

    return python
