"""Locks as a warehouse has them on a working day, made through the lock manager: for the browser's tests and the picture."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from kazoo.client import KazooClient

from airflow_hivelock.locks import LeaseLimit, rules
from airflow_hivelock.locks.backends.zookeeper.layout import Layout, LockData
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes
from airflow_hivelock.work.spark_job import SparkJob
from tests.support.airflow_server import AirflowServer, locks_in

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.support.servers import ZooKeeperServer

DAGS = Path(__file__).parent / "dags"
INSTALLATION = "test"
GROUP = "spark-prod"
DAYS = 9
RERUN = [datetime(2012, 11, 1, tzinfo=UTC) + timedelta(days=day) for day in range(60)]
WORKING = 4
"""Of those sixty days."""

AGO = timedelta(minutes=24)
"""When the dead died, the others were queued or began."""


def owner(dag_id: str, day: int, task_id: str = "lock", installation: str = INSTALLATION) -> str:
    """The owner that a scheduled run's task is."""
    return str(Owner(installation, dag_id, f"scheduled__2013-01-{day:02}T00:00:00+00:00", task_id))


def play(manager: LockManager) -> dict[str, Lease]:
    """A backfill of nine days under way, an ALTER TABLE behind it, a rerun behind that, a rerun of sixty days of another
    table, and what dead tasks have left."""
    leases: dict[str, Lease] = {}
    manager.set_group(GROUP, 12, comment="what the queue's memory allows", user="operator")
    freed = manager.acquire(owner=owner("crashed", 30, "load"), writes=["dw.delays/dt=2013-01-30"])
    manager.force_release(freed.id, reason="its worker's host is gone since last night", user="operator")
    for day in (10, 11):  # over by now
        lease = _daily(manager, day)
        time.sleep(1.2)
        manager.release(lease)
    for day in range(12, 12 + DAYS):
        leases[f"daily {day}"] = _daily(manager, day)
    leases["report"] = manager.acquire(
        owner=owner("weekly_report", 13, "report"),
        reads=[f"dw.flights/dt=2013-01-{day:02}" for day in range(7, 14)],
        query="dag weekly_report task report",
    )
    leases["report"] = manager.start_work(leases["report"], "report", encode(Processes(host="worker-3", pid=4711)))
    leases["ended"] = manager.acquire(owner=owner("load_flights", 30, "load"), writes=["dw.flights/dt=2013-01-30"])
    leases["ended"] = manager.start_work(leases["ended"], "load", encode(Processes(started=1)))
    for number, date in enumerate(RERUN):
        lease = manager.acquire(owner=rerun(date), writes=[f"dw.bookings/dt={date:%Y-%m-%d}"])
        if number < WORKING:
            manager.start_work(lease, "load", encode(SparkJob("spark_default", f"application_1357000000000_{number}")))
    leases["other"] = manager.acquire(owner=owner("export", 9, "copy", "staging"), reads=["dw.carriers"])
    leases["suspect"] = manager.acquire(
        owner=owner("crashed", 31, "load"), writes=["dw.delays/dt=2013-01-31"], lease_s=1, query="dag crashed task load"
    )
    leases["suspect"] = manager.start_work(leases["suspect"], "load", encode(Processes(host="worker-7")))
    _wait(manager, owner("alter_table", 20, "add_column"), writes=["dw.delays"])
    _wait(
        manager, owner("flights_range_rerun", 18, "delays"), writes=[f"dw.delays/dt=2013-01-{d}" for d in (16, 17, 18)]
    )
    for day in (12, 16):
        _wait(manager, owner("flights_daily_rerun", day), writes=[f"dw.delays/dt=2013-01-{day}"])
    _wait(manager, owner("load_flights", 13, "load"), writes=["dw.flights/dt=2013-01-13"])
    return leases


def rerun(date: datetime) -> str:
    """The owner that a day of the long rerun is."""
    return str(Owner(INSTALLATION, "bookings_rerun", f"backfill__{date.isoformat()}", "load"))


