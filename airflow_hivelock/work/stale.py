"""Decides which leases are stale. Airflow must report the end of the owner, and a cluster or host the end of the work.

A task's lease for its own work (HiveLockMixin, which records the work) is over with the task. A lease for later tasks
(HiveLockOperator) is over with the run. A Spark driver's lease is over with the driver. In all cases, neither recorded
work nor a process that the tasks have started on this host may run. If that cannot be checked, the lease is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_hivelock import comms
from airflow_hivelock.locks.errors import CannotTell, HiveLockError
from airflow_hivelock.locks.invalid import MAX_REASON_LENGTH, printable
from airflow_hivelock.spark.driver_work import work_name
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.applications import encode, of, running
from airflow_hivelock.work.processes import Processes, started

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Holder, Lease


@dataclass(frozen=True)
class Verdict:
    """Whether a lease is stale, and why.

    :param unknown: Airflow does not know the owner.
    """

    stale: bool
    reason: str
    unknown: bool = False

    def __post_init__(self) -> None:
        """Make the reason fit for logs and the audit trail. Any user can choose a run's name, and any client the works of a
        lease: neither may keep the lease from being freed."""
        object.__setattr__(self, "reason", printable(self.reason)[:MAX_REASON_LENGTH])


def judge(holder: Holder, lease: Lease, installation: str, min_age: timedelta, now: datetime) -> Verdict:
    """Judge *lease* of *holder*. It is stale if its owner is over or unknown, and none of its recorded work runs.

    :param installation: the id of this Airflow. A lease of another installation is never stale.
    :param min_age: the shortest time since the last renewal of a stale lease.
    :param now: the lock store's time.
    """
    owner = Owner.parse(holder.owner)
    of_driver = lease.work(work_name(installation)) is not None
    if not of_driver and (owner is None or owner.installation != installation):
        return Verdict(False, f"its owner {holder.owner} is not a task of installation {installation}")
    renewed = holder.since
    if holder.expires is not None:
        renewed = max(renewed, holder.expires - timedelta(seconds=lease.lease_s))
    if (age := now - renewed) < min_age:
        return Verdict(False, f"it was granted or renewed {age.total_seconds():.0f} s ago")
    try:
        if of_driver or owner is None:
            return judge_driver(lease)
        verdict = _of_task(owner) if is_for_its_task(owner, lease) else None
        if verdict is None or not verdict.stale:
            verdict = judge_run(owner, *_run(owner))
        return judge_work(owner, lease, verdict) if verdict.stale else verdict
    except CannotTell as error:
        return Verdict(False, str(error))


def judge_driver(lease: Lease) -> Verdict:
    """Judge the lease of a Spark driver by its recorded work.

    :raises CannotTell: the state of the driver is unknown.
    """
    if alive := running(lease.works):
        return Verdict(False, f"its driver still runs: {', '.join(alive)}")
    return Verdict(True, f"its driver has ended: {', '.join(str(of(work)) for work in lease.works)}")


def is_for_its_task(owner: Owner, lease: Lease) -> bool:
    """Whether *lease* is for the owner's own work, not for later tasks."""
    return lease.work(owner.work) is not None


def keep_for_task(manager: LockManager, lease: Lease, log: Any) -> Lease:
    """Record that *lease* is for its owner's own work, which has not begun. So it ends with the task, not with the run."""
    owner = Owner.parse(lease.owner)
    if owner is None or is_for_its_task(owner, lease):  # the work of an earlier try may still run
        return lease
    try:
        return manager.record_work(lease, owner.work, encode(Processes.none()))
    except HiveLockError as error:
        log.warning("If the task ends before it has a worker slot, its locks stay until its run ends: %s", error)
        return lease


def judge_task(owner: Owner, state: str | None) -> Verdict:
    """Judge whether the owner's task is over. A *state* of None means that Airflow does not know the task."""
    task = f"task {owner.work} of run {owner.run_id} of {owner.dag_id}"
    if state is None:
        return Verdict(True, f"{task} is unknown to Airflow", unknown=True)
    return Verdict(state in comms.FINISHED, f"{task} is {state or 'not started'}")


def judge_run(owner: Owner, state: str | None, tasks: dict[str, str]) -> Verdict:
    """Judge whether the owner's run and each of its *tasks* are over, by their states. None is an unknown run."""
    run = f"run {owner.run_id} of {owner.dag_id}"
    if state is None:
        return Verdict(True, f"{run} is unknown to Airflow", unknown=True)
    if state not in comms.FINISHED_RUN:
        return Verdict(False, f"{run} is {state}")
    # A task without a state has not run, and cannot run in a run that is over.
    if alive := sorted(name for name, now in tasks.items() if now and now not in comms.FINISHED):
        return Verdict(False, f"{run} is {state}, but not over: {', '.join(alive)}")
    return Verdict(True, f"{run} is {state}, and all of its tasks are over")


def judge_work(owner: Owner, lease: Lease, verdict: Verdict) -> Verdict:
    """Return *verdict* that *lease* is stale, or a new verdict if its work still runs.

    :raises CannotTell: the state of the work is unknown.
    """
    alive = running(lease.works) or started(
        owner.dag_id, owner.run_id, [owner.task_id] if is_for_its_task(owner, lease) else None
    )
    return Verdict(False, f"{verdict.reason}, but its work still runs: {', '.join(alive)}") if alive else verdict


def _of_task(owner: Owner) -> Verdict:
    states = comms.task_states(owner.dag_id, owner.run_id, [owner.task_id])
    return judge_task(owner, states.get((owner.task_id, owner.map_index)))


def _run(owner: Owner) -> tuple[str | None, dict[str, str]]:
    state = comms.run_state(owner.dag_id, owner.run_id)
    over = state in comms.FINISHED_RUN
    return state, comms.all_task_states(owner.dag_id, owner.run_id) if over else {}
