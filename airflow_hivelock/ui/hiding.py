"""What the page hides from a user: the owners and the work of DAGs that the user may not see in Airflow.

:func:`airflow_hivelock.ui.access.hidden` decides which DAGs these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import reservations
from airflow_hivelock.locks.groups import group_of
from airflow_hivelock.operators.passed import dag_of_work
from airflow_hivelock.spec import Owner
from airflow_hivelock.ui.works import AWAY, ENDED, RUNS, SILENT, UNTOLD
from airflow_hivelock.work.hosts import work_gone

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow_hivelock.locks.model import Lease

HIDDEN = "a task of a DAG that you may not see"
"""The name of a task of a DAG that the user may not see."""

_HIDDEN_STATES = {
    RUNS: "still runs",
    ENDED: "has ended",
    AWAY: "only its host can tell",
    UNTOLD: "cannot be checked from here",
    SILENT: "its cluster has not answered",
}
"""The state of such a task's work, by its code: without its processes and its host."""

PERSON = "cli:"
"""The prefix of the owner of a user's lock on the command line: ``cli:<user>:<uuid>``."""


@dataclass(frozen=True)
class View:
    """An answer with its DAGs. A user gets the answer without the DAGs that this user may not see."""

    data: dict[str, Any]
    dag_ids: frozenset[str]

    def without(self, hidden: Collection[str]) -> dict[str, Any]:
        """The answer for a user who may not see the DAGs *hidden*."""
        if not hidden:
            return self.data
        nameless = {
            index
            for index, row in enumerate(self.data["owners"])
            if (row.get("dag") or group_of(row["text"])) in hidden
        }
        owners = [{"hidden": True} if index in nameless else row for index, row in enumerate(self.data["owners"])]
        shown = {**self.data, "owners": owners}
        for kind in ("leases", "waiters", "tenures", "entries"):
            if kind in shown:
                shown[kind] = [_nameless(row) if row["o"] in nameless else row for row in shown[kind]]
        if "leases" in shown:
            shown["leases"] = [
                {**row, "jobs": jobs_without(row["jobs"], hidden)} if row.get("jobs") else row
                for row in shown["leases"]
            ]
        if shown.get("hive"):
            shown["hive"] = [_hive_without(hidden, row, self.data["installation"]) for row in shown["hive"]]
        if "entries" in shown:
            installation = self.data["installation"]
            shown["entries"] = [_entry_without(hidden, row, installation) for row in shown["entries"]]
        if "groups" in shown:  # without a name of its own, a group has its DAG's
            unnamed = {"name": "", "comment": ""}
            shown["groups"] = [{**row, **unnamed} if row["name"] in hidden else row for row in shown["groups"]]
        return shown


def _hive_without(hidden: Collection[str], row: dict[str, Any], installation: str) -> dict[str, Any]:
    if owner_row(row["owner"], installation).get("dag") not in hidden:
        return row
    return {**{key: value for key, value in row.items() if key != "id"}, "owner": HIDDEN, "query": ""}


def _entry_without(hidden: Collection[str], row: dict[str, Any], installation: str) -> dict[str, Any]:
    user = HIDDEN if dag_of_user(row["user"], installation) in hidden else row["user"]
    kept = {key: value for key, value in row.items() if key != "reason" or dag_of_reason(value) not in hidden}
    return {**kept, "user": user}


def _nameless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("query", "why", "reason", "id", "jobs", "group")}


def jobs_without(jobs: Sequence[list[str]], hidden: Collection[str]) -> list[list[str]]:
    """The rows *jobs* for a user who may not see the DAGs *hidden*. Such a row keeps only its state."""
    return [_nameless_job(*row[2:3]) if dag_of_work(row[0]) in hidden else row for row in jobs]


def _nameless_job(code: str = "") -> list[str]:
    if not code:
        return [HIDDEN, ""]
    return [HIDDEN, "", code, _HIDDEN_STATES[code], "" if code == ENDED else "Ask a user who may see its DAG."]


@lru_cache(maxsize=8_192)  # rows are never changed
def owner_row(text: str, installation: str) -> dict[str, Any]:
    """The parts of an owner. They include ``installation`` if it is a task of another Airflow than *installation*."""
    owner = Owner.parse(text)
    if owner is None:
        if reserved := reservations.parse_owner(text):
            return {"text": text, "person": reserved[0], "until": int(reserved[1].timestamp() * 1000)}
        user = text.removeprefix(PERSON).rpartition(":")[0] if text.startswith(PERSON) else ""
        return {"text": text, "person": user} if user else {"text": text}
    row: dict[str, Any] = {"text": text, "dag": owner.dag_id, "run": owner.run_id, "task": owner.task_id}
    if owner.map_index >= 0:
        row["map"] = owner.map_index
    if owner.installation != installation:
        row["installation"] = owner.installation
    return row


def dag_of(lease: Lease, installation: str) -> str:
    """The DAG of a lease of this Airflow. Empty if no task of this Airflow owns it."""
    return dag_of_owner(lease.owner, installation)


def dags_of(lease: Lease, installation: str) -> set[str]:
    """The DAGs of this Airflow in a lease: the owner's, and those of other DAGs that work under the lease."""
    dag = dag_of(lease, installation)
    return {dag, *(dag_of_work(work.name) for work in lease.works)} - {""} if dag else set()


def dag_of_owner(owner: str, installation: str) -> str:
    """The DAG of an owner in this Airflow. Empty if it is no task of this Airflow."""
    row = owner_row(owner, installation)
    return "" if "installation" in row else row.get("dag", "")


def dag_of_user(user: str, installation: str) -> str:
    """The DAG of the task that released by force, from the user in the audit trail. Empty if it was no task."""
    return dag_of_owner(user.rpartition(" by ")[2], installation)


def dag_of_reason(reason: str) -> str:
    """The other DAG in the *reason* of an entry that declares the host of its work gone. Empty if there is none."""
    return dag_of_work(work_gone(reason))
