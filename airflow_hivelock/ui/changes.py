"""The routes that change data: leases, requests that wait, limits of groups, and hosts. They need the connection's PUT
right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from fastapi import APIRouter, Depends, Header, HTTPException
from pydantic import BaseModel, Field

from airflow_hivelock import metrics
from airflow_hivelock.locks import reservations
from airflow_hivelock.locks.errors import LockTimeout
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import MAX_PRIORITY, LockObject
from airflow_hivelock.locks.model.group import MAX_COMMENT_LENGTH, MAX_GROUP_LENGTH, MAX_LEASES, MAX_WEIGHT
from airflow_hivelock.locks.statements import render
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.operators.passed import dag_of_work
from airflow_hivelock.ui import access, answers, hiding, looks
from airflow_hivelock.ui.change_pool import ChangePool
from airflow_hivelock.work import hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Group, Lease
    from airflow_hivelock.work.hosts import HostWork

T = TypeVar("T")

log = structlog.get_logger(__name__)

pool = ChangePool(looks.PATIENCE_S)

_LEASES = (("current",), ("audit",), ("leases",))
"""The reads that a change of a lease or of a request makes old."""


def _by_this_page(
    x_hivelock: str = Header("", description="`release`: no other site's form or image sends it"),
    sec_fetch_site: str = Header("same-origin", include_in_schema=False),
) -> None:
    """A dependency that refuses requests (403) which come neither from the page itself nor from a program.

    Airflow's session cookie is SameSite=Lax, so another site's POST does not have it. The header excludes other pages
    of the same site, because only a script of this origin can send it without a preflight request.
    """
    if x_hivelock != "release" or sec_fetch_site != "same-origin":
        raise HTTPException(403, "The request does not come from this page")


router = APIRouter(tags=["changes"], dependencies=[Depends(_by_this_page)])


class Reason(BaseModel):
    """The body of a force release."""

    reason: str = Field(min_length=1, max_length=1_000, pattern=r"\S", description="The audit trail keeps it")


class HiveId(Reason):
    """The body of a force release of Hive's own locks."""

    id: str = Field(min_length=1, max_length=300, description="`id` of a lock in `hive`")


class Withdrawal(Reason):
    """The body of the withdrawal of a request that waits."""

    owner: str = Field(min_length=1, max_length=2_000, description="`text` of an owner in `owners`")


class NewPriority(Withdrawal):
    """The body of the change of a request's priority."""

    priority: int = Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, strict=True, description="The larger goes first")


class Reservation(Reason):
    """The body of a reservation."""

    object: str = Field(min_length=1, max_length=3_000)
    until: str = Field(min_length=1, max_length=60, description="ISO 8601, or a time of day in UTC, as in `06:00`")


class HostGone(Reason):
    """The body of the declaration that a host is gone."""

    host: str = Field(min_length=1, max_length=300)


@router.post("/{connection_id}/leases/{lease_id}/release", **answers.gives(answers.ReleasedAnswer))
async def release(connection_id: str, lease_id: str, reason: Reason, user: Any = access.MAY_RELEASE) -> dict[str, bool]:
    """Release a lease by force."""
    who = access.user_name(user)

    def free(hook: HiveLockHook) -> bool:
        looks.permitted(hook.manager().find(lease_id), hook.installation, user)
        return hook.manager().force_release(lease_id, reason=reason.reason.strip(), user=who)

    def note(freed: bool) -> None:
        if freed:
            metrics.force_released()
            _log("Lease %s freed by force by %s: %s", lease_id, who, reason.reason)

    what = f"the release of lease {lease_id}"
    freed = await _changed(connection_id, what, free, note, *_LEASES, ("lease", lease_id))
    return {"freed": freed}


@router.post("/{connection_id}/hive/release", **answers.gives(answers.HiveReleasedAnswer))
async def release_hive(connection_id: str, hive: HiveId, user: Any = access.MAY_RELEASE) -> dict[str, int]:
    """Free the locks of a query of Hive, or of another client of its metastore."""
    who = access.user_name(user)

    def free(hook: HiveLockHook) -> int:
        return len(hook.manager().force_unlock(hive.id, reason=hive.reason.strip(), user=who))

    def note(freed: int) -> None:
        if freed:
            metrics.force_released()
            _log("Locks of %s in Hive freed by force by %s: %s", hive.id, who, hive.reason)

    what = f"the release of the locks of {hive.id} in Hive"
    freed = await _changed(connection_id, what, free, note, *_LEASES, ("holders",))
    return {"freed": freed}


