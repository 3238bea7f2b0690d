"""Helpers for the tests of databases."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sqlalchemy import text, update

from airflow_hivelock.locks.backends.database import DatabaseBackend, store
from tests.support.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from airflow_hivelock.locks import LockManager


HANG_S = 60.0
DAY = "dw.flights/dt=2013-01-01"


def database(manager: LockManager) -> store.Store:
    assert isinstance(manager.backend, DatabaseBackend)
    return manager.backend.store


def ask(manager: LockManager, statement: str) -> list[Any]:
    return list(database(manager).read(lambda connection: connection.execute(text(statement)).all()))


def do(manager: LockManager, *statements: str) -> None:
    for statement in statements:
        database(manager).read(lambda connection: connection.execute(text(statement)))  # noqa: B023


def change(manager: LockManager, **values: object) -> None:
    """Have every request be otherwise."""
    kept = database(manager)
    columns = {name: text(str(value)) for name, value in values.items()}
    kept.transact(lambda transaction: transaction.ask(update(kept.tables.request).values(**columns)))


def statements(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """The statements that this thread has transactions send from now on, with their values."""
    asked: list[tuple[str, object]] = []
    _sends(manager, monkeypatch, asked.extend)
    return asked


def round_trips(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, object]]]:
    """The same, those of a round trip together."""
    trips: list[list[tuple[str, object]]] = []
    _sends(manager, monkeypatch, lambda sent: trips.append(list(sent)))
    return trips


def _sends(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch, note: Callable[[Sequence[tuple[str, object]]], None]
) -> None:
    thread, dialect = threading.get_ident(), database(manager).dialect
    send = dialect.send

    def sent(session: Any, asked: Sequence[tuple[str, Any]], **settings: Any) -> Any:
        if threading.get_ident() == thread:
            note(asked)
        return send(session, asked, **settings)

    monkeypatch.setattr(dialect, "send", sent)


def wait_until(condition: Callable[[], object]) -> None:
    until(condition, "a change in the database", HANG_S, pause_s=0.01)
