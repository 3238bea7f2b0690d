"""The results of the benchmark: tables, and the targets that it must meet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tests.bench.contenders import Floor, Hive, OneTable, Ours, Readers, Steps
from tests.bench.grants import PROCESSES, TABLES
from tests.bench.runner import TARGETS, Target
from tests.bench.samples import number
from tests.support.documented import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.bench.beside import Beside
    from tests.bench.grants import Burst, Grants, Usage
    from tests.bench.measure import Cycle, Cycles, HandOver, Renewal
    from tests.bench.samples import Samples

AGAIN = 1.25
"""From how many times the bare writes on they are what is too many."""

BUSY = 0.85
"""From which share of the cores on they are what is short."""


@dataclass(frozen=True)
class Results:
    """All that was measured; *machine* says where."""

    machine: str
    cycles: Cycles
    grants: Grants
    hand_overs: Mapping[int, Mapping[str, HandOver]]
    beside: Mapping[str, Beside]
    renewal: Renewal


def targets(results: Results) -> list[Target]:
    """The project's own targets: counts, and times relative to the peer and the floor of the same run."""
    cycles, in_turn = results.cycles.by_count, results.cycles.in_turn
    ours, hives, floor = cycles[Ours.name], cycles[Hive.name], cycles[Floor.name]
    most, few, many = max(ours), min(results.hand_overs), max(results.hand_overs)
    short, long = (results.hand_overs[waiters][Ours.name] for waiters in (few, many))
    grants, clients = results.grants, results.grants.clients

    def per_grant(way: str, most_requests: float, where: str = "") -> Iterator[Target]:
        def median(total: Callable[[Usage], float]) -> float:
            return grants.of(way, lambda burst: total(burst.used) / burst.used.grants).median

        what = f"of an acquire and its release, {clients} clients{where}"
        yield Target(f"writes {what}", median(attrgetter("writes")), 2.2)
        yield Target(f"requests {what}", median(attrgetter("requests")), most_requests)

    return [
        *per_grant(Ours.name, 5),
        *per_grant(OneTable.name, 5, " on one table"),
        *per_grant(Readers.name, 6, " that read one partition"),
        Target(
            f"grants a second by {clients} clients, against bare transactions",
            grants.to_bare(Ours.name).median,
            0.35,
            " ×",
            "≥",
        ),
        Target("1 partition, against Hive's lock manager", _ratio(ours[1], hives[1]), 0.45, " ×"),
        *(
            Target(f"the same, {what}", _ratio(cycle, in_turn[Hive.name][what]), 0.45, " ×")
            for what, cycle in in_turn[Ours.name].items()
        ),
        Target(f"{most:,} partitions, against Hive's lock manager", _ratio(ours[most], hives[most]), 0.025, " ×"),
        Target(f"{most:,} partitions, against bare transactions", _ratio(ours[most], floor[most]), 1.3, " ×"),
        Target(f"hand-over with {many:,} waiting, 99 of 100", long.times.p99, 100, " ms"),
        Target(f"the same, against {few:,} waiting", long.times.p99 / short.times.p99, 3, " ×"),
        Target("writes of a renewal", max(results.renewal.writes), 1),
        *(
            Target(f"watch events of a hand-over, {waiters:,} waiting", relays[Ours.name].wakes or 0, 3)
            for waiters, relays in results.hand_overs.items()
        ),
    ]


def _ratio(cycle: Cycle, other: Cycle) -> float:
    return cycle.total.median / other.total.median


def markdown(results: Results) -> str:
    """The whole report."""
    return "\n".join(
        (
            "# What the locks cost",
            "",
            results.machine,
            "",
            "## Acquire and release",
            "SHARED on the database and the table and EXCLUSIVE on partitions, uncontended, in milliseconds: "
            "median (lowest–highest) of acquire and release together, and how often the bare transactions' time that is.",
            "",
            _cycles("partitions", results.cycles.by_count),
            "The same, of one partition:",
            "",
            _cycles("", results.cycles.in_turn),
            "Apart, acquire + release, medians:",
            "",
            _apart(results.cycles.by_count),
            "`bare transactions` is what kazoo and ZooKeeper take for these nodes alone: one transaction that creates them, one "
            "that deletes them, and nothing of ours. `the same requests, bare` is what they take for the requests of this protocol: a "
            "look, a transaction with a look after it, and a transaction.",
            "",
            "## Grants a second",
            f"{results.grants.clients} clients in {PROCESSES} processes, each of which acquires and releases one partition of "
            f"{len(TABLES)} tables of one database, by chance (seed {results.grants.seed}), and no two the same; "
            f"{len(results.grants.bursts[Ours.name])} rounds, medians (lowest–highest). A grant is an acquire and its release, or the two bare "
            "transactions. Writes are transactions, refused ones too.",
            "",
            _grants(results.grants),
            *_limits(results.grants),
            "",
            "## Hand-over",
            "From the release to the grant to the next in line, all waiters on one session, in milliseconds.",
            "",
            _hand_overs(results.hand_overs),
            "## Beside other leases",
            "An acquire and its release in an empty database, and where others hold leases of the same tables, in turn, in "
            "milliseconds: median (lowest–highest).",
            "",
            _beside(results.beside),
            "## Renewal",
            f"Of {max(results.cycles.by_count[Ours.name]):,} partitions: {results.renewal.times} ms, "
            f"{max(results.renewal.writes)} write.",
            "",
            "## Targets",
            table(TARGETS, (target.row for target in targets(results))),
        )
    )


