"""From statements to locks: each documented row, many shapes, and whatever else somebody may type."""

from __future__ import annotations

import logging
import os
import random
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import HiveLockError, InvalidRequest, LockMode, LockObject, rules
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.plan import explain, explain_json, plan, plan_statements, turned_off
from airflow_hivelock.locks.spelling import is_date
from tests.support.sql.cases import CASES, less
from tests.support.sql.differences import LESS, MORE
from tests.support.sql.hostile import statements
from tests.support.sql.suite import NO_NAME, STEP
from tests.support.sql.warehouse import PARTITIONS, Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.sql.cases import Case

PARSER = re.compile(r"Expect|Invalid expression|sqlglot|Required|Token|Error|\x1b|parse", re.IGNORECASE)
"""Words of sqlglot's, which are about its grammar."""

PARTITIONED = {"default.t1": ["p"], "default.t2": ["p", "q"]}


def locks(sql: str, catalog: Any = None, **options: Any) -> list[str]:
    """What the statement locks, parents included and the database left out, as ``S t1``."""
    found = rules.with_parents(*plan_statements(sql, catalog, **options))
    shown = ((str(lock.object).removeprefix("default").removeprefix("."), lock.mode.value[0]) for lock in found)
    return [f"{'X' if mode == 'E' else mode} {name}" for name, mode in shown if name]


@pytest.mark.parametrize(
    ("sql", "documented"),
    [
        ("select * from T1 where p = 'P1'", ["S t1", "S t1/p=P1"]),
        (
            "insert into table T2 partition (p='P2') select * from T1 where p = 'P1'",
            ["S t1", "S t1/p=P1", "S t2", "X t2/p=P2"],
        ),
        (
            "insert into table T2 partition (p='P', q='Q') select * from T1 where p = 'P1'",
            ["S t1", "S t1/p=P1", "S t2", "S t2/p=P", "X t2/p=P/q=Q"],
        ),
        (
            "insert into table T2 partition (p, q) select * from T1 where p = 'P1'",
            ["S t1", "S t1/p=P1", "X t2"],
        ),
        (
            "insert into table T2 partition (p='P', q) select * from T1 where p = 'P1'",
            ["S t1", "S t1/p=P1", "S t2", "X t2/p=P"],
        ),
        ("alter table T1 rename to T2", ["X t1"]),
        ("alter table T1 add columns (z int)", ["X t1"]),
        ("alter table T1 replace columns (z int)", ["X t1"]),
        ("alter table T1 change column x z int", ["X t1"]),
        ("alter table T1 change x z int", ["X t1"]),
        ("alter table T1 concatenate", ["X t1"]),
        ("alter table T1 set tblproperties ('a' = 'b')", ["X t1"]),
        ("alter table T1 add partition (p='P1')", ["S t1", "X t1/p=P1"]),
        ("alter table T1 drop partition (p='P1')", ["S t1", "X t1/p=P1"]),
        ("alter table T1 touch partition (p='P1')", ["S t1", "X t1/p=P1"]),
        ("alter table T1 set serdeproperties ('a' = 'b')", ["S t1"]),
        ("alter table T1 set serde 'org.example.S'", ["S t1"]),
        ("alter table T1 set serde 'org.example.S' with serdeproperties ('a' = 'b')", ["S t1"]),
        ("alter table T1 set fileformat orc", ["S t1"]),
        ("alter table T1 partition (p='P1') concatenate", ["S t1", "X t1/p=P1"]),
        ("drop table T1", ["X t1"]),
    ],
)
def test_each_documented_command(sql: str, documented: list[str]) -> None:
    columns = {"default.t1": ["p"]} if "p='P2'" in sql else PARTITIONED
    assert locks(sql, partition_columns=columns, locks="documented") == documented
    stricter = ["X t1"] if re.search("set (serde '|fileformat)", sql) else documented  # as real Hive
    assert locks(sql, partition_columns=columns) == stricter


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sql)
def test_each_statement_locks_what_it_says(case: Case) -> None:
    assert case.planned() == case.expected
    assert {case.hive, *(said for _, said in case.later)} <= {"", "no", "refused", "same", *MORE, *LESS}


def test_each_reason_for_a_difference_is_needed() -> None:
    said = {case.hive for case in CASES} | {said for case in CASES for _, said in case.later}
    assert said >= {*MORE, *LESS}


