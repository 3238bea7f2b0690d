"""AirflowServer: start, drive, watch, break and stop a real Airflow."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import httpx

from tests.support import programs
from tests.support.airflow_server import configuration, session
from tests.support.airflow_server.component import Component, Guard
from tests.support.airflow_server.control import Control
from tests.support.airflow_server.database import (
    create_sqlite,
    migrate_postgresql,
    postgresql,
    postgresql_url,
    sqlite_url,
    write_local_settings,
)
from tests.support.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.support.airflow_server.database import Database

Kind = Literal["scheduler", "dag-processor", "triggerer", "api-server", "celery worker"]
KINDS: tuple[Kind, ...] = ("api-server", "scheduler", "dag-processor", "triggerer")
JOB_TYPES = {"scheduler": "SchedulerJob", "dag-processor": "DagProcessorJob", "triggerer": "TriggererJob"}
# Logs are read from the shared home: the log servers would be processes and ports for nothing.
OPTIONS = {
    "scheduler": ["--skip-serve-logs"],
    "triggerer": ["--skip-serve-logs"],
    "celery worker": ["--skip-serve-logs", "--without-gossip", "--without-mingle"],
}


class CommandFailed(AssertionError):
    """An `airflow …` command failed. The message has the command and its output."""


@dataclass(frozen=True)
class TaskProcess:
    """A running task's process, and the executor's worker that supervises it."""

    pid: int
    supervisor_pid: int


class AirflowServer(Control):
    """A scheduler with LocalExecutor, a DAG processor, a triggerer and an API server, as a context manager.

    home: an empty directory for AIRFLOW_HOME; it stays, with the components' logs.
    connections: by id, each a URI or the fields of Airflow's connection JSON ("conn_type", "host", …).
    connections_in: "env" gives them as AIRFLOW_CONN_*, "db" stores them (fields only) after the start.
    variables: given as AIRFLOW_VAR_*; values other than strings become JSON.
    config: (section, option) to value, over `configuration.settings`.
    env: for every component, over the caller's own environment without its AIRFLOW* variables;
        the root of the checkout comes first on PYTHONPATH: `airflow_hivelock` and `tests` can be imported.
    database: the metadata: a separate PostgreSQL server, then available as `postgres`, or SQLite in the home.
    users: name to role (viewer, user, op, admin), in addition to "admin"; None makes every user an admin.
    kinds: the components to start.
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        *,
        connections: configuration.Connections | None = None,
        connections_in: Literal["env", "db"] = "env",
        variables: Mapping[str, Any] | None = None,
        config: configuration.Config | None = None,
        env: Mapping[str, str] | None = None,
        database: Database = "postgresql",
        users: Mapping[str, str] | None = None,
        kinds: Sequence[Kind] = KINDS,
    ) -> None:
        self.kinds = kinds
        self.home = home.absolute()
        port = free_port()
        self.postgres = postgresql(self.home) if database == "postgresql" else None
        roles = None if users is None else {"admin": "admin", **users}
        super().__init__(
            url=f"http://127.0.0.1:{port}",
            database_url=postgresql_url(self.postgres) if self.postgres else sqlite_url(self.home),
            passwords={user: secrets.token_hex(8) for user in roles or {}},
        )
        defaults = configuration.settings(dags_folder, port, self.database_url, roles)
        self._config = {**defaults, **(config or {})}
        in_env, in_db = (connections or {}, {}) if connections_in == "env" else ({}, connections or {})
        self._connections = in_db
        self.env = configuration.environment(self.home, env or {}, in_env, variables or {})
        self._components: dict[str, Component] = {}
        self._revives = False

    def __enter__(self) -> Self:
        self._guard = Guard()
        try:
            self._prepare_home()
            for component in [self._launch(kind, kind) for kind in self.kinds]:
                component.await_ready()
            for conn_id, fields in self._connections.items():
                if isinstance(fields, str):
                    raise TypeError(f"connection {conn_id}: only fields can be stored, not a URI")
                self.api.add_connection(conn_id, fields)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM, and soon SIGKILL: to all at once, but to the API server last, because the others call it."""
        self.log_out()
        for name, component in self._components.items():
            if name != "api-server":
                component.signal(signal.SIGTERM)
        for component in reversed(self._components.values()):
            component.stop()
        if self.postgres:
            self.postgres.stop()
        self._guard.close()

    def start(self, kind: Kind, name: str | None = None, env: Mapping[str, str] | None = None) -> Component:
        """Start another component and wait until it is up; give a name when one of its kind runs already.

        env: for this component, over that of all.
        """
        if kind == "scheduler" and kind in self._components and self.database_url.startswith("sqlite"):
            raise ValueError("two schedulers need row locks, which SQLite does not have")
        return self._launch(kind, name or kind, env or {}).await_ready()

    def process(self, name: str) -> Component:
        """A component by its name, which is its kind for the first of each."""
        return self._components[name]

    def cli(self, *arguments: str, timeout_s: float = 120) -> str:
        """What `airflow ARGUMENTS…` printed on stdout. Raises CommandFailed, or subprocess.TimeoutExpired."""
        return self._airflow(arguments, timeout_s)

    def task_process(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> TaskProcess:
        """The process that runs the task now. Raises LookupError if there is none."""
        task = self.task(dag_id, run_id, task_id, map_index)
        if task.state != "running" or task.pid is None:
            raise LookupError(f"not running: {task}")
        return TaskProcess(pid=task.pid, supervisor_pid=session.parent(task.pid))

    def check(self) -> None:
        """Raises ComponentDied when a component ended that the test neither killed nor stopped; `reviving` starts it
        again.
        """
        for component in self._components.values():
            if self._revives:
                component.revive()
            component.check()

    @contextmanager
    def reviving(self) -> Iterator[None]:
        """While a test waits, components that have ended are started again, as an init system does."""
        self._revives = True
        try:
            yield
        finally:
            self._revives = False

    def _prepare_home(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        configuration.write(self._config, self.home / "airflow.cfg")
        if self._passwords:
            passwords = self.home / "simple_auth_manager_passwords.json.generated"
            passwords.write_text(json.dumps(self._passwords))
        if self.postgres:
            write_local_settings(self.home)
            migrate_postgresql(self.postgres, self._migrate)
            self.postgres.start()
        else:
            create_sqlite(self.home, self._migrate)

    def _migrate(self, url: str) -> None:
        self._airflow(("db", "migrate"), 300, {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url})

    def _launch(self, kind: Kind, name: str, env: Mapping[str, str] = MappingProxyType({})) -> Component:
        if name in self._components:
            raise ValueError(f"{name} is started already; restart it, or give another name")
        log = self.home / f"{name}.log"
        command = [*kind.split(), *OPTIONS.get(kind, [])]
        component = Component(name, command, self.env | dict(env), log, self._guard, lambda: self._readiness(kind))
        self._components[name] = component
        return component.launch()

    def _readiness(self, kind: Kind) -> Callable[[], bool]:
        if kind == "api-server":
            return self._answers
        if kind == "celery worker":
            log = self.home / f"{kind}.log"
            return lambda: "ready." in log.read_text()
        job_type = JOB_TYPES[kind]
        before = self._metadata.last_job(job_type)
        return lambda: self._metadata.last_job(job_type) > before

    def _answers(self) -> bool:
        try:
            # The execution API is built at its first request; that takes longer than a task's client waits.
            return httpx.get(f"{self.url}/execution/health", timeout=60, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def _airflow(self, arguments: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> str:
        command = [sys.executable, "-m", "airflow", *arguments]
        own = self.env | dict(env or {})
        return programs.run(command, timeout_s, CommandFailed, env=own, stdin=subprocess.DEVNULL)
