"""Running statements in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hivelock.locks.statements.session import StatementSession
    from airflow_hivelock.locks.statements.statement import Result


def run(session: StatementSession, text: str) -> Result:
    """The last statement's result."""
    *_, last = session.run(text)
    return last