def test_there_are_statements_of_many_shapes() -> None:
    assert len({case.sql for case in CASES}) == len(CASES) >= 200


@pytest.mark.parametrize(
    ("sql", "hive"),
    [
        ("insert into t2 partition (p, q) select * from t1 where p = '1'", ["S t1", "S t1/p=1", "X t2"]),
        ("insert into t2 partition (p='P', q) select 1", ["S t2", "S t2/p=P"]),
        ("insert into t2 select * from t1 where p = '1'", ["S t1", "S t1/p=1", "X t2"]),
        ("alter table t1 add partition (p='1')", ["S t1"]),
        ("alter table t1 drop partition (p='1')", ["S t1", "X t1/p=1"]),
        ("alter table t1 touch partition (p='1')", ["S t1"]),
        ("alter table t1 archive partition (p='1')", ["S t1", "X t1/p=1"]),
        ("alter table t1 set tblproperties ('a' = 'b')", ["S t1"]),
        ("alter table t1 unset tblproperties ('a')", ["X t1"]),
        ("alter table t1 partition (p='1') set serdeproperties ('a' = 'b')", ["S t1", "S t1/p=1"]),
        ("alter table t1 set serdeproperties ('a' = 'b')", ["S t1"]),
        ("alter table t1 set serde 'org.example.S'", ["X t1"]),
        ("alter table t1 set fileformat orc", ["X t1"]),
    ],
)
def test_as_real_hive(sql: str, hive: list[str]) -> None:
    assert locks(sql, partition_columns={"default.t1": ["p string"], "default.t2": ["p", "q"]}, locks="hive") == hive


def test_a_partition_that_load_data_makes_is_locked_by_its_table_in_hive_alone() -> None:
    sql = "load data inpath '/in' into table dw.t partition (dt='2013-09-01')"
    assert locks(sql, Warehouse(), locks="documented")[-1] == locks(sql, Warehouse())[-1] == "X dw.t/dt=2013-09-01"
    assert locks(sql, Warehouse(), locks="hive")[-1] == "X dw.t"


@pytest.mark.parametrize("locks", ["both", "", None, 1])
def test_a_table_of_commands_that_there_is_not_is_refused(locks: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"locks=.*use one of stricter, documented, hive"):
        plan_statements("select 1", locks=locks)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sql)
