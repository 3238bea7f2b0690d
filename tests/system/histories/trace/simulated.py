"""The trace of a simulated run: clients that crash and lag, lost replies, Hive's clients and UNLOCK TABLE.

``python -m tests.system.histories.trace.simulated FIRST LAST`` validates the runs of these seeds. With ``--mutations``
it lists the mutations of the simulation that the trace alone shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from airflow_hivelock.locks.backends.zookeeper import acquisition
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.model import Lease
from airflow_hivelock.locks.pending import PendingLease
from tests.simulation.dice import Names
from tests.simulation.mutations import MUTATIONS
from tests.simulation.stage import Stage
from tests.simulation.world import World
from tests.system.histories.trace.validate import Returned, Trace, validate
from tests.system.histories.transactions import Transaction, Write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.stage import Script
    from tests.simulation.themes import Theme

SEEDS_MAX = 400


def trace(seed: int, theme: Theme | None = None) -> Trace:
    """Run the simulation with that seed, and validate what its ZooKeeper has logged."""
    world = World(seed, theme)
    with _returns(world) as returned:
        world.run()
    return _validated(world, returned)


def trace_of(script: Script) -> Trace:
    """The same for a script, up to its failure."""
    stage = Stage()
    with (
        _returns(stage) as returned,
        mock.patch.object(acquisition, "uuid", Names()),
        suppress(Exception, pytest.fail.Exception),  # here only the trace tells
    ):
        stage.schedule.spawn("script", lambda: script(stage))
        stage.schedule.run()
    return _validated(stage, returned)


@contextmanager
def _returns(run: World | Stage) -> Iterator[list[Returned]]:
    """Each lease that a caller gets while the body runs."""
    returned: list[Returned] = []
    original = PendingLease.poll

    def poll(self: PendingLease) -> Any:
        outcome = original(self)
        if isinstance(outcome, Lease):
            returned.append(Returned(run.schedule.now_ms, outcome.id, run.zookeeper.zxid))
        return outcome

    with mock.patch.object(PendingLease, "poll", poll):
        yield returned


def _validated(run: World | Stage, returned: list[Returned]) -> Trace:
    found, now_ms = [], 0
    for write in run.zookeeper.log:
        writes = []
        for path, _, after in write.changes:
            if after is None:
                writes.append(Write(path, None))
            elif write.zxid in (after.stat.czxid, after.stat.mzxid):  # or only a child of it came or went
                writes.append(Write(path, after.data))
                now_ms = max(now_ms, after.stat.mtime_ms)
        found.append(Transaction(write.zxid, now_ms, tuple(writes), write.session))
    return validate(found, Layout(), returned, hive=True)


def caught(name: str, most_s: float) -> str | None:
    """The first sign of a mutation of the simulation in the trace; None: no sign within *most_s* seconds."""
    mutation = MUTATIONS[name]
    until = time.monotonic() + most_s
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        if mutation.script is not None:
            return next(iter(trace_of(mutation.script).wrong), None)
        for seed in range(mutation.seed, mutation.seed + SEEDS_MAX):
            if wrong := trace(seed, mutation.theme).wrong:
                return wrong[0]
            if time.monotonic() > until:
                break
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.histories.trace.simulated")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--mutations", type=float, metavar="SECONDS", help="for each mutation, at most")
    given = parser.parse_args()
    if given.mutations:
        shown = [name for name in MUTATIONS if caught(name, given.mutations)]
        print(f"the trace alone shows {len(shown)} of {len(MUTATIONS)} mutations: {', '.join(shown)}")
        return 0
    transactions, returned, wrong, began = 0, 0, 0, time.monotonic()
    for seed in range(given.first, given.last):
        found = trace(seed)
        transactions, returned = transactions + found.transactions, returned + found.returned
        wrong += bool(found.wrong)
        print(*(f"seed {seed}: {text}" for text in found.wrong), sep="\n", end="\n" if found.wrong else "")
    print(
        f"{given.last - given.first} runs, {transactions} transactions, {returned} returned leases, {wrong} runs with steps "
        f"that are not allowed, {time.monotonic() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
