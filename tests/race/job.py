"""A Spark job that stays up, run by spark-submit: ``job.py PORT`` takes orders from 127.0.0.1:PORT.

It ends when the connection does.
"""

from __future__ import annotations

import socket
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_hivelock.locks.connect import connect
from tests.race.order import Order, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

ACQUIRE_S = 120.0

# One connection a store for the life of the process, as a worker's hook keeps it.
manager_of = cache(connect)


@contextmanager
def locked(order: Order) -> Iterator[None]:
    """Hold the order's locks, if it asks for any."""
    if order.locks_url is None:
        yield
        return
    manager = manager_of(order.locks_url)
    lease = manager.acquire(owner=order.owner, reads=order.reads, writes=order.writes, timeout_s=ACQUIRE_S)
    try:
        yield
    finally:
        manager.release(lease)


def run(spark: SparkSession, order: Order) -> Reply:
    """Run one order. Spark's errors are its answer; a lock manager's end the process."""
    for key, value in order.settings.items():
        spark.conf.set(key, value)
    with locked(order):
        try:
            *before, last = order.statements
            for statement in before:
                spark.sql(statement)
            return Reply(rows=tuple(tuple(row) for row in spark.sql(last).collect()))
        except PySparkException as error:
            return Reply(error=str(error))
        except Py4JJavaError as error:
            return Reply(error=error.java_exception.toString())


def main() -> None:
    spark = SparkSession.builder.enableHiveSupport().getOrCreate()
    with spark, socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        stream = connection.makefile("rw")
        for line in stream:
            stream.write(run(spark, Order.from_line(line)).to_line())
            stream.flush()


if __name__ == "__main__":
    main()
