"""What the demo prints at its end: who held what, who waited for it, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from airflow_hivelock.locks import LockMode
from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from airflow_hivelock.locks import Tenure
    from tests.system.demo.truth import Delays

WIDTH = 48


def timeline(tenures: Sequence[Tenure]) -> Table:
    """One row a lease: a light stretch for waiting, a dark one for holding."""
    first = min(tenure.asked for tenure in tenures)
    last = max(tenure.ended or tenure.granted for tenure in tenures)
    scale = WIDTH / max(1.0, (last - first).total_seconds())
    table = Table(title="Who waited (░) and who held (█)", title_justify="left")
    for column in ("task", "written", "waited", "held", f"{first:%H:%M:%S} … {last:%H:%M:%S} UTC"):
        table.add_column(column, justify="right" if column in ("waited", "held") else "left")
    for tenure in sorted(tenures, key=lambda tenure: tenure.asked):
        ended = tenure.ended or last
        asked, granted, end = (
            round((at - first).total_seconds() * scale) for at in (tenure.asked, tenure.granted, ended)
        )
        bar = " " * asked + "░" * (granted - asked) + "█" * max(1, end - granted)
        table.add_row(
            task(tenure.owner),
            written(tenure),
            f"{(tenure.granted - tenure.asked).total_seconds():.1f} s",
            f"{(ended - tenure.granted).total_seconds():.1f} s",
            Text(bar),
        )
    return table


def partitions(found: Mapping[str, Delays], expected: Mapping[str, Delays]) -> Table:
    """Each written partition beside what the CSV says."""
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
    """What it held EXCLUSIVE, in short."""
    first, *more = [str(lock.object) for lock in tenure.locks if lock.mode is LockMode.EXCLUSIVE]
    return f"{first} … ({1 + len(more)})" if more else first
