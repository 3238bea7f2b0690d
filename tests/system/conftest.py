"""The browser of the tests that need one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all folders: Playwright runs an event loop in this thread until its end, and refuses a second one."""
    from tests.system.ui.browser import chromium

    with chromium() as browser:
        yield browser