def test_the_stricter_table_locks_no_less_than_either(case: Case) -> None:
    ours = case.planned()
    assert not less(ours, case.planned(locks="documented"))
    assert bool(less(ours, case.planned(locks="hive"))) is (case.hive in LESS)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from t1 where p between '2013-01-30' and '2013-02-01'", 3),
        ("select * from t1 where p between 1 and 5", 5),
        ("select * from t1 where p in ('a', 'b')", 2),
        ("select * from t1 a where a.p = 'a' or a.p = 'b' and x = 1", 2),
        ("select * from t2 where p in ('a', 'b') and q in (1, 2)", 4),
    ],
)
def test_without_a_metastore_what_is_named_is_locked(sql: str, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    reads, writes = plan_statements(sql, partition_columns=PARTITIONED)
    assert (len([target for target in reads if target.partition]), writes) == (expected, [])
    assert not caplog.records


@pytest.mark.parametrize(
    ("sql", "whole"),
    [
        ("select * from t1", "default.t1"),
        ("select * from t1 where p >= '2013-01-01'", "default.t1"),
        ("select * from t1 where p like '2013%'", "default.t1"),
        ("select * from t1 where p = current_date()", "default.t1"),
        ("select * from t2 where q = 1", "default.t2"),
        ("select * from t2 where p = 'a'", "default.t2/p=a"),
        ("select * from t2 where p = 'a' and q > 1", "default.t2/p=a"),
        ("select * from unknown where p = 'a'", "default.unknown"),
    ],
)
def test_without_a_metastore_what_cannot_be_named_is_exclusive(
    sql: str, whole: str, caplog: pytest.LogCaptureFixture
) -> None:
    reads, writes = plan_statements(sql, partition_columns=PARTITIONED)
    assert [str(target) for target in writes] == [whole]
    assert all(target in writes[0].parents for target in reads)
    assert "its partitions cannot be listed" in caplog.text
    assert locks("select * from unknown", unpartitioned=["default.unknown"]) == ["S unknown"]


HOURLY = {"default.t": ["ds string", "hr int"]}


@pytest.mark.parametrize(
    ("sql", "unknown", "known"),
    [
        ("insert overwrite table t partition (hr='11', ds='x') select 1", "X t", "X t/ds=x/hr=11"),
        ("insert overwrite table t partition (ds='x', hr='011') select 1", "X t", "X t/ds=x/hr=11"),
        ("insert overwrite table t partition (ds='x', hr) select 1", "X t", "X t/ds=x"),
        ("alter table t add partition (hr=11, ds='x')", "X t", "X t/ds=x/hr=11"),
        ("alter table t drop partition (ds='x')", "X t", "X t/ds=x"),
        ("truncate table t partition (hr=11, ds='x')", "X t", "X t/ds=x/hr=11"),
    ],
)
def test_the_order_of_the_columns_is_known_or_the_table_is_locked(
    sql: str, unknown: str, known: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert locks(sql) == [unknown]
    assert "partition_columns={'dw.flights': ['dt date', 'hr int']}" in caplog.text
    caplog.clear()
    assert locks(sql, partition_columns=HOURLY)[-1] == known
    assert not caplog.records


@pytest.mark.parametrize(
    ("literal", "locked"),
    [
        ("'x'", {"": "p=x", "string": "p=x", "char(3)": "p=x %20", "date": "", "int": ""}),
        ("'03'", {"": "", "string": "p=03", "int": "p=3", "double": "p=3.0", "boolean": ""}),
        ("03", {"": "p=3", "string": "p=3", "int": "p=3", "char(3)": "", "double": "p=3.0", "boolean": ""}),
        ("3.0", {"": "", "string": "", "int": "", "double": "p=3.0"}),
        ("'2013-1-2'", {"": "", "string": "p=2013-1-2", "date": "p=2013-01-02", "timestamp": ""}),
        ("date '2013-01-02'", {"": "p=2013-01-02", "string": "p=2013-01-02", "date": "p=2013-01-02", "int": ""}),
        ("'true'", {"": "p=true", "string": "p=true", "boolean": ""}),
        ("null", {"": "p=__HIVE_DEFAULT_PARTITION__", "int": "p=__HIVE_DEFAULT_PARTITION__"}),
    ],
)
def test_a_partition_is_written_under_the_name_that_it_is_kept_under(literal: str, locked: dict[str, str]) -> None:
    sql = f"insert overwrite table t partition (p={literal}) select 1"
    for kind, level in locked.items():
        declared = {"default.t": [f"p {kind}"]} if kind else None
        assert locks(sql, partition_columns=declared)[-1] == f"X t/{level}".rstrip("/"), kind


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("p = '2013-1-2'", "X t"),
        ("p = '2013-01-02'", "S t/p=2013-01-02"),
        ("p = '07'", "X t"),
        ("p = 07", "S t/p=7"),
        ("p between 07 and 07", "S t/p=7"),
    ],
)
def test_where_names_no_value_in_a_spelling_that_may_be_kept_otherwise(where: str, read: str) -> None:
    assert locks(f"select * from t where {where}", partition_columns={"default.t": ["p"]})[-1] == read


class Daily:
    """A table with a partition a day, and one of a type whose values are not compared."""

    def table(self, table: LockObject) -> Table | None:
        kinds = {"daily": "string", "numbered": "int", "padded": "char(10)", "null": "string"}
        return Table(("p",), partition_types=(kinds[table.table],)) if table.table in kinds else None

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        values: Sequence[str] = {
            "daily": ["2013-01-01", "2013-1-2", "10", "9"],
            "numbered": ["10", "9", "-1"],
            "padded": ["a", "b"],
            "null": ["", "a"],
        }[below.table]
        return (LockObject("default", below.table, (("p", value),)) for value in values)

    def names(self, database: str = "") -> list[str]:
        return []


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("daily where p = 9", {"2013-01-01", "2013-1-2", "9"}),  # Hive compares such text as numbers, or as NULL
        ("daily where p < '2'", {"10"}),
        ("daily where p = date '2013-01-02'", {"2013-1-2", "10", "9"}),  # as a date it may be the same
        ("numbered where p > 9", {"10"}),
        ("numbered where p > '9'", {"10"}),
        ("numbered where p = '09'", {"9"}),
        ("numbered where p = -1", {"-1"}),
        ("numbered where p > 9.5", {"10", "9", "-1"}),
        ("padded where p = 'a'", {"a", "b"}),
        ("null where p <> 'a'", {"__HIVE_DEFAULT_PARTITION__"}),
        ("null where not (p = 'b')", {"__HIVE_DEFAULT_PARTITION__", "a"}),
        (r"daily where p > '\u0039'", {"2013-01-01", "2013-1-2", "10", "9"}),  # an escape: its meaning is not certain
    ],
)
def test_a_partition_is_left_out_only_where_the_condition_is_certainly_false(where: str, values: set[str]) -> None:
    reads, writes = plan_statements(f"select * from {where}", Daily())
    assert {target.path[2].removeprefix("p=") for target in reads if target.partition} == values
    assert not writes


