"""Force releases and hosts declared gone, in a real browser, and who cannot do that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.processes import Processes
from tests.system.ui import scene
from tests.system.ui.looking import AXE, row, show, violations

if TYPE_CHECKING:
    from tests.system.ui.conftest import Stage


NASTY = "<img src=x onerror=document.title='broken'>"


def test_an_operator_frees_a_lease_and_the_audit_trail_says_who_and_why(stage: Stage) -> None:
    lease = stage.manager.acquire(owner=scene.owner("forgotten", 1), writes=["dw.forgotten"])
    with stage.sign_in("operator") as tab:
        frame = tab.open("?object=forgotten")
        row(frame, "dw.forgotten").locator("button").click()
        dialog = frame.locator("dialog")
        expect(dialog).to_contain_text("A force release stops no work")
        dialog.get_by_role("button", name="Force release").click()
        assert stage.manager.find(lease.id) is not None, "not without a reason"
        dialog.locator("textarea").fill("the host has burnt down")
        dialog.get_by_role("button", name="Force release").click()
        expect(dialog).to_have_count(0)
        expect(row(frame, "dw.forgotten")).to_have_count(0)
        expect(frame.locator("#announcer")).to_contain_text("Freed the lease of forgotten")
        said = frame.locator("#announcer").bounding_box()
        assert said is not None
        assert said["height"] > 20, "people see it, too"
        assert tab.problems == []
    assert stage.manager.find(lease.id) is None
    entry = stage.manager.audit()[-1]
    assert (entry.lease_id, entry.user, entry.reason) == (lease.id, "operator", "the host has burnt down")


def test_an_operator_frees_a_lock_that_hive_has_left(stage: Stage) -> None:
    session = scene.hive_lock(stage.zookeeper, "dw/left", exclusive=True, query_id="hive_left_7")
    try:
        with stage.sign_in("viewer") as tab:
            frame = tab.open("?object=dw.left")
            row(frame, "dw.left").locator("button").click()
            expect(frame.locator("dialog")).to_contain_text("holds this lock")
            expect(frame.locator("dialog form")).to_have_count(0)
        with stage.sign_in("operator") as tab:
            frame = tab.open("?object=dw.left")
            row(frame, "dw.left").locator("button").click()
            dialog = frame.locator("dialog")
            expect(dialog).to_contain_text("its session is not notified")
            dialog.locator("textarea").fill("its client was killed")
            frame.evaluate(AXE)
            assert violations(frame) == []
            dialog.get_by_role("button", name="Force release").click()
            expect(dialog).to_have_count(0)
            expect(frame.locator("#announcer")).to_contain_text("hive_left_7 in Hive")
            expect(row(frame, "dw.left")).to_have_count(0)
            assert tab.problems == []
    finally:
        session.stop()
    entry = stage.manager.audit()[-1]
    assert (entry.owner, entry.user, entry.reason) == ("hive_left_7", "operator", "its client was killed")


def test_it_says_what_still_runs_under_a_lease(stage: Stage) -> None:
    with stage.sign_in("operator") as tab:
        frame = tab.open("?owner=crashed")
        row(frame, "dw.delays/dt=2013-01-31").locator("button").click()
        expect(frame.locator("dialog")).to_contain_text("on worker-7")
        expect(frame.locator("dialog .note.strong")).to_be_visible()


def test_an_operator_says_that_a_host_is_gone(stage: Stage) -> None:
    lease = stage.manager.acquire(owner=scene.owner("burnt", 1, "load"), writes=["dw.burnt"])
    stage.manager.start_work(lease, "load", encode(Processes(host="worker-9")))
    with stage.sign_in("viewer") as tab:
        frame = tab.open("?object=burnt")
        row(frame, "dw.burnt").locator("button").click()
        expect(frame.locator("dialog")).to_contain_text("only worker-9 can tell")
        expect(frame.locator("dialog details")).to_have_count(0)
    with stage.sign_in("operator") as tab:
        frame = tab.open("?object=burnt")
        row(frame, "dw.burnt").locator("button").click()
        dialog = frame.locator("dialog")
        dialog.get_by_text("Is its host worker-9 gone?").click()
        expect(dialog.locator("details li")).to_contain_text("burnt")
        frame.evaluate(AXE)
        assert violations(frame) == []
        dialog.get_by_role("button", name="Declare worker-9 gone").click()
        assert not stage.manager.audit() or stage.manager.audit()[-1].lease_id != lease.id, "not without a reason"
        dialog.locator("details textarea").fill("burnt down")
        dialog.get_by_role("button", name="Declare worker-9 gone").click()
        expect(dialog).to_have_count(0)
        expect(frame.locator("#announcer")).to_contain_text("worker-9 is declared gone, and 1 work with it")
        row(frame, "dw.burnt").locator("button").click()
        expect(frame.locator("dialog")).to_contain_text("declared gone by operator")
        assert tab.problems == []
    entry = stage.manager.audit()[-1]
    assert (entry.lease_id, entry.user, entry.reason[-10:]) == (lease.id, "operator", "burnt down")
    stage.manager.force_release(lease.id, reason="tidying up", user="the test")


def test_a_viewer_neither_sees_the_button_nor_can_do_it(stage: Stage) -> None:
    lease = stage.leases["daily 13"]
    with stage.sign_in("viewer") as tab:
        frame = tab.open("?object=dw.delays/dt=2013-01-13")
        row(frame, "dw.delays/dt=2013-01-13").locator("button").click()
        expect(frame.locator("dialog")).to_contain_text("flights_daily")
        expect(frame.get_by_role("button", name="Force release")).to_have_count(0)
        status = frame.evaluate(
            """async (id) => (await fetch(`/hivelock/api/v1/hivelock_default/leases/${id}/release`, {method: "POST",
            headers: {"Content-Type": "application/json", "X-Hivelock": "release"},
            body: JSON.stringify({reason: "because"})})).status""",
            lease.id,
        )
        assert status == 403
    assert stage.manager.find(lease.id) is not None


def test_who_is_signed_out_gets_nothing(stage: Stage) -> None:
    with stage.sign_in(None) as tab:
        request, url = tab.page.context.request, f"{stage.airflow.url}/hivelock"
        for place in ("", "static/page.js", "api/v1/hivelock_default/current"):
            assert request.get(f"{url}/{place}").status == 401, place
        lease = stage.leases["daily 15"]
        answer = request.post(
            f"{url}/api/v1/hivelock_default/leases/{lease.id}/release",
            headers={"X-Hivelock": "release"},
            data={"reason": "because"},
        )
        assert answer.status == 401
    assert stage.manager.find(lease.id) is not None


def test_another_site_can_neither_free_nor_frame(stage: Stage) -> None:
    lease = stage.leases["daily 14"]
    with stage.sign_in("operator") as tab:
        tab.open(framed=False)
        elsewhere = stage.airflow.url.replace("127.0.0.1", "localhost")
        tab.page.goto(f"{elsewhere}/api/v2/version")  # another site, for the browser
        said = tab.page.evaluate(
            """async ([url]) => { try { return (await fetch(url, {method: "POST", credentials: "include",
            headers: {"Content-Type": "application/json", "X-Hivelock": "release"}, body: '{"reason": "mischief"}'})).status; }
            catch (error) { return "refused by the browser"; } }""",
            [f"{stage.airflow.url}/hivelock/api/v1/hivelock_default/leases/{lease.id}/release"],
        )
        assert said in ("refused by the browser", 401, 403)
    assert stage.manager.find(lease.id) is not None


def test_a_strangers_name_is_text(stage: Stage) -> None:
    who = str(Owner(scene.INSTALLATION, NASTY, NASTY, NASTY))
    lease = stage.manager.acquire(owner=who, writes=["dw.nasty"], query=NASTY)
    try:
        with stage.sign_in("operator") as tab:
            frame = tab.open("?object=nasty", framed=False)
            expect(row(frame, "dw.nasty")).to_contain_text(NASTY)
            row(frame, "dw.nasty").locator("button").click()
            expect(frame.locator("dialog")).to_contain_text(NASTY)
            tab.page.keyboard.press("Escape")
            show(frame, "timeline")
            assert frame.locator("img").count() == 0
            assert frame.title() == "Hive locks"
            assert tab.problems == []
    finally:
        stage.manager.release(lease)