class DroppedGroup(BaseModel):
    """The body of a request that drops the limit of a group."""

    name: str = Field(min_length=1, max_length=MAX_GROUP_LENGTH)
    reason: str = Field("", max_length=1_000, description="The audit trail keeps it")


class GroupSettings(DroppedGroup):
    """The body of a request that sets the limit of a group."""

    leases: int = Field(ge=1, le=MAX_LEASES, description="How many leases the group may hold at a time")
    weight: int = Field(1, ge=1, le=MAX_WEIGHT, description="The default weight of its requests")
    comment: str = Field("", max_length=MAX_COMMENT_LENGTH)


@router.post("/{connection_id}/groups/set", **answers.gives(answers.GroupSetAnswer))
async def set_group(connection_id: str, group: GroupSettings, user: Any = access.MAY_RELEASE) -> dict[str, int]:
    """Store how many leases a group may hold at a time, for all its requests from now on."""
    given: dict[str, Any] = {**group.model_dump(), "user": access.user_name(user)}

    def put(hook: HiveLockHook) -> Group:
        _check_group(group.name, user)
        return hook.manager().set_group(**given)

    def note(stored: Group) -> None:
        _log("Group %s set to %s by %s: %s", stored.name, stored, given["user"], group.reason)

    what = f"the change of the limit of group {group.name}"
    stored = await _changed(connection_id, what, put, note, ("groups",), ("audit",))
    return {"leases": stored.leases}


@router.post("/{connection_id}/groups/drop", **answers.gives(answers.GroupDroppedAnswer))
async def drop_group(connection_id: str, group: DroppedGroup, user: Any = access.MAY_RELEASE) -> dict[str, bool]:
    """Delete the limit of a group in the lock store: each request is held to its own again."""
    given = {**group.model_dump(), "user": access.user_name(user)}

    def drop(hook: HiveLockHook) -> bool:
        _check_group(group.name, user)
        return hook.manager().drop_group(**given)

    def note(_: bool) -> None:
        _log("Limit of group %s dropped by %s: %s", group.name, given["user"], group.reason)

    what = f"the removal of the limit of group {group.name}"
    dropped = await _changed(connection_id, what, drop, note, ("groups",), ("audit",))
    return {"dropped": dropped}


def _check_group(name: str, user: Any) -> None:
    """Refuse the group of a DAG that *user* may not see."""
    if access.hidden(access.dags_among([name]), user):
        raise HTTPException(403, "Forbidden")


@router.post("/{connection_id}/requests/withdraw", **answers.gives(answers.WithdrawnAnswer))
async def withdraw(connection_id: str, asked: Withdrawal, user: Any = access.MAY_RELEASE) -> dict[str, bool]:
    """Withdraw a request that waits for locks or for a lease of its group."""
    reason, who = asked.reason.strip(), access.user_name(user)

    def withdraw(manager: LockManager) -> bool:
        return manager.force_withdraw(asked.owner, reason=reason, user=who)

    def note(done: bool) -> None:
        if done:
            _log("The request of %s withdrawn by %s: %s", asked.owner, who, reason)

    what = f"the withdrawal of the request of {asked.owner}"
    return {"withdrawn": await _of_owner(connection_id, asked.owner, what, user, withdraw, note)}


@router.post("/{connection_id}/requests/priority", **answers.gives(answers.PriorityChangedAnswer))
async def change_priority(connection_id: str, asked: NewPriority, user: Any = access.MAY_RELEASE) -> dict[str, bool]:
    """Change the priority of a request that waits for its locks."""
    reason, who = asked.reason.strip(), access.user_name(user)

    def change(manager: LockManager) -> bool:
        return manager.force_priority(asked.owner, asked.priority, reason=reason, user=who)

    def note(done: bool) -> None:
        if done:
            _log("The request of %s gets priority %d by %s: %s", asked.owner, asked.priority, who, reason)

    what = f"the change of the priority of the request of {asked.owner}"
    return {"changed": await _of_owner(connection_id, asked.owner, what, user, change, note)}


