"""The table, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import documented
from tests.system.deaths.row import FORCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.system.deaths.row import Row
    from tests.system.deaths.verdict import Verdict

HEAD = ("event", "held during every write", "freed after the last write, s", "by")


def table(rows: Sequence[Row], verdicts: Mapping[str, Verdict | BaseException]) -> str:
    return documented.table(HEAD, ([row.event, *_cells(row, verdicts[row.name])] for row in rows))


def _cells(row: Row, verdict: Verdict | BaseException) -> tuple[str, str, str]:
    if isinstance(verdict, BaseException):
        return f"**{type(verdict).__name__}**", "", ""
    if verdict.wrong:
        return f"**no**: {verdict.wrong[0]}", "", _by(verdict)
    held = f"yes ({verdict.writers} writers in turn)" if verdict.writers > 1 else "yes" if verdict.writers else "–"
    freed = "–" if verdict.freed_after_s is None else f"{verdict.freed_after_s:.1f}"
    if not row.frees_itself and FORCE in verdict.freed_by:
        freed = "when that ran"
    return held, freed, _by(verdict)


def _by(verdict: Verdict) -> str:
    return ", ".join(dict.fromkeys(verdict.freed_by)) or "nothing to free"
