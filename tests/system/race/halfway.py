"""Overwrite a partition, and wait halfway until the file NOTES.gate exists: ``halfway.py TABLE JOB NOTES DAY``.

The job writes a line to NOTES.log when it begins to write, when it waits, and when it has ended. If another job writes the
partition meanwhile, the files of both are mixed, or one job loses its files.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

FILES = 4
ROWS = 400
WAIT_S = 600.0

OVERWRITE = f"""
    INSERT OVERWRITE TABLE {{table}} PARTITION (dt = '{{day}}')
    SELECT written_by(spark_partition_id()) FROM (SELECT /*+ REPARTITION({FILES}) */ id FROM range({ROWS}))
"""


def main(table: str, job: str, notes: str, day: str) -> None:
    log, gate = Path(f"{notes}.log"), Path(f"{notes}.gate")

    def note(what: str) -> None:
        with log.open("a") as lines:
            lines.write(f"{job} {what}\n")

    def written_by(file: int) -> str:
        if file == FILES - 1 and not gate.exists():
            note("is halfway")
            until = time.monotonic() + WAIT_S
            while not gate.exists():
                if time.monotonic() > until:
                    raise TimeoutError(f"{gate} does not exist after {WAIT_S:g} s")
                time.sleep(0.05)
        return job

    with SparkSession.builder.appName(job).enableHiveSupport().getOrCreate() as spark:
        spark.udf.register("written_by", written_by)
        note("begins")
        try:
            spark.sql(OVERWRITE.format(table=table, day=day))
        finally:
            note("has ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
