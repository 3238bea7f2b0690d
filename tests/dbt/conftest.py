"""dbt and Cosmos, as users install them. ``make test-dbt`` runs this folder; others skip it."""

from __future__ import annotations

import os
from importlib.util import find_spec

HAS_DBT = find_spec("cosmos") is not None
collect_ignore_glob = [] if HAS_DBT else ["test_*.py"]

if HAS_DBT:
    os.environ |= {"DO_NOT_TRACK": "1", "AIRFLOW__COSMOS__ENABLE_CACHE": "False"}

from tests.airflow.conftest import dag_test, database, lines, no_scheduler, run  # noqa: E402

__all__ = ["dag_test", "database", "lines", "no_scheduler", "run"]
