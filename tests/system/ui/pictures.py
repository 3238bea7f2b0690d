"""The documentation's pictures, of the real page in a real Airflow: ``python -m tests.system.ui.pictures``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from airflow_hivelock.locks import connect
from tests.support.servers import ZooKeeperServer
from tests.system.ui import scene
from tests.system.ui.browser import Tab, chromium, sign_in
from tests.system.ui.looking import row

IMAGES = Path(__file__).parents[3] / "docs" / "images"
MOST_BYTES = 200_000


def main() -> None:
    """Take the pictures again."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        workdir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = stack.enter_context(ZooKeeperServer(workdir))
        manager = stack.enter_context(connect(zookeeper.url))
        stack.callback(scene.hive_lock(zookeeper).stop)
        scene.play(manager)
        airflow = stack.enter_context(scene.api_server(workdir, zookeeper))
        scene.tell(airflow.database_url)
        tab = stack.enter_context(sign_in(stack.enter_context(chromium()), airflow, "operator", size=(1280, 640)))
        tab.open().wait_for_selector("tbody tr[role=row]:has-text('Hive’s own')")
        shoot(tab, "locks")
        frame = tab.open("?view=waiting")
        row(frame, "alter_table").locator("td.c-priority").click()
        frame.get_by_text("Change its priority").click()
        shoot(tab, "request")


def shoot(tab: Tab, name: str) -> None:
    file = IMAGES / f"{name}.png"
    tab.page.screenshot(path=file)
    assert file.stat().st_size < MOST_BYTES, f"{file} is {file.stat().st_size:,} bytes"


if __name__ == "__main__":
    main()
