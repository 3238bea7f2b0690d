"""Finds the tables that paths of files belong to."""

from __future__ import annotations

import re
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import unescape_level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.spark.jvm import Jvm
    from airflow_hivelock.spark.tables import SessionTables

FRESH_S = 60.0
"""How long the list of all locations is used at most, in seconds. A table of another job is found only after that."""

USES = 20
"""How many times as long as Spark needed to make the list, the list is used. So a short list is newer."""


class Places:
    """The locations of all tables in the session's catalog.

    It does not find a path in a partition whose location is outside its table's location.
    """

    def __init__(self, jvm: Jvm, tables: SessionTables) -> None:
        self._jvm = jvm
        self._tables = tables
        self._changes = 0
        self._kept: tuple[int, float, list[tuple[str, LockObject]]] = (-1, 0.0, [])

    def of(self, path: Any) -> Iterator[LockObject]:
        """The tables and partitions with files at, above or below *path*.

        :param path: a text, or a path object of Hadoop.
        """
        wanted = self._qualified(path)
        for location, table in self._locations():
            if wanted == location or location.startswith(f"{wanted}/"):
                yield table
            elif wanted.startswith(f"{location}/"):
                yield _part(table, wanted.removeprefix(f"{location}/"))

    def matching(self, pattern: str) -> Iterator[LockObject]:
        """The tables with files that the source of a stream can find by *pattern*, a path as in ``/in/*.csv``."""
        patterns = [each.split("/") for each in _alternatives(_as_in_python(self._qualified(pattern)))]
        for location, table in self._locations():
            if any(all(map(fnmatchcase, location.split("/"), folders)) for folders in patterns):
                yield table

    def _qualified(self, path: Any) -> str:
        return _plain(self._jvm.path(str(path) if isinstance(path, str) else path.toString()).toString())

    def forget(self) -> None:
        """List all locations again, because this driver has created, moved or dropped a table."""
        self._changes += 1

    def _locations(self) -> list[tuple[str, LockObject]]:
        """Several tables can have one location."""
        changes, began = self._changes, time.monotonic()
        known, until, listed = self._kept
        if known != changes or began > until:
            listed = [
                (_plain(self._jvm.path(location).toString()), LockObject(database, name))
                for database in self._tables.names()
                for name, location in self._tables.locations(database)
            ]
            ended = time.monotonic()
            # A change while Spark makes the list makes the list old.
            self._kept = changes, ended + min(FRESH_S, USES * (ended - began)), listed
        return listed


def _plain(location: str) -> str:
    """*location* in one spelling. ``s3``, ``s3a`` and ``s3n`` are clients for the same files."""
    scheme, _, path = location.partition(":")
    if path.startswith("//"):
        return re.sub("^s3[an]:", "s3:", location).rstrip("/")
    return f"{scheme}:/{path.lstrip('/')}".rstrip("/")


def _as_in_python(pattern: str) -> str:
    """Hadoop's *pattern* in the form of :mod:`fnmatch`."""
    return re.sub(r"\\(.)", r"[\1]", pattern).replace("[^", "[!")


def _alternatives(pattern: str) -> list[str]:
    """The patterns without braces that match the same paths as *pattern*: ``a*`` and ``b*`` for ``{a,b}*``."""
    before, *inside = re.split(r"\{([^{}]*)\}", pattern, maxsplit=1)
    if not inside:
        return [pattern]
    named, after = inside
    return [each for one in named.split(",") for each in _alternatives(before + one + after)]


def _part(table: LockObject, below: str) -> LockObject:
    """The partition, or the prefix, of the folders *below* the table's location."""
    levels = []
    for folder in below.split("/"):
        if "=" not in folder:
            break
        column, value = unescape_level(folder)
        levels.append((column.lower(), value))
    try:
        return LockObject(table.database, table.table, tuple(levels))
    except InvalidRequest:
        return table
