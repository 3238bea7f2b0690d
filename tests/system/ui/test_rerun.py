"""A rerun that waits, in a real Airflow: from its task to the page, from its log to who is in its way, and to its end."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from playwright.sync_api import expect

from tests.system.ui import scene
from tests.system.ui.looking import row, show

if TYPE_CHECKING:
    from tests.system.ui.conftest import Stage

PATIENCE_S = 300.0
FIRST, HIVES, LAST = (datetime(2013, 1, day, tzinfo=UTC) for day in (12, 13, 14))
IN_THE_WAY = "In the way: hive_20130112120000_5f2c (Hive) holds dw.rerun/dt=2013-01-13"


def leases(stage: Stage) -> set[str]:
    """Those that the rerun has."""
    return {holder.lease_id for holder in stage.manager.show("dw.rerun") if holder.lease_id}


def test_a_rerun_is_followed_from_its_waiting_task_to_its_end(stage: Stage) -> None:
    airflow = stage.airflow
    for kind in ("dag-processor", "triggerer", "scheduler"):
        airflow.start(kind)
    airflow.unpause("rerun", PATIENCE_S)
    hives = scene.hive_lock(stage.zookeeper, "dw/rerun/dt=2013-01-13", exclusive=True)
    with ExitStack() as stack:
        stack.callback(hives.stop)
        tab = stack.enter_context(stage.sign_in("operator"))
        backfill = airflow.backfill("rerun", FIRST, LAST)
        airflow.wait(lambda: len(leases(stage)) == 2, PATIENCE_S, "two of three days hold")
        airflow.wait(lambda: stage.manager.waiters("dw.rerun"), PATIENCE_S, "the third waits for Hive")
        frame = tab.open("?object=dw.rerun/")
        expect(row(frame, "dw.rerun/dt=2013-01-12")).to_contain_text("rerun")
        expect(row(frame, "dw.rerun/dt=2013-01-13")).to_contain_text("Hive’s own")
        expect(row(frame, "dw.rerun/dt=2013-01-14")).to_contain_text("exclusive")
        show(frame, "waiting")
        expect(row(frame, "dw.rerun/dt=2013-01-13")).to_contain_text("hive_20130112120000_5f2c")

        [run] = [run.run_id for run in airflow.runs("rerun") if run.logical_date == HIVES]
        airflow.wait(
            lambda: IN_THE_WAY in airflow.task_log("rerun", run, "lock"), PATIENCE_S, "its log names Hive's query"
        )
        task = f"{airflow.url}/dags/rerun/runs/{quote(run)}/tasks/lock"
        tab.page.goto(task)
        expect(tab.page.get_by_text(IN_THE_WAY).first).to_be_visible()
        tab.page.goto(f"{task}/details")
        link = tab.page.get_by_role("link", name="Hive locks").last
        link.evaluate("link => link.removeAttribute('target')")  # in this tab
        link.click()
        frame = tab.frame()
        expect(frame.locator("#tab-waiting")).to_have_attribute("aria-selected", "true")
        expect(row(frame, "dw.rerun/dt=2013-01-13")).to_contain_text("holds: hive_20130112120000_5f2c")

        for place, route in ((task.partition("/tasks/")[0], "hivelock-run"), (task, "hivelock-task")):
            tab.page.goto(place)
            tab.page.locator(f"a[href$='/plugin/{route}']").click()
            frame = tab.frame()
            expect(frame.locator("#tab-waiting")).to_have_attribute("aria-selected", "true")
            expect(frame.locator("tbody tr[role=row]")).to_have_count(1)
            expect(row(frame, "dw.rerun/dt=2013-01-13")).to_contain_text("holds: hive_20130112120000_5f2c")

        frame = tab.open("?object=dw.rerun/dt=2013-01-13")
        hives.stop()
        begun = time.monotonic()
        held = frame.locator("tbody tr[role=row]", has_text="rerun · lock")
        expect(held).to_contain_text("2013-01-13", timeout=1000 * PATIENCE_S)
        print(f"the third day's lock was seen {time.monotonic() - begun:.1f} s after Hive's session had ended")
        (airflow.home / "gate").touch()
        airflow.wait(
            lambda: {run.state for run in airflow.runs("rerun", backfill_id=backfill)} == {"success"},
            PATIENCE_S,
            "the rerun succeeds",
        )
        expect(held).to_have_count(0)
        assert not stage.manager.show("dw.rerun")
        assert tab.problems == []
