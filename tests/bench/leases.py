"""Leases in a database, compared with the cheapest equivalent locks: ``python -m tests.bench.leases``.

Each process grabs one or two of the objects, reads and writes a counter for each under the lease, and releases. The
floors do the same work without this package, first come, last served:

rows
    within one transaction that locks the counters' own rows; in SQLite, the file. This is the least that excludes others.
    But its locks last as long as the transaction, and it has only one commit.
advisory
    under PostgreSQL's advisory locks of the session, which last as long as the session, and leave no trace.
table
    with a row for each lock, committed before the work begins and deleted after it. A lease needs that to outlive a
    process and to be visible. After a conflict a process tries again, with growing pauses. This floor has the same
    promise as a lease. SQLite has no other: a lease there is three synced commits, and ``rows`` is one.

Every history is checked: no update is lost, no row is missing, and each writer follows the one with the next lower
token. Each round runs all ways one after another, because the speed of a shared machine changes from minute to minute.
The median of the rounds' ratios counts. SELECT … FOR UPDATE, ``rows``, may be six times as fast as a lease in
PostgreSQL, and twelve times in MariaDB. The rules of the queue are in Python, in one place. So a grant reads the
candidates and writes the decision in two round trips, which causes this cost.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect
from tests.bench import runner
from tests.bench.runner import TARGETS, Target
from tests.bench.samples import Samples
from tests.support.documented import table
from tests.support.servers import MariaDBServer, PostgresServer, mariadb
from tests.system.leases.crowd import Race, race
from tests.system.leases.work import Ground, broken

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES, OBJECTS = 16, 50
WAYS = {
    "PostgreSQL": ("rows", "leases", "advisory", "table"),
    "MariaDB": ("rows", "leases", "table"),
    "SQLite": ("table", "leases", "rows"),
}
AIMS = {("PostgreSQL", "rows"): 6.0, ("MariaDB", "rows"): 12.0}
"""How many times the leases' rate each may have, at the median of the rounds; the others are printed beside."""


def main() -> None:
    parser = runner.parser("tests.bench.leases", __doc__)
    parser.add_argument("--database", choices=WAYS, help="of these only")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1, 1 << 32)
    grabs, times = (320, 1) if given.quick else (10_000, 3)
    print(f"{grabs:,} grabs of {OBJECTS} objects by {PROCESSES} processes; seed {seed}")
    failed, targets = False, []
    with ExitStack() as stack:
        scratch = stack.enter_context(runner.workplace())
        urls = {"SQLite": f"sqlite:///{scratch}/leases.db"}
        urls["PostgreSQL"] = stack.enter_context(PostgresServer(scratch)).url
        if mariadb.PROGRAM:
            urls["MariaDB"] = stack.enter_context(MariaDBServer(scratch)).url
        for database, ways in WAYS.items():
            if given.database not in (None, database):
                continue
            if database not in urls:
                print(f"{database:>10} is not installed: make test-mysql does")
                continue

            def measured(way: str, seeds: Iterator[int], database: str = database) -> float:
                nonlocal failed
                taken, wrong = run(f"{urls[database]}?timeout_s=120", way, next(seeds), grabs)
                failed |= bool(wrong)
                load = f"load {os.getloadavg()[0]:.1f}"
                print(f"{database:>10} {way:>8}: {taken.per_s:7.0f} grabs/s, {load}; {describe(wrong)}", flush=True)
                return taken.per_s

            found = runner.rounds({way: partial(measured, way, itertools.count(seed)) for way in ways}, times)
            per_s = {way: Samples.of(rates) for way, rates in found.items()}
            for floor in ways:
                if floor != "leases":
                    ratios = per_s[floor].to(per_s["leases"])
                    print(f"{database:>10} {floor:>8}: {ratios} × the leases' rate")
                    if aim := AIMS.get((database, floor)):
                        targets.append(Target(f"{floor} in {database}, against leases", ratios.median, aim, " ×"))
    print(f"\n{runner.machine()}; fsync off in PostgreSQL and MariaDB, full in SQLite\n")
    print(table(TARGETS, (target.row for target in targets)))
    sys.exit(failed)


def run(url: str, way: str, seed: int, grabs: int) -> tuple[Race, list[str]]:
    with connect(url) as manager:  # makes the tables, and SQLite's journal
        ground = Ground(url)
        ground.create(OBJECTS)
        taken = race(url, way, processes=PROCESSES, jobs=grabs, objects=OBJECTS, seed=seed)
        wrong = broken(ground, fenced=way == "leases")
        if taken.done != grabs // PROCESSES * PROCESSES:
            wrong.append(f"{taken.done} of {grabs} grabs were done")
        wrong += [f"left behind: {left}" for left in (*manager.show(), *manager.waiters())]
        ground.close()
    return taken, wrong


def describe(wrong: list[str]) -> str:
    return f"{len(wrong)} things wrong: {wrong[0]}" if wrong else "no conflicting overlap, no lost row"


if __name__ == "__main__":
    main()
