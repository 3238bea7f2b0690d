"""What the data in a lock store means, in plain values: what users see, and every field of every record."""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.database import DatabaseBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.model import Lock, LockObject

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager


def meaning(manager: LockManager) -> dict[str, Any]:
    """Everything that this version reads there."""
    seen = {
        "leases": manager.leases(),
        "waiters": manager.waiters(),
        "history": manager.history(),
        "audit": manager.audit(),
        "holders": manager.show(),
        "groups": manager.groups(),
        "records": _records(manager),
    }
    found = {name: sorted(map(plain, values), key=repr) for name, values in seen.items()}
    for lease in found["leases"]:
        del lease["stamp"]  # of the version that reads, for what it would pass on
    return found


def _records(manager: LockManager) -> list[Any]:
    backend = manager.backend
    if isinstance(backend, ZooKeeperBackend):
        store = backend.store
        return [record for record in store.read_all(store.names(store.layout.records)) if record]
    assert isinstance(backend, DatabaseBackend)
    return list(backend.store.records())


def plain(value: Any) -> Any:
    """*value* as JSON has it."""
    if isinstance(value, Lock):
        return f"{value.object} {value.mode.value}"
    if isinstance(value, LockObject):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def differences(golden: Any, now: Any, at: str = "") -> list[str]:
    """Where *now* does not have what *golden* has. Fields that are new are none."""
    if isinstance(golden, dict) and isinstance(now, dict):
        missing = [f"{at}.{name} is gone" for name in golden if name not in now]
        return missing + [
            one for name in golden if name in now for one in differences(golden[name], now[name], f"{at}.{name}")
        ]
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        pairs = enumerate(zip(golden, now, strict=True))
        return [one for number, (old, new) in pairs for one in differences(old, new, f"{at}[{number}]")]
    return [] if golden == now else [f"{at}: {now!r:.200} in place of {golden!r:.200}"]