async def _of_owner(
    connection_id: str,
    owner: str,
    what: str,
    user: Any,
    change: Callable[[LockManager], bool],
    note: Callable[[bool], None],
) -> bool:
    """Change the request of an owner whose DAG *user* may see."""

    def act(hook: HiveLockHook) -> bool:
        if (dag := hiding.dag_of_owner(owner, hook.installation)) and access.hidden([dag], user):
            raise HTTPException(403, "Forbidden")
        return change(hook.manager())

    return await _changed(connection_id, what, act, note, *_LEASES)


@router.post("/{connection_id}/reservations", **answers.gives(answers.ReservedAnswer))
async def reserve(connection_id: str, wanted: Reservation, user: Any = access.MAY_RELEASE) -> dict[str, Any]:
    """Keep new work off an object until a time. The object must be free now."""
    reason, who = wanted.reason.strip(), access.user_name(user)

    def take(hook: HiveLockHook) -> Lease:
        manager = hook.manager()
        named = LockObject.parse(wanted.object.strip())
        target = StatementSession(manager, user=who, catalog=hook.catalog()).placed(named, to_lock=True)
        until = reservations.parse_end(wanted.until, manager.now())
        try:
            return reservations.reserve(manager, target, until, reason=reason, user=who, wait=False)
        except LockTimeout:  # its message names holders that this user may not see
            statement = f"RESERVE {render.sql(target).removeprefix('TABLE ')} UNTIL '{until:%Y-%m-%dT%H:%M:%SZ}'"
            raise HTTPException(
                409, f"{target} is in use. On the command line, a reservation waits for running work: {statement}"
            ) from None

    def note(lease: Lease) -> None:
        _log("%s reserved by %s, with lease %s: %s", wanted.object, who, lease.id, reason)

    what = f"the reservation of {wanted.object.strip()}"
    lease = await _changed(connection_id, what, take, note, *_LEASES, ("holders",))
    return {"lease": lease.id}


@router.post("/{connection_id}/hosts/gone", **answers.gives(answers.HostGoneAnswer))
async def host_gone(connection_id: str, gone: HostGone, user: Any = access.MAY_RELEASE) -> dict[str, int]:
    """Declare a host gone, so that the work on it counts as ended. This changes only DAGs that the user may see."""
    who = access.user_name(user)

    def declare(hook: HiveLockHook) -> list[str]:
        manager = hook.manager()
        found = on_host(gone.host, manager.leases(), hook.installation, user)
        return [each.lease.id for each in hosts.declare_gone(manager, found, reason=gone.reason.strip(), user=who)]

    def note(ended: list[str]) -> None:
        looks.reads.forget(*((connection_id, "lease", lease_id) for lease_id in ended))
        _log("Host %s declared gone by %s, with %d works: %s", gone.host, who, len(ended), gone.reason)

    what = f"the declaration that host {gone.host} is gone"
    ended = await _changed(connection_id, what, declare, note, *_LEASES)
    return {"ended": len(ended)}


def _log(text: str, *values: object) -> None:
    """Log a change. A reason can contain line breaks, which the audit trail replaces by spaces."""
    log.info(text, *(printable(value) if isinstance(value, str) else value for value in values))


async def _changed(
    connection_id: str,
    what: str,
    change: Callable[[HiveLockHook], T],
    note: Callable[[T], None],
    *reads: tuple[str, ...],
) -> T:
    """Make a *change* to the lock store in a thread, and return its result.

    :param what: the change in words, as in "the release of lease 12".
    :param note: logs and counts the change.
    :param reads: what the next request reads again. Otherwise the page would still show a released lease for a while.
    """
    await looks.checked(connection_id)

    def end(result: T) -> None:
        looks.reads.forget(*((connection_id, *read) for read in reads))
        note(result)

    return await pool.make(connection_id, what, change, end)


def on_host(host: str, leases: Sequence[Lease], installation: str, user: Any) -> list[HostWork]:
    """The work that would count as ended if *host* is gone. Only DAGs that *user* may see are included, also in errors.

    :raises InvalidRequest: there is no such work: see :func:`airflow_hivelock.work.hosts.on_host`.
    """
    hidden = access.hidden({dag for lease in leases for dag in hiding.dags_of(lease, installation)}, user)
    shown = [
        replace(lease, works=tuple(work for work in lease.works if dag_of_work(work.name) not in hidden))
        for lease in leases
        if hiding.dag_of(lease, installation) not in hidden
    ]
    return hosts.on_host(host, shown)
