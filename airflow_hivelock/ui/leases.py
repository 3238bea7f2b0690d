"""One lease, for a person who thinks of freeing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.ui import holders
from airflow_hivelock.ui.view import owner_row

if TYPE_CHECKING:
    from airflow_hivelock.hooks import HiveLockHook


def describe(hook: HiveLockHook, lease_id: str) -> dict[str, Any] | None:
    """A lease and what it has recorded as its work, in words, as the store has it now; None if it does not stand."""
    lease = hook.manager().find(lease_id)
    if lease is None:
        return None
    return {
        "id": lease.id,
        "owner": owner_row(lease.owner, hook.installation),
        "token": lease.token,
        "locks": len(lease.locks),
        "works": [{"name": work.name, "what": holders.what(work.application)} for work in lease.works],
    }


def works(hook: HiveLockHook, lease_id: str) -> dict[str, str]:
    """Whether each work under a lease still runs, by name."""
    lease = hook.manager().find(lease_id)
    return holders.ask([lease]).get(lease.id, {}) if lease else {}
