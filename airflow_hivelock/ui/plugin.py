"""Airflow's plugin with the page's application, its entry in the menu, its tabs in runs and task instances, and the links
from tasks to the page.

Every process of Airflow loads this module, even tasks. Modules that only the API server needs are imported at first
use. The page uses private parts of Airflow. If these have moved, the API server starts without the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from airflow.plugins_manager import AirflowPlugin

from airflow_hivelock.links import PREFIX, ROUTE, HiveLocksLink, page_link

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

log = structlog.get_logger(__name__)

_COMMON = {
    "name": "Hive locks",
    "icon": f"{PREFIX}/static/lock.svg",
    "icon_dark_mode": f"{PREFIX}/static/lock-dark.svg",
}
_RUN = f"{PREFIX}/?dag={{DAG_ID}}&run={{RUN_ID}}"  # Airflow's pages replace these names
_VIEWS = [
    # Addresses are relative to Airflow's mount point. Each needs its own route.
    {**_COMMON, "href": f"{PREFIX}/", "url_route": ROUTE, "category": "browse", "destination": "nav"},
    {**_COMMON, "href": _RUN, "url_route": f"{ROUTE}-run", "destination": "dag_run"},
    {
        **_COMMON,
        "href": f"{_RUN}&task={{TASK_ID}}&map={{MAP_INDEX}}",
        "url_route": f"{ROUTE}-task",
        "destination": "task_instance",
    },
]


def why_no_page() -> str | None:
    """The reason why this Airflow cannot serve the page. None if it can."""
    try:
        from airflow_hivelock.ui import app  # noqa: F401
    except Exception as error:  # noqa: BLE001 - Airflow reads fastapi_apps unguarded: any error would stop the API server
        return (
            f'the page "Hive locks" cannot be loaded, so Airflow does not show it: {type(error).__name__}: {error}. Locks work '
            "without it. Install a version of airflow-hivelock that is made for this Airflow, then restart the API server"
        )
    return None


class HiveLocksPageLink(HiveLocksLink):
    """The link to the page for the package's own operators. The API server creates it.

    So the link exists while a task waits in the triggerer, before a worker has run it. The API server does not know
    users' operators with HiveLockMixin. For those, Airflow's worker stores the link when the task ends.
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


class HoldLink(HiveLocksLink):
    """The link to the page for a Python task, once ``hold()`` has written the connection to the task's XCom."""

    @property
    def operators(self) -> list[Any]:  # type: ignore[override]
        try:
            from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
            from airflow.providers.standard.operators.python import PythonOperator
        except ImportError:  # Airflow asks for each task, and an error would hide all DAGs
            return []
        return [PythonOperator, _PythonDecoratedOperator]

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        if why_no_page() is not None:
            return ""
        from airflow_hivelock.ui import access

        connection = access.held_with(ti_key)
        return page_link(ti_key, connection) if connection else ""


class HiveLocksPlugin(AirflowPlugin):
    """The page "Hive locks" below Browse, and as a tab of each run and task instance."""

    name = "hivelock"
    operator_extra_links: list[Any] = [HiveLocksPageLink(), HoldLink()]  # noqa: RUF012 - Airflow declares it like this

    @property
    def priority_weight_strategies(self) -> list[Any]:  # type: ignore[override]
        from airflow_hivelock.operators.weights import BackfillsLast

        return [BackfillsLast]

    @property
    def external_views(self) -> list[Any]:  # type: ignore[override]
        return _VIEWS if why_no_page() is None else []

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        if why := why_no_page():
            log.error(why)
            return []
        from airflow_hivelock.ui.app import app

        return [{"app": app, "url_prefix": f"/{PREFIX}", "name": "Hive locks"}]
