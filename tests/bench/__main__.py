"""Measure, print the tables, and write ``bench.md`` and ``bench.png``: ``python -m tests.bench``.

Everything runs on this machine in one go: one ZooKeeper that syncs each write to disk, as it does by default, and two JVMs with
Hive's lock manager. The report ends with its targets. Use a machine that does little else.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import beside, grants, measure
from tests.bench.plot import plot
from tests.bench.report import Results, markdown
from tests.support.servers import PostgresServer, ZooKeeperServer
from tests.support.servers.jvm import jars
from tests.support.servers.lock_manager import HiveLockManagers

ROUNDS = {1: 60, 10: 60, 100: 21, 1_000: 9}
WAITERS = (1, 100, 1_000)
HAND_OVERS = 100
RENEWALS = 30
LEASES = 5_000
BESIDE = 200
BURSTS = 3
BURST_S = 4.0

started = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="directory; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds: does it work?")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 32), help="of the tables locked"
    )
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    load_before = os.getloadavg()[0]
    with (
        TemporaryDirectory(prefix="benchmark-") as scratch,
        ZooKeeperServer(Path(scratch), heap_mb=512, fsync=True) as zookeeper,
        HiveLockManagers(Path(scratch), zookeeper=zookeeper) as hive,
        HiveLockManagers(Path(scratch, "other"), zookeeper=zookeeper) as other_hive,
        PostgresServer(Path(scratch)) as postgres,
    ):
        rounds = {count: max(2, times // share) for count, times in ROUNDS.items()}
        cycles = measure.cycles(zookeeper, hive, other_hive, rounds, say)
        granted = grants.measure(zookeeper, BURSTS, BURST_S / share, arguments.seed, say)
        hand_overs = {waiters: measure.hand_overs(zookeeper, waiters, HAND_OVERS // share, say) for waiters in WAITERS}
        crowded = beside.measure(zookeeper, postgres, LEASES // share, BESIDE // share, say)
        renewal = measure.renewal(zookeeper, max(rounds), RENEWALS // share, say)
    results = Results(machine(load_before), cycles, granted, hand_overs, crowded, renewal)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "bench.md").write_text(markdown(results))
    plot(results, arguments.output / "bench.png")
    print(markdown(results))
    say(f"written to {arguments.output}/bench.md and bench.png")


def machine(load_before: float) -> str:
    """Where and on what it was measured."""
    zookeeper = next(jars().glob("zookeeper-[0-9]*.jar")).stem
    hive = next(jars().glob("hive-exec-*.jar")).stem.removesuffix("-core")
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores (load {load_before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after), Python {platform.python_version()}, kazoo {version('kazoo')}, "
        f"{zookeeper} on the same machine **with fsync, its default**, {hive}."
    )


def say(text: str) -> None:
    print(f"{time.monotonic() - started:5.0f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
