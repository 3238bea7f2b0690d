"""What Airflow loads: the page's application, its place in the menu, and the links to it from tasks.

Every process of Airflow loads it, tasks too: what only the API server needs is imported when that asks for it.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_hivelock.links import PREFIX, ROUTE, HiveLocksLink


class HiveLocksPageLink(HiveLocksLink):
    """The link as the API server makes it for the package's own operators.

    Also while a task waits in the triggerer and no worker has ever run it. For operators that the server does not know,
    those of users under HiveLockMixin, Airflow's worker stores the link when the task ends.
    """

    @property
    def operators(self) -> list[Any]:  # type: ignore[override]
        from airflow_hivelock.operators import lock, spark_submit
        from airflow_hivelock.sensors import HiveLockSensor

        return [
            lock.HiveLockOperator,
            lock.HiveUnlockOperator,
            spark_submit.HiveLockedSparkSubmitOperator,
            HiveLockSensor,
        ]


class HiveLocksPlugin(AirflowPlugin):
    """The page "Hive locks" below Browse."""

    name = "hivelock"
    external_views: list[Any] = [  # noqa: RUF012 - as Airflow declares it
        {
            "name": "Hive locks",
            "href": f"{PREFIX}/",  # relative to where Airflow is mounted
            "url_route": ROUTE,
            "category": "browse",
            "destination": "nav",
            "icon": f"{PREFIX}/static/lock.svg",
            "icon_dark_mode": f"{PREFIX}/static/lock-dark.svg",
        }
    ]
    operator_extra_links: list[Any] = [HiveLocksPageLink()]  # noqa: RUF012

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        from airflow_hivelock.ui.app import app

        return [{"app": app, "url_prefix": f"/{PREFIX}", "name": "Hive locks"}]
