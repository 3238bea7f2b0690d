"""The table, for people: an event to a line, a cluster to a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import documented
from tests.system.deaths.row import FORCE
from tests.system.jobs.rows import CLUSTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.system.deaths.row import Row
    from tests.system.deaths.verdict import Verdict

    Verdicts = Mapping[str, Verdict | BaseException]


def table(rows: Sequence[Row], verdicts: Verdicts) -> str:
    events: dict[str, dict[str, Row]] = {}
    for row in rows:
        job, _, event = row.event.partition(": ")
        events.setdefault(event, {})[job] = row
    lines = []
    for event, of_job in events.items():
        cells = (of_job.get(job) for job in CLUSTERS.values())
        lines.append((event, *(_cell(row, verdicts[row.name]) if row else "" for row in cells)))
    return documented.table(["event", *CLUSTERS.values()], lines)


def _cell(row: Row, verdict: Verdict | BaseException) -> str:
    if isinstance(verdict, BaseException):
        return f"**{type(verdict).__name__}**"
    by = ", ".join(dict.fromkeys(verdict.freed_by))
    if verdict.wrong:
        return f"**{verdict.wrong[0]}** {by}"
    when = "" if FORCE in row.by or verdict.freed_after_s is None else f" {verdict.freed_after_s:.1f}"
    return f"{by}{when}{', 2 writers in turn' if verdict.writers > 1 else ''}"
