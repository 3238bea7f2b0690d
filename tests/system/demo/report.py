"""The demo's report at its end: the holders, their waiters, and the times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from airflow_hivelock.locks import LockMode
from airflow_hivelock.spec import Owner
from tests.system.demo.work import worked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rich.console import Console

    from airflow_hivelock.locks import Tenure
    from tests.system.demo.truth import Delays
    from tests.system.demo.work import Holds, Jobs

WIDTH = 42


def timeline(tenures: Sequence[Tenure], done: Jobs) -> Table:
    """One row a lease: a light stretch for waiting, a grey one for holding while nothing works, a dark one for work.

    :param done: the jobs, by lease id; who is no task of Airflow's is taken to work as long as it holds.
    """
    first = min(tenure.asked for tenure in tenures)
    last = max(tenure.ended or tenure.granted for tenure in tenures)
    scale = WIDTH / max(1.0, (last - first).total_seconds())
    table = Table(title="Who waited (░), who held idle (▒) and who worked (█)", title_justify="left")
    figures = ("waited", "held", "worked")
    for column in ("task", "written", *figures, f"{first:%H:%M:%S} … {last:%H:%M:%S} UTC"):
        table.add_column(column, justify="right" if column in figures else "left")

    def place(at: datetime) -> int:
        return round((at - first).total_seconds() * scale)

    for tenure in sorted(tenures, key=lambda tenure: tenure.asked):
        ended = tenure.ended or last
        stretches = worked(tenure, done, last) if tenure.lease_id else [(tenure.granted, ended)]
        bar = [" "] * place(tenure.asked) + ["░"] * (place(tenure.granted) - place(tenure.asked))
        bar += ["▒"] * max(1, place(ended) - place(tenure.granted))
        for begun, over in stretches:
            start, stop = place(begun), min(max(place(over), place(begun) + 1), len(bar))
            bar[start:stop] = ["█"] * (stop - start)
        table.add_row(
            task(tenure.owner),
            written(tenure),
            f"{(tenure.granted - tenure.asked).total_seconds():.1f} s",
            f"{(ended - tenure.granted).total_seconds():.1f} s",
            f"{sum((over - begun).total_seconds() for begun, over in stretches):.1f} s",
            Text("".join(bar)),
        )
    return table


def holds(all_of_them: Holds) -> str:
    """How long locks were held, compared with their work."""
    return (
        f"locks held ÷ worked: {all_of_them.ratio:.2f} ({all_of_them.held_s:.0f} s ÷ {all_of_them.worked_s:.0f} s); "
        f"longest held while nothing worked: {all_of_them.idle_s:.1f} s, by {task(all_of_them.idle)}"
    )


def partitions(found: Mapping[str, Delays], expected: Mapping[str, Delays]) -> Table:
    """Each written partition, compared with the CSV."""
    table = Table(title="dw.delays beside the CSV", title_justify="left")
    for column in ("dt", "flights", "departed", "delay minutes (departure, arrival)", ""):
        table.add_column(column)
    for day, sums in sorted(found.items()):
        right = sums == expected.get(day)
        verdict = "equal" if right else f"[red]expected {expected.get(day)}[/red]"
        table.add_row(
            day,
            str(sums.flights),
            str(sums.departed),
            f"{sums.dep_delay_minutes:,} {sums.arr_delay_minutes:,}",
            verdict,
        )
    return table


def checks(console: Console, results: Mapping[str, bool]) -> bool:
    """Print a line a check; whether all of them hold."""
    for what, holds in results.items():
        console.print(f"[green]✓[/green] {what}" if holds else f"[red]✗ {what}[/red]")
    return all(results.values())


def task(owner: str) -> str:
    """An owner, as people call it: DAG, task and day; who is no task of Airflow's, as it calls itself."""
    if (known := Owner.parse(owner)) is None:
        return owner
    return f"{known.dag_id}.{known.task_id} {known.run_id.partition('__')[2][:10]}"


def written(tenure: Tenure) -> str:
    """Its EXCLUSIVE locks, in short."""
    first, *more = [str(lock.object) for lock in tenure.locks if lock.mode is LockMode.EXCLUSIVE]
    return f"{first} … ({1 + len(more)})" if more else first
