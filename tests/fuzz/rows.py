"""Rows of other programs in the database: a row that this version would not write, among valid rows."""

from __future__ import annotations

import atexit
import json
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from airflow_hivelock.locks import HiveLockError, LockManager, connect, rules
from airflow_hivelock.locks.backends.database.record import COLUMNS, State
from airflow_hivelock.locks.model import DeferredGrant, owner_key
from airflow_hivelock.triggers.keeper import _is_due, _owned
from airflow_hivelock.ui import holders as page_holders
from tests.fuzz.target import ODD, Target, loaded
from tests.fuzz.znodes import HELD, LATE, WAITING, later, views

TABLES = ("request", "lock", "audit")
INVITED = "here/dag/run/invited/-1"
_KEYS = {"request": "owner_key", "lock": "place", "audit": "number"}


class _Stage:
    """One file, and its bytes as they were when all was well."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.file = folder / "leases.db"
        self.manager = connect(f"sqlite:///{self.file}")
        self.lease = self.manager.acquire(owner=HELD, writes=["dw.t/dt=1"])
        self.waiter = self.manager.begin(rules.request(WAITING, writes=["dw.t/dt=1"]), lambda: None)
        self.waiter.poll()
        invited = rules.request(INVITED, writes=["dw.u"], deferred=DeferredGrant(3600.0))
        self.manager.begin(invited, lambda: None).poll()
        self.late = self.manager.acquire(owner=LATE, reads=["dw.late"])
        gone = self.manager.acquire(owner="here/dag/run/gone/-1", writes=["dw.gone"])
        self.manager.force_release(gone.id, reason="fuzz", user="ann")
        with closing(sqlite3.connect(self.file)) as database:
            self.well = {table: self._rows(database, table) for table in TABLES}

    def _rows(self, database: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"SELECT * FROM hivelock_{table}")]

    def write(self, table: str, values: dict[str, Any], late: bool) -> bool:
        """All rows as they were, and one more, or LATE's written over; False where SQLite takes no such row."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            for name, rows in self.well.items():
                database.execute(f"DELETE FROM hivelock_{name}")
                for row in rows:
                    self._insert(database, name, row)
            known = (
                self.well[table][-1] if table != "request" else next(r for r in self.well[table] if r["owner"] == LATE)
            )
            row = {**known, **{name: value for name, value in values.items() if name in known}}
            taken = True
            try:
                if late:
                    database.execute(f"DELETE FROM hivelock_{table} WHERE {_KEYS[table]} = ?", (known[_KEYS[table]],))
                elif row[_KEYS[table]] == known[_KEYS[table]]:
                    row[_KEYS[table]] = "ffffffffffffffff" if table == "request" else 999
                    row |= {"place": 999} if table == "request" and row["place"] == known["place"] else {}
                self._insert(database, table, row)
            except (sqlite3.Error, OverflowError, UnicodeError, TypeError):
                taken = False
            database.execute("COMMIT" if taken else "ROLLBACK")
        return taken

    def _insert(self, database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
        marks = ", ".join("?" for _ in row)
        database.execute(f"INSERT INTO hivelock_{table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


_stages: list[_Stage] = []


def row(data: bytes) -> None:
    """One odd row hides no other row, and a request that meets it is refused."""
    given = loaded(data)
    if not isinstance(given, dict) or given.get("table") not in TABLES or not isinstance(given.get("values"), dict):
        return
    if not _stages:
        _stages.append(_Stage())
    stage, manager = _stages[0], _stages[0].manager
    well = {stage.lease.id, int(stage.lease.id), HELD, WAITING, INVITED, *map(owner_key, (HELD, WAITING, INVITED))}
    if any(value in well for value in given["values"].values() if isinstance(value, str | int)):
        return
    if not stage.write(given["table"], given["values"], bool(given.get("late"))):
        return
    holders = manager.show()
    assert ("dw.t/dt=1", HELD) in {(str(holder.object), holder.owner) for holder in holders}, "a lock is hidden"
    assert {WAITING, INVITED} <= {waiter.owner for waiter in manager.waiters()}, "a waiter is hidden"
    leases = manager.leases()
    assert stage.lease.id in {lease.id for lease in leases}, "a lease is hidden"
    assert stage.lease.id in {tenure.lease_id for tenure in manager.history()}
    assert given["table"] == "audit" or ("ann", "fuzz") in {(entry.user, entry.reason) for entry in manager.audit()}
    owned = _owned((after := later(manager)).leases(), "here")
    due = {lease.id for _, lease in owned if _is_due(lease, after.now())}
    assert stage.lease.id in due, "a lease would not be renewed"
    for shown in views(manager):
        if "leases" in shown.data:
            page_holders.judge(shown.data, 2**47, lambda owners: {}, {})
        json.dumps(shown.data, ensure_ascii=False).encode()
    manager.renew(stage.lease)
    for call in (
        lambda: manager.acquire(owner=LATE, reads=["dw.late"], timeout_s=0),
        lambda: manager.acquire(owner="here/dag/run/new/-1", writes=["dw.late"], timeout_s=0),
        lambda: _asks(manager, DeferredGrant(3600.0)),
        lambda: _asks(manager, DeferredGrant(has_slot=True)),
        lambda: manager.start_work(stage.late, "work", "{}"),
        lambda: manager.release(stage.late),
        lambda: manager.lease_of(LATE),
        lambda: manager.sweep(),
    ):
        with suppress(HiveLockError):
            call()


def _asks(manager: LockManager, deferred: DeferredGrant) -> None:
    manager.begin(rules.request(LATE, reads=["dw.late"], deferred=deferred), lambda: None).poll()


_COLUMNS = {
    "request": tuple(COLUMNS),
    "lock": ("place", "position", "object_key", "db_name", "table_name", "partition_name", "lease_type"),
    "audit": ("number", "lease_id", "owner", "locks", "user_name", "reason", "at_us"),
}
_VALUES = ODD | st.sampled_from(
    [
        "{}",
        "[]",
        '{"dw.t": "Z"}',
        '{"../x": "S"}',
        '[["a"]]',
        '[["a", 5, "x"]]',
        "[" * 9_000,
        *map(str, State),
        "x",
        "dt",
    ]
)
INPUTS = st.sampled_from(TABLES).flatmap(
    lambda table: st.builds(
        lambda values, late: json.dumps({"table": table, "values": values, "late": late}).encode(),
        st.dictionaries(st.sampled_from(_COLUMNS[table]), _VALUES, min_size=1, max_size=3),
        st.booleans(),
    )
)

TARGETS = (Target("row", row, INPUTS),)
