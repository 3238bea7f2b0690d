"""The page's access to Airflow's API server: users and their permissions, connections, and the states of runs.

No other module of the page uses private parts of Airflow.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_view
from airflow.configuration import conf
from airflow.models import Connection, DagRun, TaskInstance
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dag import DagModel
from airflow.models.trigger import Trigger
from airflow.models.xcom import XComModel
from airflow.secrets.environment_variables import EnvironmentVariablesBackend
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException
from sqlalchemy import and_, or_, select, tuple_

from airflow_hivelock.comms import FINISHED
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.links import HELD_WITH
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.sensors import HiveLockSensor
from airflow_hivelock.triggers.keeper import suspect_leases
from airflow_hivelock.triggers.lock import HiveLockSensorTrigger
from airflow_hivelock.ui.holders import TaskFacts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from airflow.sdk.types import TaskInstanceKey
    from sqlalchemy.orm import Session

    from airflow_hivelock.spec import Owner

log = structlog.get_logger(__name__)

MAY_LOOK = Depends(requires_access_view(AccessView.PLUGINS))
"""A dependency for users who may see Airflow's plugins, and so the page's entry in the menu."""

USER = Depends(get_user)

PERMITTED_S = 30.0
"""The time for which a permission is cached, in seconds: to see a DAG, or the button for a force release."""

MOST_REMEMBERED = 50_000

MOST_AT_ONCE = 500
"""The largest number of runs, or of sensors, in one statement to the database."""

MOST_NAMES = 1_000
"""The largest number of names of a sensor that are shown."""

_SENSOR_TRIGGER = f"{HiveLockSensorTrigger.__module__}.{HiveLockSensorTrigger.__name__}"

_ENVIRONMENT = "AIRFLOW_CONN_"
_malformed: set[str] = set()
"""Malformed connections of the environment that have been logged."""


class _Permissions:
    """Answers of the auth manager, by user and by what they are about. Each counts for :data:`PERMITTED_S`."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[float, bool]] = {}
        self._lock = threading.Lock()

    def known(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bool]:
        """The answers for *keys* that still count."""
        now = time.monotonic()
        with self._lock:
            found = {key: self._answers[key] for key in keys if key in self._answers}
        return {key: answer for key, (until, answer) in found.items() if until > now}

    def keep(self, answers: Mapping[tuple[str, str], bool]) -> None:
        until = time.monotonic() + PERMITTED_S
        with self._lock:
            if len(self._answers) > MOST_REMEMBERED:
                self._answers.clear()
            self._answers |= {key: (until, answer) for key, answer in answers.items()}

    def clear(self) -> None:
        self._answers.clear()


_permitted, _may_release = _Permissions(), _Permissions()


def base_path() -> str:
    """The path of Airflow's own pages: ``/``, or ``/airflow/`` behind a proxy."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + "/"


def user_id(user: Any) -> str:
    return str(user.get_id())


def user_name(user: Any) -> str:
    """The user for the audit trail: the name, with the id if that differs, because names are not always unique."""
    name, known_as = str(user.get_name()), user_id(user)
    return name if name == known_as else f"{name} ({known_as})"


def may_release(conn_id: str, user: Any) -> bool:
    """Whether *user* may release other users' leases: only if the user may change the connection. Access to the page is
    not enough."""
    details = ConnectionDetails(conn_id=conn_id, team_name=_team(conn_id))
    return bool(get_auth_manager().is_authorized_connection(method="PUT", details=details, user=user))


def shows_release(conn_id: str, user: Any) -> bool:
    """As :func:`may_release`, but cached, because the page asks often, and an auth manager can ask a server."""
    key = user_id(user), conn_id
    if key not in (known := _may_release.known([key])):
        known[key] = may_release(conn_id, user)
        _may_release.keep(known)
    return known[key]


def permitted_to_release(connection_id: str, user: Any = USER) -> Any:
    """A dependency: the user who may release leases, or an error 403."""
    if not may_release(connection_id, user):
        raise HTTPException(403, "Forbidden")
    return user


MAY_RELEASE = Depends(permitted_to_release)


def hidden(dag_ids: Iterable[str], user: Any) -> frozenset[str]:
    """The DAGs of *dag_ids* that *user* may not see in Airflow. The page hides the names of their holders."""
    wanted, who = set(dag_ids), user_id(user)
    known = {dag_id: answer for (_, dag_id), answer in _permitted.known((who, each) for each in wanted).items()}
    unknown = sorted(wanted - known.keys())
    teams = DagModel.get_dag_id_to_team_name_mapping(unknown) if unknown and _multi_team() else {}
    manager = get_auth_manager()
    for team in {teams.get(dag_id) for dag_id in unknown}:  # a manager can ask a server for many DAGs at once
        of_team = {dag_id for dag_id in unknown if teams.get(dag_id) == team}
        of: Any = {"team_name": team} if team else {}  # a manager before Airflow 3.2 has no teams
        seen = manager.filter_authorized_dag_ids(dag_ids=of_team, user=user, **of)
        known |= {dag_id: dag_id in seen for dag_id in of_team}
    _permitted.keep({(who, dag_id): known[dag_id] for dag_id in unknown})
    return frozenset(dag_id for dag_id, answer in known.items() if not answer)


def dags_among(names: Iterable[str]) -> frozenset[str]:
    """The *names* that are ids of DAGs. A group of leases has its DAG's id, if it has no name of its own."""
    wanted = sorted(name for name in set(names) if name.isprintable())
    if not wanted:
        return frozenset()
    parts = (wanted[first : first + MOST_AT_ONCE] for first in range(0, len(wanted), MOST_AT_ONCE))
    with create_session() as session:
        asked = (session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(part))) for part in parts)
        return frozenset(dag_id for found in asked for dag_id in found)


