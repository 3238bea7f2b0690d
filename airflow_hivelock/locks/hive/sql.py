"""What a HiveServer2 answers to SQL, by PyHive or what speaks as it does."""

from __future__ import annotations

from typing import Any


def rows(cursor: Any, statement: str) -> list[tuple[Any, ...]]:
    """Run *statement* and give its rows; none for one that has no result."""
    cursor.execute(statement)
    found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
    return found


def setting(cursor: Any, name: str) -> str | None:
    """What Hive's setting *name* is in this session; None where it is not set, or the server is no Hive.

    Hive answers ``name=value``, or ``name is undefined``, in one column; Spark's Thrift server in two.
    """
    found = rows(cursor, f"SET {name}")
    text = str(found[0][0]) if found else ""
    return text.removeprefix(f"{name}=") or None if text.startswith(f"{name}=") else None


def said(error: Exception) -> str:
    """What Hive gives as the reason, in one line, out of PyHive's dump of the whole answer."""
    status = getattr(error.args[0], "status", None) if error.args else None
    return " ".join(str(getattr(status, "errorMessage", None) or error).split())
