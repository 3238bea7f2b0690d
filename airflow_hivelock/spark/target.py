"""A Hive table or partition that a PySpark driver publishes to, with its own metastore client and file systems."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest, StoreUnavailable, Unsupported
from airflow_hivelock.spark.driver import Driver
from airflow_hivelock.spark.publication import Generation, Relocation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from airflow_hivelock.locks.model import LockObject

HIDDEN = ".hivelock"
"""The directory of generations: below a partitioned table's location, next to an unpartitioned table's.

Hive, Spark and MSCK ignore such names.
"""

PUBLISHED = "_PUBLISHED"
"""The file that marks a generation as published. Readers ignore it."""

VERSION = "transient_lastDdlTime"
"""The table parameter that each ALTER TABLE of Hive and Spark sets to seconds since 1970. This module raises it too."""

STATISTICS = ("numFiles", "totalSize", "numRows", "rawDataSize", "COLUMN_STATS_ACCURATE")
"""Parameters to remove, because they describe the old data."""

_CHANGED = ("AlreadyExistsException", "InvalidOperationException", "NoSuchObjectException")


class Target:
    """A :class:`Place` in Hive's metastore.

    :raises InvalidRequest: the table does not exist, or the object is a table with partitions, or only a prefix.
    :raises StoreUnavailable: the metastore does not answer.
    :raises Unsupported: Spark's client does not support this version of the metastore, or there is no client.
    """

    def __init__(self, spark: Any, written: LockObject) -> None:
        self._spark = spark
        self._written = written
        self._name = (written.database, written.table)
        self._levels = str(written).partition("/")[2]
        with self._answers():
            self._driver = Driver(spark)
            self._client = self._driver.metastore()
        table = self._table()
        columns = [column.getName() for column in table.getPartitionKeys() or ()]
        if columns != [column for column, _ in written.partition]:
            raise InvalidRequest(
                f"{written} cannot be published. Name an unpartitioned table, or one partition with all its levels"
                + (f" ({', '.join(columns)})" if columns else "")
            )
        self._default, self._root = self._directories(table.getSd().getLocation())

    def __str__(self) -> str:
        return str(self._written)

    def stage(self, token: int) -> str:
        return f"{self._root}/{token}-{uuid.uuid4().hex[:8]}"

    def generations(self) -> list[Generation]:
        system, root = self._file(self._root)
        with self._answers():
            names = [found.getPath().getName() for found in system.listStatus(root)] if system.exists(root) else []
        tokens = ((name, name.partition("-")[0]) for name in names)
        return [Generation(f"{self._root}/{name}", int(token)) for name, token in tokens if token.isdecimal()]

    def published(self, generation: Generation) -> bool:
        system, mark = self._file(f"{generation.path}/{PUBLISHED}")
        with self._answers():
            return bool(system.exists(mark))

    def mark(self, path: str) -> None:
        system, mark = self._file(f"{path}/{PUBLISHED}")
        with self._answers():
            system.create(mark, True).close()

    def change(self, path: str) -> Relocation:
        location, alter = self._to_table(path) if not self._levels else self._to_partition(path)

        def make() -> bool:
            try:
                with self._answers():
                    alter()
            except _ChangedMeanwhile:
                return False
            return True

        return Relocation(location, make)

    def discard(self, paths: Collection[str]) -> None:
        for path in paths:
            system, directory = self._file(path)
            with self._answers():
                system.delete(directory, True)

    def former(self, live: str) -> list[str]:
        return [] if live == self._default else [self._default]

    def close(self) -> None:
        self._client.close()
        self._spark.catalog.refreshTable(".".join(self._name))

    def _to_table(self, path: str) -> tuple[str, Callable[[], None]]:
        table = self._table()
        location = table.getSd().getLocation()
        table.getSd().setLocation(path)
        options = table.getSd().getSerdeInfo().getParameters()
        if options.containsKey("path"):  # for a table made USING parquet, Spark reads this path
            options.put("path", path)
        version = table.getParameters().get(VERSION) or "0"
        self._describe(table, int(version) + 1)
        context = self._driver.new("metastore.api.EnvironmentContext")
        context.putToProperties("expected_parameter_key", VERSION)
        context.putToProperties("expected_parameter_value", version)
        alter = self._client.alter_table_with_environmentContext
        return location, lambda: alter(*self._name, table, context)

    def _to_partition(self, path: str) -> tuple[str | None, Callable[[], None]]:
        written, storage, found = self._written, self._table().getSd().deepCopy(), self._partition()
        storage.setLocation(path)
        if found is None:
            new = self._driver.new("metastore.api.Partition")
            new.setDbName(written.database)
            new.setTableName(written.table)
            new.setValues(self._driver.list(value for _, value in written.partition))
            new.setCreateTime(int(time.time()))
            new.setSd(storage)
            new.setParameters(self._driver.map())
            return None, lambda: self._client.add_partition(new)
        location = found.getSd().getLocation()
        found.setSd(storage)
        self._describe(found)
        context = self._driver.new("metastore.api.EnvironmentContext")
        return location, lambda: self._client.alter_partition(*self._name, found, context)

    def _describe(self, altered: Any, version_min: int = 0) -> None:
        parameters = altered.getParameters()
        for name in [*STATISTICS, *(name for name in parameters if name.startswith("spark.sql.statistics."))]:
            parameters.remove(name)
        parameters.put(VERSION, str(max(version_min, int(time.time()))))

    def _table(self) -> Any:
        try:
            with self._answers():
                return self._client.getTable(*self._name)
        except _ChangedMeanwhile as error:
            raise InvalidRequest(f"the table of {self._written} does not exist. Create it first") from error

    def _partition(self) -> Any:
        try:
            with self._answers():
                return self._client.getPartition(*self._name, self._levels)
        except _ChangedMeanwhile:
            return None

    def _directories(self, location: str) -> tuple[str, str]:
        """Hive's default location of the object's data, and the directory of the object's generations."""
        if self._levels:
            return f"{location}/{self._levels}", f"{location}/{HIDDEN}/{self._levels}"
        parent, _, name = location.rpartition("/")
        if (base := parent.rpartition(f"/{HIDDEN}/"))[0]:
            parent, name = base[0], base[2]
        return f"{parent}/{name}", f"{parent}/{HIDDEN}/{name}"

    def _file(self, path: str) -> tuple[Any, Any]:
        with self._answers():
            return self._driver.file(path)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            yield
        except PySparkException as error:  # Spark opens its own catalog at the first question
            raise StoreUnavailable(f"{self._written}: {error}. Nothing was changed") from error
        except Py4JJavaError as error:
            kind, message = error.java_exception.getClass().getSimpleName(), error.java_exception.getMessage()
            if kind == "TApplicationException":
                raise Unsupported(
                    f"{self._written} cannot be published: the metastore does not know a call of Spark's client ({message}). "
                    "Nothing was changed. Hive 4.0.1 and later need their own client. Set spark.sql.hive.metastore.version "
                    "and spark.sql.hive.metastore.jars, so that Spark 4 loads it"
                ) from error
            if kind in _CHANGED or "The table has been modified" in str(message):
                raise _ChangedMeanwhile(message) from error
            raise StoreUnavailable(
                f"{self._written}: {kind}: {message}. Look up its location in the metastore. A retry writes it again"
            ) from error


class _ChangedMeanwhile(Exception):
    """The metastore's data has changed since it was read."""
