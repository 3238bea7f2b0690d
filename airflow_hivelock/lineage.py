"""OpenLineage: adds a run facet with the leases of a task to its events.

This needs Airflow's OpenLineage provider, so no other module imports this one. In Airflow's configuration::

    [openlineage]
    custom_run_facets = airflow_hivelock.lineage.lock_facets
    extractors = airflow_hivelock.lineage.LockedBashExtractor;airflow_hivelock.lineage.LockedPythonExtractor
"""

from __future__ import annotations

from typing import Any

from airflow.providers.openlineage.extractors.bash import BashExtractor
from airflow.providers.openlineage.extractors.python import PythonExtractor
from attrs import define
from openlineage.client.facet_v2 import RunFacet

from airflow_hivelock.spec import Owner
from airflow_hivelock.work import facts

KEY = "hivelock_leases"
"""The name of the facet in an event."""


@define
class HiveLeasesRunFacet(RunFacet):  # type: ignore[misc]
    """The leases that a task has acquired or has worked under.

    :param leases: a dict for each lease, with ``leaseId``, ``fencingToken``, and ``blockers``: the owners that the task
        waited for. ``waitSeconds`` is missing if another task waited for the lease.
    """

    leases: list[dict[str, Any]]


def lock_facets(task_instance: Any, state: Any) -> dict[str, RunFacet]:
    """Return the facet of *task_instance*; empty if it has no lease. Airflow's ``custom_run_facets`` names this."""
    leases = [_row(each) for each in facts.of(Owner.of("", task_instance))]
    return {KEY: HiveLeasesRunFacet(leases=leases)} if leases else {}


def _row(lease: facts.LeaseFacts) -> dict[str, Any]:
    row: dict[str, Any] = {"leaseId": lease.lease_id, "fencingToken": lease.token, "blockers": list(lease.waited_for)}
    return row if lease.waited_s is None else row | {"waitSeconds": round(lease.waited_s, 3)}


class LockedBashExtractor(BashExtractor):  # type: ignore[misc]
    """The provider's extractor for ``locked(BashOperator)``.

    The provider finds an extractor by the name of the operator's class, and here that is ``LockedBashOperator``.
    """

    @classmethod
    def get_operator_classnames(cls) -> list[str]:
        return [f"Locked{name}" for name in super().get_operator_classnames()]


class LockedPythonExtractor(PythonExtractor):  # type: ignore[misc]
    """The provider's extractor for ``locked(PythonOperator)``."""

    @classmethod
    def get_operator_classnames(cls) -> list[str]:
        return [f"Locked{name}" for name in super().get_operator_classnames()]
