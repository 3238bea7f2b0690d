"""What the name of a CTE means in each query, and how much memory the names take."""

from __future__ import annotations

import tracemalloc

import pytest

from airflow_hivelock.locks.plan import plan_statements

SEEN = [f"t{number}" for number in range(1, 4)]


def read(sql: str) -> str:
    """The days of ``t1`` to ``t3`` that are read, as in ``t1/d=1 t2``."""
    reads, writes = plan_statements(sql, partition_columns={f"default.{each}": ["d string"] for each in SEEN})
    return " ".join(sorted(str(each).removeprefix("default.") for each in (*reads, *writes)))


@pytest.mark.parametrize(
    ("sql", "days"),
    [
        ("with c as (select * from t1) select * from c where d = '1'", "t1/d=1"),
        ("with c as (select * from t1), e as (select * from c) select * from e where d = '1'", "t1/d=1"),
        # An inner WITH hides the outer one, and only inside its own query.
        (
            "with c as (select * from t1) select * from (with c as (select * from t2) select * from c where d = '2') x "
            "union all select * from c where d = '1'",
            "t1/d=1 t2/d=2",
        ),
        (
            "with c as (select * from t1) "
            "select * from (with e as (select * from c where d = '1') select * from e union all select * from c where d = '2') x",
            "t1/d=1 t1/d=2",
        ),
        # The query of a CTE names the CTEs before it, also if it is read after others of that name. All rows of a CTE
        # are read if its name is used before it.
        (
            "with c as (select * from t1), e as (select * from c where d = '1'), c as (select * from t2) "
            "select * from e union all select * from c where d = '2'",
            "t1/d=1 t2",
        ),
        (
            "with e as (with c as (select * from t2) select * from c where d = '2'), c as (select * from t1) "
            "select * from e union all select * from c where d = '1'",
            "t1 t2/d=2",
        ),
        ("with t1 as (select * from t1 where d = '1') select * from t1", "t1/d=1"),
    ],
)
def test_a_cte_means_the_last_one_of_its_name_before_the_query(sql: str, days: str) -> None:
    assert read(sql) == days


@pytest.mark.parametrize("with_", ["with", "with recursive"])
def test_the_memory_of_many_ctes_grows_with_their_number(with_: str) -> None:
    sql = f"{with_} {', '.join(f'c{number} as (select 1)' for number in range(3_000))} select 1 from t1 where d = '1'"
    tracemalloc.start()
    try:
        assert read(sql) == "t1/d=1"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 60_000_000
