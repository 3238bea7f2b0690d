"""The activity of each lease's holder, from Airflow's records. Some holders need a user's action."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_hivelock.spark.driver_work import work_name
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.stale import is_for_its_task, judge_run, judge_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.ui.works import WorkState

GRACE = timedelta(minutes=1)
"""The longest delay of a finished task's release, or of a running task's heartbeat, that is not shown."""

UNNOTICED = timedelta(minutes=10)
"""The default time after which Airflow ends a task without a heartbeat, with a margin."""

_END_IT = "Mark the run failed, and the keeper frees the lease when its work has ended"


@dataclass(frozen=True)
class TaskFacts:
    """Airflow's records of a task: the states of its run and of the task, None if unknown.

    :param ended: the end of the run.
    :param paused: whether the DAG is paused.
    :param at: the start of the task's state.
    :param heartbeat: the task's last heartbeat.
    :param active: by name, the states of the run's unfinished tasks.
    """

    run: str | None = None
    ended: datetime | None = None
    paused: bool = False
    task: str | None = None
    at: datetime | None = None
    heartbeat: datetime | None = None
    active: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Doing:
    """The activity of a holder.

    :param kind: ``works``; ``idle`` (the task is queued, or the run is between two tasks); ``ends``; ``needs`` (a user
        has to act); ``hand`` (a user is the holder); ``untold`` (another Airflow's task).
    :param state: the activity in a word or two.
    :param why: the activity in a sentence.
    """

    kind: str
    state: str
    why: str
    at: datetime | None = None


HAND = Doing("hand", "by hand", "Locked on the command line. It is held until UNLOCK TABLE")
RESERVED = Doing("hand", "reserved", "No job runs under it. It ends by itself at its time, or by a force release")
PROGRAM = Doing("untold", "a program", "Not a task of Airflow, so this page cannot check whether it runs")


def judge(
    data: dict[str, Any],
    now_ms: int,
    ask: Callable[[Collection[Owner]], Mapping[Owner, TaskFacts]],
    works: Mapping[str, Mapping[str, WorkState]],
) -> None:
    """Add the holder's activity to each lease of *data*, with one question to Airflow for all leases.

    :param works: the answers of :func:`airflow_hivelock.ui.works.ask`, by lease id.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    texts = [data["owners"][row["o"]] for row in data["leases"]]
    ours = {text["text"]: Owner.parse(text["text"]) for text in texts if "dag" in text and "installation" not in text}
    facts = ask([owner for owner in ours.values() if owner])
    for row, text in zip(data["leases"], texts, strict=True):
        if owner := ours.get(text["text"]):
            doing = of_task(owner, facts.get(owner, TaskFacts()), [name for name, *_ in row["jobs"]], now)
        elif "installation" in text:
            doing = Doing(
                "untold",
                "elsewhere",
                f"A task of the Airflow {text['installation']!r}. This page cannot check its state",
            )
        else:
            doing = RESERVED if "until" in text else HAND if "person" in text else PROGRAM
        if doing.kind != "needs" and row.get("expires", now_ms) < now_ms:
            why = (
                "The lease has expired, because it is not renewed. Its locks are held until it is freed. Check that a "
                f"triggerer of its Airflow runs. {doing.why}"
            )
            doing = Doing("needs", "not renewed", why)
        row |= {"doing": doing.kind, "state": doing.state, "why": doing.why}
        if answers := works.get(row["id"]):
            row["jobs"] = job_rows(row["jobs"], answers)
        if doing.at is not None:
            row["at"] = int(doing.at.timestamp() * 1000)


def job_rows(jobs: Collection[Sequence[str]], answers: Mapping[str, WorkState]) -> list[list[str]]:
    """The rows of *jobs*: name, text, and the state if it is known. Work that no lease records comes last."""
    known = {name: what for name, what, *_ in jobs}
    names = [*known, *(name for name in answers if name not in known)]
    asked = [(name, known.get(name, ""), answers.get(name)) for name in names]
    return [
        [name, what, answer.code, answer.text, answer.next] if answer else [name, what] for name, what, answer in asked
    ]


def of_task(owner: Owner, facts: TaskFacts, jobs: Collection[str], now: datetime) -> Doing:
    """The activity of *owner* under its lease.

    :param jobs: the names of the recorded work.
    """
    verdict = judge_run(owner, facts.run, dict(facts.active))
    if verdict.stale:
        what = "run unknown" if facts.run is None else "run over"
        return _over(what, f"{verdict.reason[0].upper()}{verdict.reason[1:]}", facts.ended, now)
    name = owner.work
    run = f"its run is {facts.run}"
    if facts.task is None:
        return Doing("needs", "task unknown", f"Airflow knows no task {name} in this run, and {run}. {_END_IT}")
    if facts.task == "running":
        return _running(name, facts, now)
    if facts.task == "success" and name not in jobs:
        doing = _between({other: state for other, state in facts.active.items() if other != name}, run, facts)
    elif judge_task(owner, facts.task).stale:
        shown = "not released" if facts.task == "success" else facts.task.replace("_", " ")
        return _over(
            shown, f"Task {name} is over ({facts.task}), but has not released its lock, and {run}", facts.at, now
        )
    elif facts.task == "deferred" and name in jobs:
        return Doing("works", "working", f"Task {name} is deferred, and its work runs elsewhere", facts.at)
    else:
        shown = facts.task.replace("_", " ") or "not scheduled"
        doing = Doing("idle", shown, f"Task {name} holds its lock, but does not work yet: it is {shown}", facts.at)
    if doing.kind == "idle" and facts.paused:
        return Doing(
            "needs",
            "DAG paused",
            "Its DAG is paused, so the run does not continue, and keeps its lock. Unpause the DAG, or mark the run failed",
            doing.at,
        )
    return doing


def _running(name: str, facts: TaskFacts, now: datetime) -> Doing:
    """The activity of a task that Airflow lists as running."""
    if facts.heartbeat is None or now - facts.heartbeat <= GRACE:
        return Doing("works", "working", f"Task {name} is running", facts.at)
    why = "Airflow lists it as running, but gets no heartbeat from it"
    if now - facts.heartbeat > UNNOTICED:
        why += ", and has not ended it. Check that a scheduler runs, or mark the task failed"
        return Doing("needs", "no heartbeat", why, facts.heartbeat)
    why += (
        ". Airflow ends the task after task_instance_heartbeat_timeout, five minutes by default. Then the keeper frees the "
        "lease when its work has ended"
    )
    return Doing("ends", "no heartbeat", why, facts.heartbeat)


def _between(active: Mapping[str, str], run: str, facts: TaskFacts) -> Doing:
    """The activity of a run after its lock task has ended."""
    working = sorted(other for other, state in active.items() if state == "running")
    if working:
        return Doing("works", "working", f"Running in this run: {', '.join(working)}", facts.at)
    if active:
        shown = min(active.values()).replace("_", " ")
        return Doing(
            "idle",
            shown,
            f"No task of the run is running. Tasks that are {shown}: {', '.join(sorted(active))}",
            facts.at,
        )
    return Doing("idle", "between tasks", f"No task of the run is active, and {run}", facts.at)


def _over(state: str, why: str, at: datetime | None, now: datetime) -> Doing:
    fresh = at is not None and now - at < GRACE
    return Doing("ends" if fresh else "needs", state, why, at)


def never_freed(
    lease: Lease, installation: str, ask: Callable[[Collection[Owner]], Mapping[Owner, TaskFacts]]
) -> tuple[str, str] | None:
    """Why the keeper does not free *lease* even after its work, and the next step. None if it does.

    :param ask: returns Airflow's records of owners, without those of unknown runs.
    """
    owner = Owner.parse(lease.owner)
    if lease.work(work_name(installation)) is not None:  # a Spark driver that names this Airflow as its keeper
        return None
    if owner is None or owner.installation != installation:
        return (
            "does not free it, because it belongs to no task of this Airflow",
            "Make sure that its work has ended, and release it by force.",
        )
    if not is_for_its_task(owner, lease) and not ask([owner]):
        return (
            "does not free it, because Airflow does not know its run, and no record shows the work under it",
            "Trigger the DAG force_release_stale_locks, or make sure that its jobs have ended and release it by force.",
        )
    return None
