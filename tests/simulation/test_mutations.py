"""That the tests would see each rule of the protocol missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import LockTimeout
from tests.simulation.claims import Violation
from tests.simulation.mutations import MUTATIONS
from tests.simulation.schedule import Stuck
from tests.simulation.stage import play
from tests.simulation.world import simulate

if TYPE_CHECKING:
    from tests.simulation.stage import Script

SEEDS_MAX = 400
SCRIPTS = list(dict.fromkeys(mutation.script for mutation in MUTATIONS.values() if mutation.script is not None))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_passes(script: Script) -> None:
    play(script)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    mutation.apply(monkeypatch)
    if mutation.script is not None:
        with pytest.raises((AssertionError, Stuck, LockTimeout, pytest.fail.Exception)):
            play(mutation.script)
    else:
        runs = (simulate(seed, mutation.theme) for seed in range(mutation.seed, mutation.seed + SEEDS_MAX))
        assert any(isinstance(run.failure, Violation | Stuck) for run in runs), (
            f"{SEEDS_MAX} runs from seed {mutation.seed} on did not notice: {mutation.apply.__doc__}"
        )
