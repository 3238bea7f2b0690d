"""What waiting costs, as tables and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from tests.bench.runner import TARGETS, Target
from tests.bench.samples import Samples
from tests.support.documented import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.bench.waiting.phases import HandOvers, Idle, Way

NAMES = {
    "timedelta": "in the triggerer, for time, on Airflow's own TimeDeltaTrigger",
    "sleep": "sleep and retry in the task, as Hive does",
    "poke": 'waiting="poke"',
    "reschedule": 'waiting="reschedule"',
    "defer": 'waiting="defer"',
    "trigger": "in the triggerer, the default",
}


@dataclass(frozen=True)
class Results:
    """All measurements; see :mod:`.phases`.

    :param floor_s: the unrelated DAG's delays without waiters.
    :param airflows: as many as *many* wait on a trigger of Airflow's own.
    """

    floor_s: Samples
    airflows: list[Way]
    many: list[Way]
    ways: list[Way]
    hand_overs: HandOvers
    killed_s: float

    @property
    def idle(self) -> Idle:
        """That of the last turn."""
        idle = self.many[-1].idle
        assert idle is not None
        return idle


def markdown(results: Results) -> str:
    """The whole report."""
    idle, load, handed = results.idle, results.idle.load, results.hand_overs
    runs = results.many[0].runs
    return "\n".join(
        (
            "# What it costs the others that runs wait for a lock",
            "",
            "How late an unrelated DAG's task begins, in seconds: median / 95 of 100 / longest.",
            "",
            table(
                ("how they wait", "blocked runs", "unrelated DAG", "worker slots", "task_instance writes", *CPU),
                (
                    ("nobody waits", "0", quantiles(results.floor_s), "", "", "", "", ""),
                    *(_row(way) for way in (*results.airflows, *results.many, *results.ways)),
                ),
            ),
            table(TARGETS, (target.row for target in _targets(results))),
            f"Of {len(handed.granted_s.values)} hand-overs, in seconds: release to grant {quantiles(handed.granted_s)} "
            f"(99 of 100: {handed.granted_s.p99:.3f}); release to success in the database "
            f"{quantiles(handed.succeeded_s)}.",
            "",
            f"{idle.waiters:,} waiters and nothing happening, {load.seconds:.0f} s: {load.zookeeper_writes} ZooKeeper "
            f"writes, {load.task_instance_writes} task_instance writes, triggerer {_share(load.triggerer_cpu_s, load.seconds)} "
            f"of a core, ZooKeeper {_share(load.zookeeper_cpu_s, load.seconds)}, "
            f"{idle.memory_bytes / idle.waiters / 1000:.0f} kB a waiter in the triggerer.",
            "",
            f"Triggerer killed (SIGKILL): all wait again, in their order, {results.killed_s:.0f} s after the kill; "
            "nothing was granted twice.",
            "",
            f"From the release until all {runs:,} had had the lock: "
            f"{', '.join(f'{way.drained_s:.0f} s' for way in results.many)}.",
            "",
        )
    )


def _targets(results: Results) -> Iterator[Target]:
    """The delay of the unrelated DAG by runs that wait for the lock, compared with none, and with as many that wait for
    time."""
    ours, airflows = _delays_s(results.many), _delays_s(results.airflows)
    what = f"an unrelated DAG beside {results.many[0].runs:,} that wait for a lock"
    for name, share, later_s in (("median", 0.5, 0.5), ("95 of 100", 0.95, 2.0)):
        yield Target(
            f"{what}: later than beside none, {name}", ours.at(share) - results.floor_s.at(share), later_s, " s"
        )
        ratio = ours.at(share) / airflows.at(share)
        yield Target(f"{what}: against as many on a trigger of Airflow's own, {name}", ratio, 1.2, " ×")


def _delays_s(ways: Iterable[Way]) -> Samples:
    return Samples.of(delay for way in ways for delay in way.delays_s.values)


CPU = ("scheduler", "triggerer", "ZooKeeper, share of a core")


def _row(way: Way) -> Sequence[str]:
    load = way.load
    cpu = (load.scheduler_cpu_s, load.triggerer_cpu_s, load.zookeeper_cpu_s)
    return (
        NAMES[way.name],
        f"{way.runs:,}",
        quantiles(way.delays_s),
        str(way.most_slots),
        f"{load.task_instance_writes / load.seconds:.1f} a second",
        *(_share(spent_s, load.seconds) for spent_s in cpu),
    )


def quantiles(values: Samples) -> str:
    """Median, 95 of 100 and the largest, as text."""
    return " / ".join(f"{value:.2f}" for value in (values.median, values.at(0.95), values.high))


def plot(results: Results, path: Path) -> None:
    """Draw the unrelated DAG's delays into the PNG *path*."""
    rows = [
        ("nobody waits", results.floor_s),
        (f"{results.many[0].runs:,} wait for time, on a trigger of Airflow's own", _delays_s(results.airflows)),
        (f"{results.many[0].runs:,} wait in the triggerer", _delays_s(results.many)),
        *((f"{way.runs} wait: {NAMES[way.name]}", way.delays_s) for way in results.ways),
    ]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    axes.boxplot([row[1].values for row in reversed(rows)], orientation="horizontal", whis=(0, 100))
    axes.set_yticks(range(1, len(rows) + 1), [row[0] for row in reversed(rows)])
    axes.set(xscale="log", xlabel="s until an unrelated DAG's task begins; line: lowest to highest")
    axes.grid(visible=True, axis="x", alpha=0.3)
    figure.savefig(path, dpi=150)


def _share(spent_s: float, seconds: float) -> str:
    return f"{100 * spent_s / seconds:.1f} %"
