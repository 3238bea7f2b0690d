"""OpenLineage: a run facet with the leases of a task, by the official provider. No other module needs this one.

In Airflow's configuration::

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
    """The leases that a task has got or has worked under.

    :param leases: of each lease ``leaseId``, ``fencingToken``, ``blockers`` (the owners that the task waited for), and
        ``waitSeconds``, if the task has waited itself and not another one.
    """

    leases: list[dict[str, Any]]


def lock_facets(task_instance: Any, state: Any) -> dict[str, RunFacet]:
    """Return the facet of a task that has got locks; otherwise none. For ``custom_run_facets``."""
    leases = [_row(each) for each in facts.of(Owner.of("", task_instance))]
    return {KEY: HiveLeasesRunFacet(leases=leases)} if leases else {}


def _row(lease: facts.LeaseFacts) -> dict[str, Any]:
    row: dict[str, Any] = {"leaseId": lease.lease_id, "fencingToken": lease.token, "blockers": list(lease.waited_for)}
    return row if lease.waited_s is None else row | {"waitSeconds": round(lease.waited_s, 3)}


class LockedBashExtractor(BashExtractor):  # type: ignore[misc]
    """For ``locked(BashOperator)``: the provider finds its own extractors by the name of the class."""

    @classmethod
    def get_operator_classnames(cls) -> list[str]:
        return [f"Locked{name}" for name in super().get_operator_classnames()]


class LockedPythonExtractor(PythonExtractor):  # type: ignore[misc]
    """For ``locked(PythonOperator)``."""

    @classmethod
    def get_operator_classnames(cls) -> list[str]:
        return [f"Locked{name}" for name in super().get_operator_classnames()]
