"""The link from a task to its locks, on the page "Hive locks"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow.sdk.types import TaskInstanceKey

PREFIX = "hivelock"
"""The mount point of the page's application."""

ROUTE = "hivelock"
"""The page is at ``plugin/hivelock``. The rest of its address is the path and query of the frame inside the page."""

HELD_WITH = "hivelock_connection"
"""The XCom in which ``hold()`` stores its connection id. The link of its task needs that id."""


class Linked:
    """A mixin for operators with the link. It adds the connection to the serialized DAG, for the API server."""

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        fields: frozenset[str] = super().get_serialized_fields()  # type: ignore[misc]
        return fields | {"hivelock_conn_id"}


class HiveLocksLink(BaseOperatorLink):
    """A link from a task to the locks that it holds or waits for.

    Airflow's worker stores the link when the task ends. For this package's own operators the API server makes the
    link: see :mod:`airflow_hivelock.ui.plugin`.
    """

    name = "Hive locks"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        return page_link(ti_key, connection_of(operator))


def connection_of(operator: Any) -> str | None:
    """The id of the operator's connection, mapped or not, serialized or not. None: it names none."""
    connection: str | None = getattr(operator, "hivelock_conn_id", None)
    if connection is None and hasattr(operator, "partial_kwargs"):
        # Airflow adds default_args only to the operators of single map indexes. The API server has none of these.
        connection = {**(operator.dag.default_args or {}), **operator.partial_kwargs}.get("hivelock_conn_id")
    return connection


def with_ours(links: Collection[BaseOperatorLink]) -> Collection[BaseOperatorLink]:
    """*links*, and the link to the locks."""
    return links if HiveLocksLink() in links else (*links, HiveLocksLink())


def page_link(ti_key: TaskInstanceKey, connection: str | None) -> str:
    """The address of the page "Hive locks", filtered to one task."""
    airflow = urlsplit(conf.get("api", "base_url", fallback="")).path.strip("/")
    parts = (airflow, "plugin", ROUTE, airflow, PREFIX)
    wanted = {"dag": ti_key.dag_id, "run": ti_key.run_id, "task": ti_key.task_id}
    if ti_key.map_index is not None and ti_key.map_index >= 0:
        wanted["map"] = str(ti_key.map_index)
    if connection:
        wanted["connection"] = connection
    return f"/{'/'.join(filter(None, parts))}/?{urlencode(wanted)}"
