"""A weight rule: Airflow's scheduler gives worker slots to daily runs first."""

from __future__ import annotations

from typing import Any

from airflow.task.priority_strategy import PriorityWeightStrategy

from airflow_hivelock.spec import priority_in


class BackfillsLast(PriorityWeightStrategy):
    """A ``weight_rule`` of tasks: the task's own ``priority_weight``, in a run of a backfill at most 0.

    A daily run then gets a worker slot before the runs of a backfill. Airflow's own rules give the slot to the run with
    the earliest logical date. The order of the locks needs no rule: see ``lock_priority``.
    """

    def get_weight(self, ti: Any) -> int:
        return priority_in(ti.run_id, ti.task.priority_weight)
