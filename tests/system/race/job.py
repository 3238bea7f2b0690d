"""A Spark job that stays up, for spark-submit: ``job.py PORT`` takes orders from 127.0.0.1:PORT.

The job ends when the connection ends.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_hivelock.locks.backends.zookeeper import nodes
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import LockLost
from airflow_hivelock.spark.guard import Guard
from airflow_hivelock.spark.hive_locks import enable_hive_locks
from airflow_hivelock.spark.target import Target
from tests.system.race.order import Order, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks.model import LockObject

ACQUIRE_S = 120.0

# One connection for each store and process, as in the hook of an Airflow worker.
manager_of = cache(connect)


@contextmanager
def locked(spark: SparkSession, order: Order) -> Iterator[None]:
    """Hold the order's locks, if it names a lock store and has no lease."""
    if order.by_session:
        locks = enable_hive_locks(spark, order.locks_url, timeout_s=ACQUIRE_S)
        try:
            yield
        finally:
            locks.disable()
        return
    if order.locks_url is None or order.lease:
        yield
        return
    manager = manager_of(order.locks_url)
    lease = manager.acquire(owner=order.owner, reads=order.reads, writes=order.writes, timeout_s=ACQUIRE_S)
    try:
        yield
    finally:
        manager.release(lease)


def run(spark: SparkSession, order: Order, pause: Callable[[str], None]) -> Reply:
    """Run one order. The reply contains an error of Spark, or a lost lease. Other errors of the lock manager end the process."""
    for key, value in order.settings.items():
        spark.conf.set(key, value)
    with locked(spark, order):
        try:
            *before, last = order.statements
            for statement in before:
                spark.sql(statement)
            if order.overwrites:
                return Reply(rows=((overwrite(spark, order, pause),),))
            pause("before it writes")
            return Reply(rows=tuple(tuple(row) for row in spark.sql(last).collect()))
        except (PySparkException, LockLost) as error:
            return Reply(error=f"{type(error).__name__}: {error}")
        except Py4JJavaError as error:
            return Reply(error=error.java_exception.toString())


def overwrite(spark: SparkSession, order: Order, pause: Callable[[str], None]) -> float:
    """Publish with the guard. Return the time between its check and the effect, in milliseconds."""
    assert order.locks_url
    assert order.lease
    guard = Watched(manager_of(order.locks_url), order.lease[0], order.owner, order.lease[1], spark)
    guard.pause = pause
    with guard.overwrite(order.overwrites) as path:
        spark.sql(order.statements[-1]).write.parquet(path)
        pause("before its look")
        guard.publishes = True
    return (guard.took_effect - guard.looked) * 1000


class Watched(Guard):
    """A guard that calls *pause* at each step between its check and the effect."""

    pause: Callable[[str], None]
    publishes = False
    looked = took_effect = 0.0

    def check(self) -> None:
        if not self.publishes:
            return super().check()
        self.publishes = False
        with mock.patch.object(nodes, "look_for_losses", side_effect=nodes.look_for_losses) as look:
            look.side_effect = partial(self._in_the_midst, look.side_effect)
            super().check()
        self.looked = time.monotonic()
        return self.pause("after its look")

    def _in_the_midst(self, look: Callable[..., Any], *given: Any) -> Any:
        self.pause("during its look")
        return look(*given)

    def _target(self, written: LockObject) -> Target:
        return WatchedTarget(self, self._spark, written)


class WatchedTarget(Target):
    def __init__(self, guard: Watched, spark: SparkSession, written: LockObject) -> None:
        super().__init__(spark, written)
        self.guard = guard

    def mark(self, path: str) -> None:
        self.guard.took_effect = time.monotonic()
        self.guard.pause("before its mark")
        super().mark(path)


def main() -> None:
    spark = SparkSession.builder.enableHiveSupport().getOrCreate()
    with spark, socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        stream = connection.makefile("rw")

        def say(reply: Reply) -> None:
            stream.write(reply.to_line())
            stream.flush()

        while line := stream.readline():
            order = Order.from_line(line)

            def pause(here: str, order: Order = order) -> None:
                if here == order.pause_at:
                    say(Reply(paused_at=here))
                    stream.readline()

            say(run(spark, order, pause))


if __name__ == "__main__":
    main()
