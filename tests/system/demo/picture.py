"""The results of the demo: waiters and holders, as a picture and as a page in one file."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MultipleLocator

from tests.system.demo import report, work

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks import Tenure
    from tests.system.demo.work import Jobs

KINDS = {
    "waits": ("#ececef", "waits, without a slot"),
    "holds": ("#f2b8a2", "holds idle: nothing works"),
    "works": ("#7c63d8", "works under its locks"),
    "hive": ("#d98a1f", "Hive's session holds"),
    "left": ("#c62020", "left by a killed task, until freed"),
}
"""By kind of stretch its colour, and what the legend says of it."""

WIDTH_IN, ROW_IN, FRAME_IN = 12.0, 0.33, 1.5
DPI = 110
THICK = 0.62
HATCHED: dict[str, Any] = {"hatch": "////", "edgecolor": "#a9a9b2", "linewidth": 0.6}
INK, MUTED, RULE = "#18181b", "#5c5c66", "#e4e4e7"
TICKS_S = (15, 30, 60, 120, 300, 600, 1_800, 3_600)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Who waited and who held</title>
<style>
body {{ font: 14px/1.5 "DejaVu Sans", Verdana, sans-serif; color: #18181b; background: #fff; max-width: 1200px; margin: 24px auto; padding: 0 16px; }}
h1 {{ font-size: 20px; }}
.drawing, .rows {{ overflow-x: auto; }}
svg {{ display: block; width: 100%; min-width: 820px; height: auto; }}
table {{ border-collapse: collapse; margin: 16px 0; white-space: nowrap; }}
th, td {{ text-align: left; padding: 3px 16px 3px 0; border-bottom: 1px solid #e4e4e7; }}
.figure {{ text-align: right; font-variant-numeric: tabular-nums; }}
ul {{ list-style: none; padding: 0; }}
.missed {{ color: #a11717; font-weight: 600; }}
</style>
</head>
<body>
<h1>Who waited and who held</h1>
<div class="drawing" role="img" aria-label="A timeline; the table below says the same" tabindex="0">
{drawing}
</div>
<ul>
{checks}
</ul>
<div class="rows" role="region" aria-label="The same as a table" tabindex="0">
<table>
<thead><tr><th scope="col">task</th><th scope="col">locked exclusively</th><th scope="col">asked (UTC)</th>
<th scope="col" class="figure">waited</th><th scope="col" class="figure">held</th>
<th scope="col" class="figure">worked</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</body>
</html>
"""


@dataclass(frozen=True)
class Row:
    """One line of the timeline; times in seconds since the first of all.

    :param kind: how it held: a key of :data:`KINDS`.
    :param works: when its jobs ran, begin and end of each; within the time for which it held.
    """

    task: str
    written: str
    clock: str
    asked_s: float
    granted_s: float
    ended_s: float
    kind: str
    works: tuple[tuple[float, float], ...] = ()

    @property
    def waited(self) -> str:
        return f"{self.granted_s - self.asked_s:.1f} s"

    @property
    def held(self) -> str:
        return f"{self.ended_s - self.granted_s:.1f} s"

    @property
    def worked(self) -> str:
        """Nothing where no job of ours ran."""
        return f"{sum(ended - begun for begun, ended in self.works):.1f} s" if self.works else ""


def rows(tenures: Sequence[Tenure], done: Jobs, forced: Collection[str] = ()) -> list[Row]:
    """*tenures* in the order of their requests; one that is still held is drawn up to the last moment.

    :param done: the jobs that ran under them, by lease id.
    :param forced: the lease ids of those that ended by force.
    """
    first = min(tenure.asked for tenure in tenures)
    last = max(tenure.ended or tenure.granted for tenure in tenures)

    def seconds(at: datetime) -> float:
        return (at - first).total_seconds()

    return [
        Row(
            task=report.task(tenure.owner),
            written=report.written(tenure),
            clock=f"{tenure.asked:%H:%M:%S}",
            asked_s=seconds(tenure.asked),
            granted_s=seconds(tenure.granted),
            ended_s=seconds(tenure.ended or last),
            kind="left" if tenure.lease_id in forced else "holds" if tenure.lease_id else "hive",
            works=tuple((seconds(begun), seconds(ended)) for begun, ended in work.worked(tenure, done, last)),
        )
        for tenure in sorted(tenures, key=lambda tenure: (tenure.asked, tenure.granted))
    ]


