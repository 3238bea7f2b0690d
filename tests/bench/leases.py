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

import argparse
import os
import random
import statistics
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from airflow_hivelock.locks import connect
from tests.support.servers import MariaDBServer, PostgresServer, mariadb
from tests.system.leases.crowd import Race, race
from tests.system.leases.work import Ground, broken

WAYS = {
    "PostgreSQL": ("rows", "leases", "advisory", "table"),
    "MariaDB": ("rows", "leases", "table"),
    "SQLite": ("table", "leases", "rows"),
}
AIMS = {("PostgreSQL", "rows"): 6.0, ("MariaDB", "rows"): 12.0}
"""How many times the leases' rate each may have, at the median of the rounds; the others are printed beside."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.leases", description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--grabs", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=WAYS, help="of these only")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 32))
    given = parser.parse_args()
    print(f"{given.grabs:,} grabs of {given.objects} objects by {given.processes} processes; seed {given.seed}")
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before; fsync off in PostgreSQL and MariaDB, full in SQLite"
    )
    failed = False
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="leases-"))
        urls = {"SQLite": f"sqlite:///{scratch}/leases.db"}
        urls["PostgreSQL"] = stack.enter_context(PostgresServer(Path(scratch))).url
        if mariadb.PROGRAM:
            urls["MariaDB"] = stack.enter_context(MariaDBServer(Path(scratch))).url
        for database, ways in WAYS.items():
            if given.database not in (None, database):
                continue
            if database not in urls:
                print(f"{database:>10} is not installed: make test-mysql does")
                continue
            times: defaultdict[str, list[float]] = defaultdict(list)
            for nth in range(given.rounds):
                races: dict[str, Race] = {}
                for way in ways:
                    races[way], wrong = run(f"{urls[database]}?timeout_s=120", way, given.seed + nth, given)
                    failed |= bool(wrong)
                    load = f"load {os.getloadavg()[0]:.1f}"
                    print(
                        f"{database:>10} {way:>8}: {races[way].per_s:7.0f} grabs/s, {load}; {describe(wrong)}",
                        flush=True,
                    )
                for way in ways:
                    times[way].append(races[way].per_s / races["leases"].per_s)
            for floor in ways:
                if floor != "leases":
                    print(f"{database:>10} {floor:>8}: {compared(times[floor], AIMS.get((database, floor)))}")
    sys.exit(failed)


def run(url: str, way: str, seed: int, given: argparse.Namespace) -> tuple[Race, list[str]]:
    with connect(url) as manager:  # makes the tables, and SQLite's journal
        ground = Ground(url)
        ground.create(given.objects)
        taken = race(url, way, processes=given.processes, jobs=given.grabs, objects=given.objects, seed=seed)
        wrong = broken(ground, fenced=way == "leases")
        if taken.done != given.grabs // given.processes * given.processes:
            wrong.append(f"{taken.done} of {given.grabs} grabs were done")
        wrong += [f"left behind: {left}" for left in (*manager.show(), *manager.waiters())]
        ground.close()
    return taken, wrong


def compared(times: list[float], aim: float | None) -> str:
    """How many *times* the leases' rate that is, and what was aimed at."""
    median = statistics.median(times)
    met = f"; aim ≤ {aim:g} ×: {'met' if median <= aim else 'not met'}" if aim else ""
    return f"{median:.2f} × the leases' rate (of {', '.join(f'{one:.2f}' for one in times)}){met}"


def describe(wrong: list[str]) -> str:
    return f"{len(wrong)} things wrong: {wrong[0]}" if wrong else "no conflicting overlap, no lost row"


if __name__ == "__main__":
    main()