def tell(database_url: str) -> None:
    """Have Airflow know the holders of :func:`play`: some work, some are queued, some are dead."""
    states = {rerun(date): "running" if number < WORKING else "queued" for number, date in enumerate(RERUN)}
    states |= {owner("flights_daily", day): "success" for day in range(12, 12 + DAYS)}
    work = {owner("flights_daily", day, "delays"): "running" if day < 15 else "queued" for day in range(12, 12 + DAYS)}
    states |= work | {
        owner("weekly_report", 13, "report"): "running",
        owner("crashed", 31, "load"): "failed",
        owner("load_flights", 30, "load"): "failed",
    }
    insert(database_url, states)


def insert(database_url: str, states: dict[str, str]) -> None:
    """Have Airflow know tasks, each in its state, and their runs."""
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    known = sa.MetaData()
    runs, tasks = (sa.Table(name, known, autoload_with=engine) for name in ("dag_run", "task_instance"))
    then, now = datetime.now(UTC) - AGO, datetime.now(UTC)
    common = {"span_status": "not_started"}
    with engine.begin() as connection:
        for dag_id, run_id in sorted({(who.dag_id, who.run_id) for text in states if (who := Owner.parse(text))}):
            run = {"dag_id": dag_id, "run_id": run_id, "state": "running", "run_type": "scheduled", **common}
            connection.execute(runs.insert().values(run_after=then, start_date=then, clear_number=0, **run))
        for text, state in states.items():
            who = Owner.parse(text)
            assert who is not None
            at = {
                "running": {"start_date": then, "last_heartbeat_at": now + timedelta(hours=9)},
                "queued": {"queued_dttm": then},
            }
            connection.execute(
                tasks.insert().values(
                    id=uuid.uuid4().hex,
                    dag_id=who.dag_id,
                    run_id=who.run_id,
                    task_id=who.task_id,
                    map_index=-1,
                    state=state,
                    try_number=1,
                    max_tries=0,
                    pool="default_pool",
                    pool_slots=1,
                    **at.get(state, {"start_date": then, "end_date": then}),
                    **common,
                )
            )


def hive_lock(
    server: ZooKeeperServer,
    path: str = "dw/airports",
    query: str = "select count(*) from dw.airports",
    *,
    exclusive: bool = False,
    query_id: str = "hive_20130112120000_5f2c",
) -> KazooClient:
    """A lock of Hive's own, in Hive's format, for as long as the session that is returned."""
    session = KazooClient(server.hosts)
    session.start(timeout=30)
    data = LockData(query_id, int(time.time() * 1000), False, query)
    prefix = f"{Layout().namespace}/{path}/LOCK-{'EXCLUSIVE' if exclusive else 'SHARED'}-"
    session.create(prefix, data.encode().rpartition(b":")[0], ephemeral=True, sequence=True, makepath=True)
    return session


def _daily(manager: LockManager, day: int) -> Lease:
    return manager.acquire(
        owner=owner("flights_daily", day),
        reads=[f"dw.flights/dt=2013-01-{day:02}"],
        writes=[f"dw.delays/dt=2013-01-{day:02}"],
        query=f"dag flights_daily run scheduled__2013-01-{day:02} task lock",
        limit=LeaseLimit(GROUP),
    )


def _wait(manager: LockManager, who: str, writes: list[str]) -> None:
    manager.begin(rules.request(who, writes=writes), _ignore).poll()


def _ignore() -> None:
    """A wake-up without a listener."""


def connection(zookeeper: ZooKeeperServer, namespace: str = "hive_zookeeper_namespace", **extra: str) -> dict[str, Any]:
    """A connection to the locks below *namespace*."""
    return locks_in(f"zookeeper://{zookeeper.hosts}/{namespace}", INSTALLATION, **extra)


def api_server(workdir: Path, zookeeper: ZooKeeperServer, **more: dict[str, Any]) -> AirflowServer:
    """An Airflow with only the API server, and with an operator and a viewer in addition to the admin.

    :param more: connections in addition to ``hivelock_default``.
    """
    return AirflowServer(
        workdir / "airflow",
        DAGS,
        kinds=("api-server",),
        connections={"hivelock_default": connection(zookeeper), **more},
        users={"operator": "op", "viewer": "viewer"},
    )
