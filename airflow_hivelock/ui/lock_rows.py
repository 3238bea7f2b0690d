"""The locks of requests as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.model import LockMode

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import Lock

    Rows = list[list[Any]]


class LockRows:
    """The rows of a lock store's requests, which are kept from one view to the next.

    A request often has the same tuple of locks in each read. The rows are found by the identity of that tuple, because
    a comparison of locks would cost more than new rows.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[tuple[Lock, ...], Rows]] = {}
        self._used: dict[int, tuple[tuple[Lock, ...], Rows]] = {}

    def of(self, locks: tuple[Lock, ...]) -> Rows:
        """The rows of *locks*: see :func:`rows_of`."""
        key = id(locks)
        known = self._used.get(key) or self._last.get(key)
        if known is None or known[0] is not locks:
            known = locks, rows_of(locks)
        self._used[key] = known
        return known[1]

    def end_view(self) -> None:
        """Drop the rows that this view has not used. A read can give a new tuple for each request, so the rows of all
        reads would fill the memory."""
        self._last, self._used = self._used, {}


def mode_letter(mode: LockMode) -> str:
    """S for shared, X for exclusive."""
    return "X" if mode is LockMode.EXCLUSIVE else "S"


def rows_of(locks: tuple[Lock, ...]) -> Rows:
    """Object and mode of each lock. A third value marks a SHARED lock on a parent."""
    above = {parent for lock in locks if (parent := lock.object.parent) is not None}
    above |= {parent for lock in above for parent in lock.parents}
    return [
        [str(lock.object), mode_letter(lock.mode), 1]
        if lock.mode is LockMode.SHARED and lock.object in above
        else [str(lock.object), mode_letter(lock.mode)]
        for lock in locks
    ]
