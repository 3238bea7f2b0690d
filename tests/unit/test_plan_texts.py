"""Texts that SQL puts together: what EXECUTE IMMEDIATE runs, names in IDENTIFIER, and quotes in values."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.plan import plan_statements

COLUMNS = {"default.t": ["p string"]}


def locks(sql: str) -> set[str]:
    """The tables and partitions that *sql* locks, whichever way, without the default database."""
    reads, writes = plan_statements(sql, partition_columns=COLUMNS)
    return {str(target).removeprefix("default.") for target in (*reads, *writes)}


DECLARED = "declare q = 'select * from a'; "


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        (DECLARED + "execute immediate q", "a"),
        (DECLARED + "execute immediate session.q || ' where x = 1'", "a"),
        (DECLARED + "set var q = 'select * from b'; execute immediate system.session.q", "b"),
        ("declare or replace variable q string; set variable q = 'select ' || '* from b'; execute immediate q", "b"),
        ("declare variable q, r = 'select * from a'; set var r = 'select * from b', q = r; execute immediate q", "a"),
        (DECLARED + "drop temporary variable q; declare q = 'select * from b'; execute immediate q", "b"),
        (DECLARED + "explain set var q = 'select * from b'; execute immediate q", "a"),
        (r"execute immediate 'select * from a where x = \'1\''", "a"),
        ("execute immediate 'select * from a where x = ''1 --'' and exists (select 1 from b)'", "a b"),
        (r"execute immediate 'execute immediate \'select * from a\''", "a"),
        (
            "execute immediate 'select * from identifier(:s || ''.'' || :u) where x = :x' using 'dw' as s, 'u' u, 5 x",
            "dw.u",
        ),
        ("execute immediate 'select * from identifier(:s ''.u'')' using concat('d', 'w') as s", "dw.u"),
        ("execute immediate 'select * from a where x = ? and y in (table identifier(?))' using 5, 'b'", "a b"),
        (
            "execute immediate 'execute immediate \\'table identifier(:n)\\' using ''b'' as n; table identifier(:n)' using 'a' as n",
            "a b",
        ),
        ("execute immediate 'table identifier(:table)' using 'a' as table", "a"),
        ("execute immediate 'table a' using (select max(x) from b)", "a b"),
        ("declare var = 'u'; select * from identifier(var)", "u"),
        ("declare var var default 'u'; select * from identifier(var)", "u"),
        ("declare n = 'u'; select * from identifier(n), identifier('dw.' || n)", "u dw.u"),
        (
            "declare n = 't'; insert into identifier(n) partition (p='1') table identifier(concat('dw.', n))",
            "t/p=1 dw.t",
        ),
    ],
)
def test_a_text_that_is_known_is_planned(sql: str, locked: str) -> None:
    assert locks(sql) == set(locked.split())


@pytest.mark.parametrize(
    "sql",
    [
        "execute immediate q",
        DECLARED + "declare q = 'select * from b'; execute immediate q",
        DECLARED + "set var q = (select max(x) from b); execute immediate q",
        DECLARED + "set var (q, r) = (select max(x), 1 from b); execute immediate q",
        DECLARED + "set var r = 1, q = lower('select * from b'); execute immediate q",
        DECLARED + "execute immediate 'select x from b' into q; execute immediate q",
        DECLARED + "begin set q = 'select * from b'; end; execute immediate q",
        DECLARED + "begin while x do execute immediate q; set q = 'select * from b'; end while; end",
        "declare d date default '2024-1-1'; execute immediate 'select * from t_' || d",
        "declare d date default '2024-1-1'; set var d = '2024-1-2'; execute immediate 'select * from t_' || d",
        "declare q = 'select * from orde\\162s'; execute immediate q",
    ],
)
def test_a_text_that_may_be_another_is_refused(sql: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"the SQL of this EXECUTE is not known; .*or name reads and writes instead"
    ):
        plan_statements(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from identifier(n)",
        "insert into identifier(n) select 1",
        "execute immediate 'select * from identifier(:n)' using lower('A') as n",
        "execute immediate 'select * from identifier(:n)' using 'a' as m",
        "declare n = 'a'; begin select * from identifier(n); end",
        "declare n = 'a'; begin while x do select * from identifier(n); set n = 'b'; end while; end",
    ],
)
def test_a_name_that_is_not_known_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest, match="the name in IDENTIFIER is not known; write the name, or a constant text"):
        plan_statements(sql)


@pytest.mark.parametrize("value", ["'a''b'", '"a""b"', "''''"])
def test_a_doubled_quote_is_a_quote_to_spark_4_and_nothing_to_hive(value: str) -> None:
    assert locks(f"select * from t where p = {value}") == {"t"}
    assert locks(f"select * from t where p in ('x', {value})") == {"t"}
    assert locks(f"insert into t partition (p={value} 'c') select 1") == {"t"}
    for sql in ("insert into t partition (p={}) select 1", "alter table t drop partition (p={})"):
        with pytest.raises(InvalidRequest, match=re.escape("a doubled quote means different things to Hive and Spark")):
            plan_statements(sql.format(value), partition_columns=COLUMNS)


@pytest.mark.parametrize("value", ["110", "-22", "5.55"])
def test_a_number_that_has_a_digit_twice_is_certain(value: str) -> None:
    locked = {f"t/p={value}"} if "." not in value else {"t"}
    assert locks(f"insert into t partition (p={value}) select 1") == locked
    assert locks(f"alter table t drop partition (p={value})") == {"t"}


def test_adjacent_texts_are_one() -> None:
    assert locks("select * from t where p = 'a' 'b'") == {"t/p=ab"}


MADE = "create temporary view v as select 1; "


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        (MADE + "alter view v as select * from a; select * from v", "a"),
        ("create temporary view v as select * from a; alter view v rename to z; select * from z", "a"),
        ("create temporary view v as select * from a; alter view v rename to z; select * from v", "a v"),
        ("create temporary view v as select * from a; alter table v rename to z; select * from z", "a"),
        ("create global temporary view v as select * from a; select * from v", "a v"),
        ("create global temporary view v as select * from a; select * from global_temp.v", "a"),
        (MADE + "create global temporary view v as select * from a; drop view global_temp.v; select * from v", "a"),
        ("create view v as select 1; alter view v as select * from a; select * from v", "v a"),
    ],
)
def test_a_temporary_view_stands_for_what_it_stands_for_in_spark(sql: str, locked: str) -> None:
    assert locks(sql) == set(locked.split())


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        ("select corr(distinct x, y), count(distinct x, y) from a", "a"),
        ("select * from (select y, c, e from t where p = '1') pivot (sum(e) + 1 as s for c in ('a', 'b'))", "t/p=1"),
        (
            "select * from t for system_version as of 'audit' v join a for system_version as of 5 where v.p = '1'",
            "t/p=1 a",
        ),
        ("select * from t pivot (avg(e) + 1 for p in ('1')) where p = '1'", "t"),
        ("select * from a pivot (sum(e) + (select max(x) from b) for c in ('a'))", "a b"),
        (
            "create temporary function f(x int) returns int return (select max(y) from b); "
            "select * from a pivot (sum(f(e)) * 2 as s, max(e) as m for c in ('a'))",
            "a b",
        ),
        ("select * from a pivot (sum(e) s, avg(`e`) * 2 as `a b`, max(e) as m for c in ('a'))", "a"),
        ("select max(x) over (cluster by y), rank() over w from t where p = '1' window w as (cluster by y)", "t/p=1"),
        ("select * from (select x, p from t cluster by x) where p = '1'", "t/p=1"),
        ("select cast(x as timestamplocaltz) from a where y > timestamplocaltz '2024-01-01 00:00:00 UTC'", "a"),
        ("map x, y using 'cat' as (a, b) from t where p = '1'", "t/p=1"),
        ("reduce x / 10 using 'cat' from (select x from a)", "a"),
    ],
)
def test_what_sqlglot_does_not_parse_is_read_where_it_names_no_table(sql: str, locked: str) -> None:
    assert locks(sql) == set(locked.split())


def test_a_cursor_reads_its_query() -> None:
    assert locks("begin declare c cursor for select x from t where p = '1'; end") == {"t/p=1"}
    with pytest.raises(InvalidRequest, match="a query here is not understood; name reads and writes instead"):
        plan_statements("declare c what select x from t where p = 1")


def test_a_table_function_made_elsewhere_may_read_any_table() -> None:
    with pytest.raises(
        InvalidRequest, match="cannot tell which tables the table function f reads; put its CREATE FUNCTION"
    ):
        plan_statements("select * from f(1)")
    made = "create temporary function f() returns table return select * from a; "
    assert locks(made + "select * from f()") == {"a"}


@pytest.mark.parametrize(
    "sql",
    [
        "declare q = 'execute immediate q'; execute immediate q",
        "declare q0 = 'select 1'; "
        + "".join(f"declare q{n + 1} = 'execute immediate q{n}; execute immediate q{n}'; " for n in range(40))
        + "execute immediate q40",
        "declare q = 'select 1, '; " + "set var q = q || q || q; " * 40 + "execute immediate q || '1'",
    ],
)
def test_a_text_that_runs_or_repeats_itself_is_refused_in_time(sql: str) -> None:
    with pytest.raises(InvalidRequest, match=r"reads and writes|plan it in parts"):
        plan_statements(sql)


LONG = "x" * 200_000


@pytest.mark.parametrize(
    "sql",
    [
        f"set hivevar:a={LONG};\nselect '{'${hivevar:a}' * 30_000}'",
        f"set hivevar:a={LONG};\n" + "".join(f"set hivevar:b{n}=${{hivevar:a}};\n" for n in range(500)) + "select 1",
        f"set hivevar:a0={LONG};\n"
        + "".join(f"set hivevar:a{n + 1}=${{hivevar:a{n}}}${{hivevar:a{n}}};\n" for n in range(40))
        + "select 1",
        f"declare a = '{LONG}';\n" + "declare or replace b = a || a;\n" * 500,
        f"declare a = '{LONG}';\ndeclare b string;\n" + "set var b = a || a;\n" * 500,
        f"declare a = '{LONG}';\nexecute immediate 'select 1' using {', '.join(['a || a'] * 500)}",
        f"declare a = 'select {LONG}';\n" + "execute immediate a;\n" * 1_000,
    ],
    ids=["in a text", "in SET lines", "doubled", "DECLARE", "SET VAR", "USING", "EXECUTE"],
)
def test_variables_that_make_a_text_too_long_are_refused_before_they_take_memory(sql: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=r"longer than 1,000,000 characters; plan it in parts"):
            plan_statements(sql)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000_000


def test_short_variables_can_be_used_often() -> None:
    sql = "set hivevar:d=2024-01-01;\n" + "insert into t partition (p='${hivevar:d}') select '${d}';\n" * 500
    assert locks(sql) == {"t/p=2024-01-01"}