def test_too_many_partitions_are_read_under_exclusive(caplog: pytest.LogCaptureFixture) -> None:
    reads, writes = plan_statements("select * from daily where p <> 'x'", Daily(), limit=2)
    assert (reads, [str(target) for target in writes]) == ([], ["default.daily"])
    assert "more than 2 partitions" in caplog.text


def test_the_database_is_the_given_one_until_use() -> None:
    given: dict[str, Any] = {"unpartitioned": ["a.t", "b.t"]}
    assert locks("select * from t", database="a", **given) == ["S a", "S a.t"]
    assert locks("use b; select * from t", database="a", **given) == ["S b", "S b.t"]


class Views:
    """Views by their text."""

    def __init__(self, **texts: str) -> None:
        self._texts = texts

    def table(self, table: LockObject) -> Table | None:
        if table.table in self._texts:
            return Table(table_type="VIRTUAL_VIEW", view_text=self._texts[table.table], view_database="other")
        return Table()

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        yield from ()

    def names(self, database: str = "") -> list[str]:
        return []


def test_a_view_is_read_with_the_tables_below_it() -> None:
    catalog = Views(v="select * from t join w", w="select * from dw.u")
    expected = ["dw.u", "dw.v", "other.t", "other.w"]
    assert [str(target) for target in plan(["dw.v"], [], catalog)[0]] == expected
    assert [str(target) for target in plan_statements("select * from v", catalog, database="dw")[0]] == expected


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"v": "select * from other.w", "w": "select * from other.v"}, "reads itself"),
        ({"v": "select * frm t"}, "the text of the view dw.v is not understood: line 1"),
        ({"v": "drop table t"}, "the text of the view dw.v is not understood"),
        ({"v": "select 1; select 2"}, "the text of the view dw.v is not understood"),
    ],
)
def test_a_view_that_cannot_be_read_is_named(texts: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        plan(["dw.v"], [], Views(**texts))
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        plan_statements("select * from dw.v", Views(**texts))


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("selec * from t", "line 1, column 1, at 'selec * from t'"),
        ("select * from t;\n\n  alter tabel t touch", "line 3, column 9, at 'tabel t touch'"),
        ("insert into t\nselect * frm u", "line 2, column 14, at 'u'"),
        ("alter table t frobnicate", "line 1, column 15, at 'frobnicate'"),
        ("alter table t add partition (p=(select 1))", "line 1, column 33, at 'select 1))'"),
        ("drop table t; drop table", "line 1, column 25: a name is wanted"),
        ("select * from t where p = 'a", 'line 1, column 27, at "\'a": this quote'),
        ("insert into t partition (p='${day}') select 1", 'line 1, column 29, at "${day}'),
        ("select * from t where p = '{{ ds }}'", 'line 1, column 28, at "{{ ds }}'),
        ("select x from t where y > ${hiveconf:z}", "line 1, column 27, at '${hiveconf:z}'"),
        ("select * from a.b.c.d", "line 1, column 17, at 'b.c.d'"),
        ("select * from iceberg.db.t", "in a catalog of its own"),
        (
            "select * from my_function(1)",
            "what the table function my_function reads is not known; put its CREATE FUNCTION into",
        ),
        ("select * from identifier(:t)", "line 1, column 15"),
        ("select last_value(x, (select max(x) from w)) over w1 from u", "not every SELECT in it was recognised"),
        ("select * from u where table t", "not understood"),
        ("lock table t exclusive", "leave LOCK out"),
        ("unlock table t", "leave UNLOCK out"),
        ("dfs -rm -r /warehouse/t", "which tables' files"),
        ("import from '/x'", "write IMPORT TABLE name"),
        ("add jar /x/a--b.jar;\ninsert into t select 1", "'--' in such a statement"),
        ("create view v using parquet options (path '/x')", "AS and a query are wanted"),
        ("insert into identifier(:t) values (1)", "line 1, column 13, at 'identifier(:t) values (1)': which name"),
        ("update identifier(lower('t')) set x = 1", "what this changes is not understood"),
        ("alter materialized view mv rebuild", "what this view reads is not known; give a metastore"),
        ("alter index i on t rebuild", "which table holds this index is not known"),
        (
            "create index i on table t (x) as 'compact' in table k; alter index i on t rebuild",
            "which table holds this index is not known",
        ),
        ("dfs -ls /a--b;\ninsert into t select 1", "'--' in such a statement"),
        ("execute immediate v", "what this runs is not known; give it as a text, or DECLARE and SET the variable"),
        ("select * from identifier(v)", "line 1, column 15, at 'identifier(v)': which name this gives is not known"),
        (
            "insert into t partition (p<'a') select 1",
            "line 1, column 27, at \"<'a') select 1\": PARTITION takes only '='",
        ),
        ("alter table t drop partition (p like 'a')", "PARTITION takes =, <, <=, >, >=, != here; write p='value'"),
        ("alter table t drop partition (p='a''b')", "a doubled quote means different things to Hive and Spark"),
        ("insert into `` select 1", "line 1, column 13, at '`` select 1': a table needs a name; name reads and writes"),
        ("select * from dw.``", "a table needs a name; name reads and writes"),
        ("drop database ``", "line 1, column 15, at '``'"),
        ("declare c what select 1", "line 1, column 16, at 'select 1': a query here is not understood"),
        ("select * from t where x = 1 and", "what this reads is not understood; name reads and writes instead"),
        ("insert into t partition (p=date 'soon') select 1", "'soon' is no date"),
        ("alter table t drop partition (p='a\\\\b')", "means different things to Hive and Spark"),
        ("", "asks for no locks"),
    ],
)
def test_what_is_not_understood_is_an_error_that_shows_the_place(sql: str, place: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(place)) as refused:
        rules.request("me", *plan_statements(sql))
    assert not sql or _helps(str(refused.value))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("alter table dw.u add partition (dt='a')", "dw.u has no partitions, not by dt"),
        ("insert into dw.t partition (day='a') select 1", "dw.t is partitioned by dt, not by day"),
        ("alter table dw.t drop partition (dt='a', dt='b')", "names a column twice"),
    ],
)
def test_a_partition_that_the_catalog_contradicts_is_refused(sql: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        plan_statements(sql, Warehouse())


def test_a_table_that_sql_reads_and_that_does_not_exist_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    locks("create table dw.new as select * from dw.u; select * from dw.new", Warehouse())
    assert not caplog.records
    locks("insert into dw.u select * from other.t", Warehouse())
    assert [record.getMessage() for record in caplog.records] == [
        "other.t: there is no such table to read. Only a temporary view can be meant, and is locked for nothing"
    ]
    caplog.clear()
    locks("select * from dw.day_tt", Warehouse())
    assert "dw.day_tt: there is no such table to read; did you mean dw.day_t" in caplog.text


COMPARED = ("{c} < 'ab'", "{c} != 'a'", "{c} >= 'a' 'b'", "{c} <=> 'a'", "{c} = 'a', {c} < 'b'", "{c} > 'a', {c}")
PLACES = (
    "insert into {t} partition ({s}) select 1",
    "insert overwrite table {t} partition ({s}) select 1",
    "from dw.u insert into {t} partition ({s}) select x",
    "load data inpath '/x' into table {t} partition ({s})",
    "import table {t} partition ({s}) from '/x'",
    "export table {t} partition ({s}) to '/x'",
    "analyze table {t} partition ({s}) compute statistics",
    "truncate table {t} partition ({s})",
    "alter table {t} add partition ({s})",
    "alter table {t} add if not exists partition ({c}='a') partition ({s})",
    "alter table {t} touch partition ({s})",
    "alter table {t} archive partition ({s})",
    "alter table {t} exchange partition ({s}) with table dw.u",
    "alter table {t} partition ({s}) rename to partition ({c}='z')",
    "alter table {t} partition ({c}='z') rename to partition ({s})",
    "alter table {t} partition ({s}) set location '/x'",
    "alter table {t} partition ({s}) concatenate",
    "alter index i on {t} partition ({s}) rebuild",
)


@pytest.mark.parametrize("shape", PLACES)
def test_a_comparison_is_refused_where_a_partition_has_a_value(shape: str) -> None:
    for table, catalog in (("dw.t", Warehouse()), ("nope", None)):
        for spec in COMPARED:
            sql = shape.format(t=table, s=spec.format(c="dt"), c="dt")
            with pytest.raises(
                InvalidRequest, match=r"PARTITION takes only '=' here; write dt='value', or name reads and writes"
            ):
                plan_statements(sql, catalog)
    with suppress(InvalidRequest):  # the index is not known
        plan_statements(shape.format(t="nope", s="dt='a'", c="dt"))


def test_what_drops_partitions_compares_their_values() -> None:
    sql = "alter table dw.t drop partition (dt > '2013-01-01', dt != '2013-01-03'), partition (dt >= '2013-01-03')"
    assert [str(each) for each in plan_statements(sql, Warehouse())[1]] == ["dw.t/dt=2013-01-02", "dw.t/dt=2013-01-03"]


OFF = "set hive.support.concurrency=false; "


@pytest.mark.parametrize(
    ("sql", "expected", "unlocked"),
    [
        (OFF + "load data inpath '/in' into table t", [], 1),
        ("SET hiveconf:Hive.Support.Concurrency = FALSE; insert into t select 1; drop table u", [], 2),
        ("drop table u; " + OFF + "drop table t", ["X u"], 1),
        (OFF + "drop table t; set hive.support.concurrency=true; drop table u", ["X u"], 1),
        (OFF + "use dw; use default; set hive.support.concurrency=true; drop table u", ["X u"], 0),
        ("set hive.support.concurrency; set -v; set hive.support.concurrencyx=false; drop table u", ["X u"], 0),
    ],
)
def test_a_session_that_turns_locking_off_locks_nothing_and_says_so(
    sql: str, expected: list[str], unlocked: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert locks(sql) == expected
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if text.startswith("NOT LOCKED: SET hive.support.concurrency=false")]) == unlocked
    assert turned_off(sql) is (unlocked > 0 and not expected)
    assert locks(sql, always=True)[-1][0] == "X"


