"""What the benchmark found: tables, and the targets that it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.contenders import Floor, Hive, Ours
from tests.bench.samples import Samples, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.bench.measure import Cycle, HandOver, Renewal


@dataclass(frozen=True)
class Results:
    """All that was measured; *machine* says where."""

    machine: str
    cycles: Mapping[str, Mapping[int, Cycle]]
    hand_overs: Mapping[int, Mapping[str, HandOver]]
    renewal: Renewal


@dataclass(frozen=True)
class Target:
    """A figure, and what it must not exceed."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.limit

    @property
    def row(self) -> Sequence[str]:
        return (
            self.what,
            f"{number(self.value)}{self.unit}",
            f"≤ {number(self.limit)}{self.unit}",
            "met" if self.met else "**missed**",
        )


def targets(results: Results) -> list[Target]:
    """What the project promises of itself."""
    ours, most = results.cycles[Ours.name], max(results.cycles[Ours.name])
    hives, floor = results.cycles[Hive.name], results.cycles[Floor.name]
    few, many = min(results.hand_overs), max(results.hand_overs)
    short, long = (results.hand_overs[waiters][Ours.name] for waiters in (few, many))
    found = [
        Target(
            f"{most:,} partitions, against Hive's lock manager",
            ours[most].total.median / hives[most].total.median,
            0.05,
            " ×",
        ),
        Target(
            f"{most:,} partitions, against bare transactions",
            ours[most].total.median / floor[most].total.median,
            1.3,
            " ×",
        ),
        Target("1 partition, against Hive's lock manager", ours[1].total.median / hives[1].total.median, 0.5, " ×"),
        Target(f"hand-over with {many:,} waiting, 99 of 100", long.times.p99, 100, " ms"),
        Target(f"the same, against {few:,} waiting", long.times.p99 / short.times.p99, 3, " ×"),
        Target("writes a renewal", max(results.renewal.writes), 1),
    ]
    return found + [
        Target(f"watch events a hand-over, {waiters:,} waiting", relays[Ours.name].wakes or 0, 3)
        for waiters, relays in results.hand_overs.items()
    ]


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
            *_cycles(results.cycles),
            "",
            "Apart, acquire + release, medians:",
            "",
            *_apart(results.cycles),
            "",
            "`bare transactions` is what kazoo and ZooKeeper take for these nodes alone: one transaction that creates them, one "
            "that deletes them, and nothing of ours.",
            "",
            "## Hand-over",
            "From the release to the grant to the next in line, all waiters on one session, in milliseconds.",
            "",
            *_hand_overs(results.hand_overs),
            "",
            "## Renewal",
            f"Of {max(results.cycles[Ours.name]):,} partitions: {results.renewal.times} ms, "
            f"{max(results.renewal.writes)} write.",
            "",
            "## Targets",
            *_table(("what", "measured", "target", ""), (target.row for target in targets(results))),
            "",
        )
    )


def _cycles(cycles: Mapping[str, Mapping[int, Cycle]]) -> Iterator[str]:
    floor = cycles[Floor.name]
    yield from _table(
        ("partitions", *cycles),
        (
            (
                f"{count:,}",
                *(
                    f"{by_count[count].total}; {number(by_count[count].total.median / floor[count].total.median)} ×"
                    for by_count in cycles.values()
                ),
            )
            for count in floor
        ),
    )


def _apart(cycles: Mapping[str, Mapping[int, Cycle]]) -> Iterator[str]:
    yield from _table(
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


def _hand_overs(hand_overs: Mapping[int, Mapping[str, HandOver]]) -> Iterator[str]:
    yield from _table(
        ("waiting", "", "median", "99 of 100", "lowest–highest", "watch events each"),
        (
            (f"{waiters:,}", name, *_spread(one.times), f"{one.wakes:.2g}" if one.wakes else "")
            for waiters, relays in hand_overs.items()
            for name, one in relays.items()
        ),
    )


def _spread(times: Samples) -> Sequence[str]:
    return number(times.median), number(times.p99), f"{number(times.low)}–{number(times.high)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"
