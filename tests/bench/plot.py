"""The benchmark as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.bench.report import Results


def plot(results: Results, path: Path) -> None:
    """Draw *results* into the PNG *path*."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _cycles(left, results)
    _hand_overs(right, results)
    figure.savefig(path, dpi=150)


def _cycles(axes: Axes, results: Results) -> None:
    for name, by_count in results.cycles.by_count.items():
        counts, totals = list(by_count), [cycle.total for cycle in by_count.values()]
        medians = [total.median for total in totals]
        below = [total.median - total.low for total in totals]
        above = [total.high - total.median for total in totals]
        axes.errorbar(counts, medians, yerr=(below, above), marker="o", capsize=3, label=name)
    axes.set(
        title="acquire and release",
        xlabel="partitions",
        ylabel="ms; median, lowest to highest",
        xscale="log",
        yscale="log",
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()


def _hand_overs(axes: Axes, results: Results) -> None:
    sizes = list(results.hand_overs)
    for name in results.hand_overs[sizes[0]]:
        times = [results.hand_overs[waiters][name].times for waiters in sizes]
        (line,) = axes.plot(sizes, [each.median for each in times], marker="o", label=f"{name}, median")
        axes.plot(
            sizes,
            [each.p99 for each in times],
            marker="^",
            linestyle="--",
            color=line.get_color(),
            label=f"{name}, 99 of 100",
        )
    axes.set(title="hand-over to the next in line", xlabel="waiting on one session", ylabel="ms", xscale="log")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
