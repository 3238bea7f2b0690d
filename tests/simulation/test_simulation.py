"""The lock protocol under simulated faults; and that the simulation would see each of its rules missing."""

from __future__ import annotations

import os
import secrets
import time

import pytest

from tests.simulation import mutations, wire
from tests.simulation.claims import Violation
from tests.simulation.mutation import MUTATIONS
from tests.simulation.schedule import Stuck
from tests.simulation.world import simulate

SECONDS = 20.0
SEED = "HIVELOCK_SIMULATION_SEED"
SEEDS_MAX = 400

assert mutations
assert wire


def test_no_promise_breaks() -> None:
    given = os.environ.get(SEED)
    seed = int(given) if given else secrets.randbelow(1 << 32)
    deadline = time.monotonic() + SECONDS
    while True:
        outcome = simulate(seed)
        assert outcome.failure is None, f"{outcome.failure!r}; again: python -m tests.simulation --seed {seed} --runs 1"
        if given or time.monotonic() > deadline:
            break
        seed += 1


def test_a_seed_decides_everything() -> None:
    first, again = simulate(7), simulate(7)
    assert [(now_ms, who, str(what)) for now_ms, who, what in first.trace] == [
        (now_ms, who, str(what)) for now_ms, who, what in again.trace
    ]


@pytest.mark.parametrize("name", [name for name, mutation in MUTATIONS.items() if mutation.seed is not None])
def test_a_missing_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    assert mutation.seed is not None
    mutation.apply(monkeypatch)
    runs = (simulate(seed) for seed in range(mutation.seed, mutation.seed + SEEDS_MAX))
    assert any(isinstance(run.failure, Violation | Stuck) for run in runs), (
        f"{SEEDS_MAX} runs from seed {mutation.seed} on did not notice: {mutation.apply.__doc__}"
    )
