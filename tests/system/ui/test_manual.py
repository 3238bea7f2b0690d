"""Runs that people have started, as people see them: at 1400 and at 600 pixels, nothing that matters is cut or missing."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from airflow_hivelock.links import HiveLocksLink
from tests.system.ui import manual
from tests.system.ui.looking import AXE, row, show, violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Frame, Locator

    from tests.system.ui.conftest import Stage

HIDDEN = """() => [...document.querySelectorAll("tbody tr[role=row]:not(.unseen-row)")].flatMap((row) =>
  [...row.querySelectorAll(".owner > .cut:first-child")].filter((dag) => dag.scrollWidth > dag.clientWidth + 1
    || [...dag.children].some((part) => part.scrollWidth > part.clientWidth + 1)).map((dag) => dag.textContent))"""
"""The names of DAGs that are cut."""

NARROW_CELLS = """() => [...document.querySelectorAll("tbody tr[role=row]:not(.unseen-row) td")]
  .filter((cell) => cell.textContent && cell.clientWidth < 40).map((cell) => cell.dataset.name)"""


STUMPS = """() => [...document.querySelectorAll("tbody tr[role=row]:not(.unseen-row) .owner")].flatMap((owner) => {
  const run = owner.querySelector(".o-run"), head = run?.querySelector(".head");
  const inSight = head && run.offsetTop < owner.offsetTop + owner.clientHeight;
  return inSight && head.scrollWidth > head.clientWidth + 1 && head.clientWidth < 19 ? [owner.textContent] : [];
})"""
"""The owners whose run begins with a part of a letter, without a sign that something is left out."""


@pytest.fixture(scope="module", autouse=True)
def played(stage: Stage) -> Iterator[None]:
    with manual.play(stage.manager):
        manual.tell(stage.airflow.database_url)
        yield
    manual.forget(stage.airflow.database_url)


@pytest.mark.parametrize("width", [1400, 600])
@pytest.mark.parametrize("view", ["locks", "waiting"])
def test_names_of_dags_are_whole_and_no_column_is_missing(stage: Stage, width: int, view: str) -> None:
    with stage.sign_in("operator", size=(width, 860)) as tab:
        frame = tab.open("?owner=manual__", framed=False)
        show(frame, view)
        expect(frame.locator("tbody tr[role=row]").nth(1)).to_be_visible()
        assert frame.evaluate(HIDDEN) == []
        assert frame.evaluate(NARROW_CELLS) == []
        assert frame.evaluate(STUMPS) == []
        waits = {"locks": "waiting", "waiting": "position"}[view]
        for name in (waits, "since", "owner"):
            expect(frame.locator(f"tbody td[data-name={name}]").first).to_be_visible()
        frame.evaluate(AXE)
        assert violations(frame) == []
        assert tab.problems == []


@pytest.mark.parametrize("width", [1400, 600])
def test_the_timeline_is_in_sight_up_to_now(stage: Stage, width: int) -> None:
    with stage.sign_in("viewer", size=(width, 860)) as tab:
        frame = tab.open(framed=False)
        show(frame, "timeline")
        hidden = frame.locator(".drawing").evaluate("drawing => drawing.scrollWidth - drawing.clientWidth")
        assert hidden == 0, "the latest is at the right end"


def test_the_holder_is_named_and_one_click_away_from_the_last_in_the_queue(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open(f"?view=waiting&owner={manual.WAITER}", framed=False)
        places = frame.locator("tbody td[data-name=position]")
        expect(places).to_have_text([str(place + 1) for place in range(manual.WAITERS)])
        first, last = (frame.locator("tbody tr[role=row]").nth(place) for place in (0, manual.WAITERS - 1))
        expect(first.locator("td.c-priority")).to_have_text("10")
        expect(last.locator("td[data-name=blockers]")).to_contain_text(f"holds: {manual.HOLDER}")
        last.get_by_role("button", name="Holder").click()
        dialog = frame.locator("dialog")
        expect(dialog.locator("dd").first).to_contain_text(manual.HOLDER)
        assert tab.problems == []


def test_the_row_and_the_details_count_the_same_waiters_and_the_sensor_is_one(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open("?object=dw.orders", framed=False)
        group = row(frame, "dw.orders")
        expect(group).to_contain_text("1 working")  # thirty partitions of one process
        expect(group.locator("td[data-name=waiting]")).to_have_text(str(manual.WAITERS + 1))
        expect(frame.locator("#summary")).to_contain_text("1 sensor waiting")
        group.locator("button").click()
        one = row(frame, "dw.orders/dt=2026-11-01")
        expect(one.locator("td[data-name=waiting]")).to_have_text(str(manual.WAITERS + 1))
        one.locator("button").click()
        said = details(frame, f"{manual.WAITERS + 1} waiting")
        expect(said.locator(".owner")).to_have_count(manual.WAITERS + 1)
        expect(said).to_contain_text(manual.SENSOR)
        tab.page.keyboard.press("Escape")
        frame.locator("#filter-object").fill("")
        show(frame, "waiting")
        sensor = row(frame, manual.SENSOR)
        expect(sensor).to_contain_text("free data")
        expect(sensor).to_contain_text(f"holds: {manual.HOLDER}")
        assert tab.problems == []


def test_a_dead_holder_is_shown_with_what_lives_where_and_what_to_do(stage: Stage) -> None:
    with stage.sign_in("operator") as tab:
        frame = tab.open("?object=dw.sessions", framed=False)
        dead = row(frame, "dw.sessions")
        expect(dead).to_contain_text("needs action: failed")
        expect(dead).to_contain_text("still runs on")
        expect(dead).not_to_contain_text(f"process {manual.DEAD_PID} still runs")
        dead.locator("button").click()
        work, here = details(frame, "Its work"), re.escape(socket.gethostname())
        expect(work).to_contain_text(re.compile(rf"\(sleep\), started by process {manual.DEAD_PID}, which has ended"))
        keeper = details(frame, "The keeper")
        expect(keeper).to_contain_text(re.compile(rf"keeps it, because load still runs on {here}: \d+ \(sleep\)"))
        expect(keeper.locator(".next")).to_contain_text("Wait until it ends, or end it: kill ")
        expect(details(frame, "Renewed")).to_contain_text("An expired lease stays held")
        expect(frame.locator("dialog dt", has_text="Expires in")).to_have_count(0)
        assert tab.problems == []


def test_a_person_is_named_and_the_most_waited_for_come_first(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open(framed=False)
        expect(row(frame, "dw.customers").locator("td.c-owner")).to_have_text(f"{manual.PERSON}, by hand")
        expect(row(frame, "dw.orders")).to_be_visible()
        counts = frame.locator("tbody tr:not(.tone-bad) td[data-name=waiting]").all_text_contents()
        numbers = [int(text or 0) for text in counts if text.isdigit() or not text]
        assert numbers == sorted(numbers, reverse=True)
        assert numbers[0] == manual.WAITERS + 1


def test_the_filter_of_a_link_reaches_a_frame_that_was_opened_without_it(stage: Stage) -> None:
    """As Airflow 3.1 opens it: the page's address in the frame has no query, that of the page around has."""

    class Key:
        dag_id, task_id, map_index = manual.DEAD, "load", -1
        run_id = "manual__2026-11-24T09:12:50.864178+00:00"

    link = HiveLocksLink().get_link(None, ti_key=Key())  # type: ignore[arg-type]
    with stage.sign_in("viewer") as tab:
        tab.page.goto(stage.airflow.url + link)
        tab.page.wait_for_selector("iframe")
        tab.page.evaluate("document.querySelector('iframe').src = '/hivelock/'")
        frame = tab.frame()
        expect(row(frame, "dw.sessions")).to_be_visible()
        expect(frame.locator("tbody tr[role=row]")).to_have_count(1)
        expect(frame.locator("#filter-owner")).to_have_value(re.compile(manual.DEAD))


def details(frame: Frame, name: str) -> Locator:
    return frame.locator("dialog dt", has_text=name).locator("xpath=following-sibling::dd[1]")
