"""The kinds of waiting on the page: for a lock, for one of the counted leases, or for a worker slot.

The server's own answer, with more waiters than the lock store has: the page treats them the same for all stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.system.ui.looking import AXE, row, show, violations

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.system.ui.conftest import Stage

ASIDE = 40


def with_a_rerun(route: Route) -> None:
    """WorkState as the server does, and add a rerun: days for slots, two for a lease, a daily run for a lock."""
    headers = {name: value for name, value in route.request.headers.items() if name != "if-none-match"}
    response = route.fetch(headers=headers)
    answer = response.json()
    holder = next(lease for lease in answer["leases"] if answer["owners"][lease["o"]].get("dag") == "flights_daily")

    def wait(dag: str, run: str, day: str, **how: Any) -> int:
        answer["owners"].append({"text": f"{dag} {run}", "dag": dag, "run": run, "task": "load"})
        place = len(answer["owners"]) - 1
        holders = [arrow for arrow in how.get("blockers", ()) if not arrow["waiting"]]
        waits = {
            "priority": 1,
            "position": 0,
            "blockers": [],
            "holders": holders,
            "direct": len(how.get("blockers", ())),
            "ahead": 0,
        }
        waiter = {"o": place, "since": holder["since"], "locks": [[day, "X"]], **waits, **how}
        answer["waiters"].append(waiter)
        return place

    def arrow(place: int, *, waiting: bool, **how: Any) -> dict[str, Any]:
        return {"o": place, "object": "dw.delays/dt=2013-01-13", "mode": "X", "waiting": waiting, **how}

    for number in range(ASIDE):
        wait("year", f"manual__aside_{number:02}", f"dw.year/dt=d{number:02}", **{"for": "slot"})
    counted = {"for": "lease", "group": "the cluster", "out": 4, "position": 1}
    first = wait(
        "year", "manual__third", "dw.year/dt=98", blockers=[arrow(holder["o"], waiting=False, counted=True)], **counted
    )
    wait("year", "manual__fourth", "dw.year/dt=99", blockers=[arrow(first, waiting=True, counted=True)], **counted)
    now_ms = int(response.headers["x-store-now"])
    urgent = {"for": "lock", "position": 1, "priority": 10, "expected": [now_ms + 750_000, now_ms + 1_170_000]}
    wait("urgent", "manual__1", "dw.delays/dt=2013-01-13", blockers=[arrow(holder["o"], waiting=False)], **urgent)
    plain = {
        name: value for name, value in response.headers.items() if name not in ("content-encoding", "content-length")
    }
    route.fulfill(status=response.status, headers=plain, json=answer)


def test_a_wait_for_a_slot_or_for_a_counted_lease_is_told_from_one_for_a_lock(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        tab.page.route("**/current", with_a_rerun)
        frame = tab.open("?view=waiting&owner=manual__", framed=False)
        aside, counted, urgent = (row(frame, text) for text in ("aside_07", "manual__third", "urgent"))
        expect(aside.locator(".waits-for")).to_have_text("a worker slot")
        expect(aside).to_contain_text("none; it holds no lock")
        expect(counted.locator(".waits-for")).to_have_text("a lease of “the cluster”")
        expect(counted).to_contain_text("flights_daily")
        expect(row(frame, "manual__fourth")).to_contain_text("waits ahead: year")
        expect(urgent.locator(".waits-for")).to_have_text("a lock")
        expect(urgent.locator("td.c-priority")).to_have_text("10")
        expect(urgent.locator("td.c-expected")).to_have_text("12 to 20 min")
        expect(counted.locator("td.c-expected")).to_have_text("")
        link = aside.locator("a", has_text="load")
        assert "/dags/year/runs/manual__aside_07/tasks/load" in str(link.get_attribute("href"))
        expect(frame.locator("#summary")).to_contain_text(f"{ASIDE} for a worker slot")
        expect(frame.locator("#summary")).to_contain_text("2 for a lease")
        frame.evaluate(AXE)
        assert violations(frame) == []
        assert tab.problems == []


def test_who_waits_for_a_slot_is_in_no_knot_and_waits_for_no_lock(stage: Stage) -> None:
    with stage.sign_in("viewer") as tab:
        tab.page.route("**/current", with_a_rerun)
        frame = tab.open("?view=graph&owner=year", framed=False)
        expect(frame.locator("figcaption")).to_have_count(1)
        expect(frame.locator(".arrow title", has_text="waits ahead for a lease of “the cluster”")).to_have_count(1)
        assert frame.locator(".box", has_text="aside").count() == 0
        show(frame, "timeline")
        assert frame.locator(".drawing rect.wait.slot").count() == ASIDE
        frame.locator("#filter-owner").fill("")
        frame.locator("#filter-object").fill("dw.delays/dt=2013-01-13")
        frame.locator("#tab-locks").click()
        expect(row(frame, "dw.delays/dt=2013-01-13").locator(".waiting")).to_have_text("2")
        assert tab.problems == []
