"""Names that temporary tables and views take in a session. Real Hive 2.3 and Spark 4.3 gave the same meanings."""

from __future__ import annotations

import pytest

from airflow_hivelock.locks.plan import plan_statements
from tests.support.sql.warehouse import Warehouse

HIVE = "create temporary table if not exists {} (x int); "


def locks(sql: str, catalog: Warehouse | None = None) -> str:
    """The locks as in ``S(dw.u) X(dw.w)``."""
    reads, writes = plan_statements(sql, catalog, database="dw")
    return " ".join([f"S({each})" for each in reads] + [f"X({each})" for each in writes])


@pytest.mark.parametrize("create", [HIVE, "create temporary table if not exists {} as select 1; "])
@pytest.mark.parametrize("catalog", [Warehouse(), None])
@pytest.mark.parametrize(
    "change",
    [
        "insert overwrite table dw.u select 1",
        "insert into u select 1",
        "truncate table u",
        "drop table u",
        "drop table if exists u",
        "alter table u rename to u2",
        "load data inpath '/x' into table u",
    ],
)
def test_a_temporary_table_if_not_exists_leaves_a_stored_table(
    create: str, catalog: Warehouse | None, change: str
) -> None:
    """The temporary table is not made, so the change is one of the stored table."""
    assert "X(dw.u)" in locks(create.format("dw.u") + change, catalog).split()


def test_a_temporary_table_if_not_exists_is_read_as_the_stored_table() -> None:
    assert locks(HIVE.format("o") + "select * from o", Warehouse()) == "S(dw.o) S(dw.o/dt=2013-01-01)"
    assert locks(HIVE.format("big_u") + "select * from big_u", Warehouse()) == "S(dw.big_u) S(dw.u)"


def test_an_earlier_statement_can_have_stored_the_name() -> None:
    sql = "alter table u rename to n; " + HIVE.format("n") + "insert overwrite table n select 1"
    assert [str(each) for each in plan_statements(sql, Warehouse(), database="dw", locks="hive")[1]] == ["dw.n", "dw.u"]


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        (HIVE.format("n") + "insert into n select x from w; drop table if exists n", "S(dw.n) S(dw.w)"),
        ("create temporary table u (x int); insert overwrite table u select x from w", "S(dw.w)"),
        ("create temporary table u (x int); " + HIVE.format("u") + "insert into u select x from w", "S(dw.w)"),
        ("create temporary table u (x int); drop table if exists u; drop table if exists u", "X(dw.u)"),
        (HIVE.format("n") + "drop table n; drop table if exists n", "X(dw.n)"),
    ],
)
def test_a_temporary_table_hides_a_stored_one(sql: str, locked: str) -> None:
    assert locks(sql, Warehouse()) == locked
