"""Mutations of what goes over the wire: transactions taken apart, changed or repeated on their way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Create, Delete, Refused, SetData
from airflow_hivelock.locks.errors import StoreUnavailable
from tests.simulation.hive import HiveClient
from tests.simulation.mutation import mutation
from tests.simulation.session import SimulatedSession
from tests.simulation.state import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from airflow_hivelock.locks.backends.zookeeper.client import Op

    Patch = pytest.MonkeyPatch
    Send = Callable[[tuple[Op, ...]], tuple[Any, ...] | Refused]


def _in_place_of_commits(patch: Patch, send: Callable[[Send, tuple[Op, ...]], tuple[Any, ...] | Refused]) -> None:
    """Let every transaction of ours be sent by *send*, which is given the means to send one as it is."""
    submit = SimulatedSession.submit

    def submit_changed(self: SimulatedSession, *requests: Any) -> list[Any]:
        if not isinstance(requests[0] if requests else None, Commit) or self.name.startswith("hive"):
            return submit(self, *requests)
        replies = [send(lambda ops: submit(self, Commit(ops))[0], requests[0].ops)]
        return [*replies, *submit(self, *requests[1:])]

    patch.setattr(SimulatedSession, "submit", submit_changed)


def _is_record(op: Op, state: str) -> bool:
    return (
        isinstance(op, SetData) and op.path.startswith(f"{ROOT}/requests/") and f'"state":"{state}"'.encode() in op.data
    )


@mutation(seed=None)
def transaction_sent_again(patch: Patch) -> None:
    """The first one was applied; the second is refused, and its sender stops although he holds."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        try:
            return once(ops)
        except StoreUnavailable:
            return once(ops)

    _in_place_of_commits(patch, send)


@mutation(seed=0)
def tickets_one_by_one(patch: Patch) -> None:
    """First in one queue and second in the other: each waits for the other."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        tickets = [i for i, op in enumerate(ops) if isinstance(op, Create) and op.path.startswith(f"{ROOT}/queue/")]
        if len(tickets) < 2 or not ops[tickets[0]].path.endswith("-"):
            return once(ops)
        last = tickets[-1]
        first = once((*ops[:last], *ops[last + 1 :]))
        second = first if isinstance(first, Refused) else once((ops[last],))
        if isinstance(first, Refused) or isinstance(second, Refused):
            return first if isinstance(first, Refused) else second
        return (*first[:last], *second, *first[last:])

    _in_place_of_commits(patch, send)


@mutation(seed=0)
def record_deleted_when_freed(patch: Patch) -> None:
    """Its version restarts at 0, and an old process's compare-and-set passes on a successor's record."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        changed: list[Op] = []
        places: list[int] = []
        for op in ops:
            places.append(len(changed))
            if isinstance(op, SetData) and _is_record(op, "free"):
                changed += [Check(op.path, op.version), Delete(op.path)]
            else:
                changed.append(op)
        outcome = once(tuple(changed))
        return outcome if isinstance(outcome, Refused) else _picked(outcome, places)

    _in_place_of_commits(patch, send)


@mutation(seed=0)
def tickets_given_back_at_the_grant(patch: Patch) -> None:
    """UNLOCK TABLE takes a lock, and the next of ours is granted it while its holder still works."""

    def send(once: Send, ops: tuple[Op, ...]) -> tuple[Any, ...] | Refused:
        if (
            len(ops) == 2
            and isinstance(ops[1], Delete)
            and isinstance(ops[0], SetData)
            and _is_record(ops[0], "granted")
        ):
            named = json.loads(ops[0].data)["tickets"]
            ops = (*ops, *(Delete(f"{ROOT}/queue/{unit}/{name}") for unit, name in named))
        return once(ops)

    _in_place_of_commits(patch, send)


@mutation(seed=0)
def ten_digits(patch: Patch) -> None:
    """UNLOCK TABLE takes Hive's lock, mine is made on its path, and Hive unlocks by path."""
    original = HiveClient._write

    def write(self: HiveClient, op: Any) -> str | None:
        done = original(self, op)
        head, lock, number = op.path.rpartition("-")
        if done is None and isinstance(op, Delete) and lock and number.isdigit():
            return original(self, Delete(f"{head}-0{number}"))
        return done

    patch.setattr(HiveClient, "_write", write)


def _picked(outcome: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(outcome[place] for place in places)
