"""Notes its token, waits for its gate, and publishes: ``yarn_job.py NOTES GATE PARTITION LOCATION``.

It appends to NOTES that it begins and, once the file GATE exists, that it ends, each with its token. Between, it overwrites
PARTITION, of a table below LOCATION that it makes where there is none, with one row that has the token.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_hivelock.spark import Guard

SHUT_S = 1800.0


def main(notes: str, gate: str, partition: str, location: str) -> None:
    with SparkSession.builder.enableHiveSupport().getOrCreate() as spark:
        guard = Guard.of(spark)

        def note(what: str) -> None:
            with Path(notes).open("a") as lines:
                lines.write(f"{what} {guard.token}\n")

        note("begin")
        until = time.monotonic() + SHUT_S
        while not Path(gate).exists():
            if time.monotonic() > until:
                raise TimeoutError(f"nobody opened {gate}")
            time.sleep(0.05)
        table = partition.partition("/")[0]
        database = table.partition(".")[0]
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {database} LOCATION '{location}/{database}.db'")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (token BIGINT) PARTITIONED BY (dt STRING) STORED AS PARQUET")
        with guard.overwrite(partition) as path:
            spark.range(guard.token, guard.token + 1).toDF("token").write.parquet(path)
        assert [row.token for row in spark.table(table).collect()] == [guard.token]
        note("end")
        guard.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
