"""The figures of jobs with a known order."""

from __future__ import annotations

from tests.bench.contention.figures import Job, figures, gaps, inversions
from tests.support.spans import Span


def job(asked: float, begun: float, weight: int = 1, table: str = "dw.t", starts: int = 1) -> Job:
    return Job(table, weight, asked, Span(begun, begun + 6), Span(begun - 1, begun + 7), starts)


def test_a_job_that_began_before_one_that_had_asked_earlier_is_an_inversion() -> None:
    assert inversions([job(1, 10), job(2, 20), job(3, 30)]) == (0, 0)
    assert inversions([job(1, 30), job(2, 10), job(3, 20)]) == (0, 2)


def test_a_daily_run_that_waits_while_others_begin_is_an_inversion_of_each() -> None:
    asked_meanwhile = job(15, 40, weight=10)
    assert inversions([job(1, 10), job(2, 20), job(3, 30), asked_meanwhile]) == (2, 0)


def test_tables_do_not_wait_for_each_other() -> None:
    jobs = [job(1, 30), job(2, 10, table="dw.u")]
    assert inversions(jobs) == (0, 0)
    assert gaps(jobs) == []


def test_a_gap_begins_with_the_first_that_has_asked() -> None:
    assert gaps([job(1, 10), job(2, 20)]) == [4.0]
    assert gaps([job(1, 10), job(18, 20)]) == [2.0]


def test_a_line_of_jobs_one_worker_start_apart_is_the_floor() -> None:
    found = figures({"a": job(1, 10), "b": job(2, 20), "daily": job(3, 30, weight=10)}, 4.0, "daily", "alter")
    assert (found.starts, found.idle_s, found.daily_s, found.alter_s) == (1.0, (4.0, 4.0), 27.0, None)
    assert found.makespan == 26 / 30
