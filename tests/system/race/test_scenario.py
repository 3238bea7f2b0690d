"""The referee of the races sees every harm there is to see."""

from __future__ import annotations

import pytest

from tests.system.race.scenario import BASE, FLIGHTS, SAME_PARTITION, SCENARIOS, WEEK_READ, Scenario

Row = tuple[str, str, int, int]


def week(**by_day: dict[str, int]) -> list[Row]:
    """The base week; ``d15={"a": 894}`` gives the 15th other writers, and ``d15={}`` none."""
    days = {day: by_day.get(f"d{day[-2:]}", {BASE: count}) for day, count in FLIGHTS.items()}
    return [(day, job, count, count) for day, jobs in days.items() for job, count in jobs.items()]


@pytest.mark.parametrize("job", ["a", "b"])
def test_either_job_may_stand(job: str) -> None:
    assert SAME_PARTITION.wrong(week(d15={job: 894}), finished=True) is None


@pytest.mark.parametrize("jobs", [{BASE: 894}, {"a": 894, "b": 894}, {"a": 671, "b": 223}, {"a": 1788}, {"a": 671}, {}])
def test_a_lost_mixed_doubled_or_partial_overwrite_is_wrong(jobs: dict[str, int]) -> None:
    assert SAME_PARTITION.wrong(week(d15=jobs), finished=True)


@pytest.mark.parametrize("jobs", [{BASE: 894}, {"a": 894}])
def test_a_reader_may_see_before_or_after(jobs: dict[str, int]) -> None:
    assert WEEK_READ.wrong(week(d15=jobs), finished=False) is None


@pytest.mark.parametrize("jobs", [{}, {"a": 447}, {BASE: 447, "a": 447}, {BASE: 894, "a": 894}])
def test_a_reader_that_sees_a_part_is_wrong(jobs: dict[str, int]) -> None:
    assert WEEK_READ.wrong(week(d15=jobs), finished=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_days_that_nobody_overwrites_are_left_alone(scenario: Scenario) -> None:
    written = {f"d{job.day[-2:]}": {job.name: FLIGHTS[job.day]} for job in scenario.jobs if job.day}
    assert scenario.wrong(week(**written), finished=True) is None
    assert scenario.wrong(week(**written, d12={"a": 690}), finished=True)
    assert scenario.wrong(week(**written, d12={}), finished=True)
