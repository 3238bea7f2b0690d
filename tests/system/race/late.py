"""A job is stopped with SIGSTOP while it overwrites a partition. It continues after another job has overwritten it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect
from tests.system.race.order import Order, Reply

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.system.race.spark import ResidentSpark
    from tests.system.race.track import Track

UNGUARDED = "before it writes"
STOPS = ("before its look", "during its look", "after its look", "before its mark")

_numbers = itertools.count()


@dataclass(frozen=True)
class Late:
    """The result.

    :param stopped: the answer of the stopped job.
    :param rows: the job whose rows the partition has at the end.
    :param window_ms: the time between the check and the effect of the other job, in milliseconds.
    """

    stopped: Reply
    rows: tuple[str, ...]
    window_ms: float


def overtake(track: Track, at: str, *, later_try: bool = False, partition: bool = True) -> Late:
    """Stop one job, let the other job publish, and let the first one continue.

    :param at: the step at which the first job is stopped.
    :param later_try: the other job is a later attempt of the first one. Otherwise a user frees the first job's lease.
    :param partition: the jobs overwrite a partition. Otherwise they overwrite a table.
    """
    table, (one, other) = f"race.late_{next(_numbers)}", track.sparks
    name, spec = (f"{table}/dt=1", "PARTITION (dt = '1')") if partition else (table, "")
    make(one, table, f"(job STRING) {'PARTITIONED BY (dt STRING)' if partition else ''} STORED AS PARQUET")
    with connect(track.locks_url) as manager:

        def order(job: str, lease: Lease) -> Order:
            if at == UNGUARDED:
                insert = f"INSERT OVERWRITE TABLE {table} {spec} SELECT '{job}'"
                return Order("job", (insert,), pause_at=at if job == "stopped" else "")
            return replace(overwriting(track, name, job, lease), pause_at=at if job == "stopped" else "")

        lease = start(manager, f"{table} a", name)
        assert one.run(order("stopped", lease)).paused_at == at
        one.suspend()
        try:
            if later_try:
                taken = start(manager, lease.owner, name, attempt=2)
            else:
                manager.force_release(lease.id, reason="it does not answer", user="test")
                taken = start(manager, f"{table} b", name)
            published = other.run(order("other", taken))
            assert not published.error, published.error
        finally:
            one.resume()
        one.go_on()
        stopped = one.receive()
        manager.force_release(taken.id, reason="over", user="test")
    return Late(stopped, rows(other, table), published.rows[0][0] if published.rows else 0.0)


def make(spark: ResidentSpark, table: str, columns: str) -> None:
    """Create an empty table."""
    reply = spark.run(Order("job", ("CREATE DATABASE IF NOT EXISTS race", f"CREATE TABLE {table} {columns}")))
    assert not reply.error, reply.error


def start(manager: LockManager, owner: str, name: str, attempt: int = 1) -> Lease:
    """A lease on *name*, with recorded work."""
    return manager.start_work(manager.acquire(owner=owner, writes=[name], attempt=attempt), "job", "")


def overwriting(track: Track, name: str, job: str, lease: Lease) -> Order:
    """The order to overwrite *name* with one row of *job*, with the guard."""
    work = lease.work("job")
    assert work
    return Order(
        "job", (f"SELECT '{job}' AS job",), locks_url=track.locks_url, lease=(lease.id, work.token), overwrites=name
    )


def rows(spark: ResidentSpark, table: str) -> tuple[str, ...]:
    """The jobs whose rows the table has. *spark* reads the files again, because it may have cached older ones."""
    reply = spark.run(Order("job", (f"REFRESH TABLE {table}", f"SELECT job FROM {table}")))
    assert not reply.error, reply.error
    return tuple(row[0] for row in reply.rows)
