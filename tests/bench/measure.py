"""The measurements, each of all contenders side by side: one round of each in turn."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tests.bench.contenders import TABLES, Floor, Hive, Ours, Recipes, Steps, connect, partitions
from tests.bench.relay import OurRelay, RecipeRelay
from tests.bench.samples import Samples, timed
from tests.bench.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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


@dataclass(frozen=True)
class Cycles:
    """Acquire and release by contender: by number of partitions, and of one partition by who takes which in turn."""

    by_count: Mapping[str, Mapping[int, Cycle]]
    in_turn: Mapping[str, Mapping[str, Cycle]]


def cycles(
    zookeeper: ZooKeeperServer,
    hive: HiveLockManagers,
    other_hive: HiveLockManagers,
    rounds: Mapping[int, int],
    say: Callable[[str], None],
) -> Cycles:
    """Acquire and release, *rounds* by number of partitions.

    :param other_hive: Hive's lock manager in another process.
    """
    with ExitStack() as stack:
        kinds: tuple[Callable[[str], Contender], ...] = (Ours, Recipes, Steps, Floor)
        here: list[Contender] = [kind(zookeeper.hosts) for kind in kinds]
        here.insert(1, Hive(hive))
        twin = stack.enter_context(closing(Twin(zookeeper.hosts)))
        there = [Hive(other_hive) if one.name == Hive.name else twin.contender(one.name) for one in here]
        for contender in (*here, *there):
            stack.enter_context(closing(contender))
        say("warming up")
        for side in (here, there):
            for count, times in WARM_UP.items():
                _taken(_rounds([side], [partitions(count)], times))
        _taken(_rounds([here], [partitions(1, TABLES[1])], WARM_UP[1]))
        by_count = {}
        for count, times in rounds.items():
            say(f"acquire and release of {count:,} partitions, {times} rounds")
            by_count[count] = _taken(_rounds([here], [partitions(count)], times))
        in_turn = {}
        for what, sides, tables in (
            ("two tables in turn by one process", [here], TABLES),
            ("two processes in turn on one table", [here, there], TABLES[:1]),
        ):
            say(f"{what}, {rounds[1]} rounds")
            in_turn[what] = _taken(_rounds(sides, [partitions(1, table) for table in tables], rounds[1]))
        return Cycles(_by_contender(by_count), _by_contender(in_turn))


def hand_overs(
    zookeeper: ZooKeeperServer, waiters: int, rounds: int, say: Callable[[str], None]
) -> dict[str, HandOver]:
    """Hand-overs by contender, with as many *waiters* in line all the time."""
    say(f"{rounds} hand-overs with {waiters:,} waiting")
    with (
        closing(OurRelay(connect(zookeeper.hosts, f"hive-relay-{waiters}"), waiters)) as ours,
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
    with connect(zookeeper.hosts, "hive-renewal") as manager:
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


def _rounds(
    sides: Sequence[Sequence[Contender]], wanted: Sequence[Sequence[str]], times: int
) -> Iterator[dict[str, tuple[float, float]]]:
    """Each round's times, to lock and to unlock, by contender; who goes first changes from round to round.

    :param sides: the contenders of one process and of the next, which take the rounds in turn.
    :param wanted: what they lock, in turn.
    """
    for turn in range(times):
        contenders, writes = sides[turn % len(sides)], wanted[turn % len(wanted)]
        start = turn // 2 % len(contenders)
        yield {
            contender.name: (contender.lock(writes), contender.unlock())
            for contender in (*contenders[start:], *contenders[:start])
        }


def _taken(rounds: Iterable[Mapping[str, tuple[float, float]]]) -> dict[str, Cycle]:
    taken = list(rounds)
    found = {}
    for name in taken[0]:
        lock, unlock = zip(*(one[name] for one in taken), strict=True)
        found[name] = Cycle(Samples.of(lock), Samples.of(unlock))
    return found


def _by_contender(cases: Mapping[Case, Mapping[str, Cycle]]) -> dict[str, dict[Case, Cycle]]:
    names = next(iter(cases.values()))
    return {name: {case: by_name[name] for case, by_name in cases.items()} for name in names}
