"""Requests that wait, in a real browser: withdraw one, change its priority, reserve an object; and who cannot do that."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from airflow_hivelock.locks import Withdrawn, reservations, rules
from tests.system.ui import scene
from tests.system.ui.looking import AXE, row, violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Frame, Locator

    from airflow_hivelock.locks.pending import PendingLease
    from tests.system.ui.conftest import Stage

OBJECT = "dw.urgent"
FIRST, LAST = scene.owner("nightly", 1), scene.owner("report", 2)


@contextmanager
def queue(stage: Stage) -> Iterator[dict[str, PendingLease]]:
    """Two requests that wait for a lease."""
    lease = stage.manager.acquire(owner=scene.owner("works", 3), writes=[OBJECT])
    waiting = {
        who: stage.manager.begin(rules.request(who, writes=[OBJECT]), threading.Event().set) for who in (FIRST, LAST)
    }
    for pending in waiting.values():
        pending.poll()
    try:
        yield waiting
    finally:
        for pending in waiting.values():
            pending.withdraw()
        stage.manager.release(lease)


def priorities(stage: Stage) -> list[tuple[str, int]]:
    return [(waiter.owner, waiter.priority) for waiter in stage.manager.waiters(OBJECT)]


def opened(frame: Frame, text: str) -> Locator:
    """The dialog of the request whose row has that text."""
    row(frame, text).locator("td.c-priority").click()
    dialog = frame.locator("dialog")
    expect(dialog).to_contain_text(OBJECT)
    return dialog


def test_an_operator_changes_a_priority_by_keyboard_alone(stage: Stage) -> None:
    with queue(stage), stage.sign_in("operator") as tab:
        frame, keys = tab.open(f"?view=waiting&object={OBJECT}", framed=False), tab.page.keyboard
        row(frame, "report").focus()
        keys.press("Enter")
        dialog = frame.locator("dialog")
        expect(dialog).to_contain_text("holds dw.urgent")
        summary = dialog.locator("summary", has_text="Change its priority")
        for _ in range(20):
            if summary.evaluate("summary => summary === document.activeElement"):
                break
            keys.press("Tab")
        keys.press("Enter")
        frame.evaluate(AXE)
        assert violations(frame) == []
        keys.press("Tab")
        expect(dialog.get_by_label("New priority")).to_be_focused()
        keys.press("ControlOrMeta+a")
        keys.type("7")
        keys.press("Enter")
        expect(dialog.locator("#priority-reason")).to_be_focused()
        assert priorities(stage) == [(FIRST, 1), (LAST, 1)], "not without a reason"
        keys.type("due at 7")
        keys.press("Tab")
        keys.press("Tab")
        expect(dialog.get_by_role("button", name="Change the priority")).to_be_focused()
        keys.press("Enter")
        expect(dialog).to_have_count(0)
        expect(frame.locator("#announcer")).to_contain_text("Changed the priority of the request of report")
        expect(row(frame, "report").locator("td.c-priority")).to_have_text("7")
        assert priorities(stage) == [(LAST, 7), (FIRST, 1)]
        dialog = opened(frame, "report")
        dialog.get_by_text("Change its priority").click()
        dialog.locator("#priority-reason").fill("once more")
        dialog.get_by_role("button", name="Change the priority").click()
        expect(dialog.get_by_role("alert")).to_contain_text("has priority 7 already")
        assert [text for text in tab.problems if "400" not in text] == []
    entry = stage.manager.audit()[-1]
    assert (entry.owner, entry.user, entry.reason) == (LAST, "operator", "priority 7: due at 7")


def test_an_operator_withdraws_a_request(stage: Stage) -> None:
    with queue(stage) as waiting, stage.sign_in("operator") as tab:
        frame = tab.open(f"?view=waiting&object={OBJECT}", framed=False)
        dialog = opened(frame, "nightly")
        dialog.get_by_text("Withdraw it").click()
        frame.evaluate(AXE)
        assert violations(frame) == []
        dialog.get_by_role("button", name="Withdraw the request").click()
        assert len(priorities(stage)) == 2, "not without a reason"
        dialog.locator("#withdraw-reason").fill("wrong week")
        dialog.get_by_role("button", name="Withdraw the request").click()
        expect(dialog).to_have_count(0)
        expect(frame.locator("#announcer")).to_contain_text("Withdrew the request of nightly")
        expect(row(frame, "nightly")).to_have_count(0)
        assert priorities(stage) == [(LAST, 1)]
        with pytest.raises(Withdrawn, match="operator: wrong week"):
            waiting[FIRST].poll()
        assert tab.problems == []


def test_the_holder_is_one_step_away_from_the_request(stage: Stage) -> None:
    with queue(stage), stage.sign_in("operator") as tab:
        frame = tab.open(f"?view=waiting&object={OBJECT}", framed=False)
        opened(frame, "nightly").get_by_role("button", name="Details of works").click()
        expect(frame.locator("dialog h2")).to_have_text("Lease")
        expect(frame.locator("dialog dd").first).to_contain_text("works")
        assert tab.problems == []


def test_an_operator_reserves_an_object(stage: Stage) -> None:
    with stage.sign_in("operator") as tab:
        frame = tab.open("?object=dw.reserved", framed=False)
        frame.get_by_role("button", name="Reserve…").click()
        dialog = frame.locator("dialog")
        expect(dialog.get_by_label("Object")).to_have_value("dw.reserved")
        frame.evaluate(AXE)
        assert violations(frame) == []
        dialog.locator("textarea").fill("compaction")
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(dialog).to_have_count(0)
        expect(frame.locator("#announcer")).to_contain_text("Reserved dw.reserved until")
        expect(row(frame, "dw.reserved")).to_contain_text("operator, reserved until")
        expect(row(frame, "dw.reserved").locator(".state")).to_have_text("reserved")
        (lease,) = (lease for lease in stage.manager.leases() if lease.owner.startswith("reservation:operator:"))
        try:
            assert reservations.end_of(lease.owner) is not None
            frame.get_by_role("button", name="Reserve…").click()
            dialog.locator("textarea").fill("again")
            dialog.get_by_role("button", name="Reserve", exact=True).click()
            expect(dialog.get_by_role("alert")).to_contain_text("dw.reserved is in use")
            assert [text for text in tab.problems if "409" not in text] == []
        finally:
            stage.manager.release(lease)


def test_a_viewer_sees_a_request_and_changes_nothing(stage: Stage) -> None:
    with queue(stage), stage.sign_in("viewer") as tab:
        frame = tab.open(f"?view=waiting&object={OBJECT}", framed=False)
        expect(opened(frame, "nightly").locator("form")).to_have_count(0)
        expect(frame.locator("#reserve")).to_be_hidden()
        for what, more in (("requests/withdraw", {}), ("requests/priority", {"priority": 9})):
            status = frame.evaluate(
                """async ([what, body]) => (await fetch(`/hivelock/api/v1/hivelock_default/${what}`, {method: "POST",
                headers: {"Content-Type": "application/json", "X-Hivelock": "release"}, body: JSON.stringify(body)})).status""",
                [what, {"owner": FIRST, "reason": "because", **more}],
            )
            assert status == 403
        assert priorities(stage) == [(FIRST, 1), (LAST, 1)]
