"""Transactions taken apart and changed on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete, Refused, SetData
from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
from tests.simulation.session import SimulatedSession
from tests.simulation.state import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.queue import Claim
    from airflow_hivelock.locks.backends.zookeeper.record import Record

    Send = Callable[[tuple[Op, ...]], tuple[Any, ...] | Refused]


def in_place_of_commits(
    patch: pytest.MonkeyPatch, send: Callable[[Send, tuple[Op, ...]], tuple[Any, ...] | Refused]
) -> None:
    """Let every transaction of ours be sent by *send*, which is given the means to send one as it is."""
    submit = SimulatedSession.submit

    def submit_changed(self: SimulatedSession, *requests: Any) -> list[Any]:
        if not isinstance(requests[0] if requests else None, Commit) or self.name.startswith("hive"):
            return submit(self, *requests)
        replies = [send(lambda ops: submit(self, Commit(ops))[0], requests[0].ops)]
        return [*replies, *submit(self, *requests[1:])]

    patch.setattr(SimulatedSession, "submit", submit_changed)


def leave_out(patch: pytest.MonkeyPatch, due: Callable[[Record | None, Record, Op], bool]) -> None:
    """Leave those operations out that are *due*, of what follows from a record's next state."""
    original = ZooKeeperStore._follows

    def follows(self: ZooKeeperStore, old: Record | None, new: Record, claim: Claim | None) -> list[Op]:
        return [op for op in original(self, old, new, claim) if not due(old, new, op)]

    patch.setattr(ZooKeeperStore, "_follows", follows)


def is_ticket(path: str) -> bool:
    """Whether a node at *path* is a ticket."""
    return path.startswith(f"{ROOT}/queue/") and path.count("/") == 4


def is_record(op: Op, state: str) -> bool:
    """Whether *op* writes a record, to say *state*."""
    return (
        isinstance(op, SetData) and op.path.startswith(f"{ROOT}/requests/") and f'"state":"{state}"'.encode() in op.data
    )


def gives_back(op: Op, kind: str) -> bool:
    """Whether *op* gives a permit, or a place in the queue, of a group back."""
    return isinstance(op, Delete) and "/groups/" in op.path and f"/{kind}/" in op.path
