"""Two real Spark jobs on one Hive table: our locks and the guard prevent all harm, and without them there is harm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import connect
from tests.support.servers import PostgresServer
from tests.system.race.late import STOPS, UNGUARDED, make, overtake, overwriting, rows, start
from tests.system.race.scenario import SAME_PARTITION, SCENARIOS, WEEK_READ, Scenario
from tests.system.race.track import LOCKS_ALONE, OURS, SESSION, Mode, Track, track

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

TRIES = 2
TRIES_MAX = 6

# Without locks most tries of the first two do harm, so only the locks can prevent it. Partition locks allow the jobs on
# two partitions, and with Spark's writer these jobs share a directory of the table. So they need Hive's writer.
GUARDED = [
    (SAME_PARTITION, LOCKS_ALONE),
    (WEEK_READ, LOCKS_ALONE),
    *((scenario, mode) for scenario in SCENARIOS for mode in (OURS, SESSION)),
]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Track]:
    with track(tmp_path_factory.mktemp("race")) as ready:
        yield ready


@pytest.mark.parametrize(("scenario", "mode"), GUARDED, ids=lambda value: value.name)
def test_nobody_is_harmed_under_locks(course: Track, scenario: Scenario, mode: Mode) -> None:
    for _ in range(TRIES):
        outcome = course.race(scenario, mode)
        assert not outcome.harmed, outcome


@pytest.fixture(params=["postgresql", "metastore"])
def other_store(request: pytest.FixtureRequest, course: Track, tmp_path: Path) -> Iterator[str]:
    """The URL of another lock store than ZooKeeper. The metastore is that of the jobs."""
    if request.param == "metastore":
        yield f"metastore://127.0.0.1:{course.metastore.port}?timeout_s=300"
    else:
        with PostgresServer(tmp_path) as postgres:
            yield postgres.url


def test_nobody_is_harmed_under_the_locks_of_another_store(course: Track, other_store: str) -> None:
    for _ in range(TRIES):
        outcome = replace(course, locks_url=other_store).race(SAME_PARTITION, LOCKS_ALONE)
        assert not outcome.harmed, outcome


def test_a_lock_manager_that_grants_everything_is_noticed(course: Track) -> None:
    # Each process has its own store, so both jobs get their locks.
    apart = replace(course, locks_url="memory://")
    outcomes = (apart.race(SAME_PARTITION, LOCKS_ALONE) for _ in range(TRIES_MAX))
    assert any(outcome.harmed for outcome in outcomes)


@pytest.mark.parametrize(
    ("at", "options"),
    [
        *((at, {}) for at in STOPS),
        *((at, {"later_try": True}) for at in STOPS[1:3]),
        *((at, {"partition": False}) for at in STOPS[2:]),
    ],
    ids=str,
)
def test_a_job_that_was_stopped_does_not_publish_over_a_later_one(
    course: Track, at: str, options: dict[str, bool]
) -> None:
    late = overtake(course, at, **options)
    print(f"{at} {options}: {late.window_ms:.1f} ms between the other job's check and its effect")
    assert late.rows == ("other",)
    assert "LockLost" in str(late.stopped.error)


def test_without_the_guard_it_does(course: Track) -> None:
    assert overtake(course, UNGUARDED).rows == ("stopped",)


@pytest.mark.parametrize(
    ("number", "columns", "partition"),
    [
        (1, "(job STRING) STORED AS PARQUET", ""),
        (2, "(job STRING) USING parquet", ""),
        (3, "(job STRING) PARTITIONED BY (dt STRING, hr INT) STORED AS PARQUET", "/dt=2013-01-15/hr=4"),
        (4, "(job STRING, dt STRING) USING parquet PARTITIONED BY (dt)", "/dt=a%3Ab"),
    ],
    ids=str,
)
def test_everybody_reads_what_was_published_last(course: Track, number: int, columns: str, partition: str) -> None:
    table, (one, other) = f"race.kind_{number}", course.sparks
    make(one, table, columns)
    with connect(course.locks_url) as manager:
        for turn, job in enumerate(["new", "again", "over that"]):
            lease = start(manager, f"{table} {turn}", table + partition)
            reply = one.run(overwriting(course, table + partition, job, lease))
            assert not reply.error, reply.error
            assert rows(other, table) == (job,)
            manager.release(lease)


def test_each_step_of_the_locks_is_one_of_the_specification(course: Track) -> None:
    """The last test of this module, because it checks ZooKeeper's log of the tests before it."""
    with connect(course.locks_url) as manager:
        manager.release(start(manager, "last", "race.last"))
    trace = course.trace()
    print(trace)
    assert not trace.wrong, "\n".join(trace.wrong)
    assert trace.actions["release"]
