"""The three measurements, each of all contenders side by side: one round of each in turn."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockManager
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.bench.contenders import TIMEOUT_S, Floor, Hive, Ours, Recipes, partitions
from tests.bench.relay import OurRelay, RecipeRelay
from tests.bench.samples import Samples, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.bench.contenders import Contender
    from tests.bench.relay import Relay
    from tests.support.servers import ZooKeeperServer
    from tests.support.servers.lock_manager import HiveLockManagers

WARM_UP = {1: 30, 100: 5, 1_000: 1}
"""Rounds by partitions, to be thrown away: Hive's JVM and ZooKeeper's compile what they run often."""


@dataclass(frozen=True)
class Cycle:
    """Acquiring and releasing again, apart and together."""

    lock: Samples
    unlock: Samples

    @property
    def total(self) -> Samples:
        return Samples.of(map(sum, zip(self.lock.ms, self.unlock.ms, strict=True)))


@dataclass(frozen=True)
class HandOver:
    """Passing a lock down a line.

    :param wakes: watch events a hand-over, on average; only of ours.
    """

    times: Samples
    wakes: float | None


@dataclass(frozen=True)
class Renewal:
    """Renewing the lease of many partitions.

    :param writes: how far ZooKeeper's zxid moved each time.
    """

    times: Samples
    writes: tuple[int, ...]


def cycles(
    zookeeper: ZooKeeperServer, hive: HiveLockManagers, rounds: Mapping[int, int], say: Callable[[str], None]
) -> dict[str, dict[int, Cycle]]:
    """Acquire and release, by contender and number of partitions; *rounds* by number of partitions."""
    with ExitStack() as stack:
        contenders: list[Contender] = [
            Ours(_manager(zookeeper, "hive-cycles")),
            Hive(hive),
            Recipes(zookeeper),
            Floor(zookeeper),
        ]
        for contender in contenders:
            stack.enter_context(closing(contender))
        say("warming up")
        for count, times in WARM_UP.items():
            for _ in _rounds(contenders, count, times if count in rounds else 0):
                pass
        found: dict[str, dict[int, Cycle]] = {contender.name: {} for contender in contenders}
        for count, times in rounds.items():
            say(f"acquire and release of {count:,} partitions, {times} rounds")
            taken = list(_rounds(contenders, count, times))
            for name, by_count in found.items():
                lock, unlock = zip(*(one[name] for one in taken), strict=True)
                by_count[count] = Cycle(Samples.of(lock), Samples.of(unlock))
        return found


def hand_overs(
    zookeeper: ZooKeeperServer, waiters: int, rounds: int, say: Callable[[str], None]
) -> dict[str, HandOver]:
    """Hand-overs by contender, with as many *waiters* in line all the time."""
    say(f"{rounds} hand-overs with {waiters:,} waiting")
    with (
        closing(OurRelay(_manager(zookeeper, f"hive-relay-{waiters}"), waiters)) as ours,
        closing(RecipeRelay(zookeeper, waiters)) as recipe,
    ):
        relays: list[Relay] = [ours, recipe]
        times: dict[str, list[float]] = {relay.name: [] for relay in relays}
        for _ in range(rounds):
            for relay in relays:
                times[relay.name].append(relay.hand_over())
                relay.join()
        wakes = {ours.name: ours.wakes / rounds}
        return {name: HandOver(Samples.of(taken), wakes.get(name)) for name, taken in times.items()}


def renewal(zookeeper: ZooKeeperServer, count: int, rounds: int, say: Callable[[str], None]) -> Renewal:
    """Renew the lease of *count* partitions, again and again."""
    say(f"renewal of {count:,} partitions")
    with _manager(zookeeper, "hive-renewal") as manager:
        lease = manager.acquire(owner="flights/run-0", writes=partitions(count))
        times, writes = [], []
        for _ in range(rounds):
            before = zxid(zookeeper)
            times.append(timed(lambda: manager.renew(lease)))
            writes.append(zxid(zookeeper) - before)
        manager.release(lease)
        return Renewal(Samples.of(times), tuple(writes))


def zxid(zookeeper: ZooKeeperServer) -> int:
    """ZooKeeper's latest write."""
    line = next(line for line in zookeeper.four_letters("srvr").splitlines() if line.startswith("Zxid: "))
    return int(line.removeprefix("Zxid: "), 16)


def _rounds(contenders: list[Contender], count: int, times: int) -> Iterator[dict[str, tuple[float, float]]]:
    """Each round's times, to lock and to unlock, by contender; who goes first changes from round to round."""
    for turn in range(times):
        start = turn % len(contenders)
        yield {
            contender.name: (contender.lock(count), contender.unlock())
            for contender in contenders[start:] + contenders[:start]
        }


def _manager(zookeeper: ZooKeeperServer, namespace: str) -> LockManager:
    backend = ZooKeeperBackend.connect(zookeeper.hosts, namespace, root=f"/airflow-{namespace}", timeout_s=TIMEOUT_S)
    return LockManager(backend)
