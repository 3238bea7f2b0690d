"""What tasks, triggers and workers pass to one another through Airflow."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from typing import Any

from airflow_hivelock.locks import Lease, LockManager, rules
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.triggers.lock import HiveLockSensorTrigger, HiveLockTrigger
from airflow_hivelock.triggers.store import HiveLockStoreTrigger
from airflow_hivelock.waiting.rounds import Round
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes
from tests.golden.meaning import plain

SPEC: dict[str, Any] = {
    "hivelock_conn_id": "locks",
    "reads": ["dw.airports"],
    "writes": ["dw.flights/dt=2013-01-01"],
    "lock_sql": "SELECT 1",
    "lock_database": "dw",
    "unpartitioned": ["dw.airports"],
    "partition_columns": {"dw.flights": ["dt"]},
    "support_concurrency": True,
    "timeout_s": 60.0,
    "owner": "here/dag/run/task/-1",
    "attempt": 2,
}
TERMS: dict[str, Any] = {
    "max_leases": 2,
    "lease_group": "rerun",
    "weight": 2,
    "lock_priority": 5,
    "lease_s": 600.0,
    "ends_task": False,
    "warning": "mind",
    "round_number": 2,
    "waited_s": 1.5,
    "waited_for": ["here/dag/run/other/-1"],
    "slot_s": 0.5,
    "asked_s": 1357000000.0,
    "unanswered": 1,
}
ROUND = Round(2, 1.5, ("here/dag/run/other/-1",), 0.5, 1357000000.0, 1)
UNTIL = datetime(2013, 1, 1, tzinfo=UTC)


def written() -> dict[str, Any]:
    """The values as this version passes them on."""
    with LockManager(MemoryBackend()) as manager:
        lease = manager.acquire(owner="here/dag/run/task/-1", reads=["dw.a"], writes=["dw.b/d=1"], attempt=2)
    triggers = [
        HiveLockTrigger(**SPEC, **TERMS),
        HiveLockTrigger(hivelock_conn_id="locks", reads=[], writes=["dw.b"], lease_s=600.0),
        HiveLockSensorTrigger(**SPEC, soft_fail=True),
        HiveLockStoreTrigger(hivelock_conn_id="locks", unanswered=3),
        HiveLockKeeper("locks", 5.0, ends=True),
    ]
    return {
        "leases": [lease.to_json()],
        "triggers": [list(each.serialize()) for each in triggers],
        "events": [ROUND.turn_event(UNTIL), lease.to_json() | ROUND.lease_event()],
        "works": [applications.encode(Processes(submits=True, queue="q"))],
    }


def meaning(values: dict[str, Any]) -> dict[str, Any]:
    """What this version reads in them."""
    rounds = [plain(Round.of_event(event)) for event in values["events"]]
    for each in rounds:
        each.pop("slot_s"), each.pop("waited_s")  # they grow with the time since the event
    return {
        "leases": [plain(Lease.from_json(lease)) for lease in values["leases"]],
        "locks": [plain(rules.leaves(_request(lease))) for lease in values["leases"]],
        "triggers": [_attributes(*trigger) for trigger in values["triggers"]],
        "events": rounds,
        "works": [plain(applications.decode(text)) for text in values["works"]],
    }


def _request(lease: Any) -> Any:
    from airflow_hivelock.locks.model import LockRequest

    read = Lease.from_json(lease)
    return LockRequest(read.owner, read.locks)


def _attributes(path: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The public attributes of a trigger, which are its arguments as it uses them."""
    module, _, name = path.rpartition(".")
    made = getattr(importlib.import_module(module), name)(**arguments)
    names = {*SPEC, *TERMS, "soft_fail", "every_s", "ends"}
    return {"class": name} | {each: plain(getattr(made, each)) for each in sorted(names) if hasattr(made, each)}
