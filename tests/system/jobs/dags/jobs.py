"""Writers in clusters, each by its provider's own operator: waited for in the task, or deferred."""

from __future__ import annotations

from airflow.sdk import DAG

from tests.system.deaths.shape import AT_ONCE, look, names, options
from tests.system.jobs.operators import OPERATORS, deferring, waiting

for _kind in OPERATORS:
    with DAG(_kind, **options()):
        waiting(_kind, **names())

    with DAG(f"{_kind}_again", **options()):
        waiting(_kind, **names(), **AT_ONCE)

    with DAG(f"{_kind}_deferred", **options()):
        deferring(_kind, **names())

look()
