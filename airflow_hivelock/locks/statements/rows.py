"""What the lock manager tells, as the results of statements."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.hive_leases import user_of
from airflow_hivelock.locks.model import LockMode
from airflow_hivelock.locks.statements import render
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_hivelock.locks.model import Holder, Lease, Lock, LockObject, Waiter, Work


def locks(found: Iterable[Holder], *, extended: bool) -> Result:
    """SHOW LOCKS."""
    holders = sorted(found, key=render.order)
    columns: tuple[str, ...] = ("object", "mode", "owner", "lease_id", "since_utc")
    rows = [(str(held.object), held.mode.value, held.owner, held.lease_id, held.since) for held in holders]
    text = render.show_locks(holders, extended=extended)
    if not extended:
        return Result(columns, tuple(rows), text)
    more = [(held.token, held.expires, held.explicit, held.query) for held in holders]
    both = tuple((*row, *extra) for row, extra in zip(rows, more, strict=True))
    return Result((*columns, "token", "expires_utc", "explicit", "query"), both, text)


def with_jobs(holders: list[Holder], standing: Iterable[Lease]) -> list[Holder]:
    """*holders*, their query with the job that runs under their lease once its cluster has given it an id."""
    ran = {lease.id: " ".join(job for work in lease.works if (job := _job_id(work))) for lease in standing}
    return [_running(holder, jobs) if (jobs := ran.get(holder.lease_id or "")) else holder for holder in holders]


def leases(standing: Iterable[Lease], target: LockObject | None, *, extended: bool) -> Result:
    """SHOW LEASE: a row an object that was asked for, on *target* or below it.

    :param extended: with what is only SHARED since others lie in it.
    """
    rows = [
        (
            lease.id,
            user_of(lease),
            lock.object.database,
            lock.object.table,
            "/".join(lock.object.path[2:]),
            "x" if lock.mode is LockMode.EXCLUSIVE else "s",
            lease.since,
            lease.expires,
            lease.token,
        )
        for lease in standing
        for lock in (lease.locks if extended else rules.named(lease.locks, lease.whole))
        if rules.concern([lock], target)
    ]
    columns = "lease_id user db_name table_name partition_name lease_type start_utc end_utc token"
    return Result(tuple(columns.split()), tuple(rows))


def waiters(found: Sequence[Waiter]) -> Result:
    """SHOW WAITERS."""
    rows = tuple(
        (
            *(waiter.place, waiter.owner, waiter.waits_for.value, waiter.priority),
            *(_joined(rules.named(waiter.locks)), waiter.since, _joined(waiter.blocked_by, "; ")),
        )
        for waiter in found
    )
    text = render.show_waiters((waiter, rules.named(waiter.locks)) for waiter in found)
    return Result(("place", "user", "waits_for", "priority", "wants", "since_utc", "in_the_way"), rows, text)


def freed(ended: Iterable[Lease], text: str | None = None) -> Result:
    """What a statement has freed: a row a lease."""
    rows = tuple((ls.id, user_of(ls), _joined(lock.object for lock in rules.named(ls.locks, ls.whole))) for ls in ended)
    return Result(("lease_id", "user", "objects"), rows, text)


def gave_back(lease: Lease, gone: Iterable[Lock]) -> Result:
    """What a statement has freed of *lease*."""
    objects = [lock.object for lock in gone]
    rows = ((lease.id, user_of(lease), _joined(objects)),) if objects else ()
    return Result(("lease_id", "user", "objects"), rows)


def _job_id(work: Work) -> str:
    """What a cluster calls the job that runs as *work*; empty where none has it, or its starter does not say."""
    try:
        job_id = json.loads(work.application)["job_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return job_id if isinstance(job_id, str) else ""


def _running(holder: Holder, jobs: str) -> Holder:
    query = f"{holder.query} (runs as {jobs})"
    return replace(
        holder, query=query, details=holder.details and (*holder.details[:3], f"{holder.details[3]} (runs as {jobs})")
    )


def _joined(items: Iterable[object], between: str = ", ") -> str:
    return between.join(map(str, items))