def test_of_other_settings_those_that_bear_on_locks_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    names = ("hive.lock.numretries", "hive.txn.manager", "hive.exec.dynamic.partition.mode", "mapred.job.name")
    assert locks("".join(f"set {name}=x; " for name in names) + "drop table u") == ["X u"]
    told = [record.getMessage().split(" ", 2) for record in caplog.records]
    assert [name for _, name, _ in told] == [f"{name}=x" for name in names]
    assert [what.startswith("has nothing to do with locks") for *_, what in told] == [False, False, False, True]
    with pytest.raises(InvalidRequest, match="'no': use true or false"):
        locks("set hive.support.concurrency=no; drop table t")


def test_a_table_of_which_partitions_are_locked_is_not_locked_for_itself() -> None:
    """Where the lock store has a hierarchy, SHARED on the table would keep out the writers of its other partitions."""
    sql = "insert into dw.h partition (dt='2013-01-01', hr=4) select * from dw.t where dt = '2013-01-01'"
    reads, writes = plan_statements(sql, Warehouse())
    assert [str(target) for target in (*reads, *writes)] == ["dw.t/dt=2013-01-01", "dw.h/dt=2013-01-01/hr=4"]
    assert [str(target) for target in plan_statements("describe dw.t", Warehouse())[0]] == ["dw.t"]


