"""Selects entries of the history or of the audit trail, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest
from airflow_hivelock.locks.model import ForcedRelease, Tenure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from airflow_hivelock.locks.model import LockObject

Past = TypeVar("Past", Tenure, ForcedRelease)


def newest(
    entries: Iterable[Past], target: LockObject | None = None, *, owner: str = "", limit: int | None = None
) -> list[Past]:
    """Return the *entries* on *target* and below it, newest first.

    :param owner: only entries whose owner contains this text.
    :param limit: the most entries to return; None: all.
    :raises InvalidRequest: the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit={limit} is invalid. Give a number above 0")
    found = [entry for entry in entries if owner in entry.owner and rules.concern(entry.locks, target)]
    return sorted(found, key=_when)[::-1][:limit]


def last_by(audit: Callable[[], Iterable[ForcedRelease]], concerns: Callable[[ForcedRelease], bool]) -> str:
    """The user and the reason of the last audit entry that *concerns* selects, as the end of a message.

    It is empty if there is no such entry, or if the audit trail cannot be read.
    """
    try:
        entries = [entry for entry in audit() if concerns(entry)]
    except HiveLockError:
        return ""
    return f" ({entries[-1].user}: {entries[-1].reason})" if entries else ""


def _when(entry: Tenure | ForcedRelease) -> datetime:
    return entry.granted if isinstance(entry, Tenure) else entry.at
