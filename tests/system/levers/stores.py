"""Names that the tests and their DAGs share."""

from __future__ import annotations

STORES = {"sales": "hivelock_default", "orders": "orders_locks"}
"""The connection of each part of the warehouse. *sales* locks in ZooKeeper, *orders* in PostgreSQL."""

INSTALLATION = "etl-prod"
GROUP = "spark-prod"

AN_HOUR_S = 20
"""The hour of the guide on alerts."""
