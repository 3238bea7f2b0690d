"""The page in a real browser: what users see, and that every user can use it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.system.ui import scene
from tests.system.ui.browser import NARROW, PATIENCE_MS, WIDE
from tests.system.ui.looking import AXE, row, show, violations

if TYPE_CHECKING:
    from tests.system.ui.browser import Tab
    from tests.system.ui.conftest import Stage


VIEWS = ("locks", "waiting", "graph", "timeline", "groups", "audit")


def test_it_shows_the_live_locks_within_airflow(stage: Stage) -> None:
    with stage.sign_in("operator") as tab:
        frame = tab.open()
        held = row(frame, "dw.delays/dt=2013-01-13")
        expect(held).to_contain_text("exclusive")
        expect(held).to_contain_text("flights_daily")
        expect(row(frame, "dw.airports")).to_contain_text("Hive’s own")
        expect(row(frame, "dw.carriers")).to_contain_text("staging")
        show(frame, "waiting")
        expect(row(frame, "alter_table")).to_contain_text("dw.delays")
        show(frame, "groups")
        group = row(frame, scene.GROUP)
        for text in (
            f"{scene.DAYS} of 12",
            "flights_daily",
            f"and {scene.DAYS - 1} more",
            "what the queue's memory allows",
        ):
            expect(group).to_contain_text(text)
        show(frame, "audit")
        expect(row(frame, "its worker's host is gone")).to_contain_text("operator")
        show(frame, "timeline")
        assert frame.locator("rect.bar-X").count() >= scene.DAYS
        expect(frame.locator(".drawing rect.hives title")).to_contain_text("hive_20130112120000_5f2c")
        assert tab.problems == []


def test_it_says_which_holder_works_which_is_queued_and_which_is_dead(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open()
        dead, ended = (row(frame, f"dw.{name}") for name in ("delays/dt=2013-01-31", "flights/dt=2013-01-30"))
        expect(dead).to_contain_text(re.compile(r"needs action: failed\d\d min · "))
        expect(dead).to_contain_text("only worker-7 can tell")
        expect(ended).to_contain_text("work has ended")
        expect(row(frame, "dw.delays/dt=2013-01-13").locator(".kind-works")).to_contain_text("working")
        expect(row(frame, "dw.delays/dt=2013-01-16").locator(".kind-idle")).to_contain_text("queued")
        expect(row(frame, "dw.flights/dt=2013-01-08")).to_contain_text("process 4711 on worker-3")
        expect(row(frame, "dw.carriers")).to_contain_text("elsewhere")
        expect(frame.locator("#summary")).to_contain_text("2 need action")
        expect(frame.locator("tbody tr[role=row]").first).to_contain_text("needs action")
        frame.locator("#filter-state").select_option("needs")
        expect(frame.locator("tbody tr[role=row]")).to_have_count(2)
        assert tab.problems == []


def test_a_rerun_of_sixty_days_is_one_row_that_opens(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open("?object=bookings", framed=False)
        rows = frame.locator("tbody tr[role=row]")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("dw.bookings 60 partitions")
        expect(rows.first).to_contain_text("bookings_rerun · load · 60 runs")
        expect(rows.first).to_contain_text("4 working")
        expect(rows.first).to_contain_text("56 queued")
        rows.first.locator("button").click()
        expect(row(frame, "dw.bookings/dt=2012-11-05")).to_contain_text("queued")
        expect(frame.locator("table")).to_have_attribute("aria-rowcount", "62")
        rows.first.focus()
        tab.page.keyboard.press("ArrowLeft")
        expect(rows).to_have_count(1)
        tab.page.keyboard.press("Enter")
        row(frame, "dw.bookings/dt=2012-11-01").locator("button").click()
        expect(frame.locator("dialog")).to_contain_text("Spark job application_1357000000000_0")
        assert tab.problems == []


def test_who_waits_for_a_table_waits_for_its_partitions(stage: Stage) -> None:
    """An ALTER TABLE that waits for partitions that no other request wants."""
    with stage.sign_in("viewer") as tab:
        frame = tab.open("?object=dw.delays/dt=2013-01-13", framed=False)
        expect(row(frame, "dw.delays/dt=2013-01-13").locator(".waiting")).to_have_text("1")
        expect(frame.locator("#summary")).to_contain_text("5 waiting, longest")
        expect(frame.locator("#summary time")).to_have_text(re.compile(r"\d+ (s|min|h)"))


@pytest.mark.parametrize("width", [600, 1280])
def test_every_button_can_be_reached(stage: Stage, width: int) -> None:
    with stage.sign_in("operator", size=(width, 780)) as tab:
        frame = tab.open("?object=dw.delays", framed=False)
        outside = """() => [...document.querySelectorAll("button, select, input")].map((e) => [e, e.getBoundingClientRect()])
        .filter(([e, box]) => e.offsetParent && (box.left < 0 || box.right > innerWidth)).map(([e]) => e.outerHTML)"""
        assert frame.evaluate(outside) == []
        row(frame, "dw.delays/dt=2013-01-13").locator("button").click(trial=True)
        holder = row(frame, "dw.delays/dt=2013-01-13").locator("td.c-owner").bounding_box()
        assert holder is not None
        assert holder["width"] > 120, "who holds it can be read, too"


@pytest.mark.parametrize("width", [600, 1010, 1280])  # the tab of a run is 1,000 wide in a window of 1,400
def test_the_object_and_the_first_blocker_of_a_waiter_can_be_read(stage: Stage, width: int) -> None:
    with stage.sign_in("viewer", size=(width, 780)) as tab:
        frame = tab.open("?view=waiting", framed=False)
        for name in ("wanted", "blockers"):
            box = frame.locator(f'td[data-name="{name}"]').first.bounding_box()
            assert box is not None
            assert box["width"] > 150, name


def test_long_names_are_cut_where_they_are_alike(stage: Stage) -> None:
    names = [f"dw.{'a_very_long_name_of_a_table_' * 3}{end}" for end in ("old", "new")]
    leases = [stage.manager.acquire(owner=scene.owner("names", 1, name[3:]), writes=[name]) for name in names]
    try:
        with stage.sign_in("viewer") as tab:
            frame = tab.open("?object=very_long", framed=False)
            for name in names:
                cell = row(frame, name).locator("td").first
                tail, box = cell.locator(".tail").bounding_box(), cell.bounding_box()
                assert tail is not None
                assert box is not None
                assert tail["x"] + tail["width"] <= box["x"] + box["width"], "its end is in sight"
                expect(cell.locator(".tail")).to_have_text(name[-14:])
            show(frame, "timeline")
            expect(frame.locator("text.name")).to_have_count(2)  # what was asked before them is given for a while
            shown = frame.locator("text.name").evaluate_all("texts => texts.map(text => text.lastChild.data)")
            assert sorted(text[-4:] for text in shown) == ["_new", "_old"]
    finally:
        for lease in leases:
            stage.manager.release(lease)


def test_the_drawing_tells_who_waits_for_whom(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open()
        show(frame, "graph")
        knot = frame.locator("figure", has_text="dw.delays")
        expect(knot.locator("g.box.waits", has_text="alter_table")).to_have_count(1)
        assert knot.locator("g.box.holds").count() == 7
        expect(knot.locator("g.box.more")).to_have_text(re.compile(r"and \d more"))
        said = knot.locator("g.arrow title").all_text_contents()
        assert any("alter_table" in text and "waits ahead for dw.delays" in text for text in said)
        assert tab.problems == []


def test_a_link_leads_to_airflows_own_page_in_the_same_tab(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open()
        row(frame, "dw.delays/dt=2013-01-13").locator("a").first.click()
        tab.page.wait_for_url("**/dags/flights_daily*")
        tab.page.go_back()
        with tab.page.context.expect_page() as opened:
            row(tab.frame(), "dw.delays/dt=2013-01-13").locator("a").first.click(modifiers=["Control"])
        assert "/dags/flights_daily" in opened.value.url


def test_the_link_of_a_task_opens_the_page_with_its_locks(stage: Stage) -> None:
    from airflow_hivelock.links import HiveLocksLink

    class Key:
        dag_id, task_id, map_index = "flights_daily", "lock", -1
        run_id = "scheduled__2013-01-13T00:00:00+00:00"

    link: Any = HiveLocksLink().get_link(None, ti_key=Key())  # type: ignore[arg-type]
    with stage.sign_in("viewer") as tab:
        tab.page.goto(stage.airflow.url + link)
        frame = tab.frame()
        expect(row(frame, "dw.delays/dt=2013-01-13")).to_be_visible()
        expect(row(frame, "dw.delays/dt=2013-01-14")).to_have_count(0)


def test_the_table_follows_a_change_by_itself(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open("?object=followed")
        looks, started = tab.looks, time.monotonic()
        lease = stage.manager.acquire(owner=scene.owner("followed", 1), writes=["dw.followed"])
        expect(row(frame, "dw.followed")).to_be_visible(timeout=PATIENCE_MS)
        seen_s = time.monotonic() - started
        stage.manager.release(lease)
        expect(row(frame, "dw.followed")).to_have_count(0)
        print(f"a new lock was seen after {seen_s:.1f} s")
        assert tab.looks - looks <= 4, "each change is seen with the second look at the latest"


def test_it_is_used_by_keyboard_alone(stage: Stage) -> None:
    with stage.sign_in("operator") as tab:
        frame, keys = tab.open(framed=False), tab.page.keyboard
        frame.locator("#tab-locks").focus()
        keys.press("ArrowRight")
        expect(frame.locator("#tab-waiting")).to_be_focused()
        keys.press("ArrowLeft")
        frame.get_by_role("button", name="Object").click()  # sorts by it
        row(frame, "dw.airports").focus()
        keys.press("ArrowDown")
        expect(row(frame, "dw.bookings")).to_be_focused()
        keys.press("ArrowDown")
        expect(row(frame, "dw.carriers")).to_be_focused()
        keys.press("Enter")
        dialog = frame.locator("dialog")
        expect(dialog).to_be_visible()
        assert frame.evaluate("document.querySelector('dialog').contains(document.activeElement)")
        keys.press("Escape")
        expect(dialog).to_have_count(0)
        expect(row(frame, "dw.carriers")).to_be_focused()
        keys.press("End")
        expect(frame.locator("tbody tr[role=row]").last).to_be_focused()
        assert tab.problems == []


def test_the_focus_stays_where_it_is_while_the_page_refreshes(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open(framed=False)
        row(frame, "dw.carriers").focus()
        looks = tab.looks
        stage.manager.renew(stage.leases["daily 12"])
        deadline = time.monotonic() + 60
        while tab.looks < looks + 2 and time.monotonic() < deadline:
            tab.page.wait_for_timeout(200)
        expect(row(frame, "dw.carriers")).to_be_focused()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_everybody_can_read_and_use_it(stage: Stage, dark: bool, size: tuple[int, int]) -> None:
    with stage.sign_in("operator", dark=dark, size=size) as tab:
        frame = tab.open(framed=False)
        frame.evaluate(AXE)
        found = {}
        for view in VIEWS:
            show(frame, view)
            found[view] = violations(frame)
            assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} is too wide"
        show(frame, "locks")
        row(frame, "dw.delays/dt=2013-01-31").locator("button").click()
        expect(frame.locator("dialog")).to_contain_text("worker-7")
        found["dialog"] = violations(frame)
        assert frame.evaluate("document.documentElement.classList.contains('dark')") == dark
        assert found == {name: [] for name in found}


def test_it_asks_nothing_while_paused(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open(framed=False)
        frame.locator("#pause").click()
        asks_nothing(tab)
        looks = tab.looks
        frame.locator("#pause").click()
        expect(frame.locator("#freshness-text")).to_have_text("live")
        assert tab.looks > looks


def test_it_asks_nothing_while_its_tab_is_hidden(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        frame = tab.open(framed=False)
        hide = """(hidden) => { Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange")); }"""
        frame.evaluate(hide, True)
        asks_nothing(tab)
        with tab.page.expect_response("**/current"):
            frame.evaluate(hide, False)


def asks_nothing(tab: Tab) -> None:
    tab.page.wait_for_timeout(1_000)
    looks = tab.looks
    tab.page.wait_for_timeout(7_000)
    assert tab.looks == looks


@pytest.mark.parametrize("away", ["away", "metastore_away"])
def test_a_store_that_is_away_is_told_and_keeps_nobody_from_the_others(stage: Stage, away: str) -> None:
    with stage.sign_in("viewer") as tab:
        tab.page.goto(f"{stage.airflow.url}/hivelock/?connection={away}")
        frame = tab.page.main_frame
        expect(frame.locator("#problem")).to_contain_text("Check that the store is up")
        expect(frame.locator("#freshness-text")).to_have_text("no answer")
        expect(frame.locator("#panel")).to_contain_text("No data yet.")
        frame.locator("#connection").select_option("hivelock_default")
        expect(row(frame, "dw.carriers")).to_be_visible()
        expect(frame.locator("#problem")).to_be_hidden()
        assert all("503" in problem for problem in tab.problems), tab.problems
