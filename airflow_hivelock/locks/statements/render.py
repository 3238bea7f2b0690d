"""Formats results as Hive does, byte for byte. The command line then replaces control characters by escapes.

Two errors of Hive 2.3 are not copied. Hive prints only the lower byte of each character; this module prints UTF-8. In
Hive, ``SHOW LOCKS t PARTITION (…)`` finds no lock if the partition's name has escapes.
"""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.durations import span
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import LockMode, WaitsFor
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.expected import WaitRange
    from airflow_hivelock.locks.hive.transactional import TransactionalLock, TxnInfo
    from airflow_hivelock.locks.model import ForcedRelease, Holder, Lock, LockObject, Tenure, Waiter

HEADER = (
    "Lock ID",
    "Database",
    "Table",
    "Partition",
    "State",
    "Blocked By",
    "Type",
    "Transaction ID",
    "Last Heartbeat",
    "Acquired At",
    "User",
    "Hostname",
    "Agent Info",
)
MOST_SHOWN = 3
"""The largest number of objects, and of blockers, that SHOW WAITERS prints for a waiter. JSON has all of them."""

_NOT_BLOCKED = " " * 12
_LINE_END = re.compile(r"\r\n|\r|\n")


def name(target: LockObject) -> str:
    """The object's name in SHOW LOCKS: ``dw@flights@dt=2013-01-01/hr=04``."""
    head, partition = target.path[:2], target.path[2:]
    return "@".join((*head, "/".join(partition)) if partition else head)


def sql(target: LockObject) -> str:
    """The object's name in LOCK and UNLOCK: ``TABLE dw.flights PARTITION (dt='2013-01-01')``."""
    if not target.table:
        return f"DATABASE {target.database}"
    levels = ", ".join(f"{column}={_literal(value or DEFAULT_PARTITION)}" for column, value in target.partition)
    return f"TABLE {target.database}.{target.table}" + (f" PARTITION ({levels})" if levels else "")


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def show_locks(holders: Iterable[Holder], *, extended: bool) -> str:
    """The lines of SHOW LOCKS, in the order of *holders*.

    As org.apache.hadoop.hive.ql.exec.DDLTask.showLocks in Hive 2.3.
    """
    lines: list[str] = []
    for holder in holders:
        lines.append(f"{name(holder.object)}\t{holder.mode.value}")
        if extended and (details := _details(holder)):
            lines += _details_lines(details)
    return "\n".join(lines)


def order(holder: Holder) -> tuple[str, bool]:
    """The sort key of SHOW LOCKS: the object, then EXCLUSIVE first. Hive sorts no further."""
    return "/".join(holder.object.path), holder.mode is not LockMode.EXCLUSIVE


def _details(holder: Holder) -> tuple[str, ...] | None:
    """Query id, time, mode and query of the lock. None if Hive cannot read them."""
    if holder.details is not None or holder.lease_id is None:
        return holder.details
    time_ms = round(holder.since.timestamp() * 1000)
    return holder.owner, str(time_ms), "EXPLICIT", " ".join(holder.query.split()) or "-"


def _details_lines(details: tuple[str, ...]) -> list[str]:
    fields = ("LOCK_QUERYID", "LOCK_TIME", "LOCK_MODE", "LOCK_QUERYSTRING")
    text = "\n".join(f"{field}:{value}" for field, value in zip(fields, details, strict=True))
    # Hive reads its output as a table of two columns. Line breaks and tabs in a query start new rows and columns.
    rows = (line.split("\t") for line in _LINE_END.split(text))
    return [f"{row[0]}\t{row[1] if len(row) > 1 else ' '}" for row in rows]


_WAITS_FOR = {
    WaitsFor.LOCK: "",
    WaitsFor.LEASE: "a lease of its group, holding nothing, to lock ",
    WaitsFor.SLOT: "a worker slot, to lock ",
}


