"""5,000 locks and 1,000 waiters: what a look at them costs. Times are printed, and held to generous bounds only."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from airflow_hivelock.locks import LockManager, connect
from tests.system.ui import crowd, scene
from tests.system.ui.conftest import CROWD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.ui.conftest import Stage

LEASES, WAITERS = 1_000, 1_000
LOOKS = 10
FIRST_ROW = """new MutationObserver(() => {
  if (document.querySelector("tbody tr[role=row] td.c-object")) window.firstRowMs ??= performance.now();
}).observe(document, {childList: true, subtree: true});"""


@pytest.fixture(scope="module")
def many(stage: Stage) -> Iterator[LockManager]:
    with connect(f"zookeeper://{stage.zookeeper.hosts}/{CROWD}?root=/{CROWD}_leases") as manager:
        began = time.monotonic()
        crowd.fill(manager, LEASES, WAITERS, scene.INSTALLATION)
        print(f"\nfilled in {time.monotonic() - began:.0f} s")
        yield manager


@pytest.mark.timeout(1_200)
def test_many_locks_are_painted_soon_and_refreshed_cheaply(stage: Stage, many: LockManager) -> None:
    del many
    with stage.sign_in("operator") as tab:
        tab.page.goto(stage.airflow.url, wait_until="networkidle")  # the way to the page: Airflow itself is awake then
        tab.page.add_init_script(FIRST_ROW)
        for which in ("first", "second"):
            frame = tab.open(f"?connection={CROWD}", framed=False)
            expect(frame.locator("#summary")).to_contain_text("5,000 locks1,000 waiting")
            painted_ms, first_ms = frame.evaluate(
                "[performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, firstRowMs]"
            )
            print(f"{which} visit: first paint after {painted_ms:.0f} ms, first row after {first_ms:.0f} ms")
            assert first_ms < 120_000
        expect(frame.locator("#summary")).to_contain_text("of Hive’s own")
        assert frame.locator("tbody tr[role=row]").count() < 100, "only rows in sight are made"
        frame.locator("#filter-object").fill("table_7/")
        expect(frame.locator("tbody tr[role=row]").first).to_contain_text("dw.table_7/")
        for name in ("waiting", "graph", "locks"):
            began_ms = frame.evaluate("performance.now()")
            frame.locator(f"#tab-{name}").click()
            print(f"view {name}: {frame.evaluate('performance.now()') - began_ms:.0f} ms")
        frame.locator("#pause").click()
        assert tab.problems == []
        changed = _looks(stage, tab.page.context.request, changing=True)
        same = _looks(stage, tab.page.context.request, changing=False)
    for what, took in (("after a change", changed), ("without one", same)):
        print(f"refresh {what}: median {statistics.median(took):.0f} ms, longest {max(took):.0f} ms")
        assert statistics.median(took) < 10_000


def _looks(stage: Stage, request: Any, *, changing: bool) -> list[float]:
    """How long the server takes to answer one who comes as often as the page does, in milliseconds."""
    url = f"{stage.airflow.url}/hivelock/api/v1/{CROWD}/current"
    tag, took = request.get(url).headers["etag"], []
    with connect(f"zookeeper://{stage.zookeeper.hosts}/{CROWD}?root=/{CROWD}_leases") as manager:
        for number in range(LOOKS):
            if changing:
                manager.acquire(owner=scene.owner("change", 1 + number, f"at {time.time_ns()}"), reads=["dw.change"])
            time.sleep(3)
            began = time.monotonic()
            answer = request.get(url, headers={"If-None-Match": tag})
            took.append(1_000 * (time.monotonic() - began))
            assert answer.status in (200, 304)  # a dear look rests: what is given may be a few seconds old
            tag = answer.headers["etag"]
            assert len(answer.body()) < 2_000_000
    return took


def test_a_refresh_asks_zookeeper_as_often_for_many_locks_as_for_few(stage: Stage, many: LockManager) -> None:
    with connect(f"zookeeper://{stage.zookeeper.hosts}/few?root=/few_leases") as few:
        crowd.fill(few, 20, 20, scene.INSTALLATION)
        asked: dict[str, list[tuple[int, int]]] = {}
        for what, look in (("leases and waiters", LockManager.requests), ("Hive's namespace", LockManager.show)):
            for manager in (few, many):
                look(manager)
                with crowd.round_trips(manager) as sent:
                    look(manager)
                asked.setdefault(what, []).append((len(sent), sum(sent)))
    for what, ((few_trips, few_packets), (many_trips, many_packets)) in asked.items():
        print(
            f"{what}: {few_trips} round trips for 100 locks ({few_packets} packets), "
            f"{many_trips} for 5,000 ({many_packets} packets)"
        )
        assert many_trips <= few_trips + (what == "Hive's namespace"), "the first 500 say how many fit together"
        assert many_packets < 3 * few_packets + (LEASES * 5 + WAITERS * 2) / 500, "a thousand reads go in one packet"
