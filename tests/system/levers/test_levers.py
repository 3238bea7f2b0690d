"""Each lever by page, command line, Python and HTTP: what becomes of the tasks that wait, and what their logs show."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from airflow_hivelock.locks import reservations
from tests.system.levers.stores import GROUP
from tests.system.ui.looking import row, show

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Locator

    from tests.system.levers.conftest import Store, Task
    from tests.system.ui.browser import Tab

LONG_S = 150.0
"""The least length of the earlier holds. The first line *Still waiting* comes after a minute."""


def look(store: Store, tab: Tab, view: str, **parameters: str) -> Frame:
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return tab.open(f"?connection={store.conn_id}&view={view}&{query}")


def opened(frame: Frame, task: Task) -> Locator:
    """The dialog of the request of the task."""
    row(frame, task.run).locator("td.c-priority").click()
    return frame.locator("dialog")


@pytest.mark.timeout(600)  # the earlier holds and the log take half of the usual limit
def test_a_waiting_task_shows_how_long_it_will_probably_wait(store: Store) -> None:
    target = f"dw.{store.name}/week=40"
    since = min(lease.since for lease in store.past)
    store.until(lambda: store.manager.now() - since > timedelta(seconds=LONG_S), "the earlier holds to be long")
    for lease in store.past:
        store.manager.release(lease)
    holder = store.start("daily", target, gated=True)
    store.until(lambda: holder.owner in store.holders(target), "the holder to work")
    [task] = store.waiting("daily", target=target)
    with store.page() as tab:
        frame = look(store, tab, "waiting", object=target)
        expect(row(frame, task.run).locator("td.c-expected")).to_have_text(re.compile(r"^\d to \d min$"))
        store.shoot(tab, "expected", 240)
    assert re.search(r"probably \d to \d min more", store.cli("-e", f"SHOW WAITERS dw.{store.name}"))
    store.logs(task, "Still waiting for")
    store.logs(task, "min more")
    [waiter] = store.get("current")["waiters"]
    assert len(waiter["expected"]) == 2
    holder.gate.touch()
    store.ends(task, "success")


def test_a_withdrawn_task_fails_and_its_log_has_the_user_and_the_reason(store: Store) -> None:
    target = f"dw.{store.name}/wrong=week"
    with store.held(target):
        by_page, by_cli, by_python, by_http = tasks = store.waiting(*["daily"] * 4, target=target)
        with store.page() as tab:
            frame = look(store, tab, "waiting", object=target)
            dialog = opened(frame, by_page)
            dialog.get_by_text("Withdraw it").click()
            dialog.locator("#withdraw-reason").fill("wrong week")
            store.shoot(tab, "withdraw")
            dialog.get_by_role("button", name="Withdraw the request").click()
            expect(row(frame, by_page.run)).to_have_count(0)
            assert tab.problems == []
        store.cli("--reason", "wrong week, too", "-e", f"DROP FORCE REQUEST {by_cli.owner}")
        assert store.manager.force_withdraw(by_python.owner, reason="wrong month", user="bob")
        assert store.post("requests/withdraw", owner=by_http.owner, reason="wrong year") == {"withdrawn": True}
        who = ("operator: wrong week)", "(ann (logged in as ", "(bob: wrong month)", "(operator: wrong year)")
        for task, text in zip(tasks, who, strict=True):
            store.ends(task, "failed")
            store.logs(task, text)
        store.logs(by_cli, ": wrong week, too)")
        assert store.waiters(target) == set()


def test_a_raised_task_runs_first(store: Store) -> None:
    target = f"dw.{store.name}/urgent=yes"
    with store.held(target):
        first, by_page, by_cli, by_python, by_http = tasks = store.waiting(*["daily"] * 5, target=target)
        with store.page() as tab:
            frame = look(store, tab, "waiting", object=target)
            dialog = opened(frame, by_page)
            dialog.get_by_text("Change its priority").click()
            dialog.get_by_label("New priority").fill("5")
            dialog.locator("#priority-reason").fill("the report is due at 7")
            store.shoot(tab, "priority")
            dialog.get_by_role("button", name="Change the priority").click()
            expect(row(frame, by_page.run).locator("td.c-priority")).to_have_text("5")
            store.cli("--reason", "due at 6", "-e", f"ALTER FORCE REQUEST {by_cli.owner} PRIORITY 6")
            store.manager.force_priority(by_python.owner, 7, reason="due at 5", user="bob")
            store.post("requests/priority", owner=by_http.owner, priority=8, reason="due now")
            expect(frame.locator("tbody tr[role=row]").first).to_contain_text(by_http.run)
            store.shoot(tab, "priorities")
        assert store.get("current")["waiters"][0]["priority"] == 8
    for task in tasks:
        store.ends(task, "success")
    granted = {tenure.owner: tenure.granted for tenure in store.manager.history(target)}
    assert sorted((task.owner for task in tasks), key=lambda each: granted[each]) == [
        each.owner for each in (by_http, by_python, by_cli, by_page, first)
    ]


def test_a_reservation_keeps_tasks_out_until_it_ends_by_hand_or_by_its_time(store: Store) -> None:
    target = f"dw.{store.name}_reserved"
    store.cli("-e", f"RESERVE {target} UNTIL '{datetime.now(UTC) + timedelta(hours=2):%H:%M}' REASON 'compaction'")
    [task] = store.waiting("daily", target=target)
    store.logs(task, "In the way: reservation:ann:")
    shown = store.cli("-e", f"SHOW LOCKS {target} EXTENDED")
    assert re.search("LOCK_QUERYID:reservation:?ann", shown)
    assert "LOCK_QUERYSTRING:compaction" in shown
    store.until(lambda: "compaction" in [lease.get("query") for lease in store.get("current")["leases"]], "its label")
    with store.page() as tab:
        frame = look(store, tab, "locks", object=target)
        expect(row(frame, target).locator("td.c-number")).to_have_text("1")
        row(frame, target).locator("button").click()
        dialog = frame.locator("dialog")
        expect(dialog).to_contain_text("compaction")
        store.shoot(tab, "reserved")
        dialog.locator(".release textarea").last.fill("done early")
        dialog.get_by_role("button", name="Force release").click()
        store.ends(task, "success")
        frame.get_by_role("button", name="Reserve…").click()
        dialog.locator("textarea").fill("a new column")
        store.shoot(tab, "reserve")
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(row(frame, target)).to_contain_text("operator, reserved until")
        assert tab.problems == []
    [task] = store.waiting("daily", target=target)
    [lease] = [lease for lease in store.manager.leases() if lease.owner.startswith("reservation:operator:")]
    store.cli("--reason", "done", "-e", f"DROP FORCE LEASE {lease.id}")
    store.ends(task, "success")
    until = (store.manager.now() + timedelta(hours=1)).isoformat()
    by_http = store.post("reservations", object=target, until=until, reason="a new column")["lease"]
    [task] = store.waiting("daily", target=target)
    store.post(f"leases/{by_http}/release", reason="done")
    store.ends(task, "success")
    reservations.reserve(
        store.manager, target, store.manager.now() + timedelta(seconds=20), reason="a moment", user="bob"
    )
    [task] = store.waiting("daily", target=target)
    store.ends(task, "success")


def test_a_group_s_limit_is_changed_while_its_tasks_wait(store: Store) -> None:
    store.cli("group", "set", GROUP, "--leases", "1", "--comment", "as many as the cluster runs")
    tables = [f"dw.{store.name}/part={number}" for number in range(3)]
    first = store.start("spark", tables[0], gated=True)
    store.until(lambda: first.owner in store.holders(tables[0]), "the first to work")
    second = store.start("spark", tables[1], gated=True)
    store.until(lambda: second.owner in store.waiters(tables[1]), "the second to wait")
    store.logs(second, GROUP)
    with store.page() as tab:
        frame = look(store, tab, "waiting", owner=store.name)
        expect(row(frame, second.run).locator(".waits-for")).to_have_text(f"a lease of “{GROUP}”")
        show(frame, "groups")
        expect(row(frame, GROUP)).to_contain_text("1 of 1")
        store.shoot(tab, "group", 240)
        assert store.post("groups/set", name=GROUP, leases=2, reason="more nodes") == {"leases": 2}
        store.until(lambda: second.owner in store.holders(tables[1]), "the second to work")
        heavy = store.start("heavy", tables[2], gated=True)
        store.until(lambda: heavy.owner in store.waiters(tables[2]), "the heavy one to wait")
        expect(row(frame, GROUP)).to_contain_text("2 of 2")
        store.manager.set_group(GROUP, 3, user="bob")
        expect(row(frame, GROUP)).to_contain_text("2 of 3")
        assert heavy.owner in store.waiters(tables[2]), "it counts for two"
        store.shoot(tab, "weight")
        first.gate.touch()
        store.until(lambda: heavy.owner in store.holders(tables[2]), "the heavy one to work")
        expect(row(frame, GROUP)).to_contain_text("3 of 3")
        assert tab.problems == []
    assert json.loads(store.cli("--output", "json", "group", "list"))[0]["leases"] == 3
    for task in (first, second, heavy):
        task.gate.touch()
        store.ends(task, "success")


def test_the_api_has_the_history_and_the_audit_trail_of_all_this(store: Store) -> None:
    history, audit = store.get("history"), store.get("audit")
    assert {each["id"] for each in history["tenures"]} == {each.lease_id for each in store.manager.history()}
    assert [each["reason"] for each in audit["entries"]] == [each.reason for each in store.manager.audit()][::-1]
    by_cli = [json.loads(store.cli("--output", "json", "-e", f"SHOW {what}")) for what in ("HISTORY", "AUDIT")]
    assert [len(each) for each in by_cli] == [len(history["tenures"]), len(audit["entries"])]
    assert audit["entries"], "the levers have left traces"
    wanted = f"dw.{store.name}_reserved"
    assert store.get("audit", object=wanted)["entries"][0]["reason"] == "done"
    assert {text for each in store.get("history", object=wanted)["tenures"] for text, *_ in each["locks"]} >= {wanted}
