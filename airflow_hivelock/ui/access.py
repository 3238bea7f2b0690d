"""All that the page needs of Airflow's API server: who asks and what they may, which connections there are, what runs do.

The one module of the page that touches what Airflow does not call public.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_view
from airflow.configuration import conf
from airflow.models import Connection, DagRun, TaskInstance
from airflow.models.dag import DagModel
from airflow.secrets.environment_variables import EnvironmentVariablesBackend
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException
from sqlalchemy import select, tuple_

from airflow_hivelock.hooks import HiveLockHook

if TYPE_CHECKING:
    from collections.abc import Iterable

MAY_LOOK = Depends(requires_access_view(AccessView.PLUGINS))
"""Whoever sees Airflow's plugins, and so the page's entry in the menu."""

USER = Depends(get_user)

PERMITTED_S = 30.0
"""How long a permission to see a DAG is remembered."""

MOST_REMEMBERED = 50_000

_ENVIRONMENT = "AIRFLOW_CONN_"
_permitted: dict[tuple[str, str], tuple[float, bool]] = {}
_lock = threading.Lock()


def base_path() -> str:
    """Where Airflow's own pages begin: ``/``, or ``/airflow/`` behind a proxy."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + "/"


def user_id(user: Any) -> str:
    return str(user.get_id())


def user_name(user: Any) -> str:
    """What the audit trail gets: the name, and the id where that is another, for names need not be unique."""
    name, known_as = str(user.get_name()), user_id(user)
    return name if name == known_as else f"{name} ({known_as})"


def may_release(conn_id: str, user: Any) -> bool:
    """Whether *user* may free what others hold: whoever may change the connection. Seeing the page is not enough."""
    details = ConnectionDetails(conn_id=conn_id, team_name=_team(conn_id))
    return bool(get_auth_manager().is_authorized_connection(method="PUT", details=details, user=user))


def permitted_to_release(connection_id: str, user: Any = USER) -> Any:
    """A dependency: the user, or 403."""
    if not may_release(connection_id, user):
        raise HTTPException(403, "Forbidden")
    return user


MAY_RELEASE = Depends(permitted_to_release)


def hidden(dag_ids: Iterable[str], user: Any) -> frozenset[str]:
    """Those of *dag_ids* that *user* may not see in Airflow either; what holds a lock in their name stays nameless."""
    wanted = set(dag_ids)
    now, who = time.monotonic(), user_id(user)
    with _lock:
        known = {
            dag_id: answer
            for dag_id in wanted
            if (said := _permitted.get((who, dag_id))) is not None
            for until, answer in [said]
            if until > now
        }
    unknown = sorted(wanted - known.keys())
    teams = DagModel.get_dag_id_to_team_name_mapping(unknown) if unknown and _multi_team() else {}
    manager = get_auth_manager()
    for team in {teams.get(dag_id) for dag_id in unknown}:  # a manager that asks a server may ask for many at once
        of_team = {dag_id for dag_id in unknown if teams.get(dag_id) == team}
        seen = manager.filter_authorized_dag_ids(dag_ids=of_team, user=user, team_name=team)
        known |= {dag_id: dag_id in seen for dag_id in of_team}
    with _lock:
        if len(_permitted) > MOST_REMEMBERED:
            _permitted.clear()
        _permitted.update({(who, dag_id): (now + PERMITTED_S, known[dag_id]) for dag_id in unknown})
    return frozenset(dag_id for dag_id, answer in known.items() if not answer)


def connection_ids() -> list[str]:
    """The connections of type ``hivelock``: stored, in the environment, and those of ``[hivelock] connections``."""
    with create_session() as session:
        stored = session.scalars(select(Connection.conn_id).where(Connection.conn_type == HiveLockHook.conn_type)).all()
    names = (name.removeprefix(_ENVIRONMENT).lower() for name in os.environ if name.startswith(_ENVIRONMENT))
    elsewhere = conf.getlist("hivelock", "connections", fallback=[])
    return sorted({*stored, *filter(_is_ours, names), *elsewhere})


def run_states(runs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, dict[str, str]]]:
    """The state of each of *runs*, DAG and run id, and those of its tasks; one that Airflow does not know is missing."""
    wanted = sorted(set(runs))
    if not wanted:
        return {}
    with create_session() as session:
        known = session.execute(
            select(DagRun.dag_id, DagRun.run_id, DagRun.state).where(tuple_(DagRun.dag_id, DagRun.run_id).in_(wanted))
        ).all()
        found: dict[tuple[str, str], tuple[str, dict[str, str]]] = {(d, r): (str(s), {}) for d, r, s in known}
        tasks = session.execute(
            select(
                TaskInstance.dag_id,
                TaskInstance.run_id,
                TaskInstance.task_id,
                TaskInstance.map_index,
                TaskInstance.state,
            ).where(tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(wanted))
        ).all()
    for dag_id, run_id, task_id, map_index, state in tasks:
        if (dag_id, run_id) in found:
            name = task_id if map_index < 0 else f"{task_id}[{map_index}]"
            found[dag_id, run_id][1][name] = str(state or "")
    return found


def _is_ours(conn_id: str) -> bool:
    try:
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
    except Exception:  # noqa: BLE001 - somebody else's, and malformed
        return False
    return connection is not None and connection.conn_type == HiveLockHook.conn_type


def _team(conn_id: str) -> str | None:
    return Connection.get_team_name(conn_id) if _multi_team() else None


def _multi_team() -> bool:
    return bool(conf.getboolean("core", "multi_team", fallback=False))
