"""How far conditions, settings and dynamic statements reach. What each reads has been compared with a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.plan import plan_statements
from tests.support.sql import scans
from tests.support.sql.scans import DAYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL = len(DAYS)
DAY = "2024-01-05"


def read(sql: str) -> dict[str, int]:
    """How many partitions of each table the statement reads."""
    shared, _ = plan_statements(sql, scans.Tables(), database="dw")
    tables = [target.table for target in shared if target.partition]
    return {table: tables.count(table) for table in dict.fromkeys(tables)}


def written(sql: str, columns: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    return [str(each) for each in plan_statements(sql, None, database="dw", partition_columns=columns)[1]]


@pytest.mark.parametrize(
    ("sql", "partitions"),
    [
        ("select * from sales as s(dt, amt, d, region) where s.dt = '5'", ALL),
        ("select * from sales s(a, b, c, dt) where dt = '2024-01-05'", ALL),
        ("select * from (select *, rand() r from sales) where dt = '2024-01-05'", ALL),
        ("select * from (select *, my_udf(id) r from sales) where dt = '2024-01-05'", ALL),
        ("select * from (select *, dw.upper(region) r from sales) where dt = '2024-01-05'", ALL),
        ("select * from (select *, unix_timestamp() r from sales) where dt = '2024-01-05'", ALL),
        ("select * from (select *, unix_timestamp(region) r from sales) where dt = '2024-01-05'", 1),
        ("select * from (select * from sales order by rand()) where dt = '2024-01-05'", ALL),
        ("select * from (select transform(id, dt) using 'cat' as (id, dt) from sales) where dt = '2024-01-05'", ALL),
        ("with c as (select *, uuid() u from sales) select * from c where dt = '2024-01-05'", ALL),
        ("select * from v_salted where dt = '2024-01-05'", ALL),
        ("select *, rand() from sales where dt = '2024-01-05' and rand() < 0.5", 1),
        ("select * from (select *, upper(region) u from sales) where dt = '2024-01-05'", 1),
        (f"select * from (select {'(' * 40}rand(){')' * 40} r, dt from sales) where dt = '2024-01-05'", ALL),
    ],
)
def test_a_condition_passes_only_what_is_the_same_each_time(sql: str, partitions: int) -> None:
    assert read(sql) == {"sales": partitions}


@pytest.mark.parametrize(
    ("sql", "partitions"),
    [
        ("join lateral (select sum(s.amt) from sales s where s.id = o.id) where o.dt = '2024-01-05'", ALL),
        ("where o.dt = '2024-01-05' and o.k > (select max(amt) from sales s where s.id < o.id)", ALL),
        ("where o.dt = '2024-01-05' and o.k > (select max(amt) from sales where amt < k)", ALL),
        ("where o.dt = '2024-01-05' and o.k > (select max(amt) from sales where region = 'EU')", 1),
        ("where o.dt = '2024-01-05' and o.id in (select s.id from sales s where s.amt < o.k)", 1),
        ("where o.dt = '2024-01-05' and exists (select 1 from sales s where s.id < o.id)", 1),
        ("where o.dt = '2024-01-05' and not exists (select 1 from sales s where s.id = o.id)", 1),
    ],
)
def test_what_spark_reads_once_more_for_a_subquery_is_read_whole(sql: str, partitions: int) -> None:
    assert read(f"select * from orders o {sql}") == {"orders": partitions, "sales": ALL}


def test_a_condition_does_not_reach_the_steps_of_a_recursion() -> None:
    step = "select s.id, s.dt from sales s join r on s.id = r.id"
    sql = f"with recursive r as (select id, dt from orders union all {step}) select * from r where dt = '2024-01-05'"
    assert read(sql) == {"orders": ALL, "sales": ALL}


@pytest.mark.parametrize(("value", "partitions"), [("false", ALL), ("true", 1)])
@pytest.mark.parametrize("view", ["", "create view v as select * from sales;"])
def test_hive_reads_every_partition_if_its_pruning_is_turned_off(view: str, value: str, partitions: int) -> None:
    sql = f"{view} set hive.optimize.ppd={value}; select * from {'v' if view else 'sales'} where dt = '2024-01-05'"
    assert read(sql) == {"sales": partitions}


@pytest.mark.parametrize("setting", ["hive.ppd.recognizetransivity", "spark.sql.constraintPropagation.enabled"])
def test_what_a_join_makes_equal_excludes_nothing_if_a_setting_says_so(setting: str) -> None:
    sql = "select * from sales s join orders o on s.dt = o.dt where s.dt = '2024-01-05'"
    assert read(sql) == {"sales": 1, "orders": 1}
    assert read(f"set {setting}=false; {sql}")["orders"] == ALL


def test_numbers_that_a_union_makes_texts_are_not_compared_as_numbers() -> None:
    assert (
        read("select * from (select hr from hourly union all select region from sales) where hr <> '04'")["hourly"] == 9
    )
    assert read("select * from (select hr from hourly union all select hr from hourly) where hr <> 4")["hourly"] == 6


def test_an_or_of_conditions_on_two_tables_narrows_neither() -> None:
    sql = "select * from sales s join orders o where (s.dt = '2024-01-05' and o.k = 1) or (s.dt = '2024-01-06' and o.k = 2)"
    assert read(sql) == {"sales": ALL, "orders": ALL}
    assert read("select * from sales where (dt = '2024-01-05' and id = 1) or (dt = '2024-01-06' and id = 2)") == {
        "sales": 2
    }


@pytest.mark.parametrize(
    "text",
    [
        "'select * from orders' || ' join sales using (id)'",
        "'select * from orders' ' join sales using (id)'",
        "'select * from orders ' || 'join ' 'sales using (id)' into x",
        "'select * from orders where k = ?' using (select max(amt) from sales)",
    ],
)
def test_all_of_a_statement_that_is_put_together_is_planned(text: str) -> None:
    assert read(f"execute immediate {text}") == {"orders": ALL, "sales": ALL}


@pytest.mark.parametrize("text", ["'select * from orders' || x", "x", "'select 1' + 'a'", r"'select * from orde\162s'"])
def test_a_statement_that_is_not_constant_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"the SQL of this EXECUTE is not known; .*or name reads and writes instead"
    ):
        read(f"execute immediate {text}")


@pytest.mark.parametrize(
    "setting",
    [
        "set spark.sql.ansi.doubleQuotedIdentifiers=true",
        "set `spark.sql.ansi.doubleQuotedIdentifiers` = TRUE",
        "set hive.support.quoted.identifiers=standard",
    ],
)
def test_what_is_in_double_quotes_is_a_name_once_a_setting_makes_it_one(setting: str) -> None:
    assert read(f'{setting}; select * from sales where dt = "dt"') == {"sales": ALL}
    assert read(f'{setting}; select * from "sales" where "dt" = \'2024-01-05\'') == {"sales": 1}
    assert read(f'select * from sales where dt = "2024-01-05"; {setting}') == {"sales": 1}


@pytest.mark.parametrize(
    ("value", "locked"),
    [("day=date '2024-01-05'", "dw.d"), ("day='2024-1-5'", "dw.d"), ("day='2024-01-05'", "dw.d/day=2024-01-05")],
)
def test_without_hives_check_of_types_a_value_is_locked_only_as_it_is_written(value: str, locked: str) -> None:
    sql = f"insert into d partition ({value}) select 1"
    columns = {"dw.d": ["day date"]}
    assert written(sql, columns) == ["dw.d/day=2024-01-05"]
    assert written(f"set hive.typecheck.on.insert=false; {sql}", columns) == [locked]


@pytest.mark.parametrize(
    "sql",
    [
        "set hivevar:x=2024-01-05; insert into t partition (dt='${hivevar:x}') select 1",
        "set hivevar:x=2024-01-05; insert into t partition (dt='${x}') select 1",
        "set hiveconf:x=2024-01-05; insert into t partition (dt='${hiveconf:x}') select 1",
        "set x='2024-01-05'; insert into t partition (dt=${hiveconf:x}) select 1",
        "set path=in; insert into t partition (dt='2024-01-05') select '${hiveconf:path}'",
        "set path=/day=2024-01-05; insert into t partition (dt='2024-01-05') select '${hiveconf:path}'",
        "set hivevar:m=2024-01; set hivevar:x=${hivevar:m}-05; insert into t partition (dt='${hivevar:x}') select 1",
        "set hivevar:m=2024-01; set hivevar:x=${env:HOME}; insert into t partition (dt='${hivevar:m}-05') select 1",
        "set hivevar:t=t; -- ${y}\ninsert into ${hivevar:t} partition (dt='2024-01-05') select 1",
    ],
)
def test_a_variable_has_the_value_that_the_text_gives_it(sql: str) -> None:
    assert written(sql, {"dw.t": ["dt string"]}) == ["dw.t/dt=2024-01-05"]


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t partition (dt='${hivevar:x}') select 1; set hivevar:x=2024-01-05",
        "-- ; set hivevar:x=2024-01-05;\ninsert into t partition (dt='${hivevar:x}') select 1",
        "set hivevar:x=${env:HOME}; insert into t partition (dt='${hivevar:x}') select 1",
        "set hivevar:x=a; set hiveconf:x=b; insert into t partition (dt='${x}') select 1",
        "set hivevar:x='); drop table t; --; insert into t partition (dt='${x}') select 1",
        "set hivevar:x=${hivevar:x}; insert into t partition (dt='${x}') select 1",
    ],
)
def test_a_variable_without_a_certain_value_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest):
        written(sql, {"dw.t": ["dt string"]})