def test_a_plan_is_explained_as_hive_does() -> None:
    reads, writes = plan_statements(
        "insert into dw.h partition (dt='2013-01-01', hr=4) select * from dw.u", Warehouse()
    )
    assert explain(reads, writes).splitlines() == [
        "LOCK INFORMATION:",
        "dw -> SHARED",
        "dw.h -> SHARED",
        "dw.h.dt=2013-01-01 -> SHARED",
        "dw.h.dt=2013-01-01/hr=4 -> EXCLUSIVE",
        "dw.u -> SHARED",
    ]
    assert explain_json(reads, writes)["locks"][-2:] == [
        {"object": "dw.h/dt=2013-01-01/hr=4", "mode": "EXCLUSIVE"},
        {"object": "dw.u", "mode": "SHARED"},
    ]


DEEP = {
    "parentheses": f"select {'(' * 90}1{')' * 90} from t",
    "subqueries": f"select * from {'(select * from ' * 99}t{') s' * 99}",
    "an open end": f"select {'(' * 99}",
    "NOT": f"select * from t where {'not ' * 900}x",
    "CASE": f"select {'case when x then ' * 99}1{' end' * 99} from t",
    "types": f"select cast(x as {'array<' * 99}int{'>' * 99}) from t",
    "CTEs": "with a0 as (select 1)"
    + "".join(f", a{n + 1} as (select * from a{n} union all select * from a{n})" for n in range(40))
    + " select * from a40",
    "OR": f"select * from t where {' or '.join(f'x = {n}' for n in range(2000))}",
    "UNION": " union all ".join(["select x from t"] * 300),
    "comments": "/*" * 10_000,
    "cross join": "select * from " + ", ".join(["t"] * 20_000),
    "CTEs side by side": "with " + ", ".join(f"a{n} as (select 1)" for n in range(1_500)) + " select 1 from t",
}


