"""Statements that are refused, and arbitrary text."""

from __future__ import annotations

import logging
import os
import random
import re
import time
from contextlib import suppress

import pytest

from airflow_hivelock.locks import HiveLockError, InvalidRequest, LockObject, rules
from airflow_hivelock.locks.plan import plan_statements
from airflow_hivelock.locks.spelling import is_date
from tests.support.sql.hostile import statements
from tests.support.sql.suite import NO_NAME, STEP
from tests.support.sql.warehouse import PARTITIONS, Warehouse

PARSER = re.compile(r"Expect|Invalid expression|sqlglot|Required|Token|Error|\x1b|parse", re.IGNORECASE)
"""Words of sqlglot's, which are about its grammar."""


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("selec * from t", "line 1, column 1, at 'selec * from t'"),
        ("select * from t;\n\n  alter tabel t touch", "line 3, column 9, at 'tabel t touch'"),
        ("insert into t\nselect * frm u", "line 2, column 14, at 'u'"),
        ("alter table t frobnicate", "line 1, column 15, at 'frobnicate'"),
        ("alter table t add partition (p=(select 1))", "line 1, column 33, at 'select 1))'"),
        ("drop table t; drop table", "line 1, column 25: a name is missing"),
        ("select * from t where p = 'a", 'line 1, column 27, at "\'a": this quote'),
        ("insert into t partition (p='${day}') select 1", 'line 1, column 29, at "${day}'),
        ("select * from t where p = '{{ ds }}'", 'line 1, column 28, at "{{ ds }}'),
        ("select x from t where y > ${hiveconf:z}", "line 1, column 27, at '${hiveconf:z}'"),
        ("select * from a.b.c.d", "line 1, column 17, at 'b.c.d'"),
        ("select * from iceberg.db.t", "in a catalog of its own"),
        (
            "select * from my_function(1)",
            "cannot tell which tables the table function my_function reads; put its CREATE FUNCTION into",
        ),
        ("select * from identifier(:t)", "line 1, column 15"),
        ("select last_value(x, (select max(x) from w)) over w1 from u", "not every SELECT in it was recognised"),
        ("select * from u where table t", "not understood"),
        ("lock table t exclusive", "leave LOCK out"),
        ("unlock table t", "leave UNLOCK out"),
        (
            "set path = spark_catalog.dw, current_schema(); select * from t",
            "leave it out and write names as in dw.t, or name",
        ),
        ("use lake; use spark_catalog; select * from t", "if lake is a catalog, the current database is not known"),
        ("set path=system_path, `my-lake`.`a`; select * from t", "leave it out and write names as in dw.t, or name"),
        (
            "set spark.sql.defaultPath=spark_catalog.dw; select * from t",
            "leave it out and write names as in dw.t, or name",
        ),
        ("dfs -rm -r /warehouse/t", "which tables' files"),
        ("import from '/x'", "write IMPORT TABLE name"),
        ("add jar /x/a--b.jar;\ninsert into t select 1", "'--' in such a statement"),
        ("create view v using parquet options (path '/x')", "AS and a query are missing"),
        ("insert into identifier(:t) values (1)", "line 1, column 13, at 'identifier(:t) values (1)': the name"),
        ("update identifier(lower('t')) set x = 1", "the target of this statement is not understood"),
        ("alter materialized view mv rebuild", "the query of this view is not known; set a metastore"),
        ("alter index i on t rebuild", "cannot tell which table holds this index"),
        (
            "create index i on table t (x) as 'compact' in table k; alter index i on t rebuild",
            "cannot tell which table holds this index",
        ),
        ("dfs -ls /a--b;\ninsert into t select 1", "'--' in such a statement"),
        (
            "set a=Ann's job;\ninsert into t select 1;\nset b=Al's job;\ninsert into u select 1",
            """line 1, column 10, at "'s job;": a quote that contains the end of a statement""",
        ),
        ("set a={#1}; insert into t select 1; set b=#}; insert into u select 1", "'{#' in such a statement"),
        ("grant all on Ann`s; insert into t select 1; grant all on Al`s", "a quote that contains the end"),
        ("execute immediate v", "the SQL of this EXECUTE is not known; write the text itself, or DECLARE and SET"),
        ("select * from identifier(v)", "line 1, column 15, at 'identifier(v)': the name in IDENTIFIER is not known"),
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
        ("foo bar", "at 'foo bar': no known statement begins like this; correct it, or name reads and writes instead"),
        ("select * from t where x = 1 and", "this query is not understood; name reads and writes instead"),
        ("insert into t partition (p=date 'soon') select 1", "'soon' is not a valid date"),
        ("alter table t drop partition (p='a\\\\b')", "means different things to Hive and Spark"),
        ("", "asks for no locks"),
    ],
)
def test_what_is_not_understood_is_an_error_that_shows_the_place(sql: str, place: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(place)) as refused:
        rules.request("me", *plan_statements(sql))
    assert not sql or _helps(str(refused.value))


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
