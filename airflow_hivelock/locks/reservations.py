"""Reservations: a person keeps new work off an object until a time.

A reservation is an EXCLUSIVE lease. Its owner's name has the time of its end, so that each keeper can read it, and
releases it then. No job runs under a reservation. So time may end it, unlike other leases.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.manager import audit_texts

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
    """Wait until the running work on *target* has ended, and keep new work off it *until* then.

    The reservation queues like any other request. ``manager.release`` ends it early.

    :param until: with a time zone; by the store's clock.
    :param reason: shown as the query by ``SHOW LOCKS … EXTENDED``, and as the label on the page.
    :param priority: as for :meth:`.LockManager.acquire`.
    :param tell: called while it waits, as by :meth:`.LockManager.acquire`.
    :param wait: False: do not wait for running work.
    :raises InvalidRequest: *until* is over or has no zone, or the reason is missing.
    :raises LockTimeout: the running work has not ended by then, or there is some and it does not wait.
    :raises Unsupported: the store frees leases that are not renewed.
    """
    reason, user = audit_texts(f"reservation of {target}", reason, user)
    if until.tzinfo is None:
        raise InvalidRequest(f"reservation of {target} until {until}: give the time with its zone")
    if not manager.capabilities.parents:
        raise Unsupported(
            f"reservation of {target}: a metastore frees every lease that is not renewed. Lock it with LOCK TABLE in a Hive session"
        )
    end = until.astimezone(UTC).replace(microsecond=0)
    left_s = (end - manager.now()).total_seconds()
    if left_s <= 0:
        raise InvalidRequest(f"reservation of {target} until {end:%Y-%m-%d %H:%M:%S} UTC: that time is over")
    owner = f"reservation:{user}:{end:{_STAMP}}:{uuid.uuid4().hex}"
    timeout_s = left_s if wait else 0.0
    return manager.acquire(
        owner=owner, writes=[target], lease_s=left_s, timeout_s=timeout_s, query=reason, priority=priority, tell=tell
    )


def end_of(owner: str) -> datetime | None:
    """When the reservation with that owner ends; None: the owner is none."""
    found = _OWNER.fullmatch(owner)
    try:
        return datetime.strptime(found["end"], _STAMP).replace(tzinfo=UTC) if found else None
    except ValueError:  # no such day; another program wrote it
        return None


def end_over(manager: LockManager, leases: Iterable[Lease], now: datetime) -> list[Lease]:
    """Release the reservations among *leases* that have ended by *now*, and return those. One with recorded work
    stays."""
    ends = ((lease, end_of(lease.owner)) for lease in leases if not lease.works)
    return [lease for lease, end in ends if end is not None and end <= now and manager.release(lease)]


def parse_end(text: str, now: datetime) -> datetime:
    """The time of ``UNTIL``: a time in ISO 8601, or a time of day after *now*. Without a zone it is UTC.

    :raises InvalidRequest: it is neither.
    """
    if (found := _TIME_OF_DAY.fullmatch(text.strip())) and int(found[1]) < 24 and int(found[2]) < 60:
        end = now.astimezone(UTC).replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
        return end if end > now else end + timedelta(days=1)
    try:
        end = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequest(
            f"UNTIL {text!r}: write a time of day in UTC, as in '06:00', or '2026-11-21T06:00+01:00'"
        ) from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)