def _cycles(of: str, cycles: Mapping[str, Mapping[Any, Cycle]]) -> str:
    floor = cycles[Floor.name]
    return table(
        (of, *cycles),
        (
            (
                f"{case:,}" if isinstance(case, int) else str(case),
                *(
                    f"{by_case[case].total}; {number(_ratio(by_case[case], floor[case]))} ×"
                    for by_case in cycles.values()
                ),
            )
            for case in floor
        ),
    )


def _apart(cycles: Mapping[str, Mapping[int, Cycle]]) -> str:
    return table(
        ("partitions", *cycles),
        (
            (
                f"{count:,}",
                *(
                    f"{number(by_count[count].lock.median)} + {number(by_count[count].unlock.median)}"
                    for by_count in cycles.values()
                ),
            )
            for count in cycles[Floor.name]
        ),
    )


def _grants(grants: Grants) -> str:
    def row(name: str, figure: Callable[[Burst], float]) -> Sequence[str]:
        return name, *(str(grants.of(way, figure)) for way in grants.bursts)

    def per_grant(total: Callable[[Usage], float]) -> Callable[[Burst], float]:
        return lambda burst: total(burst.used) / burst.used.grants

    return table(
        ("", *grants.bursts),
        (
            row("grants a second", lambda burst: burst.per_s),
            row("clients' CPU, ms a grant", per_grant(lambda used: used.client_cpu_s * 1e3)),
            row("ZooKeeper's CPU, ms a grant", per_grant(lambda used: used.server_cpu_s * 1e3)),
            row("cores busy", lambda burst: burst.cores),
            row("requests a grant", per_grant(lambda used: used.requests)),
            row("writes a grant", per_grant(lambda used: used.writes)),
            row("syncs to disk a second", lambda burst: burst.used.syncs / burst.seconds),
            row("of the time spent in these, %", lambda burst: burst.used.sync_s / burst.seconds * 100),
        ),
    )


def _limits(grants: Grants) -> Iterator[str]:
    """What limits the clients, as far as the figures show it."""
    ratios = grants.to_bare(Ours.name)
    yield (
        f"Ours are {number(ratios.median)} × the bare transactions' ({number(ratios.low)}–{number(ratios.high)} by round). "
        f"The same requests without any rule are {number(grants.to_bare(Steps.name).median)} ×."
    )

    def medians(figure: Callable[[Burst], float]) -> tuple[float, float]:
        """Of this package's transactions, and of the bare ones."""
        return grants.of(Ours.name, figure).median, grants.of(Floor.name, figure).median

    writes, bare_writes = medians(lambda burst: burst.used.writes / burst.used.grants)
    cpu_ms, bare_cpu_ms = medians(lambda burst: burst.cores / burst.per_s * 1e3)
    cores, _ = medians(lambda burst: burst.cores)
    if writes > AGAIN * bare_writes:
        limit = "requests that outrun one another and begin again: a grant that nobody outruns has as many writes as a bare one"
    elif cores > BUSY * (os.cpu_count() or 1):
        limit = "their CPU"
    else:
        limit = "waiting, for the server or for its disk"
    yield (
        f"A grant of ours takes {number(writes)} writes and {number(cpu_ms)} ms of CPU, clients and server together; a bare one "
        f"{number(bare_writes)} and {number(bare_cpu_ms)} ms. Of {os.cpu_count()} cores {number(cores)} were busy. What limits it: {limit}."
    )


def _hand_overs(hand_overs: Mapping[int, Mapping[str, HandOver]]) -> str:
    return table(
        ("waiting", "", "median", "99 of 100", "lowest–highest", "watch events each"),
        (
            (f"{waiters:,}", name, *_spread(one.times), f"{one.wakes:.2g}" if one.wakes else "")
            for waiters, relays in hand_overs.items()
            for name, one in relays.items()
        ),
    )


def _beside(beside: Mapping[str, Beside]) -> str:
    return table(
        ("lock store", "beside none", "beside others", "others", "ratio"),
        (
            (store, str(one.alone), str(one.crowded), f"{one.leases:,}", number(one.crowded.median / one.alone.median))
            for store, one in beside.items()
        ),
    )


def _spread(times: Samples) -> Sequence[str]:
    return number(times.median), number(times.p99), f"{number(times.low)}–{number(times.high)}"