def connection_ids() -> list[str]:
    """The ids of ``hivelock`` connections: in the database, in the environment, and in ``[hivelock] connections``.

    Connections of a team are not included, because Airflow returns them only to the tasks of that team.
    """
    ours = select(Connection.conn_id).where(Connection.conn_type == HiveLockHook.conn_type)
    if hasattr(Connection, "team_name"):  # not before Airflow 3.2
        ours = ours.where(Connection.team_name.is_(None))
    with create_session() as session:
        stored = session.scalars(ours).all()
    names = (name.removeprefix(_ENVIRONMENT).lower() for name in os.environ if name.startswith(_ENVIRONMENT))
    # Airflow 3.1 would split fallback=[] as text.
    elsewhere = [name for name in conf.getlist("hivelock", "connections", fallback="") if name]
    return sorted({*stored, *filter(_is_ours, names), *elsewhere})


def held_with(ti_key: TaskInstanceKey) -> str:
    """The connection in a task's XCom, which ``hold()`` writes. Empty if there is none.

    Users who may write XComs can have written it, so the caller uses it only as the text of a link.
    """
    of_task = {"task_id": ti_key.task_id, "map_index": ti_key.map_index, "key": HELD_WITH}
    with create_session() as session:
        value = session.scalar(select(XComModel.value).filter_by(dag_id=ti_key.dag_id, run_id=ti_key.run_id, **of_task))
    return value.strip('"') if isinstance(value, str) else ""


def keeper_suspects(conn_id: str) -> tuple[int, dict[str, str]]:
    """The keeper's last report on suspect leases: the time in ms, and the reasons by lease id.

    The report is in the event of the keeper's asset. There is no event without a DAG that is scheduled on the asset.
    """
    last = (
        select(AssetEvent.timestamp, AssetEvent.extra)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetModel.name == suspect_leases(conn_id).name)
        .order_by(AssetEvent.timestamp.desc())
        .limit(1)
    )
    with create_session() as session:
        found = session.execute(last).first()
    payload = (found.extra or {}).get("payload") if found is not None else None
    suspects = payload.get("suspects") if isinstance(payload, dict) else None
    if found is None or not isinstance(suspects, dict):
        return 0, {}
    return int(found.timestamp.timestamp() * 1000), {str(key): str(why) for key, why in suspects.items()}


