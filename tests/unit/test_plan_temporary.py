"""Names of temporary tables and views, and of views with IF NOT EXISTS. Real Hive 2.3 and Spark 4.3 gave the same meanings."""

from __future__ import annotations

import pytest

from airflow_hivelock.locks import InvalidRequest
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


FILES = " using parquet options (path '/x'); "
SPARK = "create temporary table u" + FILES


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        (SPARK + "insert into dw.u select 1", "X(dw.u)"),
        (SPARK + "insert overwrite u select x from w", "S(dw.w)"),
        (SPARK + "select * from u", "S(dw)"),
        (SPARK + "select * from dw.u", "S(dw.u)"),
        (SPARK + "drop table if exists u; select * from w", "S(dw.w)"),
        (SPARK + "drop table u; drop table if exists u", "X(dw.u)"),
        (SPARK + "alter table u rename to w; insert into w select 1; drop table u", "X(dw.u)"),
        ("create temporary table u (x int)" + FILES + "truncate table dw.u", "X(dw.u)"),
        ("create temporary table session.u" + FILES + "insert into u select x from w", "S(dw.w) S(session)"),
    ],
)
def test_sparks_temporary_table_is_a_temporary_view(sql: str, locked: str) -> None:
    assert locks(sql, Warehouse()) == locked


@pytest.mark.parametrize(
    "refused",
    [
        "create temporary table dw.u" + FILES,
        "create temporary table if not exists u" + FILES,
        "create temporary table u using parquet as select 1; ",
        "create temporary view dw.u" + FILES,
        "create temporary view dw.u as select 1; ",
        "cache table dw.u as select 1; ",
    ],
)
@pytest.mark.parametrize("catalog", [Warehouse(), None])
def test_a_temporary_view_that_spark_refuses_takes_no_name(refused: str, catalog: Warehouse | None) -> None:
    assert "X(dw.u)" in locks(refused + "insert overwrite u select 1", catalog).split()


@pytest.mark.parametrize("kind", ["temporary", "global temporary"])
@pytest.mark.parametrize("query", ["as select * from w", "using parquet options (path '/x')"])
def test_a_temporary_view_if_not_exists_is_refused_as_in_spark(kind: str, query: str) -> None:
    with pytest.raises(InvalidRequest, match="no temporary view with IF NOT EXISTS; leave IF NOT EXISTS out, or"):
        locks(f"create {kind} view if not exists v {query}")


@pytest.mark.parametrize(
    "script",
    [
        "if 1 = 0 then " + SPARK + "end if; insert into u select 1;",
        "if 1 = 0 then create temporary table u (x int); end if; insert into u select 1;",
        "create temporary table u (x int); while 1 = 1 do drop table u; end while;",
        "create temporary table u (x int); if 1 = 0 then alter table u rename to w; end if; insert into w select 1;",
    ],
)
def test_no_branch_of_a_script_changes_what_is_temporary(script: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"a branch, a loop or a handler of the script changes what (?:dw\.)?u means"
    ):
        locks(f"begin {script} end", Warehouse())


VIEW = "create view if not exists {} as select * from w; "
OTHER = VIEW.replace("from w", "from o")


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        (VIEW.format("o") + "select * from o", "S(dw.o) S(dw.o/dt=2013-01-01) S(dw.w)"),
        (VIEW.format("big_u") + "select * from big_u", "S(dw.big_u) S(dw.u) S(dw.w)"),
        (
            "create view n as select * from o; " + VIEW.format("n") + "select * from n",
            "S(dw.o) S(dw.o/dt=2013-01-01) S(dw.w) X(dw.n)",
        ),
        (
            VIEW.format("n") + OTHER.format("n") + "select * from n",
            "S(dw.n) S(dw.o) S(dw.w)",
        ),
        (
            "drop table u; " + OTHER.format("u") + "select * from u",
            "S(dw.o) S(dw.o/dt=2013-01-01) X(dw.u)",
        ),
        (
            "alter table u rename to n; " + OTHER.format("u") + "select * from u",
            "S(dw.o) S(dw.o/dt=2013-01-01) X(dw.n) X(dw.u)",
        ),
        (
            "create temporary view u as select 1; drop view u; " + OTHER.format("u") + "select * from u",
            "S(dw.o) S(dw.u)",
        ),
        ("drop table u; " + HIVE.format("u") + "select * from u", "X(dw.u)"),
        (
            "drop table u; create table u (x int); " + OTHER.format("u") + "select * from u",
            "S(dw.o) X(dw.u)",
        ),
    ],
)
def test_a_view_if_not_exists_leaves_a_table_or_a_view_of_its_name(sql: str, locked: str) -> None:
    assert locks(sql, Warehouse()) == locked
