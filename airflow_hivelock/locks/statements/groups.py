"""The results of SHOW GROUPS, SET GROUP and DROP GROUP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Group, GroupUse


def show(found: Iterable[GroupUse]) -> Result:
    """SHOW GROUPS: a row for each group, with its holders and its waiters, and how many permits each has or waits for."""
    rows = tuple(
        (
            *(use.name, use.stored.leases if use.stored else None, use.stored.weight if use.stored else None),
            *(use.taken, len(use.waiting), use.stored.comment if use.stored else ""),
            *(", ".join(map(str, members)) for members in (use.holding, use.waiting)),
        )
        for use in found
    )
    return Result(("group", "leases", "weight", "taken", "waiting", "comment", "holders", "waiters"), rows)


def set_group(manager: LockManager, group: Group, user: str, reason: str) -> Result:
    """SET GROUP, by *user*."""
    manager.set_group(group.name, group.leases, weight=group.weight, comment=group.comment, user=user, reason=reason)
    return show(use for use in manager.groups() if use.name == group.name)


def drop_group(manager: LockManager, name: str, user: str, reason: str) -> Result:
    """DROP GROUP, by *user*.

    :raises HiveLockError: the store has no limit of that group.
    """
    if not manager.drop_group(name, user=user, reason=reason):
        raise HiveLockError(f"group {name!r} has no limit in the lock store. SHOW GROUPS lists those that have one")
    return Result(("group",), ((name,),), "")
