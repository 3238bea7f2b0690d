"""The planner's catalog in a session of Spark Connect, from statements on the server."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.hive.catalog import PROVIDER, Table, described, named_partitions, of_path, with_view_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_hivelock.locks.model import LockObject

    Ask = Callable[[str], Sequence[Any]]
    """Runs a statement that locks nothing, and returns its rows."""

_TYPES = {"MANAGED": "MANAGED_TABLE", "EXTERNAL": "EXTERNAL_TABLE", "VIEW": "VIRTUAL_VIEW"}

_PARTITIONS = "# Partition Information"
_COLUMNS = "# col_name"
_DETAILS = "# Detailed Table Information"

_MISSING = "SCHEMA_NOT_FOUND"


class ConnectTables:
    """A :class:`~airflow_hivelock.locks.hive.catalog.Catalog` that asks the server with SQL statements.

    A Spark Connect client has no other access to the catalog.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def table(self, table: LockObject) -> Table | None:
        if table.table not in self.names(table.database, like=table.table):
            return None  # DESCRIBE would fail, and PySpark would log the error
        rows = [(row[0], row[1] or "") for row in self._ask(f"DESCRIBE TABLE EXTENDED {_quoted(table)}")]
        columns = [(name, kind) for name, kind in _part(rows, _PARTITIONS) if name and name[0] != "#"]
        found = dict(_part(rows, _DETAILS, last=True))
        properties = _properties(found.get("Table Properties", ""))
        if (provider := found.get("Provider", "hive").lower()) != "hive":
            properties[PROVIDER] = provider
        return described(
            columns,
            _TYPES.get(found.get("Type", ""), "MANAGED_TABLE"),
            properties,
            found.get("InputFormat"),
            _view(rows, found) if found.get("Type") == "VIEW" else ("", ""),
        )

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return named_partitions(below, [row[0] for row in self._ask(f"SHOW PARTITIONS {_quoted(below)}")])

    def names(self, database: str = "", like: str = "*") -> list[str]:
        if not database:
            return [str(row[0]) for row in self._ask("SHOW DATABASES")]
        try:
            rows = self._ask(f"SHOW TABLES IN `{database}` LIKE '{like}'")
        except Exception as error:
            if _MISSING in str(error):
                return []
            raise
        return [str(row["tableName"]) for row in rows if not row["isTemporary"]]


def _quoted(table: LockObject) -> str:
    return f"spark_catalog.`{table.database}`.`{table.table}`"


def _part(rows: Sequence[tuple[str, str]], title: str, *, last: bool = False) -> list[tuple[str, str]]:
    """The rows of DESCRIBE between *title* and the next title, or up to the end for the *last* part."""
    at = next((place for place, (name, _) in enumerate(rows) if name == title), len(rows)) + 1
    end = next(
        (place for place in range(at, len(rows)) if rows[place][0][:1] == "#" and rows[place][0] != _COLUMNS), len(rows)
    )
    return list(rows[at : len(rows) if last else end])


def _properties(shown: str) -> dict[str, str]:
    """The properties from their form in DESCRIBE: ``[a=b, c=d]``."""
    pairs = (pair.partition("=") for pair in shown.removeprefix("[").removesuffix("]").split(","))
    return {name.strip(): value.strip().lower() for name, _, value in pairs if name.strip()}


def _view(rows: Sequence[tuple[str, str]], found: Mapping[str, str]) -> tuple[str, str]:
    """The query of a view, and the database of table names without one in it."""
    text, gives = found.get("View Text", ""), found.get("View Query Output Columns", "")[1:-1]
    if gives:  # Spark 3.5 does not quote the names
        names = [name.replace("``", "`") for name in re.findall("`((?:[^`]|``)*)`", gives)] or gives.split(", ")
        columns = [name for name, _ in takewhile(lambda row: row[0] and row[0][0] != "#", rows)]
        text = with_view_columns(text, names, columns)
    if path := found.get("SQL Path"):
        entries = [[part.strip("`") for part in entry.split(".")] for entry in path.split(", ")]
        return text, of_path(found.get("Table", ""), entries)
    return text, found.get("View Catalog and Namespace", "").rpartition(".")[2].strip("`")
