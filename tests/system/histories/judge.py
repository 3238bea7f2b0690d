"""All that must hold of a history, once every process has ended."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LeaseLimit, LockManager, WaitsFor
from tests.system.histories.trace.validate import returned_leases

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from tests.system.histories.chaos import Chaos
    from tests.system.histories.trace.validate import Returned, Trace

PASSING_S = 1.0
SECONDS = float(os.environ.get("HISTORY_SECONDS", "12"))
SEED = int(os.environ.get("HISTORY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def enough(directory: Path) -> Callable[[], bool]:
    """Whether the time is over and some leases were returned. On a busy machine the workers start late."""
    over, late = after(SECONDS), after(10 * SECONDS)
    return lambda: (over() and len(returned_leases(directory)) > 4 * SECONDS) or late()


def judge(
    manager: LockManager,
    chaos: Chaos,
    validated: Callable[[Collection[Returned]], Trace],
    taken: Collection[str],
) -> Trace:
    """
    :param validated: the trace, given the leases that callers got.
    :param taken: actions that must have been taken, or too little has happened.
    """
    seed = f"seed {chaos.seed}"
    print(f"{seed}: {dict(chaos.done)}")
    chaos.free(manager)
    # The position of a dead waiter is kept for its next process, and blocks no other request. A person may have given it
    # priority 0. Only a request behind it removes it, and only one that is counted meets those that wait for a permit.
    last = manager.acquire(owner="last", writes=["dw"], limit=LeaseLimit("few", 1), timeout_s=60, priority=-1)
    assert manager.release(last), seed
    # So is the mark of an owner that died, or lost the store, between its going away and its slot: the keeper's to drop.
    for waiter in manager.waiters():
        if waiter.waits_for is WaitsFor.SLOT:
            manager.forget_deferred(waiter.owner, waiter.attempt)
    trace = validated(returned_leases(chaos.directory))
    trace.processes = len(list(chaos.directory.glob("returned-*")))
    print(trace)
    assert not trace.wrong, f"{seed}\n" + "\n".join(trace.wrong)
    lost, left = lost_updates(chaos.directory), [*manager.show(), *manager.waiters()]
    assert not lost, f"{seed}: lost updates: {lost}"
    assert not left, f"{seed}: left behind: {left}"
    assert trace.actions["grant"] > SECONDS / 2, f"too little happened to prove anything, with {seed}"
    missing = [name for name in taken if not trace.actions[name]]
    assert not missing, f"{seed}: not taken: {missing}"
    return trace


def lost_updates(directory: Path) -> dict[str, tuple[int, int]]:
    """Counters that are lower than the number of updates that were logged: name to value and log."""
    logged = Counter(name for log in directory.glob("log-*") for name in log.read_text().split())
    values = {name: int((directory / name).read_text()) for name in logged}
    return {name: (values[name], logged[name]) for name in logged if values[name] < logged[name]}
