"""Whether random schedules notice each rule that is taken away, without any script."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import LockTimeout
from tests.simulation.claims import Violation
from tests.simulation.schedule import Stuck
from tests.simulation.stage import play
from tests.simulation.world import simulate

if TYPE_CHECKING:
    from tests.simulation.mutations.mutation import Mutation


@dataclass(frozen=True)
class Found:
    """How a mutation was noticed by chance.

    :param failure: what the last of the *runs* said; None: they all went well.
    """

    runs: int
    seconds: float
    seed: int
    failure: Exception | None


def by_script(mutation: Mutation) -> bool | None:
    """Whether its script fails; None where it has none."""
    if mutation.script is None:
        return None
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        try:
            play(mutation.script)
        except (AssertionError, Stuck, LockTimeout, pytest.fail.Exception):
            return True
    return False


def by_chance(mutation: Mutation, seed: int, *, seconds: float, runs_max: int | None = None) -> Found:
    """Run from *seed* on, until a promise breaks or the time is over."""
    began, runs = time.process_time(), 0
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        while True:
            outcome = simulate(seed + runs, mutation.theme)
            runs += 1
            spent = time.process_time() - began
            noticed = isinstance(outcome.failure, Violation | Stuck)
            if noticed or spent > seconds or runs == runs_max:
                return Found(runs, spent, outcome.seed, outcome.failure if noticed else None)
