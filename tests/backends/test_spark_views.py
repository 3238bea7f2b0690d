"""Views that Spark created, under a lease of a session of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.local_spark import local_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

VIEW = (
    "create database dw",
    "create database od",
    "create table od.q (k int)",
    "use od",
    "create view dw.v as select * from q",
    "use default",
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        for statement in VIEW:
            session.sql(statement)
        yield session


def test_a_lease_of_a_view_holds_the_tables_of_the_database_where_it_was_created(
    spark: SparkSession, taken: Callable[[], list[str]], locks: HiveLocks
) -> None:
    with locks.lease(reads=["dw.v"]):
        assert spark.table("dw.v").count() == 0
    assert taken() == ["dw.v", "od.q"]
