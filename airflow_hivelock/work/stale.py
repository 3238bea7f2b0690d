"""Which leases nobody needs any more, by Airflow's word and by that of what runs the work.

A lease that a task has taken for its own work (HiveLockMixin, which records that work under it) is over with that
task. One for the tasks behind it (HiveLockOperator) is over with the run. In both cases nothing that is recorded under
it may run, nor anything that the tasks have started on this host; what cannot be told keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_hivelock import comms
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import running
from airflow_hivelock.work.processes import started

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.model import Holder, Lease


@dataclass(frozen=True)
class Verdict:
    """Whether a lease is stale, and why.

    :param unknown: Airflow does not know its owner, or not any more.
    """

    stale: bool
    reason: str
    unknown: bool = False

    def __post_init__(self) -> None:
        """The reason goes into logs and the audit trail. It names a run that a stranger may have written."""
        object.__setattr__(self, "reason", printable(self.reason))


def judge(holder: Holder, lease: Lease, installation: str, min_age: timedelta, now: datetime) -> Verdict:
    """Judge *lease*, which *holder* shows: stale when its owner is over, or unknown, for long enough, and nothing of
    what it records still runs.

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
        verdict = _of_task(owner) if is_for_its_task(owner, lease) else None
        if verdict is None or not verdict.stale:
            verdict = judge_owner(owner, *_run(owner))
        return judge_work(owner, lease, verdict) if verdict.stale else verdict
    except CannotTell as error:
        return Verdict(False, str(error))


def is_for_its_task(owner: Owner, lease: Lease) -> bool:
    """Whether *lease* is for the owner's own work, not for tasks behind it."""
    return lease.work(owner.work) is not None


def judge_task(owner: Owner, state: str | None) -> Verdict:
    """Whether the owner's task, in *state* or unknown, is over."""
    task = f"task {owner.work} of run {owner.run_id} of {owner.dag_id}"
    if state is None:
        return Verdict(True, f"{task} is unknown to Airflow", unknown=True)
    return Verdict(state in comms.FINISHED, f"{task} is {state or 'not begun'}")


def judge_owner(owner: Owner, state: str | None, tasks: dict[str, str]) -> Verdict:
    """Whether the owner's run, in *state* or unknown, is over, and each of its *tasks*, by their states."""
    run = f"run {owner.run_id} of {owner.dag_id}"
    if state is None:
        return Verdict(True, f"{run} is unknown to Airflow", unknown=True)
    if state not in comms.FINISHED_RUN:
        return Verdict(False, f"{run} is {state}")
    # A task without a state never ran, and never will in a run that is over.
    if alive := sorted(name for name, now in tasks.items() if now and now not in comms.FINISHED):
        return Verdict(False, f"{run} is {state}, but {', '.join(alive)} not over yet")
    return Verdict(True, f"{run} is {state}, and so are its tasks over")


def judge_work(owner: Owner, lease: Lease, verdict: Verdict) -> Verdict:
    """*verdict*, by which *lease* is stale, unless something still runs under it.

    :raises CannotTell: whether something does.
    """
    alive = running(lease.works) or started(
        owner.dag_id, owner.run_id, [owner.task_id] if is_for_its_task(owner, lease) else None
    )
    return Verdict(False, f"{verdict.reason}, but {', '.join(alive)} still runs") if alive else verdict


def _of_task(owner: Owner) -> Verdict:
    states = comms.task_states(owner.dag_id, owner.run_id, [owner.task_id])
    return judge_task(owner, states.get((owner.task_id, owner.map_index)))


def _run(owner: Owner) -> tuple[str | None, dict[str, str]]:
    state = comms.run_state(owner.dag_id, owner.run_id)
    over = state in comms.FINISHED_RUN
    return state, comms.run_states(owner.dag_id, owner.run_id) if over else {}
