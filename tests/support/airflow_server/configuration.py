"""The settings of a throw-away Airflow: local, quiet, and quick to notice a change."""

from __future__ import annotations

import base64
import configparser
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Config = Mapping[tuple[str, str], str]
Connections = Mapping[str, str | Mapping[str, Any]]
REPOSITORY = Path(__file__).parents[3]


def locks_in(url: str, installation: str = "here", **extra: str) -> dict[str, Any]:
    """The fields of Airflow's connection to the lock store at *url*."""
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    return {
        "conn_type": "hivelock",
        "host": host or parts.path.removeprefix("/"),
        "login": login,
        "schema": parts.path.strip("/") if host else "",
        "extra": {"backend": parts.scheme, "installation": installation, **dict(parse_qsl(parts.query)), **extra},
    }


def settings(dags_folder: Path, port: int, database_url: str, users: Mapping[str, str] | None) -> Config:
    """Everything that differs from Airflow's defaults. `users` maps name to role; None makes all admins."""
    url = f"http://127.0.0.1:{port}"
    return {
        ("core", "dags_folder"): str(dags_folder.absolute()),
        ("core", "load_examples"): "False",
        ("core", "executor"): "LocalExecutor",
        # LocalExecutor forks this many workers when it starts.
        ("core", "parallelism"): "4",
        ("core", "fernet_key"): base64.urlsafe_b64encode(os.urandom(32)).decode(),
        # The default asks the resolver for a canonical name, which waits where there is no network.
        ("core", "hostname_callable"): "socket.gethostname",
        ("core", "execution_api_server_url"): f"{url}/execution/",
        ("core", "simple_auth_manager_all_admins"): str(users is None),
        ("core", "simple_auth_manager_users"): ",".join(f"{n}:{r}" for n, r in (users or {}).items()),
        ("database", "sql_alchemy_conn"): database_url,
        # By default Airflow asks for asyncpg, another driver.
        **({("database", "sql_alchemy_conn_async"): database_url} if database_url.startswith("postgresql") else {}),
        ("api", "base_url"): url,
        ("api", "host"): "127.0.0.1",
        ("api", "port"): str(port),
        ("api", "workers"): "1",
        # So that the answer to a database error contains its text, not only the log.
        ("api", "expose_stacktrace"): "True",
        ("api", "secret_key"): secrets.token_hex(16),
        ("api_auth", "jwt_secret"): secrets.token_hex(32),
        ("dag_processor", "refresh_interval"): "1",
        ("dag_processor", "bundle_refresh_check_interval"): "1",
        # A changed file is parsed at once all the same; parsing unchanged ones again only costs CPU.
        ("dag_processor", "min_file_process_interval"): "300",
        ("dag_processor", "parsing_processes"): "1",
        ("scheduler", "scheduler_heartbeat_sec"): "1",
        ("scheduler", "scheduler_idle_sleep_time"): "0.5",
        ("scheduler", "job_heartbeat_sec"): "1",
        ("triggerer", "job_heartbeat_sec"): "1",
        ("workers", "execution_api_timeout"): "30",
        # How long a dead triggerer keeps its triggers; with the default of 30 s a test of that is slow.
        ("triggerer", "triggerer_health_check_threshold"): "10",
    }


def write(config: Config, file: Path) -> None:
    """Write airflow.cfg. Airflow would write a default one itself, and components that start together race."""
    parser = configparser.ConfigParser(interpolation=None)
    for (section, option), value in config.items():
        if not parser.has_section(section):
            parser.add_section(section)
        parser.set(section, option, value.replace("%", "%%"))
    with file.open("w") as output:
        parser.write(output)
    file.chmod(0o600)


def environment(
    home: Path, extra: Mapping[str, str], connections: Connections, variables: Mapping[str, Any]
) -> dict[str, str]:
    """The caller's environment without its own Airflow, and with what is given."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")} | dict(extra)
    # Without byte code every Airflow process compiles its imports again: 6.5 s instead of 3 s each.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["AIRFLOW_HOME"] = str(home)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), env.get("PYTHONPATH")]))
    env["NO_PROXY"] = "127.0.0.1,localhost"
    env |= {f"AIRFLOW_CONN_{name.upper()}": _text(value) for name, value in connections.items()}
    env |= {f"AIRFLOW_VAR_{name.upper()}": _text(value) for name, value in variables.items()}
    return env


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
