"""The page broken on purpose: Airflow's API server has to start all the same."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import httpx
import pytest
import structlog

from airflow_hivelock.cli.command import main_in_airflow
from airflow_hivelock.ui.plugin import HiveLocksPlugin, why_no_page
from tests.support.airflow_server import AirflowServer

# Airflow's own warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    from airflow_hivelock import ui
    from airflow_hivelock.ui import access, app  # noqa: F401 - loaded once, before a test takes them away

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks import LockManager

PRIVATE = "airflow.api_fastapi.core_api.security"
"""What the page uses of Airflow and is not public."""


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow, after a private module has moved."""
    for module in ("airflow_hivelock.ui.app", "airflow_hivelock.ui.access"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for name in ("app", "access"):
        monkeypatch.delattr(ui, name, raising=False)
    monkeypatch.setitem(sys.modules, PRIVATE, None)


def test_a_page_that_cannot_be_imported_is_not_served_and_says_why(moved: None) -> None:
    plugin = HiveLocksPlugin()
    with structlog.testing.capture_logs() as entries:
        assert plugin.fastapi_apps == []
    [entry] = [entry for entry in entries if entry["log_level"] == "error"]
    assert PRIVATE in entry["event"]
    assert "Install a version of airflow-hivelock" in entry["event"]
    assert plugin.external_views == [], "no entry in the menu leads to a page that is not there"


def test_hivelock_check_reports_it(moved: None, manager: LockManager, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main_in_airflow(["check"])
    assert PRIVATE in capsys.readouterr().out


def test_a_page_that_can_be_imported_is_served() -> None:
    plugin = HiveLocksPlugin()
    assert why_no_page() is None
    assert [app["url_prefix"] for app in plugin.fastapi_apps] == ["/hivelock"]
    views = {view["destination"]: view["url_route"] for view in plugin.external_views}
    assert views == {"nav": "hivelock", "dag_run": "hivelock-run", "task_instance": "hivelock-task"}
    for view in plugin.external_views:
        ExternalViewResponse.model_validate(view)


@pytest.mark.integration
def test_the_api_server_comes_up_with_the_page_broken(tmp_path: Path) -> None:
    """A real API server. The import of the page's access module fails there."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import sys\nsys.modules['airflow_hivelock.ui.access'] = None\n")
    airflow = AirflowServer(
        tmp_path / "airflow", tmp_path, kinds=("api-server",), database="sqlite", env={"PYTHONPATH": str(broken)}
    )
    with airflow:
        assert httpx.get(f"{airflow.url}/api/v2/monitor/health").status_code == 200
        assert "Hive locks</title>" not in httpx.get(f"{airflow.url}/hivelock/").text
    logged = (airflow.home / "api-server.log").read_text()
    assert 'the page "Hive locks" cannot be loaded' in logged
    assert "[error" in next(line for line in logged.splitlines() if "cannot be loaded" in line)