@pytest.mark.parametrize("shape", DEEP)
def test_what_is_nested_deep_is_planned_or_refused_in_time(shape: str) -> None:
    began = time.process_time()
    with suppress(InvalidRequest):
        reads, writes = plan_statements(DEEP[shape])
        assert {target.table for target in (*reads, *writes)} <= {"t"}
    assert time.process_time() - began < 30


def test_whatever_is_typed_is_answered_or_refused_and_locks_nothing_that_it_does_not_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seed = int(os.environ.get("SQL_SEED", random.SystemRandom().randrange(2**32)))
    print(f"SQL_SEED={seed}")
    caplog.set_level(logging.CRITICAL)
    catalog, answered = Warehouse(), 0
    unhelpful: list[str] = []
    listed = [LockObject.parse(name) for name in PARTITIONS]
    existing = {str(each) for target in listed for each in (target, *target.parents)}
    for number, sql in enumerate(statements(seed, 10_000)):
        try:
            reads, writes = plan_statements(sql, catalog if number % 2 else None, database="dw")
        except HiveLockError as error:
            unhelpful += [f"{error} for {sql!r}"] * (not _helps(str(error)))
            continue
        answered += 1
        named = sql.lower() + " all_t" * ("day_t" in sql.lower())  # a view names what it reads
        for target in (*reads, *writes):
            assert _is_named(target.table, named), f"{target} for {sql!r}"
            if str(target) not in existing:
                assert all(_typed(value, sql) or is_date(value) for _, value in target.partition), (
                    f"{target} for {sql!r}"
                )
    assert unhelpful[:3] == []
    assert answered > 2_000, "nearly all refused would show nothing"


def _helps(message: str) -> bool:
    """Whether a refusal has a next step, or names what cannot be locked; in words about SQL."""
    why = re.sub(r"^.*['\"]: ", "", message, flags=re.DOTALL)  # without the place, which shows what was typed
    return bool(STEP.search(message) or NO_NAME.search(message)) and not PARSER.search(why)


def _is_named(table: str, sql: str) -> bool:
    """Whether *sql* contains the name, or both halves of it where texts are connected."""
    halves = range(1, len(table)) if "||" in sql or "concat" in sql else ()
    return table in sql or any(table[:at] in sql and table[at:] in sql for at in halves)


def _typed(value: str, sql: str) -> bool:
    """Whether *sql* contains the characters of *value*, in one text or in adjacent ones."""
    comments_and_quotes = re.compile(r"""--[^\n]*|/\*.*?\*/|\br(?=['"])|['"\\\s]|^-""", re.DOTALL)
    return value in sql or comments_and_quotes.sub("", value) in comments_and_quotes.sub("", sql)


def test_less_is_told_from_more() -> None:
    table, day = LockObject.parse("dw.t"), LockObject.parse("dw.t/dt=1")
    shared, exclusive = LockMode.SHARED, LockMode.EXCLUSIVE
    assert not less({table: exclusive}, {day: exclusive, table: shared})
    assert [lock.object for lock in less({table: shared}, {day: shared, table: exclusive})] == [day, table]
