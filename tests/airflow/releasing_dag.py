"""The DAG whose tasks release their locks in a callback."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG

DAY = datetime(2013, 1, 15, tzinfo=UTC)
NAMES = {"writes": ["dw.delays/dt={{ ds }}"]}


def dag(name: str = "releases", **options: Any) -> DAG:
    return DAG(name, schedule=None, start_date=DAY, **options)
