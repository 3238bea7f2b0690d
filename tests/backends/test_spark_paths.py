"""Files of tables, which a PySpark session names by their path, and streams, which run without locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest
from tests.support.local_spark import local_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

TABLES = (
    "create database dw",
    "create table dw.p (k int, dt string) using parquet partitioned by (dt)",
    "insert into dw.p values (1, '2024-01-01')",
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        for statement in TABLES:
            session.sql(statement)
        yield session


@pytest.fixture(scope="module")
def home(spark: SparkSession) -> str:
    """The folder of the tables."""
    return f"{spark.conf.get('spark.sql.warehouse.dir')}/dw.db"


WAYS: dict[str, Callable[[Any, str], Any]] = {
    "start": lambda stream, path: stream.start(path),
    "start, by name": lambda stream, path: stream.start(path=path),
    "start, in capitals": lambda stream, path: stream.start(PATH=path),
    "option": lambda stream, path: stream.option("path", path).start(),
    "option, by name": lambda stream, path: stream.option(key="Path", value=path).start(),
    "option, half by name": lambda stream, path: stream.option("path", value=path).start(),
    "options": lambda stream, path: stream.options(path=path).start(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_into_a_tables_files_is_refused(
    way: str, spark: SparkSession, home: str, locks: HiveLocks, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as int) k")
    stream = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"a stream that touches dw\.p "):
        WAYS[way](stream, f"{home}/p").stop()


@pytest.mark.parametrize(
    "save",
    [
        lambda writer, path: writer.option("path", path).save(None),
        lambda writer, path: writer.option("path", value=path).save(),
        lambda writer, path: writer.save(PATH=path),
    ],
)
def test_the_path_of_a_write_can_be_an_option(
    save: Callable[[Any, str], Any], spark: SparkSession, home: str, taken: Callable[[], list[str]]
) -> None:
    save(spark.sql("select 1 k").write.mode("append"), f"{home}/p/dt=2024-01-02")
    assert taken() == ["dw.p!"]
