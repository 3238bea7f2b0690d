"""What one process of Airflow's hands to another: leases as XComs, a trigger's arguments, what a lease says of its work."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil
from hypothesis import strategies as st

from airflow_hivelock import comms, hooks
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import HiveLockError, LockManager
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.settings import Settings
from airflow_hivelock.triggers import connection
from airflow_hivelock.triggers import lock as lock_trigger
from airflow_hivelock.work.applications import decode
from airflow_hivelock.work.processes import Processes
from tests.fuzz import asked
from tests.fuzz.hives import MetastoreStub
from tests.fuzz.target import ODD, Target, damaged, loaded, text_of
from tests.fuzz.znodes import ModelClient, Stage
from tests.simulation.model import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

_stores: list[tuple[LockManager, Lease]] = []


def _all_stores() -> list[tuple[LockManager, Lease]]:
    if not _stores:
        zookeeper = ZooKeeper(1, lambda: 1_700_000_000_000, lambda write: None)
        stage = Stage(lambda: ModelClient(zookeeper), Layout())
        memory = LockManager(MemoryBackend())
        metastore = LockManager(MetastoreBackend(MetastoreStub((("127.0.0.1", 1),)), timeout_s=300))
        _stores.append((stage.manager, stage.lease))
        _stores.append((memory, memory.acquire(owner="here/dag/run/held/-1", writes=["dw.t/dt=1"])))
        _stores.append((metastore, metastore.leases()[0]))
    return _stores


def lease(data: bytes) -> None:
    """A lease out of an XCom is refused, or is one; what is not the very grant frees nothing, and changes nothing."""
    given = loaded(data)
    try:
        handed = Lease.from_json(given)
    except HiveLockError:
        return
    assert Lease.from_json(json.loads(json.dumps(handed.to_json()))) == handed
    assert handed.since.tzinfo is not None, "it cannot be compared with other times"
    for manager, held in _all_stores():
        if (handed.id, handed.epoch) == (held.id, held.epoch):
            continue
        for call in (manager.renew, manager.verify, manager.release, _start_work(manager), _check_token(manager)):
            with suppress(HiveLockError):
                call(handed)
        assert manager.find(handed.id) is None or handed.id in (held.id, "metastore-17", "metastore-18")
        manager.lease_of(handed.owner)
        if handed.id != held.id:
            with suppress(HiveLockError):
                assert not manager.force_release(handed.id, reason="fuzz", user="fuzz")
        assert manager.find(held.id) is not None, "another's lease was freed"


def _start_work(manager: LockManager) -> Callable[[Lease], Any]:
    return lambda lease: manager.start_work(lease, "work", "{}")


def _check_token(manager: LockManager) -> Callable[[Lease], Any]:
    return lambda lease: manager.check_token(lease.id, "work", lease.token)


def work(data: bytes) -> None:
    """A recorded text about work is unknown, or asks about and ends only that work."""
    here = Processes()
    text = text_of(data).replace('"HOST"', json.dumps(here.host)).replace('"BOOT"', json.dumps(here.boot))
    try:
        application = decode(text)
    except CannotTell:
        return
    assert "\n" not in str(application), "it would forge lines of a log"
    if not isinstance(application, Processes):
        asked.check(application, json.loads(text))
        return
    nobody = [psutil.Process()] if application.mark == here.mark else []
    with mock.patch.object(psutil, "process_iter", return_value=[_Bystander(), *nobody]), suppress(CannotTell):
        assert not application.running(), "a bystander would be killed"


class _Bystander:
    """A process that no lease records."""

    pid = 999_999_999

    def status(self) -> str:
        return str(psutil.STATUS_RUNNING)

    def environ(self) -> dict[str, str]:
        return {"PATH": "/bin"}


class _Hook(HiveLockHook):
    """Its connection is known already."""

    async def load(self) -> None:
        self.settings = Settings("memory://", "here")


def trigger(data: bytes) -> None:
    """A trigger with any arguments ends with an event. It neither hangs nor blocks its event loop."""
    given = loaded(data)
    if not isinstance(given, dict) or not isinstance(given.get("hivelock_conn_id"), str):
        return  # the connection is not found
    try:
        made: Any = lock_trigger.HiveLockTrigger(**given)
    except TypeError:
        return  # Airflow fails the task
    made.task_instance = SimpleNamespace(dag_id="dag", run_id="run", task_id="task", map_index=-1, try_number=1)
    pushed: list[Any] = []

    async def push(owner: Any, value: Any) -> None:
        json.dumps(value).encode("utf-8", "replace")
        pushed.append(value)

    manager = LockManager(MemoryBackend())
    held = manager.acquire(owner="here/dag/run/held/-1", writes=["dw.t/dt=1"])
    with (
        mock.patch.dict(hooks._managers, {"memory://": manager}),
        mock.patch.object(connection, "HiveLockHook", _Hook),
        mock.patch.object(lock_trigger, "_keep_leases"),
        mock.patch.object(comms, "push_xcom", push),
        mock.patch.dict(connection._hooks._asked, clear=True),
    ):
        blocked_s = asyncio.run(_first_event(made))
    if pushed:
        json.dumps(made.serialize())  # for those that come after it
    assert blocked_s < 1.0, f"the triggerer's loop was blocked for {blocked_s:.1f} s"
    assert manager.find(held.id) is not None


async def _first_event(made: Any) -> float:
    """The longest time that the loop was blocked until there was an event, or while it waits for its turn."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - began)

    watching = asyncio.ensure_future(watch())
    events = made.run()
    try:
        await asyncio.wait_for(anext(events), 0.3)
    except TimeoutError:
        pass
    finally:
        await made._settled()
        watching.cancel()
        await events.aclose()
        if made._wait is not None:
            with suppress(HiveLockError):
                made._wait.give_up()
    return longest


logging.getLogger("airflow.task").setLevel(logging.CRITICAL)

_LEASE: dict[str, Any] = {
    "id": "0123456789abcdef-7",
    "token": 7,
    "attempt": 1,
    "epoch": 7,
    "owner": "here/dag/run/held/-1",
    "locks": {"dw": "S", "dw.t": "S", "dw.t/dt=1": "X"},
    "lease_s": 3600.0,
    "since": "2013-01-01T00:00:00+00:00",
}
_PROCESSES: dict[str, Any] = {
    "kind": "processes",
    "pid": 5,
    "started": 7,
    "host": "HOST",
    "boot": "BOOT",
    "mark": "0" * 32,
}
_ARGUMENTS: dict[str, Any] = {
    "hivelock_conn_id": "hivelock_default",
    "reads": ["dw.t/dt=1"],
    "writes": ["dw.u"],
    "unpartitioned": ["dw.u"],
    "lock_sql": "",
    "lock_database": "default",
    "partition_columns": {"dw.t": ["dt"]},
    "support_concurrency": None,
    "timeout_s": 0,
    "owner": "here/dag/run/task/-1",
    "attempt": 1,
    "lease_s": 3600.0,
    "ends_task": True,
}
TARGETS = (
    Target("lease", lease, damaged(_LEASE) | ODD.map(lambda value: json.dumps(value).encode())),
    Target("work", work, damaged(_PROCESSES) | st.sampled_from(asked.JOBS).flatmap(damaged) | asked.strange()),
    Target("trigger", trigger, damaged(_ARGUMENTS)),
)
