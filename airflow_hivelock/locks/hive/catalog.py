"""Looks up tables in a Hive metastore, for the planner."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import parse_qsl, urlsplit

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive import thrift
from airflow_hivelock.locks.hive.properties import METASTORE_PORT
from airflow_hivelock.locks.hive.thrift import Metastore
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import CATALOG, unescape_level
from airflow_hivelock.locks.url import check, check_options, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


ICEBERG, HUDI, DELTA = "iceberg", "hudi", "delta"
PROVIDER = "spark.sql.sources.provider"
LOCK_ENABLED = "engine.hive.lock-enabled"
"""A property of Iceberg tables. If it is false, commits to the table take no lock in the metastore."""


@dataclass(frozen=True)
class Table:
    """The known properties of a table.

    :param partition_columns: the names of the partition columns in lower case, outermost first.
    :param provider: Spark's ``spark.sql.sources.provider`` in lower case, as in ``USING parquet``; None for a table in
        Hive's own format.
    :param table_type: the metastore's type: ``MANAGED_TABLE``, ``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …
    :param partition_types: Hive's types of the partition columns; empty if they are unknown.
    :param view_text: the query of a view or a materialized view; empty if it is unknown.
    :param view_database: the database of table names without one in that query; empty: the view's own database.
    :param transactional: the table is an ACID table of Hive.
    :param format: ``iceberg``, ``hudi`` or ``delta``: a format with its own commits. Empty for other tables.
    :param commits_lock: commits to the table can lock it in the metastore.
    """

    partition_columns: tuple[str, ...] = ()
    provider: str | None = None
    table_type: str = "MANAGED_TABLE"
    partition_types: tuple[str, ...] = ()
    view_text: str = ""
    view_database: str = ""
    transactional: bool = False
    format: str = ""
    commits_lock: bool = False


class Catalog(Protocol):
    """Finds tables. Several threads may call it at once."""

    def table(self, table: LockObject) -> Table | None:
        """Return the known properties of *table*; None if it does not exist.

        :raises StoreUnavailable: the catalog did not answer.
        """
        ...

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        """Return the existing full partitions below a table, or below a prefix of a partition's levels.

        :raises InvalidRequest: an existing partition has a name that cannot be locked. The message contains it.
        :raises StoreUnavailable: the catalog did not answer.
        """
        ...

    def names(self, database: str = "") -> list[str]:
        """Return the tables and views of *database*; empty if it does not exist. Without a database, return all
        databases.

        :raises StoreUnavailable: the catalog did not answer.
        """
        ...


_OPTIONS = {"auth", "kerberos_service_name", "ssl", "ca"}


def connect_catalog(uri: str, timeout_s: float = 10.0) -> MetastoreCatalog:
    """Return the catalog of the Hive metastore at *uri*. The first question opens the connection.

    :param uri: ``thrift://host[:port][,host…][?auth=KERBEROS&kerberos_service_name=hive&ssl=true&ca=…]``.
        ``hive.metastore.uris`` repeats ``thrift://`` before each host. That is accepted too.
    :param timeout_s: the longest wait for a connection, and then for each part of an answer, in seconds. A whole answer
        may take six times as long.
    :raises InvalidRequest: the URI is invalid.
    :raises HiveLockError: the client library is not installed.
    """
    hosts, options = address(uri)
    return MetastoreCatalog(Metastore.parse(hosts, timeout_s=timeout_s, **options))


def address(uri: str) -> tuple[str, dict[str, str]]:
    """Return the servers and the options of *uri*. This needs no client library.

    :raises InvalidRequest: it is not the address of a metastore, or an option is unknown.
    """
    uri = uri.replace(",thrift://", ",")
    check(uri, f"the metastore, as in thrift://host:{METASTORE_PORT},")
    parts = urlsplit(uri)
    if parts.scheme != "thrift" or not parts.netloc or parts.path.strip("/"):
        raise InvalidRequest(
            f"{shown(uri)!r} is not the address of a metastore. Write one as in thrift://host:{METASTORE_PORT}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    check_options(uri, options, _OPTIONS)
    return parts.netloc, options


@dataclass(frozen=True)
class MetastoreCatalog:
    """A :class:`Catalog` over a metastore. Each question opens its own connection, so threads share none."""

    metastore: Metastore
    settings_of: ClassVar[str] = "the metastore's configuration"

    def table(self, table: LockObject) -> Table | None:
        with self.metastore.client() as client:
            found = thrift.table(client, table.database, table.table)
        if found is None:
            return None
        return described(
            [(column.name, column.type) for column in found.partitionKeys or ()],
            found.tableType,
            {key: value.lower() for key, value in (found.parameters or {}).items()},
            found.sd.inputFormat if found.sd else None,
            _view(found) if found.tableType in ("VIRTUAL_VIEW", "MATERIALIZED_VIEW") else ("", ""),
        )

    def names(self, database: str = "") -> list[str]:
        with self.metastore.client() as client:
            return list(client.get_all_tables(database) if database else client.get_all_databases())

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        return self.metastore.settings(wanted)

    def version(self) -> str:
        return self.metastore.version()

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        # get_partition_names_ps takes values as regular expressions, so it would not find 'a+b'.
        with self.metastore.client() as client:
            found: list[str] = client.get_partition_names(below.database, below.table, -1)
        yield from named_partitions(below, found)


def named_partitions(below: LockObject, names: Iterable[str]) -> Iterator[LockObject]:
    """The partitions below a table, or below a prefix of a partition's levels.

    :param names: the names of all partitions of the table, in the metastore's form.
    :raises InvalidRequest: a partition has a name that cannot be locked. The message contains it.
    """
    for name in names:
        levels = tuple(unescape_level(level) for level in name.split("/"))
        if levels[: len(below.partition)] == below.partition:
            try:
                yield LockObject(below.database, below.table, levels)
            except InvalidRequest as error:
                raise InvalidRequest(
                    f"partition {name!r} of {below.database}.{below.table} cannot be locked, so {below} cannot be read as a "
                    "whole. Name the partitions to read"
                ) from error


def described(
    partition_columns: Iterable[tuple[str, str]],
    table_type: str,
    parameters: Mapping[str, str],
    input_format: str | None,
    view: tuple[str, str] = ("", ""),
) -> Table:
    """The table that a catalog describes.

    :param partition_columns: the names and types of the partition columns.
    :param parameters: the table's properties in the metastore, with values in lower case.
    :param view: the text of a view, and the database of table names without one in it.
    """
    columns = [(name.lower(), kind.lower()) for name, kind in partition_columns]
    provider = parameters.get(PROVIDER, "hive")
    changed_by = _format_of(parameters, input_format)
    return Table(
        tuple(name for name, _ in columns),
        None if provider == "hive" else provider,
        table_type,
        tuple(kind for _, kind in columns),
        *view,
        transactional=parameters.get("transactional") == "true",
        format=changed_by,
        commits_lock=changed_by in (ICEBERG, HUDI) and parameters.get(LOCK_ENABLED) != "false",
    )


def _format_of(parameters: Mapping[str, str], input_format: str | None) -> str:
    """Return the format of a table with its own commits; empty for other tables."""
    if parameters.get("table_type") == ICEBERG:
        return ICEBERG
    if (input_format or "").startswith("org.apache.hudi."):
        return HUDI
    provider = parameters.get(PROVIDER, "")
    return provider if provider in (ICEBERG, HUDI, DELTA) else ""


def with_view_columns(text: str, gives: Sequence[str], columns: Sequence[str]) -> str:
    """The query *text* of a view of Spark, with the view's own column names.

    :param gives: the column names of the query.
    :param columns: those of the view.
    """
    if gives == columns:
        return text
    if len(gives) == len({name.lower() for name in gives}) == len(columns):
        renamed = ", ".join(f"{_quoted(old)} AS {_quoted(new)}" for old, new in zip(gives, columns, strict=True))
        return f"SELECT {renamed} FROM ({text}\n) AS `v`"
    # It is not certain which column is which. So outer conditions stop at the query: see query.Named.
    return f"SELECT * FROM ({text}\n) AS `v` ({', '.join(map(_quoted, columns))})"


def of_path(view: str, path: Iterable[Sequence[str]]) -> str:
    """The database of table names without one in the query of *view*. *path* is what SET PATH of Spark 4.2 sets.

    :raises InvalidRequest: the path has several databases.
    """
    databases = [parts[1] for parts in path if parts[0] == CATALOG]
    if len(databases) > 1:
        several = ", ".join(databases)
        raise InvalidRequest(
            f"the tables of the view {view} can be in several databases: {several}; name reads and writes instead"
        )
    return "".join(databases)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _view(found: Any) -> tuple[str, str]:
    """Return the query of the view *found*, and the database of table names without one in that query.

    Hive stores the query with full names. Spark stores the original text. It stores the columns and the database in
    properties of the view (``org.apache.spark.sql.catalyst.catalog.CatalogTable``).

    :raises InvalidRequest: these properties are not Spark's. ALTER VIEW … SET TBLPROPERTIES takes any text.
    """
    try:
        return _query(found, found.parameters or {})
    except InvalidRequest:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"the query of the view {found.dbName}.{found.tableName} is not known, because its properties view.query.out.*, "
            f"view.resolutionPath or view.catalogAndNamespace.* are not as Spark writes them ({error!r:.80}). Create the "
            "view again"
        ) from error


def _query(found: Any, parameters: Mapping[str, str]) -> tuple[str, str]:
    text: str = found.viewExpandedText or found.viewOriginalText or ""
    if "view.query.out.numCols" in parameters:
        gives = [
            parameters[f"view.query.out.col.{index}"] for index in range(int(parameters["view.query.out.numCols"]))
        ]
        text = with_view_columns(text, gives, [column.name for column in found.sd.cols])
    if path := parameters.get("view.resolutionPath"):
        return text, of_path(found.tableName, json.loads(path))
    parts = int(parameters.get("view.catalogAndNamespace.numParts", "0"))
    return text, parameters.get(f"view.catalogAndNamespace.part.{parts - 1}", "") if parts > 1 else ""
