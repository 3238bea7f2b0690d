"""Two real Spark jobs on one Hive table: not harmed under our locks, harmed when these are taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.race.scenario import SAME_PARTITION, SCENARIOS, WEEK_READ, Scenario
from tests.race.track import LOCKS_ALONE, OURS, Mode, Track, track

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

TRIES = 2
TRIES_MAX = 6

# Spark alone loses most of the first two, so that the locks must be what keeps them. Two partitions are
# kept by Hive's writer: Spark's shares a directory of the table among its jobs, which partition locks allow.
GUARDED = [(SAME_PARTITION, LOCKS_ALONE), (WEEK_READ, LOCKS_ALONE), *((scenario, OURS) for scenario in SCENARIOS)]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Track]:
    with track(tmp_path_factory.mktemp("race")) as ready:
        yield ready


@pytest.mark.parametrize(("scenario", "mode"), GUARDED, ids=lambda value: value.name)
def test_nobody_is_harmed_under_locks(course: Track, scenario: Scenario, mode: Mode) -> None:
    for _ in range(TRIES):
        outcome = course.race(scenario, mode)
        assert not outcome.harmed, outcome


def test_a_lock_manager_that_grants_everything_is_noticed(course: Track) -> None:
    # To each process its own store: both jobs get what they ask for.
    apart = replace(course, locks_url="memory://")
    outcomes = (apart.race(SAME_PARTITION, LOCKS_ALONE) for _ in range(TRIES_MAX))
    assert any(outcome.harmed for outcome in outcomes)
