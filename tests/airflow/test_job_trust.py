"""What a record of work may decide, where it was written by a stranger with access to the lock store."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.ui import holders
from airflow_hivelock.work import applications
from tests.airflow.test_keeper_frees import Airflow, acquire, keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Lease

FASTAPI = {"kind": "resumable", "operator": "fastapi.__main__.x", "job_id": 1, "arguments": {}}
"""Its module ends the process that imports it."""

POISON = {**FASTAPI, "operator": "poison.x"}


@pytest.fixture(autouse=True)
def poison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that can be imported, and ends the process as fastapi.__main__ does."""
    (tmp_path / "poison.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("poison", "fastapi.__main__"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.fixture
def recorded(manager: LockManager) -> Callable[[dict[str, Any]], Lease]:
    """``recorded(record)``: a lease under which a stranger has recorded that work."""
    return lambda record: manager.start_work(acquire(manager), "load", json.dumps(record))


@pytest.mark.parametrize("record", [FASTAPI, POISON])
class TestModule:
    def test_the_page_imports_none_that_a_record_names(self, recorded: Any, record: dict[str, Any]) -> None:
        lease = recorded(record)
        assert holders.ask([lease]) == {lease.id: {"load": holders.UNTOLD}}
        assert holders.how(lease.works[0]) == holders.UNTOLD
        assert not {"poison", "fastapi.__main__"} & sys.modules.keys()

    def test_the_keeper_imports_none_and_keeps_the_lease(
        self, recorded: Any, record: dict[str, Any], manager: LockManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = recorded(record)
        airflow_knows_it_over(monkeypatch)
        assert "provider" in keep()[lease.id]
        assert not {"poison", "fastapi.__main__"} & sys.modules.keys()
        assert manager.find(lease.id)

    def test_release_and_the_next_try_import_none(self, recorded: Any, record: dict[str, Any]) -> None:
        lease = recorded(record)
        with pytest.raises(CannotTell, match="provider"):
            applications.running(lease.works)
        ending = applications.decode(json.dumps({**record, "attribute": "job_id"}))
        with pytest.raises(CannotTell, match="provider"):
            ending.stop()
        assert not {"poison", "fastapi.__main__"} & sys.modules.keys()


def airflow_knows_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import task_runner

    from airflow_hivelock.triggers import keeper

    played = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", played, raising=False)
    monkeypatch.setattr(keeper, "SETTLE_S", 0.0)
    played.knows("run", "failed", load="failed")
