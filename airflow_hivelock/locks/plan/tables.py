"""The columns and partitions of tables, from the catalog or from the user's declarations, each looked up once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.spelling import as_written, canonical, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog


class KnownTables:
    """The tables of one plan, with cached answers of the catalog.

    :param unpartitioned: names of tables without partitions.
    :param partition_columns: by table name, the partition columns of other tables, outermost first. Each can have a
        type: ``["dt date", "hr"]``. A type here has precedence over the catalog's.
    :param checked: SQL is only checked, and a catalog may plan it later. So no statement is refused for lack of one.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        unpartitioned: Collection[str] = (),
        partition_columns: Mapping[str, Sequence[str]] | None = None,
        *,
        checked: bool = False,
    ) -> None:
        self.catalog = catalog
        self.checked = checked
        self._declared = {table: Table() for table in _tables("unpartitioned", unpartitioned)}
        for name, columns in (partition_columns or {}).items():
            (table,) = _tables("partition_columns", [name])
            listed = isinstance(columns, list | tuple) and all(
                isinstance(each, str) and each.split() for each in columns
            )
            if table in self._declared:
                raise InvalidRequest(
                    f"partition_columns[{name!r}]={columns!r}: {table} is declared twice, in unpartitioned or under "
                    "two spellings of its name; declare it once"
                )
            if not listed or not columns:
                raise InvalidRequest(
                    f"partition_columns[{name!r}]={columns!r} must be a list of columns, as in ['dt date', 'hr']"
                )
            self._declared[table] = _table(name, columns)

    @property
    def declared(self) -> frozenset[tuple[LockObject, Table]]:
        """The user's declarations, independent of the catalog."""
        return frozenset(self._declared.items())

    def table(self, target: LockObject) -> Table | None:
        """The table of *target*. None if it is not known. With a catalog, None means that it does not exist.

        :raises InvalidRequest: the catalog contradicts a declaration.
        """
        return self._table(LockObject(target.database, target.table))

    def listed(self, below: LockObject) -> list[LockObject] | None:
        """The existing partitions below *below*, a table or a prefix. None without a catalog."""
        return None if self.catalog is None else self._partitions(below)

    def exists(self, target: LockObject) -> bool:
        """Whether the catalog has the partition *target*, or partitions below this prefix."""
        if self.catalog is None or self.table(target) is None:
            return False
        return target in self._existing(LockObject(target.database, target.table))

    def respelt(self, table: LockObject) -> dict[LockObject, LockObject]:
        """By existing partition with a non-standard name, the partition under its standard name.

        Hive's inserts into dynamic partitions create such names: ``n=07`` of an int. A read of ``n = 7`` reads it too.
        """
        known = self.table(table)
        if self.catalog is None or known is None or all(map(as_written, known.partition_types)):
            return {}
        return self._respelt(table)

    def meant_by(self, target: LockObject) -> list[LockObject]:
        """Existing partitions with non-standard names whose standard name is *target* or below it."""
        return self._meant(LockObject(target.database, target.table)).get(target, []) if target.partition else []

    def forget(self) -> None:
        """Forget the catalog's answers."""
        for answers in ("_meant", "_respelt", "_existing", "_table", "_partitions"):
            self.__dict__.pop(answers, None)

    @cached_property
    def _meant(self) -> Callable[[LockObject], dict[LockObject, list[LockObject]]]:
        def meant(table: LockObject) -> dict[LockObject, list[LockObject]]:
            found: dict[LockObject, list[LockObject]] = {}
            for partition, kept in self.respelt(table).items():
                for each in (kept, *kept.parents):
                    found.setdefault(each, []).append(partition)
            return found

        return lru_cache(maxsize=None)(meant)

    @cached_property
    def _respelt(self) -> Callable[[LockObject], dict[LockObject, LockObject]]:
        def respelt(table: LockObject) -> dict[LockObject, LockObject]:
            known = self.table(table)
            kinds = known.partition_types if known else ()
            found = {}
            for partition in self._partitions(table):
                with suppress(InvalidRequest):  # skip a value without one standard name: no request can lock it
                    levels = zip(partition.partition, kinds, strict=True)
                    kept = tuple((column, canonical(value, kind)) for (column, value), kind in levels)
                    if kept != partition.partition:
                        found[partition] = LockObject(table.database, table.table, kept)
            return found

        return lru_cache(maxsize=None)(respelt)

    @cached_property
    def _existing(self) -> Callable[[LockObject], frozenset[LockObject]]:
        def existing(table: LockObject) -> frozenset[LockObject]:
            found = self._partitions(table)
            return frozenset(found).union(*(partition.parents for partition in found))

        return lru_cache(maxsize=None)(existing)

    @cached_property
    def _table(self) -> Callable[[LockObject], Table | None]:
        return lru_cache(maxsize=None)(self._look_up)

    @cached_property
    def _partitions(self) -> Callable[[LockObject], list[LockObject]]:
        assert self.catalog is not None
        catalog = self.catalog
        return lru_cache(maxsize=None)(lambda below: list(catalog.partitions(below)))

    def _look_up(self, target: LockObject) -> Table | None:
        found = self.catalog.table(target) if self.catalog else None
        declared = self._declared.get(target)
        if declared is None or found is None:
            return found or declared
        if found.partition_columns != declared.partition_columns:
            columns = "/".join(found.partition_columns)
            if not declared.partition_columns:
                raise InvalidRequest(f"{target} is partitioned by {columns}; remove it from unpartitioned")
            raise InvalidRequest(f"{target} is partitioned by {columns or 'nothing'}; correct partition_columns")
        types = zip(declared.partition_types, found.partition_types, strict=False)
        return replace(found, partition_types=tuple(one or other for one, other in types) or found.partition_types)


def _table(name: str, columns: Sequence[str]) -> Table:
    pairs = [[*column.lower().split(maxsplit=1), ""] for column in columns]
    try:
        types = tuple(type_of(kind) if kind else "" for _, kind, *_ in pairs)
    except InvalidRequest as error:
        raise InvalidRequest(f"partition_columns[{name!r}]={columns!r}: {error}") from error
    return Table(tuple(column for column, *_ in pairs), partition_types=types if any(types) else ())


def _tables(what: str, names: Iterable[str]) -> list[LockObject]:
    found = rules.objects(what, names)
    for target in found:
        if not target.table or target.partition:
            raise InvalidRequest(f"{what}={str(target)!r} is not a table; name one, as in 'dw.planes'")
    return found
