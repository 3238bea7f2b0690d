"""The answers of the statements that make or change a request in the queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_hivelock.locks import reservations, rules
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockObject, Waiter
    from airflow_hivelock.locks.pending import Silent

log = logging.getLogger(__name__)


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
