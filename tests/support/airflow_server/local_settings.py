"""Copied into an Airflow home as config/airflow_local_settings.py, which every Airflow process imports first.

A start leaves a million objects: with Python's own threshold full collections take a sixth of the API server's start.
Commits do not wait for the disk: a SIGKILL loses nothing that is committed.

Airflow 3.3 has two lock problems on SQLite that time-outs do not solve:

- A backfill is created within a savepoint. pysqlite opens no transaction before one, so SQLite starts a reading one,
  and refuses to let it write after another process has written: "database is locked", at once.
- The API server writes its audit log on the event loop. While that waits for a lock held by another request of the same
  server, the other request needs the loop to finish: both hang for the whole time-out.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

__all__: list[str] = []

BUSY_TIMEOUT_MS = 60_000
# Whoever drives the API asks again after this; the request that held the lock has gone on meanwhile.
EVENT_LOOP_BUSY_TIMEOUT_MS = 500

gc.set_threshold(700, 10, 100)


@event.listens_for(Engine, "savepoint")
def _write_from_the_start(connection: Connection, _name: str) -> None:
    database: Any = connection.connection.dbapi_connection
    if isinstance(database, sqlite3.Connection) and not database.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@event.listens_for(Engine, "checkout")
def _set_up(database: Any, *_: object) -> None:
    if isinstance(database, sqlite3.Connection):
        timeout_ms = EVENT_LOOP_BUSY_TIMEOUT_MS if asyncio._get_running_loop() else BUSY_TIMEOUT_MS
        database.execute(f"PRAGMA busy_timeout = {timeout_ms}")
        database.execute("PRAGMA synchronous = OFF")