def show_waiters(waiters: Iterable[tuple[Waiter, Sequence[Lock], WaitRange | None]]) -> str:
    """One line for each waiter, the objects that it named and its expected wait, then one line for each of its
    blockers."""
    lines: list[str] = []
    for waiter, wanted, expected in waiters:
        since = _time(waiter.since)
        urgent = f", priority {waiter.priority}" if waiter.priority != 1 else ""
        keeps = f"a worker slot and keeps its position until {waiter.until:%H:%M:%S}Z, to lock " if waiter.until else ""
        what = f"{keeps or _WAITS_FOR[waiter.waits_for]}{', '.join(_first(wanted))}"
        more = f", {expected}" if expected else ""
        lines.append(f"{waiter.position}\t{printable(f'{waiter.owner} waits for {what} since {since}{urgent}{more}')}")
        lines += [f"\t{blocker}" for blocker in _first(waiter.blocked_by)]
    return "\n".join(lines)


def _first(items: Sequence[object]) -> list[str]:
    """The first *items*. The last of them ends with the number of the others."""
    shown = [str(item) for item in items[:MOST_SHOWN]]
    if left := len(items) - len(shown):
        shown[-1] += f" and {left:,} more"
    return shown


def show_history(tenures: Iterable[Tenure]) -> str:
    """One line for each lease: time of the grant, owner, named objects, time in the queue, and time held."""
    lines = []
    for tenure in tenures:
        names = ", ".join(_first(rules.named(tenure.locks)))
        wait = f"after {span((tenure.granted - tenure.asked).total_seconds())}"
        held = f"held for {span((tenure.ended - tenure.granted).total_seconds())}" if tenure.ended else "still held"
        lines.append(f"{_time(tenure.granted)}\t{printable(f'{tenure.owner} got {names} {wait}, {held}')}")
    return "\n".join(lines)


def show_audit(entries: Iterable[ForcedRelease]) -> str:
    """One line for each audit entry: time, user, owner of the lease or request, named objects, and reason."""
    lines = []
    for entry in entries:
        names = f": {', '.join(_first(rules.named(entry.locks)))}." if entry.locks else ":"  # a group has no locks
        lines.append(f"{_time(entry.at)}\t{printable(f'{entry.user}, of {entry.owner}{names} {entry.reason}')}")
    return "\n".join(lines)


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def render_transactional(rows: Iterable[TransactionalLock]) -> str:
    """A header and the lines of SHOW LOCKS of a metastore, in the order of *rows*.

    As org.apache.hadoop.hive.ql.exec.DDLTask.dumpLockInfo in Hive 2.3. Each row ends with a tab, the header does not.
    """
    return "\n".join(("\t".join(HEADER), *("".join(f"{cell}\t" for cell in cells(row)) for row in rows)))


TRANSACTIONS = (
    *("Transaction ID", "Transaction State", "Started Time", "Last Heartbeat Time"),
    *("User", "Hostname"),
)


def show_transactions(found: Iterable[TxnInfo]) -> str:
    """A header and the lines of SHOW TRANSACTIONS, as org.apache.hadoop.hive.ql.exec.DDLTask.showTxns in Hive 2.3."""
    return "\n".join(["\t".join(TRANSACTIONS), *("\t".join(map(str, astuple(each))) for each in found)])


def cells(row: TransactionalLock) -> tuple[str | int, ...]:
    """The values of *row*, one for each column in :data:`HEADER`."""
    return (
        row.lock_id if row.internal_id is None else f"{row.lock_id}.{row.internal_id}",
        row.database,
        _or_null(row.table),
        _or_null(row.partition),
        row.state,
        _NOT_BLOCKED if row.blocked_by is None else f"{row.blocked_by[0]}.{row.blocked_by[1]}",
        row.type,
        _or_null(row.txn_id),
        row.last_heartbeat_ms,
        _or_null(row.acquired_at_ms),
        row.user,
        row.hostname,
        _or_null(row.agent_info),
    )


def _or_null(value: str | int | None) -> str | int:
    return "NULL" if value is None else value
