"""The page's data about groups of leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.ui import view

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow_hivelock.locks.model import GroupUse, Member

MOST_GROUPS = 1_000


def shown(found: Sequence[GroupUse], installation: str, dag_ids: Collection[str] = ()) -> view.View:
    """The groups, by name.

    :param dag_ids: the names that are ids of DAGs. Users who may not see such a DAG do not see the name.
    """
    owners = view.Owners(installation)

    def members(of: Sequence[Member]) -> list[dict[str, int]]:
        return [{"o": owners.index(member.owner), "weight": member.weight} for member in of[: view.MOST_WAITERS]]

    rows = [
        {
            "name": use.name,
            "leases": use.stored.leases if use.stored else None,
            "weight": use.stored.weight if use.stored else None,
            "comment": use.stored.comment if use.stored else "",
            "taken": use.taken,
            "holding": members(use.holding),
            "waiting": members(use.waiting),
        }
        for use in found[:MOST_GROUPS]
    ]
    return view.named(owners, {"groups": rows, "left_out": len(found) - len(rows)}, dag_ids)
