"""The official OpenLineage provider, as users configure it. ``make test-lineage`` runs this folder; others skip it."""

from __future__ import annotations

import json
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

HAS_PROVIDER = find_spec("openlineage") is not None  # not the provider's: that would import Airflow
collect_ignore_glob = [] if HAS_PROVIDER else ["test_*.py"]
EVENTS = Path(tempfile.mkdtemp(prefix="events-")) / "events"

if HAS_PROVIDER:  # before Airflow is imported, which loads the provider's listener then
    os.environ |= {
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(EVENTS), "append": True}),
        "AIRFLOW__OPENLINEAGE__CUSTOM_RUN_FACETS": "airflow_hivelock.lineage.lock_facets",
        "AIRFLOW__OPENLINEAGE__EXTRACTORS": (
            "airflow_hivelock.lineage.LockedBashExtractor;airflow_hivelock.lineage.LockedPythonExtractor"
        ),
        "AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD": "True",
    }

from tests.airflow.conftest import dag_test, database, lines, manager, no_scheduler, run  # noqa: E402

__all__ = ["dag_test", "database", "lines", "manager", "no_scheduler", "run"]


@pytest.fixture
def events() -> Callable[[str], list[dict[str, Any]]]:
    """The events of a job since the test began, in their order."""
    EVENTS.unlink(missing_ok=True)

    def of(job: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in EVENTS.read_text().splitlines()] if EVENTS.exists() else []
        return [event for event in found if event["job"]["name"] == job]

    return of
