"""Names of Airflow's that tests use and that have moved; :mod:`airflow_hivelock.compat` has those of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS

if TYPE_CHECKING or AIRFLOW_V_3_2_PLUS:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.executors.workloads.task import TaskInstanceDTO
    from airflow.executors.workloads.trigger import RunTrigger
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.serialization.serialized_objects import DagSerialization
else:
    from airflow.executors.workloads import RunTrigger
    from airflow.executors.workloads import TaskInstance as TaskInstanceDTO
    from airflow.metrics.base_stats_logger import NoStatsLogger
    from airflow.models.dagbag import DagBag as OlderDagBag
    from airflow.models.dagbag import sync_bag_to_db
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

    def DagBag(*args, bundle_name=None, **kwargs):
        return OlderDagBag(*args, **kwargs)


__all__ = ["DagBag", "DagSerialization", "NoStatsLogger", "RunTrigger", "TaskInstanceDTO", "sync_bag_to_db"]
