"""Reservations: a person keeps new work off an object until a time.

A reservation is an EXCLUSIVE lease. The name of its owner contains its end. So each keeper knows the end, and then
releases the lease. Time may end a reservation, unlike other leases, because no job runs under it.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.interrupted import no_unseen_lease
from airflow_hivelock.locks.manager import audit_texts
from airflow_hivelock.locks.model import MAX_LEASE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_hivelock.locks.backend import Blocked
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, LockObject
    from airflow_hivelock.locks.pending import Silent

_OWNER = re.compile(r"reservation:(?P<user>.*):(?P<end>[0-9]{8}T[0-9]{6}Z):[0-9a-f]{32}", re.DOTALL)
_STAMP = "%Y%m%dT%H%M%SZ"
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})")


def reserve(
    manager: LockManager,
    target: str | LockObject,
    until: datetime,
    *,
    reason: str,
    user: str,
    priority: int = 1,
    tell: Callable[[Blocked | Silent, float], None] | None = None,
    wait: bool = True,
) -> Lease:
    """Wait until the running work on *target* has ended, and then keep new work off it until the time *until*.

    The reservation queues like any other request. ``manager.release`` ends it early.

    :param until: the end of the reservation, by the store's clock. It needs a time zone.
    :param reason: ``SHOW LOCKS … EXTENDED`` shows it as the query, and the page as the label.
    :param priority: as for :meth:`.LockManager.acquire`.
    :param tell: as for :meth:`.LockManager.acquire`.
    :param wait: False fails at once if work is running.
    :raises InvalidRequest: *until* is in the past, more than a year away or has no time zone, or the reason is missing.
    :raises LockTimeout: work still runs at the time *until*. With ``wait=False``: work is running now.
    :raises Unsupported: the store frees each lease that is not renewed.
    """
    reason, user = audit_texts(f"reservation of {target}", reason, user)
    if until.tzinfo is None:
        raise InvalidRequest(f"reservation of {target} until {until}: the time has no time zone. Add one")
    if not manager.capabilities.parents:
        raise Unsupported(
            f"reservation of {target}: a metastore frees every lease that is not renewed, and Hive refuses LOCK TABLE there. Take the "
            "lock with HiveLockOperator, or from a program that renews it"
        )
    end = until.astimezone(UTC).replace(microsecond=0)
    left_s = (end - manager.now()).total_seconds()
    if left_s <= 0:
        raise InvalidRequest(
            f"reservation of {target} until {end:%Y-%m-%d %H:%M:%S} UTC: that time is over. Give a later time"
        )
    if left_s > MAX_LEASE_S:
        raise InvalidRequest(
            f"reservation of {target} until {end:%Y-%m-%d %H:%M:%S} UTC: that is more than a year away. Give an earlier time"
        )
    owner = f"reservation:{user}:{end:{_STAMP}}:{uuid.uuid4().hex}"
    timeout_s = left_s if wait else 0.0
    lease_s = max(1.0, left_s)  # no lease is shorter; the owner's name has the end
    with no_unseen_lease(manager, owner):
        return manager.acquire(
            owner=owner,
            writes=[target],
            lease_s=lease_s,
            timeout_s=timeout_s,
            query=reason,
            priority=priority,
            tell=tell,
        )


def parse_owner(owner: str) -> tuple[str, datetime] | None:
    """The user and the end of the reservation of this owner. None: the owner is not a reservation's."""
    found = _OWNER.fullmatch(owner)
    try:
        return (found["user"], datetime.strptime(found["end"], _STAMP).replace(tzinfo=UTC)) if found else None
    except ValueError:  # another program wrote a day that does not exist
        return None


def end_of(owner: str) -> datetime | None:
    """When the reservation of this owner ends. None: the owner is not a reservation's."""
    found = parse_owner(owner)
    return found[1] if found else None


def end_over(manager: LockManager, leases: Iterable[Lease], now: datetime) -> list[Lease]:
    """Release and return the reservations among *leases* that ended before *now*. A lease with recorded work stays."""
    ends = ((lease, end_of(lease.owner)) for lease in leases if not lease.works)
    return [lease for lease, end in ends if end is not None and end <= now and manager.release(lease)]


def parse_end(text: str, now: datetime) -> datetime:
    """Parse the time after ``UNTIL``: a time in ISO 8601, or the next time of day after *now*. UTC is the default zone.

    :raises InvalidRequest: *text* is not a time.
    """
    if (found := _TIME_OF_DAY.fullmatch(text.strip())) and int(found[1]) < 24 and int(found[2]) < 60:
        end = now.astimezone(UTC).replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
        return end if end > now else end + timedelta(days=1)
    try:
        end = datetime.fromisoformat(text.strip())
        return (end if end.tzinfo else end.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # some times of the years 1 and 9999 have no time in UTC
        raise InvalidRequest(
            f"UNTIL {text!r}: write a time of day in UTC, as in '06:00', or '2026-11-21T06:00+01:00'"
        ) from None
