"""A job that is stopped with SIGSTOP while it overwrites a partition, and goes on after another has overwritten that."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect
from tests.race.order import Order, Reply

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease, LockManager
    from tests.race.track import Track

UNGUARDED = "before it writes"
STOPS = ("before its look", "during its look", "after its look", "before its mark")

_numbers = itertools.count()


@dataclass(frozen=True)
class Late:
    """What became of it.

    :param stopped: the answer of the job that was stopped.
    :param rows: whose rows the partition has at the end.
    :param window_ms: of the other job, between its look and the effect.
    """

    stopped: Reply
    rows: tuple[str, ...]
    window_ms: float


def overtake(track: Track, at: str, *, later_try: bool = False, partition: bool = True) -> Late:
    """Stop one job at *at*, force its lease free (or start its later try), have the other publish, and let it go on."""
    table, (one, other) = f"race.late_{next(_numbers)}", track.sparks
    name = f"{table}/dt=1" if partition else table
    columns, spec = (
        ("(job STRING) PARTITIONED BY (dt STRING)", "PARTITION (dt = '1')") if partition else ("(job STRING)", "")
    )
    make = (
        "CREATE DATABASE IF NOT EXISTS race",
        f"CREATE TABLE {table} {columns} STORED AS PARQUET",
        f"INSERT OVERWRITE TABLE {table} {spec} SELECT 'base'",
    )
    with connect(track.locks_url) as manager:

        def order(job: str, lease: Lease) -> Order:
            work = lease.work("job")
            assert work
            rows = f"SELECT '{job}' AS job"
            given = {"locks_url": track.locks_url, "lease": (lease.id, work.token), "overwrites": name}
            if at == UNGUARDED:
                given, rows = {}, f"INSERT OVERWRITE TABLE {table} {spec} {rows}"
            return Order("job", (rows,), pause_at=at if job == "stopped" else "", **given)  # type: ignore[arg-type]

        reply = one.run(Order("job", make))
        assert not reply.error, reply.error
        lease = _start(manager, manager.acquire(owner=f"{table} a", writes=[name], attempt=1))
        assert one.run(order("stopped", lease)).paused_at == at
        one.suspend()
        try:
            if later_try:
                taken = manager.acquire(owner=lease.owner, writes=[name], attempt=2)
            else:
                manager.force_release(lease.id, reason="it does not answer", user="test")
                taken = manager.acquire(owner=f"{table} b", writes=[name])
            published = other.run(order("other", _start(manager, taken)))
            assert not published.error, published.error
        finally:
            one.resume()
        one.go_on()
        stopped = one.receive()
        read = other.run(Order("job", (f"REFRESH TABLE {table}", f"SELECT job FROM {table}")))
        manager.force_release(taken.id, reason="over", user="test")
    window_ms = published.rows[0][0] if published.rows else 0.0
    return Late(stopped, tuple(row[0] for row in read.rows), window_ms)


def _start(manager: LockManager, lease: Lease) -> Lease:
    return manager.start_work(lease, "job", "")
