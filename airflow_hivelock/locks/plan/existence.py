"""Checks that the metastore has the tables and databases that a task names.

=====================================  =======================================================================
a missing                              causes
=====================================  =======================================================================
table to read                          an error, unless the same task also writes the table
table to write                         a warning, because the job can create the table
database of either                     an error, unless the same task also writes the database
partition                              nothing, because jobs create partitions all the time
=====================================  =======================================================================

A declared table (``unpartitioned``, ``partition_columns``) counts as existing. For SQL each case is only a warning: the
engine itself refuses missing tables, and it can have temporary views that the planner does not know.
"""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.plan.tables import KnownTables

log = logging.getLogger(__name__)


def check_exist(
    reads: Collection[LockObject], writes: Collection[LockObject], catalog: Catalog, tables: KnownTables
) -> None:
    """Check the names of a task's data: see the table above.

    :raises InvalidRequest: a name does not exist, and the task cannot create it. The message has similar names.
    """
    made = _tops(writes)
    for target in [*_tops(reads), *made]:
        if _known(target, catalog, tables):
            continue
        database = LockObject(target.database)
        if database.database not in (databases := catalog.names()):
            if database not in made:
                raise InvalidRequest(
                    f"{target}: there is no database {database}{_alike(database.database, databases)} If this task "
                    f"creates it, add it to writes: writes=['{database}']"
                )
        elif target not in made:
            raise InvalidRequest(
                f"{target}: there is no such table to read{alike(target, catalog)} If this task creates it, add it to "
                "writes too. If it is not in this metastore, declare it in unpartitioned or partition_columns"
            )
        else:
            log.warning(
                "%s: there is no such table to write%s It is locked, because the job can create it",
                target,
                alike(target, catalog),
            )


def warn_of_missing(reads: Iterable[LockObject], catalog: Catalog, tables: KnownTables) -> None:
    """Log a warning for each table that SQL reads and that does not exist."""
    for target in _tops(reads):
        if not _known(target, catalog, tables):
            log.warning(
                "%s: there is no such table to read%s It is locked; a temporary view of that name needs no lock",
                target,
                alike(target, catalog),
            )


def alike(table: LockObject, catalog: Catalog) -> str:
    """``; did you mean …?`` with existing tables of similar names. Only a full stop if there are none."""
    found = get_close_matches(table.table, catalog.names(table.database))
    return _did_you_mean(f"{table.database}.{name}" for name in found)


def _alike(name: str, names: list[str]) -> str:
    return _did_you_mean(get_close_matches(name, names))


def _did_you_mean(names: Iterable[str]) -> str:
    found = " or ".join(names)
    return f"; did you mean {found}?" if found else "."


def _tops(targets: Iterable[LockObject]) -> dict[LockObject, None]:
    """The tables or databases of *targets*, in the same order, without duplicates."""
    return dict.fromkeys(LockObject(target.database, target.table) for target in targets)


def _known(target: LockObject, catalog: Catalog, tables: KnownTables) -> bool:
    return tables.table(target) is not None if target.table else target.database in catalog.names()