@dataclass(frozen=True)
class Sensor:
    """A sensor that waits until data is free. It acquires no lock, so it is not in the lock store.

    :param reads: the names in its task. Templates that the triggerer renders are not rendered here.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    since: datetime
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def sensors(conn_id: str) -> list[Sensor]:
    """The sensors that wait with that connection. A sensor on a worker is listed for every connection."""
    task = TaskInstance
    waiting = (
        select(task.dag_id, task.run_id, task.task_id, task.map_index, task.state, task.start_date, Trigger)
        .join(Trigger, Trigger.id == task.trigger_id, isouter=True)
        .where(or_(
            and_(task.state == "deferred", Trigger.classpath == _SENSOR_TRIGGER),
            and_(task.state.in_(("running", "up_for_reschedule")), task.operator == HiveLockSensor.__name__),
        ))
        .order_by(task.start_date)
        .limit(MOST_AT_ONCE)
    )  # fmt: skip
    found = []
    with create_session() as session:
        for dag_id, run_id, task_id, map_index, state, since, trigger in session.execute(waiting):
            arguments: dict[str, Any] = {"hivelock_conn_id": conn_id}
            if state == "deferred":
                try:
                    arguments = trigger.kwargs
                except Exception as error:  # noqa: BLE001 - another version wrote it, or another Fernet key
                    log.info("The trigger of sensor %s of %s cannot be read: %r", task_id, dag_id, error)
            if arguments.get("hivelock_conn_id") == conn_id:
                reads, writes = (_names(arguments.get(kind)) for kind in ("reads", "writes"))
                began = since or datetime.now(UTC)
                found.append(Sensor(dag_id, run_id, task_id, map_index, began, reads, writes))
    return found


def _names(given: Any) -> tuple[str, ...]:
    """The first of the names in a trigger's argument. Any DAG can write a trigger, with any value."""
    return tuple(printable(str(name)) for name in given[:MOST_NAMES]) if isinstance(given, list | tuple) else ()


def task_facts(owners: Collection[Owner]) -> dict[Owner, TaskFacts]:
    """Airflow's records of *owners*, by owner. An owner with an unknown run is missing."""
    found: dict[Owner, TaskFacts] = {}
    by_run: dict[tuple[str, str], list[Owner]] = defaultdict(list)
    for owner in owners:
        by_run[owner.dag_id, owner.run_id].append(owner)
    wanted = list(by_run)
    with create_session() as session:
        for first in range(0, len(wanted), MOST_AT_ONCE):
            found |= _task_facts(session, {run: by_run[run] for run in wanted[first : first + MOST_AT_ONCE]})
    return found


def _task_facts(session: Session, by_run: Mapping[tuple[str, str], list[Owner]]) -> Iterator[tuple[Owner, TaskFacts]]:
    runs = session.execute(
        select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.end_date, DagModel.is_paused)
        .join(DagModel, DagModel.dag_id == DagRun.dag_id, isouter=True)
        .where(tuple_(DagRun.dag_id, DagRun.run_id).in_(by_run))
    ).all()
    if not runs:
        return
    task = TaskInstance
    tasks = session.execute(
        select(
            *(task.dag_id, task.run_id, task.task_id, task.map_index, task.state),
            *(task.scheduled_dttm, task.queued_dttm, task.start_date, task.end_date, task.last_heartbeat_at),
        )
        .where(tuple_(task.dag_id, task.run_id).in_([(dag_id, run_id) for dag_id, run_id, *_ in runs]))
        .where(
            or_(
                and_(task.state.is_not(None), task.state.not_in(FINISHED)),
                task.task_id.in_({owner.task_id for owners in by_run.values() for owner in owners}),
            )
        )
    ).all()
    active: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    own: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for dag_id, run_id, task_id, map_index, state, scheduled, queued, started, ended, heartbeat in tasks:
        at = ended if state in FINISHED else started if state == "running" else queued or scheduled or started
        own[dag_id, run_id, task_id, map_index] = {"task": str(state or ""), "at": at, "heartbeat": heartbeat}
        if state and state not in FINISHED:
            active[dag_id, run_id][task_id if map_index < 0 else f"{task_id}[{map_index}]"] = str(state)
    for dag_id, run_id, state, ended, paused in runs:
        for owner in by_run[dag_id, run_id]:
            mine = own.get((dag_id, run_id, owner.task_id, owner.map_index), {})
            yield owner, TaskFacts(str(state), ended, bool(paused), active=active[dag_id, run_id], **mine)


def _is_ours(conn_id: str) -> bool:
    try:
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
    except Exception as error:  # noqa: BLE001 - any parser may refuse it
        if conn_id not in _malformed:  # without the error's text, which can contain the password
            _malformed.add(conn_id)
            log.warning(
                "%s%s is malformed (%s). If it is a lock store's, the page does not show it until it is corrected",
                _ENVIRONMENT,
                conn_id.upper(),
                type(error).__name__,
            )
        return False
    return connection is not None and connection.conn_type == HiveLockHook.conn_type


def _team(conn_id: str) -> str | None:
    return Connection.get_team_name(conn_id) if _multi_team() else None


def _multi_team() -> bool:
    return bool(conf.getboolean("core", "multi_team", fallback=False))