def figure(drawn: Sequence[Row], said: str) -> Figure:
    """The timeline of *drawn*, with *said* below its title."""
    made = Figure(figsize=(WIDTH_IN, ROW_IN * len(drawn) + FRAME_IN), layout="constrained", facecolor="white")
    axes = made.subplots()
    end_s = max(row.ended_s for row in drawn)
    for place, row in enumerate(drawn):
        if (waited_s := row.granted_s - row.asked_s) >= 1:
            axes.barh(place, waited_s, left=row.asked_s, height=THICK, color=KINDS["waits"][0], **HATCHED)
        held_s = max(row.ended_s - row.granted_s, end_s / 300)  # to be seen at all
        axes.barh(place, held_s, left=row.granted_s, height=THICK, color=KINDS[row.kind][0])
        for begun_s, over_s in row.works:
            axes.barh(place, over_s - begun_s, left=begun_s, height=THICK, color=KINDS["works"][0])
        axes.annotate(
            _told(row), (row.ended_s, place), (6, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    axes.set_yticks(range(len(drawn)), [row.task for row in drawn], fontsize=9, color=INK)
    objects = axes.secondary_yaxis("right")
    objects.set_yticks(range(len(drawn)), [row.written for row in drawn], fontsize=8, color=MUTED, family="monospace")
    for side in (axes, objects):
        side.tick_params(axis="y", length=0)
        for spine in side.spines.values():
            spine.set_visible(False)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.set_xlim(0, end_s * 1.4)  # room for the text after the last bar
    step_s = next((step for step in TICKS_S if end_s / step <= 12), TICKS_S[-1])
    axes.xaxis.set_major_locator(MultipleLocator(step_s))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{int(at) // 60}:{int(at) % 60:02}"))
    axes.tick_params(axis="x", labelsize=8, colors=MUTED)
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("minutes and seconds since the first lock", fontsize=8, color=MUTED)
    axes.set_title(said, loc="left", fontsize=9, color=MUTED, pad=28)
    shown = {"waits", *(row.kind for row in drawn), *("works" for row in drawn if row.works)}
    patches = [Patch(color=colour, label=text) for kind, (colour, text) in KINDS.items() if kind in shown]
    patches[0].set(facecolor=KINDS["waits"][0], **HATCHED)
    axes.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=5,
        frameon=False,
        fontsize=8,
        borderpad=0.3,
        columnspacing=1.4,
    )
    return made


def png(made: Figure) -> bytes:
    """The picture."""
    data = io.BytesIO()
    made.savefig(data, format="png", dpi=DPI)
    return data.getvalue()


def page(made: Figure, drawn: Sequence[Row], checks: Mapping[str, bool]) -> str:
    """The page: the drawing with its text as text, the checks, and all of it as a table."""
    drawing = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        made.savefig(drawing, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = drawing.getvalue()
    return PAGE.format(
        drawing=svg[svg.index("<svg") :],  # a page has its own prolog
        checks="\n".join(
            f"<li>✓ {html.escape(what)}</li>" if holds else f'<li class="missed">✗ {html.escape(what)}</li>'
            for what, holds in checks.items()
        ),
        rows="\n".join(
            f"<tr><td>{html.escape(row.task)}</td><td>{html.escape(row.written)}</td><td>{row.clock}</td>"
            f'<td class="figure">{row.waited}</td><td class="figure">{row.held}</td>'
            f'<td class="figure">{row.worked}</td></tr>'
            for row in drawn
        ),
    )


def _told(row: Row) -> str:
    waited_s, held_s = row.granted_s - row.asked_s, row.ended_s - row.granted_s
    told = [f"waited {waited_s:.0f} s"] * (waited_s >= 1) + [f"held {held_s:.0f} s"]
    if row.works:
        told.append(f"worked {sum(ended - begun for begun, ended in row.works):.0f} s")
    return ", ".join(told)
