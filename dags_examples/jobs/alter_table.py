"""Add a column to a table, or set properties on it. An existing column stays as it is.

``spark-submit alter_table.py dw.delays --column "diverted BIGINT" --property "comment=by carrier and airport"``
changes what every partition means: lock the whole table to write.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def add_column(spark: SparkSession, table: str, name: str, kind: str) -> None:
    """Add a column at the end; the rows that are there have NULL in it."""
    if name.lower() not in map(str.lower, spark.table(table).columns):
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({name} {kind})")


def set_property(spark: SparkSession, table: str, key: str, value: str) -> None:
    """Set one table property."""
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (:key = :value)", {"key": key, "value": value})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--column", action="append", default=[], metavar="'NAME TYPE'", help="may be repeated")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    arguments = parser.parse_args()

    with SparkSession.builder.appName(f"alter_table {arguments.table}").enableHiveSupport().getOrCreate() as spark:
        for column in arguments.column:
            name, _, kind = column.partition(" ")
            add_column(spark, arguments.table, name, kind)
        for pair in arguments.property:
            key, _, value = pair.partition("=")
            set_property(spark, arguments.table, key, value)


if __name__ == "__main__":
    main()
