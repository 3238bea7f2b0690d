"""Selects entries of the history or of the audit trail, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import ForcedRelease, Tenure

if TYPE_CHECKING:
    from collections.abc import Iterable
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


def _when(entry: Tenure | ForcedRelease) -> datetime:
    return entry.granted if isinstance(entry, Tenure) else entry.at
