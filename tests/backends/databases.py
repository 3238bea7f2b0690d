"""What the tests of databases share."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import event

from airflow_hivelock.locks.backends.database import DatabaseBackend, postgresql_session, store
from airflow_hivelock.locks.backends.database.postgresql import PostgreSQL

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_hivelock.locks import LockManager


HANG_S = 60.0
DAY = "dw.flights/dt=2013-01-01"


def database(manager: LockManager) -> store.Store:
    assert isinstance(manager.backend, DatabaseBackend)
    return manager.backend.store


def statements(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """What this thread asks from now on, with its values, apart from what opens a session: the pool may open one at any time."""
    asked: list[tuple[str, object]] = []
    thread, execute = threading.get_ident(), psycopg.Cursor.execute

    def note(statement: str, values: object) -> None:
        if threading.get_ident() == thread and statement not in postgresql_session.OPENING:
            asked.append((statement, values))

    def executed(cursor: Any, statement: Any, values: Any = None, **settings: Any) -> Any:
        note(statement, values)
        return execute(cursor, statement, values, **settings)

    if isinstance(database(manager).dialect, PostgreSQL):
        monkeypatch.setattr(psycopg.Cursor, "execute", executed)
    else:
        event.listen(database(manager).engine, "before_cursor_execute", lambda *given: note(given[2], given[3]))
    return asked


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.01)
