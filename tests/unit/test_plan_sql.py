"""From statements to locks: each documented row, statements of many shapes, views, and the settings of a session."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, LockMode, LockObject, rules
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.plan import (
    TaskSql,
    explain,
    plan,
    plan_statements,
)
from airflow_hivelock.locks.plan.sql import tokenize
from tests.support.sql.cases import CASES, less
from tests.support.sql.differences import LESS, MORE
from tests.support.sql.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlglot import Token

    from airflow_hivelock.locks.plan.sql import Sql
    from tests.support.sql.cases import Case


PARTITIONED = {"default.t1": ["p"], "default.t2": ["p", "q"], "default.t3": ["p date", "q int"]}


def locks(sql: str, catalog: Any = None, **options: Any) -> list[str]:
    """The locks of the statement, with parents and without the database, as ``S t1``."""
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
    made = ["X t2"] if "rename" in sql else []  # as CREATE locks a new name
    assert locks(sql, partition_columns=columns) == stricter + made


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
        ("select * from t3 where p >= '2013-01-30' and p < '2013-02-01' and q = 4", 2),
        ("select * from t3 where p = '2013-01-30' and q > 3 and q <= 6", 3),
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
        ("select * from t1 where p >= '2013-01-01' and p < '2013-01-02'", "default.t1"),  # its hours, if it is hourly
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


def test_the_database_is_the_given_one_until_use() -> None:
    given: dict[str, Any] = {"unpartitioned": ["a.t", "b.t"]}
    assert locks("select * from t", database="a", **given) == ["S a", "S a.t"]
    assert locks("use b; select * from t", database="a", **given) == ["S b", "S b.t"]
    # In Spark it names the catalog of Hive's tables.
    assert locks("use `spark_catalog`; select * from t", database="a", **given) == ["S a", "S a.t"]
    assert locks("use spark_catalog.b; select * from t", database="a", **given) == ["S b", "S b.t"]


def test_a_renamed_temporary_table_hides_no_other_table() -> None:
    sql = (
        "create temporary table t1 as select 1; alter table t1 rename to t9; insert into t9 select 2; select * from t1"
    )
    assert locks(sql, unpartitioned=["default.t1"]) == ["S t1"]


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
    ("sql", "wanted"),
    [
        ("insert into t replace where select 1", "a condition is missing here; name reads and writes instead"),
        ("begin if then select 1; end if; end", "an expression is missing here; name reads and writes instead"),
    ],
)
def test_a_condition_that_is_missing_is_refused_in_the_error_tree(sql: str, wanted: str) -> None:
    with pytest.raises(InvalidRequest, match=wanted):
        plan_statements(sql)


def test_a_function_without_its_last_argument_narrows_nothing() -> None:
    for lacking in ("date_sub('2013-01-02')", "add_months('2013-01-02')", "to_date()"):
        sql = f"select * from dw.t where dt = {lacking}"
        assert plan_statements(sql, Warehouse()) == plan_statements("select * from dw.t", Warehouse()), lacking


@pytest.mark.parametrize(
    "sql",
    [
        "alter materialized view mv rebuild",
        "alter index i on t rebuild",
        "analyze tables in dw compute statistics",
        "select * from dw.t.snapshots",
    ],
)
def test_the_check_of_a_task_refuses_nothing_that_a_metastore_can_answer(sql: str) -> None:
    TaskSql(sql).check()
    with pytest.raises(InvalidRequest, match=r"metastore|index"):
        plan_statements(sql)


def test_all_questions_about_one_text_parse_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(sql: Sql, parse: Callable[[Sql], tuple[Token, ...]] = tokenize) -> tuple[Token, ...]:
        parsed.append(sql.text)
        return parse(sql)

    monkeypatch.setattr("airflow_hivelock.locks.plan.sql.tokenize", counted)
    sql = "set hive.lock.numretries=2; insert into a select * from dw.t where dt = '2013-01-01'"
    task_sql = TaskSql(sql)
    task_sql.check()
    assert not task_sql.turned_off()
    assert task_sql.tries_s() is not None
    assert not task_sql.same_in("other")
    reads, _ = plan_statements(sql, Warehouse())
    assert [str(each) for each in reads] == ["dw.t/dt=2013-01-01"]  # not as without a catalog
    assert parsed == [sql]


def test_a_table_that_sql_reads_and_that_does_not_exist_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    locks("create table dw.new as select * from dw.u; select * from dw.new", Warehouse())
    assert not caplog.records
    locks("insert into dw.u select * from other.t", Warehouse())
    assert [record.getMessage() for record in caplog.records] == [
        "other.t: there is no such table to read. It is locked; a temporary view of that name needs no lock"
    ]
    caplog.clear()
    locks("select * from dw.day_tt", Warehouse())
    assert "dw.day_tt: there is no such table to read; did you mean dw.day_t" in caplog.text


OFF = "set hive.support.concurrency=false; "


@pytest.mark.parametrize(
    ("sql", "expected", "unlocked"),
    [
        (OFF + "load data inpath '/in' into table t", [], 1),
        ("SET hiveconf:Hive.Support.Concurrency = FALSE; insert into t select 1; drop table u", [], 2),
        ("drop table u; " + OFF + "drop table t", ["X u"], 1),
        (OFF + "drop table t; set hive.support.concurrency=true; drop table u", ["X u"], 1),
        (OFF + "drop table t; reset; drop table u", ["X u"], 1),
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
    assert TaskSql(sql).turned_off() is (unlocked > 0 and not expected)
    assert locks(sql, always=True)[-1][0] == "X"


def test_of_other_settings_those_that_bear_on_locks_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    names = ("hive.lock.numretries", "hive.txn.manager", "hive.exec.dynamic.partition.mode", "mapred.job.name")
    assert locks("".join(f"set {name}=x; " for name in names) + "drop table u") == ["X u"]
    told = [record.getMessage().split(" ", 2) for record in caplog.records]
    assert [name for _, name, _ in told] == [f"{name}=x" for name in names]
    assert [what.startswith("does not concern locks") for *_, what in told] == [False, False, False, True]
    with pytest.raises(InvalidRequest, match=r"'no' is invalid\. Use true or false"):
        locks("set hive.support.concurrency=no; drop table t")


def test_a_table_of_which_partitions_are_locked_is_not_locked_for_itself() -> None:
    """In a lock store with a hierarchy, SHARED on the table would block the writers of its other partitions."""
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


def test_less_is_told_from_more() -> None:
    table, day = LockObject.parse("dw.t"), LockObject.parse("dw.t/dt=1")
    shared, exclusive = LockMode.SHARED, LockMode.EXCLUSIVE
    assert not less({table: exclusive}, {day: exclusive, table: shared})
    assert [lock.object for lock in less({table: shared}, {day: shared, table: exclusive})] == [day, table]
