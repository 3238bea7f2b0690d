"""The rows of the page in a browser, its views, and the problems that axe-core finds there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import axe_playwright_python

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Locator


AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def row(frame: Frame, text: str, nth: int = 0) -> Locator:
    return frame.locator("tbody tr[role=row]", has_text=text).nth(nth)


def show(frame: Frame, view: str) -> None:
    frame.locator(f"#tab-{view}").click()
    if view == "timeline":
        frame.wait_for_selector("#drawn svg")
    elif view == "graph":
        frame.wait_for_selector("figure svg")
    else:
        frame.wait_for_selector("tbody tr[role=row]")


def violations(frame: Frame) -> list[str]:
    """What axe-core finds against WCAG 2.1 A and AA, and its own best practices."""
    found = frame.evaluate("async () => (await axe.run()).violations")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary']}" for one in found]
