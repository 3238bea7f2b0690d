"""The answers of the statements that change a request in the queue, and of those about groups of leases."""

from __future__ import annotations

import logging
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from airflow_hivelock.locks import reservations, rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Group, GroupUse, LockObject, Waiter
    from airflow_hivelock.locks.pending import Silent

log = logging.getLogger(__name__)

ALIKE = 0.8
"""How similar two names of groups are if one can be the other, misspelt: ``spark-prd``, but not ``spark-dev``."""


def reserve(manager: LockManager, target: LockObject, until: datetime, user: str, reason: str, priority: int) -> Result:
    """The result of RESERVE. The reservation waits for running work, and logs the blockers."""
    named: set[str] = set()

    def tell(outcome: Blocked | Silent, _: float) -> None:
        by = "; ".join(map(str, outcome.by[: rules.MOST_SHOWN])) if isinstance(outcome, Blocked) else str(outcome)
        if by not in named:
            named.add(by)
            log.warning("RESERVE waits: %s", by)

    lease = reservations.reserve(manager, target, until, reason=reason, user=user, priority=priority, tell=tell)
    row = (lease.id, str(target), reservations.end_of(lease.owner), lease.owner)
    return Result(("lease_id", "object", "until_utc", "owner"), (row,))


def withdraw(manager: LockManager, owner: str, *, reason: str, user: str) -> Result:
    """DROP FORCE REQUEST.

    :raises HiveLockError: the owner has no request that can be withdrawn.
    """
    if manager.force_withdraw(owner, reason=reason, user=user):
        return Result(("owner",), ((owner,),))
    _waiter(manager, owner)
    raise HiveLockError(
        f"{owner} waits for a worker slot, and its task may be starting. Mark the task failed in Airflow"
    )


def change_priority(manager: LockManager, owner: str, priority: int, *, reason: str, user: str) -> Result:
    """ALTER FORCE REQUEST.

    :raises HiveLockError: the owner does not wait for its locks.
    """
    changed = manager.force_priority(owner, priority, reason=reason, user=user)
    waiter = _waiter(manager, owner)
    if changed:
        return Result(("owner", "priority", "position"), ((owner, waiter.priority, waiter.position),))
    raise HiveLockError(f"{owner} keeps its priority, because {KEEPS[waiter.waits_for]}")


KEEPS = {
    WaitsFor.LOCK: "it is at its turn now. Try again",
    WaitsFor.LEASE: "its position among those that wait for a lease of the group is fixed. Change it when it waits for locks",
    WaitsFor.SLOT: "it waits for a worker slot",
}
"""Why the priority of a request stays, by what it waits for."""


def _waiter(manager: LockManager, owner: str) -> Waiter:
    """The request of *owner*, which waits."""
    for waiter in manager.waiters():
        if waiter.owner == owner:
            return waiter
    raise HiveLockError(f"{owner} is not in the queue; SHOW WAITERS lists the owners that are")


def show_groups(found: Iterable[GroupUse]) -> Result:
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


def set_group(manager: LockManager, group: Group, kept: Sequence[str], user: str, reason: str) -> Result:
    """SET GROUP, by *user*.

    :param kept: the fields of *group* that stay as they are stored. Otherwise a larger limit would lose the default weight.
    """
    others = {use.name: use.stored for use in manager.groups()}
    if stored := others.get(group.name):
        group = replace(group, **{field: getattr(stored, field) for field in kept})
    manager.set_group(group.name, group.leases, weight=group.weight, comment=group.comment, user=user, reason=reason)
    if group.name not in others and (alike := get_close_matches(group.name, others, cutoff=ALIKE)):
        log.warning("group %r is new; did you mean %s? DROP GROUP removes its limit", group.name, " or ".join(alike))
    return show_groups(use for use in manager.groups() if use.name == group.name)


def drop_group(manager: LockManager, name: str, user: str, reason: str) -> Result:
    """DROP GROUP, by *user*.

    :raises HiveLockError: the store has no limit of that group.
    """
    if not manager.drop_group(name, user=user, reason=reason):
        raise HiveLockError(f"group {name!r} has no limit in the lock store. SHOW GROUPS lists those that have one")
    return Result(("group",), ((name,),), "")
