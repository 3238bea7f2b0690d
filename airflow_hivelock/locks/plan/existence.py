"""Names that no metastore knows: what cannot be meant is refused, what a job may be about to make is warned of.

=====================================  =======================================================================
what does not exist                    is
=====================================  =======================================================================
a table that is read                   refused, unless the same task writes it, too
a table that is written                warned of: the job may make it
the database of either                 refused, unless the same task writes that database, and so may make it
a partition                            locked without a word: jobs make partitions all day
=====================================  =======================================================================

A table that is declared (``unpartitioned``, ``partition_columns``) is taken to exist. Of SQL each is only warned of: the
engine refuses what does not exist, and knows temporary views that are not known here.
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
    """Look whether what a task names exists.

    :raises InvalidRequest: it does not, and this task cannot be about to make it. Names that are alike are named.
    """
    made = _tops(writes)
    for target in [*_tops(reads), *made]:
        if _known(target, catalog, tables):
            continue
        database = LockObject(target.database)
        if database.database not in (databases := catalog.names()):
            if database not in made:
                raise InvalidRequest(
                    f"{target}: there is no database {database}{_alike(database.database, databases)} A task that makes it "
                    f"names it in writes: writes=['{database}']"
                )
        elif target not in made:
            raise InvalidRequest(
                f"{target}: there is no such table to read{alike(target, catalog)} A task that makes it names it in "
                "writes as well; one that this metastore does not know is declared, in unpartitioned or partition_columns"
            )
        else:
            log.warning(
                "%s: there is no such table to write%s It is locked, for a job that makes it",
                target,
                alike(target, catalog),
            )


def warn_of_missing(reads: Iterable[LockObject], catalog: Catalog, tables: KnownTables) -> None:
    """Say which tables that SQL reads do not exist."""
    for target in _tops(reads):
        if not _known(target, catalog, tables):
            log.warning(
                "%s: there is no such table to read%s Only a temporary view can be meant, and is locked for nothing",
                target,
                alike(target, catalog),
            )


def alike(table: LockObject, catalog: Catalog) -> str:
    """``; did you mean …?``, after the existing tables with names like that of *table*; or just the full stop."""
    found = get_close_matches(table.table, catalog.names(table.database))
    return _did_you_mean(f"{table.database}.{name}" for name in found)


def _alike(name: str, names: list[str]) -> str:
    return _did_you_mean(get_close_matches(name, names))


def _did_you_mean(names: Iterable[str]) -> str:
    found = " or ".join(names)
    return f"; did you mean {found}?" if found else "."


def _tops(targets: Iterable[LockObject]) -> dict[LockObject, None]:
    """The tables, or databases, of *targets*, in their order."""
    return dict.fromkeys(LockObject(target.database, target.table) for target in targets)


def _known(target: LockObject, catalog: Catalog, tables: KnownTables) -> bool:
    return tables.table(target) is not None if target.table else target.database in catalog.names()
