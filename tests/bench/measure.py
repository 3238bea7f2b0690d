"""The measurements, each of all contenders side by side: one round of each in turn."""

from __future__ import annotations

import itertools
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tests.bench.contenders import TABLES, Hive, connect, partitions
from tests.bench.relay import OurRelay, RecipeRelay
from tests.bench.runner import rounds, say
from tests.bench.samples import Samples, timed
from tests.bench.twin import KINDS, There
from tests.support.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.contenders import Contender
    from tests.bench.relay import Relay
    from tests.support.servers import ZooKeeperServer
    from tests.support.servers.lock_manager import HiveLockManagers

Case = TypeVar("Case")

WARM_UP = {1: 30, 100: 5, 1_000: 1}
"""Rounds by partitions, to be thrown away: the JVMs of Hive and of ZooKeeper compile what they run often."""


@dataclass(frozen=True)
class Cycle:
    """Acquiring and releasing again, apart and together."""

    lock: Samples
    unlock: Samples

    @property
    def total(self) -> Samples:
        return Samples.of(map(sum, zip(self.lock.values, self.unlock.values, strict=True)))


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


@dataclass(frozen=True)
class Cycles:
    """Acquire and release by contender: by number of partitions, and of one partition by who takes which in turn."""

    by_count: Mapping[str, Mapping[int, Cycle]]
    in_turn: Mapping[str, Mapping[str, Cycle]]


def cycles(
    zookeeper: ZooKeeperServer,
    hive: HiveLockManagers,
    other_hive: HiveLockManagers,
    times: Mapping[int, int],
) -> Cycles:
    """Acquire and release, so many *times* by number of partitions.

    :param other_hive: Hive's lock manager in another process.
    """
    with ExitStack() as stack:
        here: list[Contender] = [kind(zookeeper.hosts) for kind in KINDS]
        here.insert(1, Hive(hive))
        twin = stack.enter_context(Fleet()).start("tests.bench.twin", zookeeper.hosts)
        there: list[Contender] = [Hive(other_hive) if one.name == Hive.name else There(one.name, twin) for one in here]
        for contender in (*here, *there):
            stack.enter_context(closing(contender))
        say("warming up")
        for side in (here, there):
            for count, many in WARM_UP.items():
                _cycles([side], [partitions(count)], many)
        _cycles([here], [partitions(1, TABLES[1])], WARM_UP[1])
        by_count = {}
        for count, many in times.items():
            say(f"acquire and release of {count:,} partitions, {many} rounds")
            by_count[count] = _cycles([here], [partitions(count)], many)
        in_turn = {}
        for what, sides, tables in (
            ("two tables in turn by one process", [here], TABLES),
            ("two processes in turn on one table", [here, there], TABLES[:1]),
        ):
            say(f"{what}, {times[1]} rounds")
            in_turn[what] = _cycles(sides, [partitions(1, table) for table in tables], times[1])
        return Cycles(_by_contender(by_count), _by_contender(in_turn))


def hand_overs(zookeeper: ZooKeeperServer, waiters: int, times: int) -> dict[str, HandOver]:
    """Hand-overs by contender, with as many *waiters* in line all the time."""
    say(f"{times} hand-overs with {waiters:,} waiting")
    with (
        closing(OurRelay(connect(zookeeper.hosts, f"hive-relay-{waiters}"), waiters)) as ours,
        closing(RecipeRelay(zookeeper, waiters)) as recipe,
    ):
        relays: list[Relay] = [ours, recipe]
        taken = rounds({relay.name: partial(_hand_over, relay) for relay in relays}, times)
        wakes = {ours.name: ours.wakes / times}
        return {name: HandOver(Samples.of(each), wakes.get(name)) for name, each in taken.items()}


def _hand_over(relay: Relay) -> float:
    taken = relay.hand_over()
    relay.join()
    return taken


def renewal(zookeeper: ZooKeeperServer, count: int, times: int) -> Renewal:
    """Renew the lease of *count* partitions, again and again."""
    say(f"renewal of {count:,} partitions")
    with connect(zookeeper.hosts, "hive-renewal") as manager:
        lease = manager.acquire(owner="flights/run-0", writes=partitions(count))
        taken, writes = [], []
        for _ in range(times):
            before = zxid(zookeeper)
            taken.append(timed(lambda: manager.renew(lease)))
            writes.append(zxid(zookeeper) - before)
        manager.release(lease)
        return Renewal(Samples.of(taken), tuple(writes))


def zxid(zookeeper: ZooKeeperServer) -> int:
    """ZooKeeper's latest write."""
    line = next(line for line in zookeeper.four_letters("srvr").splitlines() if line.startswith("Zxid: "))
    return int(line.removeprefix("Zxid: "), 16)


def _cycles(sides: Sequence[Sequence[Contender]], wanted: Sequence[Sequence[str]], times: int) -> dict[str, Cycle]:
    """
    :param sides: the contenders of one process and of the next, which take the rounds in turn.
    :param wanted: what they lock, in turn.
    """

    def cycle(place: int, turns: Iterator[int]) -> tuple[float, float]:
        turn = next(turns)
        contender = sides[turn % len(sides)][place]
        return contender.lock(wanted[turn % len(wanted)]), contender.unlock()

    ways = {one.name: partial(cycle, place, itertools.count()) for place, one in enumerate(sides[0])}
    taken = {name: zip(*both, strict=True) for name, both in rounds(ways, times).items()}
    return {name: Cycle(*map(Samples.of, both)) for name, both in taken.items()}


def _by_contender(cases: Mapping[Case, Mapping[str, Cycle]]) -> dict[str, dict[Case, Cycle]]:
    names = next(iter(cases.values()))
    return {name: {case: by_name[name] for case, by_name in cases.items()} for name in names}
