"""Frees the leases of Spark drivers whose keeper is this Airflow, when their work has ended.

A driver renews its own leases. It is not a task, so only its recorded work shows whether it has ended.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.spark.driver_work import work_name
from airflow_hivelock.work.stale import judge_driver

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.triggers.work_checks import WorkChecks

SETTLE_S = 30.0
"""The time after a grant or renewal in which a lease is not checked, in seconds, because its driver was alive."""


async def free_drivers(
    manager: LockManager, installation: str, leases: Iterable[Lease], now: datetime, checks: WorkChecks, log: Any
) -> dict[str, str]:
    """Free the leases of drivers whose work has ended. Return the reasons of suspect leases, by lease id.

    A lease is suspect if its driver does not renew it, and its work cannot be checked.
    """
    concerned = [lease for lease in leases if lease.work(work_name(installation)) is not None]
    due = sorted((each for each in concerned if _left_s(each, now) < each.lease_s - SETTLE_S), key=checks.began)
    whys = await asyncio.gather(*(_free(manager, installation, lease, now, checks, log) for lease in due))
    return {lease.id: why for lease, why in zip(due, whys, strict=True) if why}


async def _free(
    manager: LockManager, installation: str, lease: Lease, now: datetime, checks: WorkChecks, log: Any
) -> str | None:
    try:
        verdict = await checks.verdict(lease.id, partial(judge_driver, lease))
    except (CannotTell, TimeoutError) as error:
        return f"its driver does not renew it, but {error!r}" if _left_s(lease, now) < 0 else None
    except Exception as error:
        log.exception("Lease %s of %s is kept, because it cannot be checked", lease.id, printable(lease.owner))
        return f"it cannot be checked: {error!r}" if _left_s(lease, now) < 0 else None
    if not verdict.stale:
        return None
    return await checks.free(manager, installation, lease, verdict, log)


def _left_s(lease: Lease, now: datetime) -> float:
    """The time until the lease expires, in seconds."""
    return lease.lease_s if lease.expires is None else (lease.expires - now).total_seconds()
