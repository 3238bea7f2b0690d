"""Print how late each carrier left over a week, from dw.delays.

``spark-submit weekly_report.py --to 2013-01-18`` reads ``dw.delays/dt=2013-01-12..2013-01-18``: lock it to read.
"""

from __future__ import annotations

import argparse
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

REPORT = """
    SELECT carrier, sum(flights) AS flights, sum(flights - departed) AS cancelled,
           round(sum(dep_delay_minutes) / sum(departed), 1) AS mean_dep_delay_minutes
    FROM dw.delays WHERE dt BETWEEN '{first}' AND '{last}' GROUP BY carrier ORDER BY flights DESC
"""


def report(spark: SparkSession, last: date) -> DataFrame:
    """One row a carrier over the seven days that end with ``last``, the largest first."""
    return spark.sql(REPORT.format(first=last - timedelta(days=6), last=last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", dest="last", type=date.fromisoformat, required=True, metavar="DATE", help="inclusive")
    arguments = parser.parse_args()

    with SparkSession.builder.appName(f"weekly_report {arguments.last}").enableHiveSupport().getOrCreate() as spark:
        report(spark, arguments.last).show(n=100, truncate=False)


if __name__ == "__main__":
    main()
