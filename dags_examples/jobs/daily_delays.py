"""Aggregate the delays of a day's flights, by carrier and airport, into that day's partition of dw.delays.

``spark-submit daily_delays.py --dt 2013-01-15``, or ``--from 2013-01-12 --to 2013-01-18`` for a rerun, day by day.
Reads ``dw.flights/dt=…`` and overwrites ``dw.delays/dt=…``: lock the one to read and the other to write.
"""

from __future__ import annotations

import argparse
from datetime import date, timedelta

from pyspark.sql import SparkSession

CREATE = """
    CREATE TABLE IF NOT EXISTS dw.delays (
        carrier STRING, origin STRING, flights BIGINT, departed BIGINT, dep_delay_minutes BIGINT, arr_delay_minutes BIGINT
    ) PARTITIONED BY (dt STRING) STORED AS PARQUET
"""

# The columns are named so that one added to the table later does not break the job.
OVERWRITE = """
    INSERT OVERWRITE TABLE dw.delays PARTITION (dt = '{dt}')
        (carrier, origin, flights, departed, dep_delay_minutes, arr_delay_minutes)
    SELECT carrier, origin, count(*), count(dep_delay), sum(dep_delay), sum(arr_delay)
    FROM dw.flights WHERE dt = '{dt}' GROUP BY carrier, origin
"""


def aggregate(spark: SparkSession, first: date, last: date) -> None:
    """Overwrite the partitions ``first`` to ``last`` (inclusive), one after the other."""
    spark.sql(CREATE)
    for day in range((last - first).days + 1):
        spark.sql(OVERWRITE.format(dt=first + timedelta(days=day)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dt", type=date.fromisoformat, metavar="DATE", help="the one day")
    parser.add_argument("--from", dest="first", type=date.fromisoformat, metavar="DATE")
    parser.add_argument("--to", dest="last", type=date.fromisoformat, metavar="DATE", help="inclusive")
    arguments = parser.parse_args()
    first, last = arguments.first or arguments.dt, arguments.last or arguments.dt
    if first is None or last is None:
        parser.error("give --dt, or --from and --to")

    with SparkSession.builder.appName(f"daily_delays {first}..{last}").enableHiveSupport().getOrCreate() as spark:
        aggregate(spark, first, last)


if __name__ == "__main__":
    main()
