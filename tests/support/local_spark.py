"""A local Spark session with Hive's catalog in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tests.support.servers.jvm import driver

if TYPE_CHECKING:
    from pathlib import Path


def options(home: Path) -> dict[str, str]:
    """The settings of a small session with its warehouse and its metastore in *home*."""
    return {
        "spark.driver.memory": "512m",
        **driver(f"-Dderby.system.home={home}"),
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home}/metastore;create=true",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
    }


def local_spark(home: Path, *, cores: int = 1) -> SparkSession:
    """Start the session. It logs nothing.

    :param home: an empty folder.
    """
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in options(home).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
