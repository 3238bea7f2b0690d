"""Measure, print the tables, and write ``bench.md`` and ``bench.png``: ``python -m tests.bench``.

Everything runs on this machine in one go: one ZooKeeper that syncs each write to disk, as it does by default, and two JVMs with
Hive's lock manager. The report ends with its targets. Use a machine that does little else.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from importlib.metadata import version

from tests.bench import beside, grants, measure, runner
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


def main() -> None:
    parser = runner.parser("tests.bench", __doc__)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 32), help="of the tables locked"
    )
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    with (
        runner.workplace() as scratch,
        ZooKeeperServer(scratch, heap_mb=512, fsync=True) as zookeeper,
        HiveLockManagers(scratch, zookeeper=zookeeper) as hive,
        HiveLockManagers(scratch / "other", zookeeper=zookeeper) as other_hive,
        PostgresServer(scratch) as postgres,
    ):
        rounds = {count: max(2, times // share) for count, times in ROUNDS.items()}
        cycles = measure.cycles(zookeeper, hive, other_hive, rounds)
        granted = grants.measure(zookeeper, BURSTS, BURST_S / share, arguments.seed)
        hand_overs = {waiters: measure.hand_overs(zookeeper, waiters, HAND_OVERS // share) for waiters in WAITERS}
        crowded = beside.measure(zookeeper, postgres, LEASES // share, BESIDE // share)
        renewal = measure.renewal(zookeeper, max(rounds), RENEWALS // share)
    results = Results(software(), cycles, granted, hand_overs, crowded, renewal)
    runner.publish(arguments.output, "bench.md", markdown(results))
    plot(results, arguments.output / "bench.png")


def software() -> str:
    """Where and on what it was measured."""
    zookeeper = next(jars().glob("zookeeper-[0-9]*.jar")).stem
    hive = next(jars().glob("hive-exec-*.jar")).stem.removesuffix("-core")
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {runner.machine()}, kazoo {version('kazoo')}, "
        f"{zookeeper} on the same machine **with fsync, its default**, {hive}."
    )


if __name__ == "__main__":
    main()
