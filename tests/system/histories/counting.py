"""A process that counts up under a lock: it reads, waits for an order, and writes.

The counter's store knows no locks. If it is *fenced*, it compares each write with the last one, and refuses writes that
come late. The order is the lease's ``(token, epoch)``: of conflicting leases the later has the larger token, and of
processes that act for one lease the later has the larger epoch.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from airflow_hivelock.locks import Lease, connect
from tests.support.fleet import answer, orders

OBJECT = "dw.delays/dt=2013-01-01"
FENCES = {
    "none": "",
    "token": "where token <= :token",
    "token and epoch": "where (token, epoch) <= (:token, :epoch)",
}


def create(store: Path) -> None:
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("create table counter as select 0 as value, 0 as token, 0 as epoch")


def read(store: Path) -> int:
    with closing(sqlite3.connect(store)) as database:
        return int(database.execute("select value from counter").fetchone()[0])


def write(store: Path, value: int, lease: Lease, fence: str) -> bool:
    """Whether the store took it: compared and written at once."""
    given = {"value": value, "token": lease.token, "epoch": lease.epoch}
    with closing(sqlite3.connect(store)) as database, database:
        changed = database.execute(
            f"update counter set value = :value, token = :token, epoch = :epoch {FENCES[fence]}", given
        )
        return changed.rowcount == 1


def main(url: str, store: Path, fence: str, owner: str, attempt: int) -> None:
    with connect(url) as manager:
        lease = manager.acquire(owner=owner, writes=[OBJECT], attempt=attempt, timeout_s=60)
        seen = read(store)
        manager.verify(lease)  # no look that comes before the write is late enough
        answer("read")
        next(orders())
        answer("written" if write(store, seen + 1, lease, fence) else "refused")
        manager.release(lease)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
