"""Every row of the table, which goes to ``airflow-output/deaths.md``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock import compat
from tests.system.deaths import chained, components, elsewhere, hosts, invited, report, waiting, working
from tests.system.deaths.stage import play_all

if TYPE_CHECKING:
    from tests.system.deaths.play import Stage
    from tests.system.deaths.row import Row

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3600)]

OUTPUT = Path("airflow-output")
NEWER = ("waiter_timed_out", "waiting_lock_timed_out", "waiting_lock_cleared", "invited_without_slot_marked_failed")
"""What an older Airflow does not do: ``execution_timeout`` ends no wait, a lock task that is cleared may lose its place, and
none begins without a slot."""

OLDER = () if compat.TRIGGERS_HEAR_OF_KILLS else ("trigger",)
"""Who may also free there: a trigger that was cancelled as it was granted the lock."""

EVERY = [*working.ROWS, *chained.ROWS, *waiting.ROWS, *invited.ROWS, *elsewhere.ROWS, *hosts.ROWS, *components.ROWS]
ROWS = [row for row in EVERY if compat.TRIGGERS_RENDER or row.name not in NEWER]


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, stage: Stage) -> dict[str, Any]:
    """The verdicts of all requested rows: at the same time, except for rows that harm all others."""
    asked = [item.callspec.params["row"] for item in request.session.items if item.module is request.module]  # type: ignore[attr-defined]
    verdicts = play_all(stage, [row for row in asked if row not in components.ROWS])
    verdicts |= play_all(stage, [row for row in asked if row in components.ROWS], at_once=1)
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "deaths.md").write_text(report.table(asked, verdicts))
    return verdicts


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_lock_is_held_for_exactly_as_long_as_the_job_lives(row: Row, verdicts: dict[str, Any]) -> None:
    verdict = verdicts[row.name]
    if isinstance(verdict, BaseException):
        raise verdict
    print(verdict)
    assert verdict.wrong == ()
    assert set(verdict.freed_by) <= {*row.by, *OLDER}
