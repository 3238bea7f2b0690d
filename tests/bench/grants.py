"""Grants per second: many clients lock at once, and as many create the same nodes by bare transactions, or send the
same requests without any rule.

Each client locks a random partition of its own in one of fifty tables, and frees it. So no client waits for another's
lock, and all clients use the same database. In two further ways all use one table, or read one partition. The clients are threads of a few processes (``python -m tests.bench.grants
HOSTS FIRST``). They share the session of their process, as an Airflow's triggerer and its workers do. Rounds of all
ways alternate. The cost is measured from outside: the processes' own CPU time, the server's, and the server's own
counts of requests, writes and syncs to disk.
"""

from __future__ import annotations

import operator
import random
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import psutil

from tests.bench.contenders import Floor, OneTable, Ours, Readers, Steps
from tests.bench.measure import zxid
from tests.bench.runner import rounds, say
from tests.bench.samples import Samples
from tests.support.fleet import Fleet, answer, orders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.servers import ZooKeeperServer

PROCESSES = 4
THREADS = 4
TABLES = tuple(f"dw.table_{number:02d}" for number in range(50))
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Usage:
    """The usage of the server and the clients so far.

    :param requests: the requests that the server has received, pings included.
    :param writes: transactions, refused ones included.
    :param syncs: of its log to disk.
    """

    grants: int = 0
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    requests: int = 0
    writes: int = 0
    syncs: int = 0
    sync_s: float = 0.0

    @classmethod
    def of(cls, zookeeper: ZooKeeperServer) -> Usage:
        """The server's."""
        said = dict(line.split("\t", 1) for line in zookeeper.four_letters("mntr").splitlines() if "\t" in line)
        cpu = psutil.Process(zookeeper.pid).cpu_times()
        return cls(
            server_cpu_s=cpu.user + cpu.system,
            requests=int(said["zk_packets_received"]),
            writes=zxid(zookeeper),
            syncs=int(float(said["zk_cnt_fsynctime"])),
            sync_s=float(said["zk_sum_fsynctime"]) / 1000,
        )


@dataclass(frozen=True)
class Burst:
    """Some seconds of one way."""

    seconds: float
    used: Usage

    @property
    def per_s(self) -> float:
        return self.used.grants / self.seconds

    @property
    def cores(self) -> float:
        """How many of them the clients and the server kept busy."""
        return (self.used.client_cpu_s + self.used.server_cpu_s) / self.seconds


@dataclass(frozen=True)
class Grants:
    """Bursts by way, those of one round at the same place."""

    clients: int
    seed: int
    bursts: Mapping[str, tuple[Burst, ...]]

    def of(self, way: str, figure: Callable[[Burst], float]) -> Samples:
        return Samples.of(map(figure, self.bursts[way]))

    def to_bare(self, way: str) -> Samples:
        """That way's grants per second to the bare transactions', by round."""
        per_s = operator.attrgetter("per_s")
        return self.of(way, per_s).to(self.of(Floor.name, per_s))


class Way(Protocol):
    """A step that several threads repeat."""

    def cycle(self, writes: Sequence[str]) -> None:
        """Lock the partitions *writes*, and free them."""
        ...

    def close(self) -> None: ...


WAYS: dict[str, Callable[[str], Way]] = {
    Ours.name: lambda hosts: Ours(hosts, "hive-grants"),
    OneTable.name: lambda hosts: OneTable(hosts, "hive-one-table"),
    Readers.name: lambda hosts: Readers(hosts, "hive-readers"),
    Steps.name: lambda hosts: Steps(hosts, TABLES),
    Floor.name: lambda hosts: Floor(hosts, "/floor-grants", TABLES),
}


def measure(zookeeper: ZooKeeperServer, times: int, burst_s: float, seed: int) -> Grants:
    """Have :data:`PROCESSES` of :data:`THREADS` clients each do every way for *burst_s* in turn, so many *times*."""
    say(f"grants a second by {PROCESSES * THREADS} clients, {times} rounds")
    with Fleet() as fleet:
        for nth in range(PROCESSES):
            fleet.start("tests.bench.grants", zookeeper.hosts, THREADS * nth)
        for way in WAYS:
            _burst(zookeeper, fleet, way, WARM_UP_S, [seed])
        seeds = {way: list(range(seed + times, seed, -1)) for way in WAYS}
        found = rounds({way: partial(_burst, zookeeper, fleet, way, burst_s, seeds[way]) for way in WAYS}, times)
        fleet.end()
        return Grants(PROCESSES * THREADS, seed, {way: tuple(bursts) for way, bursts in found.items()})


def _burst(zookeeper: ZooKeeperServer, fleet: Fleet, way: str, seconds: float, seeds: list[int]) -> Burst:
    before, begun = Usage.of(zookeeper), time.monotonic()
    fleet.tell(way, seconds, seeds.pop())
    done = fleet.hear()
    taken, after = time.monotonic() - begun, Usage.of(zookeeper)
    return Burst(
        taken,
        Usage(
            sum(grants for grants, _ in done),
            sum(cpu_s for _, cpu_s in done),
            after.server_cpu_s - before.server_cpu_s,
            after.requests - before.requests,
            after.writes - before.writes,
            after.syncs - before.syncs,
            after.sync_s - before.sync_s,
        ),
    )


def main(hosts: str, first: str) -> None:
    """Each order is a burst. The answer: the grants, and the CPU time that the process took for them."""
    ways: dict[str, Way] = {}
    for name, seconds, seed in orders():
        if name not in ways:
            ways[name] = WAYS[name](hosts)
            for table in TABLES:  # each is known from here on, as after the first day
                ways[name].cycle([f"{table}/n={first}"])
        cpu_s = time.process_time()
        grants = _crowd(ways[name], range(int(first), int(first) + THREADS), seconds, seed)
        answer([grants, time.process_time() - cpu_s])
    for way in ways.values():
        way.close()


def _crowd(way: Way, clients: range, seconds: float, seed: int) -> int:
    done: list[int] = []
    until = time.monotonic() + seconds

    def run(client: int) -> None:
        chance, grants = random.Random(f"{seed}-{client}"), 0
        while time.monotonic() < until:
            way.cycle([f"{chance.choice(TABLES)}/n={client}"])
            grants += 1
        done.append(grants)

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == len(threads), "a client failed; its traceback is above"
    return sum(done)


if __name__ == "__main__":
    main(*sys.argv[1:])
