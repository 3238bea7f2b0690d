"""Overwrite a partition, and stop halfway for as long as a gate is shut: ``halfway.py TABLE JOB NOTES DAY``.

NOTES.log gets a line when the job begins to write, when it stops, and when it has ended; NOTES.gate, a file, opens the
gate. Whoever else writes the partition in between merges the files that are there, or loses his own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

FILES = 4
ROWS = 400
SHUT_S = 600.0

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
            until = time.monotonic() + SHUT_S
            while not gate.exists():
                if time.monotonic() > until:
                    raise TimeoutError(f"nobody opened {gate}")
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
