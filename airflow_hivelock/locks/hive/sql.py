"""SQL on HiveServer2, through PyHive or a client with the same interface."""

from __future__ import annotations

from typing import Any


def rows(cursor: Any, statement: str) -> list[tuple[Any, ...]]:
    """Run *statement* and return its rows. A statement without a result has no rows."""
    cursor.execute(statement)
    found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
    return found


def setting(cursor: Any, name: str) -> str | None:
    """Return Hive's setting *name* in this session. None: it is not set, or the server is not Hive.

    Hive answers ``name=value`` or ``name is undefined`` in one column. Spark's Thrift server answers in two columns.
    """
    found = rows(cursor, f"SET {name}")
    text = str(found[0][0]) if found else ""
    return text.removeprefix(f"{name}=") or None if text.startswith(f"{name}=") else None


def reason_of(error: Exception) -> str:
    """Return Hive's reason in one line. PyHive's own text is the whole answer of the server."""
    status = getattr(error.args[0], "status", None) if error.args else None
    return " ".join(str(getattr(status, "errorMessage", None) or error).split())
