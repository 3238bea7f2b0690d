"""Parses the output of ``SHOW LOCKS EXTENDED``.

ZooKeeper's lock manager prints a line ``dw@flights@dt=2013-01-01``, ``EXCLUSIVE`` and lines of details after it. The
metastore's prints thirteen columns per lock, and before Hive 4 a header.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.hive import transactional
from airflow_hivelock.locks.model import Blocker, Holder, Lock, LockMode, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Row = tuple[Any, ...]


def parse(rows: Iterable[Row], escapes_again: Callable[[], bool] = lambda: False) -> Iterator[tuple[Holder, bool]]:
    """The locks in the output of either lock manager, each with whether it is waited for.

    :param escapes_again: whether the metastore escapes the names of partitions that it receives. Only called if that
        matters.
    """
    listed = [row for row in rows if len(row) > 1]
    if listed and len(listed[0]) > 2:
        listed = [row for row in listed if len(row) >= _COLUMNS]
        if any("%25" in str(row[3]) for row in listed) and escapes_again():
            listed = [(*row[:3], transactional.escaped_once(str(row[3])), *row[4:]) for row in listed]
        yield from filter(None, map(_transactional, listed))
        return
    starts = [at for at, row in enumerate(listed) if row[1] in _MODES]
    for start, end in zip(starts, [*starts[1:], len(listed)], strict=False):
        details = dict(str(text).split(":", 1) for text, *_ in listed[start + 1 : end] if ":" in str(text))
        name, mode = listed[start][:2]
        if target := transactional.locked(*str(name).split("@", 2)):
            made = details.get("LOCK_MODE")
            yield (
                Holder(
                    target,
                    LockMode(mode),
                    details.get("LOCK_QUERYID", "unknown"),
                    _instant(details.get("LOCK_TIME")),
                    explicit=None if made is None else made.strip() == "EXPLICIT",
                    query=details.get("LOCK_QUERYSTRING", ""),
                ),
                False,
            )


_MODES = {mode.value for mode in LockMode}
_LOCK_ID = re.compile(r"([0-9]{1,18})(\.[0-9]+)?$")
_COLUMNS = 13
_MILLISECONDS = re.compile(r"[0-9]{1,14}")


def _transactional(row: Row) -> tuple[Holder, bool] | None:
    """Parse a row of :data:`_COLUMNS`, named as in ``org.apache.hadoop.hive.ql.plan.ShowLocksDesc``; None for the
    header."""
    fields = [str(value or "").strip() for value in row]
    lock_id, database, table, partition, state, _, kind, transaction, _, acquired, user, _, agent = fields[:_COLUMNS]
    target = transactional.locked(database, "" if table == "NULL" else table, "" if partition == "NULL" else partition)
    if not (number := _LOCK_ID.match(lock_id)) or target is None:
        return None
    holder = Holder(
        target,
        transactional.mode(kind),
        transactional.owner(agent, user),
        _instant(acquired),
        token=int(number[1]),
        query=", ".join(transactional.notes(kind, transaction)),
    )
    return holder, state != "ACQUIRED"


def waiter(number: int, listed: Iterable[tuple[Holder, bool]]) -> Waiter:
    """The waiter with the lock request of that *number*; earlier conflicting ones are its blockers, nearest first."""
    mine = [holder for holder, _ in listed if holder.token == number]
    locks = tuple(Lock(holder.object, holder.mode) for holder in mine)
    excludes = rules.excluder(locks)
    ahead = {
        holder.token: Blocker(holder.owner, holder.object, holder.mode, waiting)
        for holder, waiting in sorted(listed, key=lambda item: -(item[0].token or 0))
        if (holder.token or 0) < number and excludes(Lock(holder.object, holder.mode))
    }
    nth = 1 + sum(blocker.waiting for blocker in ahead.values())
    return Waiter(mine[0].owner, locks, nth, mine[0].since, tuple(ahead.values()))


def _instant(ms: str | None) -> datetime:
    known = ms is not None and _MILLISECONDS.fullmatch(ms.strip())
    return datetime.fromtimestamp(int(known[0]) / 1000 if known else 0, UTC)
