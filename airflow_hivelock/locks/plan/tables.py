"""What is known of tables, from a catalog or from the user; each is asked for once."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.catalog import Table
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from airflow_hivelock.locks.catalog import Catalog


class Tables:
    """The tables of one plan.

    :param unpartitioned: names of tables known to have no partitions.
    :param partition_columns: by table name, the partition columns of others, outermost first.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        unpartitioned: Collection[str] = (),
        partition_columns: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.catalog = catalog
        self._declared = {table: Table() for table in _tables("unpartitioned", unpartitioned)}
        for name, columns in (partition_columns or {}).items():
            (table,) = _tables("partition_columns", [name])
            listed = isinstance(columns, list | tuple) and all(isinstance(column, str) for column in columns)
            if not listed or not columns or table in self._declared:
                raise InvalidRequest(f"partition_columns[{name!r}]={columns!r} must be a list of columns, as in ['dt']")
            self._declared[table] = Table(tuple(column.lower() for column in columns))

    def table(self, target: LockObject) -> Table | None:
        """What is known of the table of *target*; None: nothing, or, with a catalog, that it does not exist.

        :raises InvalidRequest: the catalog contradicts what was declared.
        """
        return self._table(LockObject(target.database, target.table))

    def listed(self, below: LockObject) -> list[LockObject] | None:
        """The partitions that exist below *below*; None without a catalog."""
        return None if self.catalog is None else self._partitions(below)

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
                raise InvalidRequest(f"{target} is partitioned by {columns}; take it out of unpartitioned")
            raise InvalidRequest(f"{target} is partitioned by {columns or 'nothing'}; partition_columns says otherwise")
        return found


def _tables(what: str, names: Iterable[str]) -> list[LockObject]:
    found = rules.objects(what, names)
    for target in found:
        if not target.table or target.partition:
            raise InvalidRequest(f"{what}={str(target)!r} is not a table; name one, as in 'dw.planes'")
    return found
