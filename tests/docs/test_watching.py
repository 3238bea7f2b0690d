"""The DAG of the guide that sends a message when a task has waited for an hour: what it reports, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock import HiveLockHook
from airflow_hivelock.locks import rules
from tests.docs.blocks import Kind, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import LockManager


@pytest.fixture
def look(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """The function of its task."""
    monkeypatch.setattr(HiveLockHook, "manager", lambda _: manager)
    (block,) = [each for each in blocks(Kind.DAG) if "def hive_lock_waits" in each.text]
    given: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block.padded, block.page, "exec"), given)
    found: Callable[[], Any] = given["hive_lock_waits"]().get_task("look").python_callable
    return found


def test_it_names_who_has_waited_for_an_hour_and_the_holder(
    look: Callable[[], Any], manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.acquire(owner="backfill", writes=["dw.flights"])
    waiting = manager.begin(rules.request("daily", writes=["dw.flights"]), lambda: None)
    waiting.poll()
    try:
        look()  # a minute is no hour
        now = manager.now()
        monkeypatch.setattr(manager, "now", lambda: now + timedelta(minutes=61))
        with pytest.raises(RuntimeError, match=r"daily waits since .*Z\. backfill holds dw\.flights EXCLUSIVE"):
            look()
    finally:
        waiting.withdraw()
    look()
