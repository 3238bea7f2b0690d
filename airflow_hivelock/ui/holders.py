"""What the holder of each lease does, by Airflow's word and by that of what runs; and which of them needs somebody."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import structlog

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.spec import Owner
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes
from airflow_hivelock.work.stale import judge_owner, judge_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from airflow_hivelock.locks.model import Lease, Work

log = structlog.get_logger(__name__)

GRACE = timedelta(minutes=1)
"""How long a task that is over may take to release its lease, and one that runs to give a sign of life."""

MOST_ASKED = 50
ASK_S = 20.0
"""For how long at most what runs under leases is asked for, one after the other; a cluster that is away takes its time."""

UNTOLD = "cannot be told from here"
AWAY = "only its host can tell"


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
PROGRAM = Doing("untold", "a program", f"No task of an Airflow: whether it lives {UNTOLD}")


def judge(
    data: dict[str, Any],
    now_ms: int,
    ask: Callable[[Collection[Owner]], Mapping[Owner, Told]],
    works: Mapping[str, Mapping[str, str]],
) -> None:
    """Say in each lease of *data* what its holder does, by one question to Airflow for all of them.

    :param works: what :func:`ask` found, of those for which it was asked.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    texts = [data["owners"][row["o"]] for row in data["leases"]]
    ours = {text["text"]: Owner.parse(text["text"]) for text in texts if "dag" in text and "installation" not in text}
    told = ask([owner for owner in ours.values() if owner])
    for row, text in zip(data["leases"], texts, strict=True):
        if owner := ours.get(text["text"]):
            doing = of_task(owner, told.get(owner, Told()), [name for name, *_ in row["jobs"]], now)
        elif "installation" in text:
            doing = Doing("untold", "elsewhere", f"A task of the Airflow {text['installation']!r}: its state {UNTOLD}")
        else:
            doing = HAND if text["text"].startswith("cli:") else PROGRAM
        if doing.kind != "needs" and row.get("expires", now_ms) < now_ms:
            why = f"The lease has lapsed: nobody renews it, and the lock stands until it is freed. {doing.why}"
            doing = Doing("needs", "not renewed", why)
        row |= {"doing": doing.kind, "state": doing.state, "why": doing.why}
        if how_they_are := works.get(row["id"]):
            row["jobs"] = [[name, what_, how_they_are.get(name, UNTOLD)] for name, what_, *_ in row["jobs"]]
        if doing.at is not None:
            row["at"] = int(doing.at.timestamp() * 1000)


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


def ask(leases: Iterable[Lease]) -> dict[str, dict[str, str]]:
    """How each work of *leases* is, by lease id and name, as :func:`how` says it; of some not, where there are many."""
    until = time.monotonic() + ASK_S
    found: dict[str, dict[str, str]] = {}
    for lease in list(leases)[:MOST_ASKED]:
        if time.monotonic() < until:
            found[lease.id] = {work.name: how(work) for work in lease.works}
    return found


def how(work: Work) -> str:
    """Whether *work* runs, as far as can be told by this process on this host."""
    try:
        return "still runs" if applications.of(work).running() else "has ended"
    except CannotTell as error:
        log.info("Whether %s runs: %s", work.name, error)
        return AWAY if host_of(work.application) else UNTOLD


@lru_cache(maxsize=8_192)
def host_of(application: str) -> str:
    """The other host on which *application* runs, if it runs on one that nobody has said to be gone; else ``""``."""
    try:
        asked = applications.decode(application)
    except CannotTell:
        return ""
    return asked.host if isinstance(asked, Processes) and not (asked.gone or asked.is_here) else ""


@lru_cache(maxsize=8_192)
def what(application: str) -> str:
    """What a lease has recorded as *application*, in words."""
    if not application:
        return "what it waits for elsewhere"
    try:
        return str(applications.decode(application)).removesuffix(" (and what it started)")
    except CannotTell as error:
        return str(error)
