"""What the holder of each lease does, by Airflow's records, and which holders need a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_hivelock.spec import Owner
from airflow_hivelock.work.stale import judge_owner, judge_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from airflow_hivelock.ui.works import WorkState

GRACE = timedelta(minutes=1)
"""How long a task that is over may take to release its lease, and one that runs to give a sign of life."""


@dataclass(frozen=True)
class Told:
    """What Airflow says of a task: the state of its run and its own, each None for one that it does not know.

    :param ended: when its run has.
    :param paused: whether its DAG is.
    :param at: since when it is in its state.
    :param heard: its last sign of life.
    :param active: the states of the run's tasks that are under way, by name.
    """

    run: str | None = None
    ended: datetime | None = None
    paused: bool = False
    task: str | None = None
    at: datetime | None = None
    heard: datetime | None = None
    active: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Doing:
    """What a holder does.

    :param kind: ``works``; ``idle``, as long as it is queued or between two tasks; ``ends``; ``needs`` somebody;
        ``hand``, a person's; ``untold``, another Airflow's.
    :param state: in a word or two.
    :param why: in a sentence.
    """

    kind: str
    state: str
    why: str
    at: datetime | None = None


HAND = Doing("hand", "by hand", "Locked on the command line; it stands until UNLOCK TABLE")
PROGRAM = Doing("untold", "a program", "No task of an Airflow: whether it lives cannot be told from here")


def judge(
    data: dict[str, Any],
    now_ms: int,
    ask: Callable[[Collection[Owner]], Mapping[Owner, Told]],
    works: Mapping[str, Mapping[str, WorkState]],
) -> None:
    """Say in each lease of *data* what its holder does, by one question to Airflow for all of them.

    :param works: the answers of :func:`airflow_hivelock.ui.works.ask`, by lease id.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    texts = [data["owners"][row["o"]] for row in data["leases"]]
    ours = {text["text"]: Owner.parse(text["text"]) for text in texts if "dag" in text and "installation" not in text}
    told = ask([owner for owner in ours.values() if owner])
    for row, text in zip(data["leases"], texts, strict=True):
        if owner := ours.get(text["text"]):
            doing = of_task(owner, told.get(owner, Told()), [name for name, *_ in row["jobs"]], now)
        elif "installation" in text:
            doing = Doing(
                "untold",
                "elsewhere",
                f"A task of the Airflow {text['installation']!r}: its state cannot be told from here",
            )
        else:
            doing = HAND if "person" in text else PROGRAM
        if doing.kind != "needs" and row.get("expires", now_ms) < now_ms:
            why = f"The lease has lapsed: nobody renews it, and the lock stands until it is freed. {doing.why}"
            doing = Doing("needs", "not renewed", why)
        row |= {"doing": doing.kind, "state": doing.state, "why": doing.why}
        if answers := works.get(row["id"]):
            row["jobs"] = told_jobs(row["jobs"], answers)
        if doing.at is not None:
            row["at"] = int(doing.at.timestamp() * 1000)


def told_jobs(jobs: Collection[Sequence[str]], answers: Mapping[str, WorkState]) -> list[list[str]]:
    """*jobs*, each its name and what it is, with what is known of it; and what no lease records, but was found."""
    known = {name: what for name, what, *_ in jobs}
    names = [*known, *(name for name in answers if name not in known)]
    asked = [(name, known.get(name, ""), answers.get(name)) for name in names]
    return [
        [name, what, answer.code, answer.text, answer.next] if answer else [name, what] for name, what, answer in asked
    ]


def of_task(owner: Owner, told: Told, jobs: Collection[str], now: datetime) -> Doing:
    """What *owner* does under its lease, of which the works are called *jobs*."""
    verdict = judge_owner(owner, told.run, dict(told.active))
    if verdict.stale:
        what = "run unknown" if told.run is None else "run over"
        return _over(what, f"{verdict.reason[0].upper()}{verdict.reason[1:]}", told.ended, now)
    name = owner.work
    run = f"its run is {told.run}"
    if told.task is None:
        return Doing("needs", "task unknown", f"Airflow knows no task {name} in this run; {run}")
    if told.task == "running":
        if told.heard is not None and now - told.heard > GRACE:
            return Doing("needs", "no heartbeat", "Airflow has it as running, but hears nothing of it", told.heard)
        return Doing("works", "working", f"Task {name} is running", told.at)
    if told.task == "success" and name not in jobs:
        doing = _between({other: state for other, state in told.active.items() if other != name}, run, told)
    elif judge_task(owner, told.task).stale:
        word = "not released" if told.task == "success" else told.task.replace("_", " ")
        return _over(word, f"Task {name} is over ({told.task}) and has not released its lock; {run}", told.at, now)
    elif told.task == "deferred" and name in jobs:
        return Doing("works", "working", f"Task {name} is deferred; its work goes on elsewhere", told.at)
    else:
        word = told.task.replace("_", " ") or "not scheduled"
        doing = Doing("idle", word, f"Task {name} holds its lock and does not work yet: it is {word}", told.at)
    if doing.kind == "idle" and told.paused:
        return Doing("needs", "DAG paused", "Its DAG is paused: the run does not go on, and keeps its lock", doing.at)
    return doing


def _between(active: Mapping[str, str], run: str, told: Told) -> Doing:
    """What a run does after the task that has locked for others."""
    working = sorted(other for other, state in active.items() if state == "running")
    if working:
        return Doing("works", "working", f"{', '.join(working)} of the run is running", told.at)
    if active:
        word = min(active.values()).replace("_", " ")
        return Doing("idle", word, f"Nothing of the run is running: {', '.join(sorted(active))} {word}", told.at)
    return Doing("idle", "between tasks", f"No task of the run is under way; {run}", told.at)


def _over(state: str, why: str, at: datetime | None, now: datetime) -> Doing:
    fresh = at is not None and now - at < GRACE
    return Doing("ends" if fresh else "needs", state, why, at)
