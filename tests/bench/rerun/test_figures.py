"""The figures of a rerun, worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_hivelock.locks import Tenure
from tests.bench.rerun import figures
from tests.bench.rerun.figures import Held, Select
from tests.support.spans import Span

FIRST, SECOND = "2013-01-01", "2013-01-02"


def test_what_is_held_longer_than_worked_shows_in_the_ratio() -> None:
    jobs = {FIRST: Span(10, 20), SECOND: Span(20, 30)}
    held = Held.of({FIRST: Span(8, 21), SECOND: Span(8, 33)}, jobs)
    assert held.ratio == pytest.approx((13 + 25) / 20)
    assert list(held.idle_before_s.values) == [2, 12]
    assert list(held.idle_s.values) == [3, 15]
    assert held.most == 2


def test_one_that_begins_as_another_ends_is_not_beside_it() -> None:
    assert figures.most_at_once([Span(0, 10), Span(10, 20), Span(5, 6)]) == 2


def test_notes_tell_the_jobs_that_have_ended_and_every_start() -> None:
    notes = ["start 2013-01-01 1.0", "start 2013-01-01 2.0", "begin 2013-01-01 3.0", "end 2013-01-01 13.5"]
    jobs, starts = figures.jobs([*notes, "start 2013-01-02 14.0", "begin 2013-01-02 15.0"])
    assert jobs == {FIRST: Span(3, 13.5)}
    assert starts == {FIRST: 2, SECOND: 1}


def test_a_step_of_airflow_s_is_from_the_end_of_a_task_to_the_job_behind_it() -> None:
    notes = [
        "start 2013-01-01 1.0",
        "first 2013-01-01 2.0",
        "start 2013-01-01 4.0",
        "begin 2013-01-01 4.5",
        "end 2013-01-01 9",
    ]
    assert figures.between(notes, [FIRST, SECOND]) == [2.5]
    assert figures.jobs(notes)[0] == {FIRST: Span(4.5, 9)}


def test_a_select_counts_for_the_floor_while_its_day_is_written() -> None:
    selects = [
        Select(FIRST, Span(10, 10.1), granted=False),  # written
        Select(SECOND, Span(10, 10.1), granted=False),  # locked, without work on it
        Select(SECOND, Span(50, 50.1), granted=True),
        Select(FIRST, Span(50, 50.1), granted=True),
    ]
    assert figures.shares(selects, {FIRST: [Span(9, 20)], SECOND: [Span(21, 30)]}) == (0.5, 0.25)


def test_tenures_are_found_by_the_run_of_their_owner() -> None:
    at = [datetime.fromtimestamp(second, UTC) for second in (0, 5, 9)]
    history = [
        Tenure("a", "bench/late/late-1/job/-1", (), *at),
        Tenure("b", "bench/late/late-today/job/-1", (), *at),
        Tenure("c", "an ALTER TABLE", (), *at),
        Tenure("d", "bench/late/late-2/job/-1", (), at[0], at[1]),
    ]
    assert figures.tenures(history, {"late-1": FIRST, "late-2": SECOND}) == {FIRST: Span(5, 9)}
