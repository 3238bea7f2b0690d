"""Which leases nobody needs any more, by Airflow's word and by that of what runs the work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_hivelock import supervisor
from airflow_hivelock.applications import running, started
from airflow_hivelock.owners import Owner

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.model import Holder, Lease


@dataclass(frozen=True)
class Verdict:
    """Whether a lease is stale, and why."""

    stale: bool
    reason: str


def judge(holder: Holder, lease: Lease, installation: str, min_age: timedelta, now: datetime) -> Verdict:
    """Judge *lease*, which *holder* shows: stale when its owner's run is over, or unknown, for long enough, and nothing
    of what it records still runs.

    :param installation: the id of this Airflow, which judges nobody else's leases.
    :param min_age: how long after its last renewal a lease is left alone in any case.
    :param now: the lock store's clock.
    """
    owner = Owner.parse(holder.owner)
    if owner is None or owner.installation != installation:
        return Verdict(False, f"its owner {holder.owner} is no task of installation {installation}")
    renewed = holder.since
    if holder.expires is not None:
        renewed = max(renewed, holder.expires - timedelta(seconds=lease.lease_s))
    if (age := now - renewed) < min_age:
        return Verdict(False, f"it was granted or renewed {age.total_seconds():.0f} s ago")
    try:
        verdict = judge_owner(owner, *_run(owner))
        if verdict.stale and (alive := running(lease.works) or started(owner.dag_id, owner.run_id)):
            return Verdict(False, f"{verdict.reason}, but {', '.join(alive)} still runs")
    except supervisor.CannotTell as error:
        return Verdict(False, str(error))
    return verdict


def _run(owner: Owner) -> tuple[str | None, dict[str, str]]:
    state = supervisor.run_state(owner.dag_id, owner.run_id)
    over = state in supervisor.FINISHED_RUN
    return state, supervisor.run_states(owner.dag_id, owner.run_id) if over else {}


def judge_owner(owner: Owner, state: str | None, tasks: dict[str, str]) -> Verdict:
    """Whether *owner* is over: its run, in *state* or unknown, and each of the run's *tasks*, by their states."""
    run = f"run {owner.run_id} of {owner.dag_id}"
    if state is None:
        return Verdict(True, f"{run} is unknown to Airflow")
    if state not in supervisor.FINISHED_RUN:
        return Verdict(False, f"{run} is {state}")
    # A task without a state never ran, and never will in a run that is over.
    if alive := sorted(name for name, now in tasks.items() if now and now not in supervisor.FINISHED):
        return Verdict(False, f"{run} is {state}, but {', '.join(alive)} not over yet")
    return Verdict(True, f"{run} is {state}, and so are its tasks over")
