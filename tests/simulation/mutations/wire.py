"""Transactions taken apart and changed on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.zookeeper.client import Commit, Refused, SetData
from tests.simulation.session import SimulatedSession
from tests.simulation.state import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_hivelock.locks.backends.zookeeper.client import Op

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


def is_ticket(path: str) -> bool:
    """Whether a node at *path* is a ticket."""
    return path.startswith(f"{ROOT}/queue/") and path.count("/") == 4


def is_record(op: Op, state: str) -> bool:
    """Whether *op* writes a record, to say *state*."""
    return (
        isinstance(op, SetData) and op.path.startswith(f"{ROOT}/requests/") and f'"state":"{state}"'.encode() in op.data
    )
