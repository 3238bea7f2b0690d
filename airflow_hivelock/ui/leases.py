"""One lease, for whoever thinks of freeing it; and of which lapsed leases Airflow says that nobody needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.applications import decode
from airflow_hivelock.owners import Owner
from airflow_hivelock.stale import judge_owner
from airflow_hivelock.supervisor import CannotTell
from airflow_hivelock.ui.view import owner_row

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_hivelock.hooks import HiveLockHook

    RunStates = Callable[[Collection[tuple[str, str]]], Mapping[tuple[str, str], tuple[str, dict[str, str]]]]


def judge(data: dict[str, Any], now_ms: int, run_states: RunStates) -> None:
    """Say of each lapsed lease in *data* how its run is, by one question to Airflow for all of them.

    ``over`` is the run's end by Airflow's word. Whether what the lease has recorded still runs can only be asked where
    it does; the force release of stale locks asks.
    """
    owners = data["owners"]
    lapsed = [row for row in data["leases"] if row.get("expires", now_ms) < now_ms]
    ours = [(row, owners[row["o"]]) for row in lapsed if "dag" in owners[row["o"]]]
    ours = [(row, owner) for row, owner in ours if "installation" not in owner]
    states = run_states({(owner["dag"], owner["run"]) for _, owner in ours})
    for row, owner in ours:
        known = Owner.parse(owner["text"])
        assert known is not None
        verdict = judge_owner(known, *states.get((owner["dag"], owner["run"]), (None, {})))
        row["why"] = verdict.reason
        row["over"] = verdict.stale


def describe(hook: HiveLockHook, lease_id: str) -> dict[str, Any] | None:
    """What runs under a lease, in words, as the store has it now; None if it does not stand."""
    lease = hook.manager().find(lease_id)
    if lease is None:
        return None
    return {
        "id": lease.id,
        "owner": owner_row(lease.owner, hook.installation),
        "token": lease.token,
        "locks": len(lease.locks),
        "works": [_work(work.name, work.application) for work in lease.works],
    }


def _work(name: str, application: str) -> dict[str, Any]:
    if not application:
        return {"name": name, "what": "nothing that it has recorded", "runs": False}
    try:
        what = str(decode(application))
    except CannotTell as error:
        what = str(error)
    return {"name": name, "what": what, "runs": True}
