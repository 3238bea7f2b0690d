"""Chromium, signed in to Airflow as one of its users."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Frame, Page

    from tests.support.airflow_server import AirflowServer

EXECUTABLE = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
WIDE, NARROW = (1440, 860), (390, 780)


@dataclass
class Tab:
    """A tab with the page in it, and what went wrong there."""

    page: Page
    airflow: AirflowServer
    problems: list[str] = field(default_factory=list)
    looks: int = 0

    def open(self, query: str = "", *, framed: bool = True) -> Frame:
        """Open the page, within Airflow's own or alone, and wait until it shows what the server said."""
        self.page.goto(f"{self.airflow.url}/plugin/hivelock" if framed and not query else self._address(query, framed))
        frame = self.frame() if framed else self.page.main_frame
        frame.wait_for_selector("#freshness-dot.good", timeout=PATIENCE_MS)
        return frame

    def frame(self) -> Frame:
        """The page within Airflow's own."""
        handle = self.page.wait_for_selector("iframe")
        found = handle.content_frame() if handle else None
        assert found is not None
        return found

    def _address(self, query: str, framed: bool) -> str:
        return f"{self.airflow.url}{'/plugin/hivelock' if framed else ''}/hivelock/{query}"

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(message.text)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with an empty profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, headless=True, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def sign_in(
    browser: Browser, airflow: AirflowServer, user: str | None, *, dark: bool = False, size: tuple[int, int] = WIDE
) -> Iterator[Tab]:
    """A new tab without a past, signed in as *user*; None: not at all."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(PATIENCE_MS)
    if user is not None:
        credentials = {"username": user, "password": airflow.password(user)}
        token = context.request.post(f"{airflow.url}/auth/token", data=credentials).json()["access_token"]
        context.add_cookies([{"name": "_token", "value": token, "url": airflow.url, "sameSite": "Lax"}])
    tab = Tab(context.new_page(), airflow)
    tab.page.on("console", tab._hear)
    tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.page.on("response", lambda response: setattr(tab, "looks", tab.looks + response.url.endswith("/current")))
    yield tab
    context.close()
