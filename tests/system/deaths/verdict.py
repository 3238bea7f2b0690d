"""What became of a row: who wrote when, by the writers' notes; who held when, by ZooKeeper's transaction log; who freed it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.layout import LockData, LockNode
from airflow_hivelock.locks.model import LockObject
from tests.support.spans import Span, overlaps
from tests.system.deaths.row import FORCE, KEEPER
from tests.system.histories.trace.state import GRANTED, LOST, TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from tests.system.deaths.play import Life, Play
    from tests.system.histories.transactions import Transaction


@dataclass(frozen=True)
class Held:
    """A lock, from its node's creation to its deletion; *to_ms* is None while it is held."""

    owner: str
    from_ms: int
    to_ms: int | None = None

    def covers(self, life: Life) -> bool:
        return self.from_ms <= life.first_ms and (self.to_ms is None or self.to_ms >= life.last_ms)


@dataclass(frozen=True)
class Verdict:
    """A line of the table.

    :param wrong: each moment at which a promise was broken; empty if all are kept.
    :param freed_after_s: from the last writer's end to the end of the last lock; None if there was no writer.
    :param freed_by: the part that ended each lease, in order.
    """

    wrong: tuple[str, ...]
    writers: int
    freed_after_s: float | None
    freed_by: tuple[str, ...]


def judge(play: Play, log: Sequence[Transaction], layout: Layout, home: Path) -> Verdict:
    wrong: list[str] = []
    late_ms: list[float] = []
    writers = 0
    for day in sorted(play.days):
        held = [lock for lock in locks_on(f"{play.table}/{day}", log, layout) if not lock.owner.startswith("rival")]
        lives = play.lives(day)
        writers += len(lives)
        wrong += [
            f"{day}: {life} wrote under none of {held}" for life in lives if not any(h.covers(life) for h in held)
        ]
        wrote = [Span(life.first_ms, life.last_ms, str(life), day) for life in lives]
        wrong += [f"{day}: {other.who} and {one.who} wrote at once" for one, other in overlaps(wrote)]
        wrong += [f"{day}: {lock} still stands" for lock in held if lock.to_ms is None]
        if lives and held and held[-1].to_ms is not None:
            late_ms.append(held[-1].to_ms - max(life.last_ms for life in lives))
    wrong += [f"{owner} still waits" for owner in play.waiters()]
    return Verdict(
        tuple(wrong), writers, max(late_ms) / 1000 if late_ms else None, tuple(freed_by(play, play.stage.manager, home))
    )


def locks_on(name: str, log: Sequence[Transaction], layout: Layout) -> list[Held]:
    """Every lock on the object that was held, in order.

    A grant that lost its verification is left out: its client gave back the nodes and returned no lease.
    """
    path = layout.object(LockObject.parse(name))
    standing: dict[str, tuple[str, Held]] = {}
    ended: list[Held] = []
    for transaction in log:
        for write in transaction.writes:
            parent, _, node = write.path.rpartition("/")
            if parent != path or not LockNode.parse(node):
                continue
            if write.data is not None:
                data = LockData.decode(write.data)
                standing[node] = data.owner_key, Held(data.query_id, transaction.time_ms)
                continue
            key, began = standing.pop(node)
            if not _gives_back(layout.record(key), transaction):
                ended.append(Held(began.owner, began.from_ms, transaction.time_ms))
    return [*ended, *(held for _, held in standing.values())]


def _gives_back(record: str, transaction: Transaction) -> bool:
    """Whether the request of that *record* goes on without its grant, as one that waits or is away."""
    states = [json.loads(write.data)["state"] for write in transaction.writes if write.path == record and write.data]
    return any(state not in (GRANTED, LOST, TOMBSTONE) for state in states)


def freed_by(play: Play, manager: LockManager, home: Path) -> Iterator[str]:
    """Who freed each of the runs' leases, by what it has logged."""
    forced = {
        entry.lease_id: KEEPER if entry.user.startswith("keeper of ") else FORCE for entry in manager.audit(play.table)
    }
    for tenure in sorted(manager.history(play.table), key=lambda tenure: tenure.granted):
        if not tenure.owner.startswith("rival"):
            yield forced.get(tenure.lease_id) or _logged(tenure.lease_id, tenure.owner, home) or "unlogged"


def _logged(lease_id: str, owner: str, home: Path) -> str | None:
    _, _, run_id, task_id, *_ = owner.split("/")
    trigger = None
    for path in sorted((home / "logs").rglob("*.log*")):
        for line in path.read_text(errors="replace").splitlines():
            if f"Released lease {lease_id}" in line:
                return _who(path, line)
            # A trigger that ends after the grant to its worker also logs this.
            if "so its request has left the queue" in line and f"run_id={run_id}/task_id={task_id}/" in str(path):
                trigger = "trigger"
    return trigger


def _who(path: Path, line: str) -> str:
    if "dag_processor" in path.parts:
        return "DAG callback"
    if "task_id=unlock" in str(path):
        return "unlock task"
    logger = json.loads(line).get("logger", "") if line.startswith("{") else ""
    return "task callback" if "callbacks" in logger else "task"
