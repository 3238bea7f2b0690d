"""Runs that people have started: long run ids, a long queue, a dead holder with a child that lives, a person, a sensor."""

from __future__ import annotations

import uuid
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from subprocess import Popen
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from airflow.models.crypto import get_fernet
from airflow.models.trigger import Trigger

from airflow_hivelock.locks import rules
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import MARK, Processes
from tests.system.ui import scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import LockManager

HOLDER = "customer_orders_enrichment"
WAITER = "victim_of_customer_orders"
DEAD = "clickstream_sessions_hourly"
SENSOR = "daily_revenue_report"
WAITERS = 16
DAYS = [f"dw.orders/dt=2026-11-{day:02}" for day in range(1, 31)]
PERSON = "ann"
DEAD_PID = 2**22 + 355
_MARK = "5e" * 16
_SENSOR_TRIGGER = "airflow_hivelock.triggers.lock.HiveLockSensorTrigger"


def owner(dag_id: str, second: int, task_id: str = "load") -> str:
    """A task of the run that was started by hand in that second."""
    run_id = f"manual__2026-11-24T09:12:{second:02}.864178+00:00"
    return str(Owner(scene.INSTALLATION, dag_id, run_id, task_id))


@contextmanager
def play(manager: LockManager) -> Iterator[None]:
    """One run holds a month, sixteen wait for a day of it, the last of them the most urgent."""
    lease = manager.acquire(owner=owner(HOLDER, 0, "enrich"), writes=DAYS)
    waiting = []

    def wait(who: str, **what: Any) -> None:
        waiting.append(manager.begin(rules.request(who, **what), lambda: None))
        waiting[-1].poll()

    manager.start_work(lease, "enrich", encode(Processes(host="worker-3", pid=4711)))
    for number in range(WAITERS):
        priority = 10 if number == WAITERS - 1 else 1
        wait(owner(WAITER, 1 + number), writes=[DAYS[0]], priority=priority)
    by_hand = manager.acquire(owner=f"cli:{PERSON}:{uuid.uuid4()}", writes=["dw.customers"])
    wait(owner("customers_export", 40), reads=["dw.customers"])
    child = Popen(["sleep", "3600"], env={MARK: _MARK, "PATH": "/usr/bin:/bin"})
    try:
        dead = manager.acquire(owner=owner(DEAD, 50), writes=["dw.sessions"])
        manager.start_work(dead, "load", encode(Processes(pid=DEAD_PID, started=1, mark=_MARK)))
        wait(owner("sessions_report", 51), reads=["dw.sessions"])
        yield
        for each in reversed(waiting):
            each.withdraw()
        for held in (lease, by_hand, dead):
            manager.force_release(held.id, reason="tidying up", user="the test")
    finally:
        child.kill()
        child.wait()


def tell(database_url: str) -> None:
    """Have Airflow know them: the holder works, the dead one has failed, a sensor waits for a day of the month."""
    scene.insert(
        database_url,
        {
            owner(HOLDER, 0, "enrich"): "running",
            owner(DEAD, 50): "failed",
            owner(SENSOR, 55, "orders_are_free"): "deferred",
        },
    )
    given = {"hivelock_conn_id": "hivelock_default", "reads": DAYS[:1], "writes": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow 3.1's own
        # In the form of this Airflow's version. The API server has another Fernet key.
        kwargs = get_fernet().decrypt(Trigger.encrypt_kwargs(given).encode()).decode()
    now = datetime.now(UTC)
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    known = sa.MetaData()
    tasks, triggers = (sa.Table(name, known, autoload_with=engine) for name in ("task_instance", "trigger"))
    with engine.begin() as connection:
        made = triggers.insert().values(classpath=_SENSOR_TRIGGER, kwargs=kwargs, created_date=now)
        trigger_id = connection.execute(made.returning(triggers.c.id)).scalar_one()
        connection.execute(
            tasks.update()
            .where(tasks.c.dag_id == SENSOR)
            .values(trigger_id=trigger_id, start_date=now - timedelta(minutes=7), operator="HiveLockSensor")
        )


def forget(database_url: str) -> None:
    """Have the sensor of :func:`tell` have found its data free."""
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE task_instance SET state = 'success' WHERE dag_id = :dag"), {"dag": SENSOR})
