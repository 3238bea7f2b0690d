"""What the planner needs to know of tables, and the Hive metastore that knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import parse_qsl, urlsplit

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive import thrift
from airflow_hivelock.locks.hive.thrift import PORT, Metastore
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import unescape_level
from airflow_hivelock.locks.url import check, shown, truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


ICEBERG, HUDI, DELTA = "iceberg", "hudi", "delta"
LOCK_ENABLED = "engine.hive.lock-enabled"
"""The property of an Iceberg table by which its commits take no lock in the metastore."""


@dataclass(frozen=True)
class Table:
    """What is known of a table.

    :param partition_columns: in lower case, outermost first; empty for an unpartitioned table.
    :param provider: Spark's ``spark.sql.sources.provider`` in lower case, as in ``USING parquet``;
        None for a table in Hive's own format.
    :param table_type: the metastore's: ``MANAGED_TABLE``, ``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …
    :param partition_types: Hive's types of the partition columns; empty where they are not known.
    :param view_text: the query that a view, or a materialized view, stands for; empty where it is not known.
    :param view_database: what names without a database are in, in that query; empty for the view's own.
    :param transactional: an ACID table of Hive's.
    :param format: ``iceberg``, ``hudi`` or ``delta``, which are changed by commits; empty for any other.
    :param commits_lock: those commits lock the table in the metastore, or may.
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
    """Where tables are looked up. All calls are safe from several threads."""

    def table(self, table: LockObject) -> Table | None:
        """What is known of *table*; None where it does not exist.

        :raises StoreUnavailable: the catalog did not answer.
        """
        ...

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        """The existing full partitions of a table, or those below a prefix of it.

        :raises InvalidRequest: naming a partition that exists and cannot be locked.
        :raises StoreUnavailable: the catalog did not answer.
        """
        ...

    def names(self, database: str = "") -> list[str]:
        """The tables and views of *database*, which need not exist; without one, the databases.

        :raises StoreUnavailable: the catalog did not answer.
        """
        ...


_OPTIONS = {"auth", "kerberos_service_name", "ssl", "ca"}


def connect_catalog(uri: str, timeout_s: float = 10.0) -> MetastoreCatalog:
    """The Hive metastore at ``thrift://host[:port][?auth=KERBEROS&kerberos_service_name=hive&ssl=true&ca=…]``.

    :param timeout_s: how long to wait for a connection, and then for each part of an answer.
    :raises InvalidRequest: a URI that cannot be meant.
    :raises HiveLockError: the client library is not installed. Nothing is connected to before the first question.
    """
    check(uri, f"the metastore, as in thrift://host:{PORT},")
    parts = urlsplit(uri)
    if parts.scheme != "thrift" or not parts.netloc or "," in parts.netloc:
        raise InvalidRequest(f"{shown(uri)!r} is not a metastore; give the address of one, as in thrift://host:{PORT}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - _OPTIONS:
        raise InvalidRequest(f"{shown(uri)!r}: unknown option {min(unknown)}; there are {', '.join(sorted(_OPTIONS))}")
    auth, tls = options.pop("auth", "NONE").upper(), truth("ssl", options.pop("ssl", "false"))
    return MetastoreCatalog(Metastore.parse(parts.netloc, timeout_s=timeout_s, auth=auth, tls=tls, **options))


@dataclass(frozen=True)
class MetastoreCatalog:
    """A :class:`Catalog`. Each question has a connection of its own: there is nothing to close or to share."""

    metastore: Metastore
    settings_of: ClassVar[str] = "the metastore's configuration"

    def table(self, table: LockObject) -> Table | None:
        with self.metastore.client() as client:
            found = thrift.table(client, table.database, table.table)
        if found is None:
            return None
        parameters = {key: value.lower() for key, value in (found.parameters or {}).items()}
        provider = parameters.get("spark.sql.sources.provider", "hive")
        changed_by = _format(parameters, found.sd.inputFormat if found.sd else None)
        columns = found.partitionKeys or ()
        return Table(
            tuple(column.name.lower() for column in columns),
            None if provider == "hive" else provider,
            found.tableType,
            tuple(column.type.lower() for column in columns),
            *(_view(found) if found.tableType in ("VIRTUAL_VIEW", "MATERIALIZED_VIEW") else ("", "")),
            parameters.get("transactional") == "true",
            changed_by,
            changed_by in (ICEBERG, HUDI) and parameters.get(LOCK_ENABLED) != "false",
        )

    def names(self, database: str = "") -> list[str]:
        with self.metastore.client() as client:
            return list(client.get_all_tables(database) if database else client.get_all_databases())

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        return self.metastore.settings(wanted)

    def version(self) -> str:
        return self.metastore.version()

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        # Not get_partition_names_ps: it matches values as regular expressions, and so does not find 'a+b'.
        with self.metastore.client() as client:
            found: list[str] = client.get_partition_names(below.database, below.table, -1)
        for name in found:
            levels = tuple(unescape_level(level) for level in name.split("/"))
            if levels[: len(below.partition)] == below.partition:
                try:
                    yield LockObject(below.database, below.table, levels)
                except InvalidRequest as error:
                    raise InvalidRequest(
                        f"partition {name!r} of {below.database}.{below.table} cannot be locked, and so "
                        f"{below} cannot be read as a whole; name the partitions to read"
                    ) from error


def _format(parameters: Mapping[str, str], input_format: str | None) -> str:
    """Of a table that is changed by commits; empty for any other. *parameters* have their values in lower case."""
    if parameters.get("table_type") == ICEBERG:
        return ICEBERG
    if (input_format or "").startswith("org.apache.hudi."):
        return HUDI
    provider = parameters.get("spark.sql.sources.provider", "")
    return provider if provider in (ICEBERG, HUDI, DELTA) else ""


def _view(found: Any) -> tuple[str, str]:
    """The query of a view, and the database that it was made in, as the metastore's table *found* has them.

    Hive's text says everything in full. Spark keeps the text as it was typed and the rest in properties
    (``org.apache.spark.sql.catalyst.catalog.CatalogTable``).
    """
    parameters: dict[str, str] = found.parameters or {}
    text: str = found.viewExpandedText or found.viewOriginalText or ""
    if "view.query.out.numCols" in parameters:
        gives = [
            parameters[f"view.query.out.col.{place}"] for place in range(int(parameters["view.query.out.numCols"]))
        ]
        columns = [column.name for column in found.sd.cols]
        if gives != columns and len(gives) == len(columns):
            renamed = ", ".join(f"`{old}` AS `{new}`" for old, new in zip(gives, columns, strict=True))
            text = f"SELECT {renamed} FROM ({text}) AS `{found.tableName}`"
    parts = int(parameters.get("view.catalogAndNamespace.numParts", "0"))
    return text, parameters.get(f"view.catalogAndNamespace.part.{parts - 1}", "") if parts > 1 else ""
