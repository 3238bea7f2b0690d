"""One process that grabs, works and releases: ``python -m tests.system.leases.grabber URL WAY JOBS OBJECTS SEED``.

It answers ``ready``, begins after an order, and answers how many jobs it has done. With JOBS 0 it runs until it is
dismissed. Only then does its process end: the end of a Python process costs as much as a hundred grabs.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect
from tests.support.fleet import answer, dismissal, orders
from tests.system.leases.work import BUSY_S, Ground, Job, job, name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

PAUSES_S = (0.001, 0.1)
"""The first and the longest time after which who met a conflict tries again; a random part of it is waited."""


@contextmanager
def leases(url: str, ground: Ground) -> Iterator[Callable[[Job], None]]:
    """With this package's leases."""
    turn = itertools.count()
    with connect(url) as manager:

        def do(job: Job) -> None:
            lease = manager.acquire(
                owner=f"{os.getpid()}-{next(turn)}",
                reads=[name(number) for number, writes in job if not writes],
                writes=[name(number) for number, writes in job if writes],
                timeout_s=BUSY_S,
            )
            ground.work(job, lease.token)
            manager.release(lease)

        yield do


@contextmanager
def rows(url: str, ground: Ground) -> Iterator[Callable[[Job], None]]:
    """The floor: the counters' own rows, locked for the time of one transaction."""

    def do(job: Job) -> None:
        with ground.transaction():
            found = [ground.value(number, ground.row_lock(writes=writes)) for number, writes in job]
            ground.put(job, found, 0)

    yield do


@contextmanager
def advisory(url: str, ground: Ground) -> Iterator[Callable[[Job], None]]:
    """The floor of what outlives a transaction: PostgreSQL's advisory locks of the session."""

    def do(job: Job) -> None:
        for number, writes in job:
            ground.run(f"select pg_advisory_lock{'' if writes else '_shared'}(%s)", number)
        ground.work(job, 0)
        for number, writes in job:
            ground.run(f"select pg_advisory_unlock{'' if writes else '_shared'}(%s)", number)

    yield do


@contextmanager
def table(url: str, ground: Ground) -> Iterator[Callable[[Job], None]]:
    """The floor of what outlives a process: rows that say who holds what, committed before the work and after it."""

    def do(job: Job) -> None:
        pause_s, most_s = PAUSES_S
        while not ground.hold(job, os.getpid()):
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, most_s)
        ground.work(job, 0)
        ground.let_go(os.getpid())

    yield do


@contextmanager
def lawless(url: str, ground: Ground) -> Iterator[Callable[[Job], None]]:
    """No lock at all: what the checks are there to find."""
    turn = itertools.count()
    yield lambda job: ground.work(job, next(turn))


WAYS: dict[str, Callable[[str, Ground], AbstractContextManager[Callable[[Job], None]]]] = {
    way.__name__: way for way in (leases, rows, advisory, table, lawless)
}


def main(url: str, way: str, jobs: int, objects: int, seed: int) -> None:
    chance, ground, done = random.Random(seed), Ground(url), 0
    with WAYS[way](url, ground) as do:
        answer("ready")
        next(orders())
        over = dismissal()
        while done < jobs if jobs else not over.is_set():
            do(job(chance, objects))
            done += 1
    ground.close()
    answer(done)
    over.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
