"""Statements of daily ETL that are not queries: maintenance, scripts, prepared statements; and the text of a refusal."""

from __future__ import annotations

import pytest

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.plan import plan_statements
from tests.support.sql import scans


def locks(sql: str) -> tuple[set[str], set[str]]:
    """The SHARED and EXCLUSIVE locks of the statements, without the database, and without tables that are read by
    partition.
    """
    shared, exclusive = plan_statements(sql, scans.Tables(), database="dw")
    read = {str(each).removeprefix("dw.") for each in shared if each.partition or each.table in ("plain", "big")}
    return read, {str(each).removeprefix("dw.") for each in exclusive}


@pytest.mark.parametrize(
    ("sql", "read", "written"),
    [
        ("select * from json.`/data/new.json`", set(), set()),
        (
            "insert into plain select a.id, a.name, 1 from parquet.`s3://in/day` a join big b on a.id = b.id",
            {"big"},
            {"plain"},
        ),
        ("insert into sales replace where dt = 'x' select * from big", {"big"}, {"sales"}),
        ("insert into sales replace using (dt) select * from big", {"big"}, {"sales"}),
        ("insert into sales replace where dt = (select max(name) from big) select 1", {"big"}, {"sales"}),
        ("insert with schema evolution into plain select * from big", {"big"}, {"plain"}),
        (
            "merge with schema evolution into plain p using big b on p.id = b.id when matched then update set *",
            {"big"},
            {"plain"},
        ),
        (
            "with b as (select * from big) merge into plain p using b on p.id = b.id when not matched then insert *",
            {"big"},
            {"plain"},
        ),
        (
            "with b as (select * from big) merge with schema evolution into plain p using b on p.id = b.id "
            "when matched then delete when not matched then insert (id) values (b.id)",
            {"big"},
            {"plain"},
        ),
        ("with b as (select id from big) from b insert into plain select id", {"big"}, {"plain"}),
        ("insert into sales partition (dt = cast('2024-01-05' as string)) select 1", set(), {"sales/dt=2024-01-05"}),
        ("insert into daily partition (day = date_sub('2024-01-05', 1)) select 1", set(), {"daily/day=2024-01-04"}),
        ("insert into sales partition (dt = my_day(1)) select 1", set(), {"sales"}),
        ("insert into hourly partition (dt = '2024-01-05', hr = my_hour(1)) select 1", set(), {"hourly/dt=2024-01-05"}),
        ("alter table sales drop partition (dt = concat('2024-01', '-05'))", set(), {"sales/dt=2024-01-05"}),
        ("optimize sales where dt = '2024-01-05' zorder by (id)", set(), {"sales"}),
        ("optimize table sales rewrite data", set(), {"sales"}),
        ("vacuum sales retain 168 hours dry run", set(), {"sales"}),
        ("truncate sales partition (dt = '2024-01-05')", set(), {"sales/dt=2024-01-05"}),
        ("alter table sales partition (dt = '2024-01-05') enable no_drop", set(), {"sales/dt=2024-01-05"}),
        ("show sorted columns from plain", {"plain"}, set()),
        ("explain rewrite select * from plain where id in (select id from big)", {"big", "plain"}, set()),
        ("restore table sales to version as of 5", set(), {"sales"}),
        ("call lake.system.rewrite_data_files(table => 'dw.sales', options => map('a', 'b'))", set(), {"sales"}),
        ("call lake.system.rollback_to_snapshot('dw.sales', 5)", set(), {"sales"}),
        ("call lake.system.rewrite_data_files('lake.dw.sales')", set(), {"sales"}),
        ("call run_clustering(`table` => 'dw.sales')", set(), {"sales"}),
        ("call lake.system.add_files(table => 'dw.sales', source_table => 'dw.plain')", set(), {"sales", "plain"}),
        ("call lake.system.add_files('dw.sales', 'dw.plain', map('dt', 'x'))", set(), {"sales", "plain"}),
        ("call lake.system.add_files('dw.sales', '`parquet`.`s3://in/day`')", set(), {"sales"}),
        ("call lake.system.snapshot('dw.plain', 'dw.sales')", set(), {"sales", "plain"}),
        ("call copy_to_table(table => 'dw.plain', new_table => 'dw.sales')", set(), {"sales", "plain"}),
        ("call lake.system.fast_forward('dw.sales', 'main', 'audit')", set(), {"sales"}),
        ("alter table sales execute expire_snapshots('2024-01-01')", set(), {"sales"}),
        ("alter table sales create branch b", set(), {"sales"}),
        ("prepare p from select * from plain where id = ?; execute p using 5", {"plain"}, set()),
        ("start transaction; insert into plain select * from big; commit", {"big"}, {"plain"}),
        ("explain analyze insert into plain select * from big", {"big"}, {"plain"}),
        ("explain formatted insert into plain select * from big", {"big", "plain"}, set()),
        (
            "create function f(x int) returns int return x + (select max(id) from big); select f(1) from plain",
            {"big", "plain"},
            set(),
        ),
        ("create function f() returns table return select id from big; select * from f()", {"big"}, set()),
        (
            "create function f() returns table return with c as (select id from big) select * from c; select * from f()",
            {"big"},
            set(),
        ),
        ("create view v default collation unicode as select id from big; select * from v", {"big"}, {"v"}),
        ("select name:a.b[0]::string from big", {"big"}, set()),
        ("explain drop table plain", {"plain"}, set()),
        ("create table n select id from big", {"big"}, {"n"}),
        ("create table n using parquet options (a 'b') select id from big", {"big"}, {"n"}),
        ("create temporary view v as select * from big; select * from session.v, system.session.v", {"big"}, set()),
        ("create temporary view session.v as select * from big; select * from V", {"big"}, set()),
        ("create temporary view v as select * from big; insert into v select * from plain", {"plain"}, {"big"}),
        ("create temporary view v as select * from big; delete from V where id = 1", set(), {"big"}),
        (
            "create temporary view v as select * from big; merge into v using plain p on v.id = p.id when matched then delete",
            {"plain"},
            {"big"},
        ),
        ("create temporary view v using jdbc options (url 'x'); insert into v select * from big", {"big"}, set()),
        ("create temporary view plain as select 1; drop view session.plain; select * from plain", {"plain"}, set()),
        ("select * from session.plain", {"session.plain"}, set()),
        ("describe history plain", {"plain"}, set()),
        ("comment on column plain.name is 'x'", set(), {"plain"}),
        ("comment on column spark_catalog.dw.plain.name is null", set(), {"plain"}),
    ],
)
def test_each_statement_is_planned(sql: str, read: set[str], written: set[str]) -> None:
    assert locks(sql) == (read, written)


@pytest.mark.parametrize(
    ("script", "read", "written"),
    [
        ("begin insert into plain select * from big; end", {"big"}, {"plain"}),
        ("begin set x = (select max(id) from big); end", {"big"}, set()),
        ("begin declare x int default (select max(id) from big); drop table plain; end", {"big"}, {"plain"}),
        ("begin if (select count(*) from big) > 1 then drop table plain; else drop table z; end if; end", {"big"}, {"plain", "z"}),
        ("begin if case when 1 = 1 then true end then drop table plain; elseif false then drop table z; end if; end", set(), {"plain", "z"}),
        ("begin while (select count(*) from big) > 1 do truncate table plain; end while; end", {"big"}, {"plain"}),
        ("begin l: loop drop table plain; leave l; end loop l; end", set(), {"plain"}),
        ("begin case when (select max(id) from big) = 1 then drop table plain; end case; end", {"big"}, {"plain"}),
        ("begin repeat drop table plain; until (select count(*) from big) = 0 end repeat; end", {"big"}, {"plain"}),
        ("begin for r as select * from big do drop table plain; end for; end", {"big"}, {"plain"}),
        ("begin for select * from big do drop table plain; end for; end", {"big"}, {"plain"}),
        ("begin case (select max(id) from big) when 1 then drop table plain; else drop table z; end case; end", {"big"}, {"plain", "z"}),
        ("begin declare exit handler for sqlexception begin drop table plain; end; select * from big; end", {"big"}, {"plain"}),
        ("a: begin begin drop table plain; end; end a", set(), {"plain"}),
        ("begin declare c cursor for select id from big; open c; fetch next from c into x; close c; end", {"big"}, set()),
        ("begin declare c cursor for select ?; open c using (select max(id) from big); fetch c into x, y; close c; end", {"big"}, set()),
        ("begin declare exit handler for sqlexception insert into plain select * from big; select 1; end", {"big"}, {"plain"}),
        ("begin declare exit handler for not found, sqlstate value '22012', a.b, sqlstate '42000' drop table plain; end", set(), {"plain"}),
        ("begin declare continue handler for divide_by_zero set x = (select max(id) from big); end", {"big"}, set()),
        ("begin declare exit handler for sqlexception for select * from big do drop table plain; end for; end", {"big"}, {"plain"}),
        ("begin if 'end' = 'then' then drop table plain; end if; select 'begin' from big; end; select 1; drop table z", {"big"}, {"plain", "z"}),
        ("begin select 'begin'; if true then drop table z; end if; end; begin use other; drop table plain; end", set(), {"z", "other.plain"}),
    ],
)  # fmt: skip
def test_each_statement_of_a_script_is_planned(script: str, read: set[str], written: set[str]) -> None:
    assert locks(script) == (read, written)


@pytest.mark.parametrize(
    "script",
    [
        "begin if x = 1 then use other; end if; insert into plain select 1; end",
        "begin if x = 1 then select 1; else create temporary view v as select * from big; end if; end",
        "begin while x < 3 do insert into plain select 1; use other; end while; end",
        "begin repeat use other; until x = 1 end repeat; end",
        "begin for r as select * from big do use other; end for; end",
        "begin l: loop use other; leave l; end loop l; end",
        "begin case when x = 1 then use other; end case; end",
        "begin declare exit handler for sqlexception begin use other; end; select * from big; end",
    ],
)
def test_a_branch_does_not_change_what_later_names_mean(script: str) -> None:
    with pytest.raises(InvalidRequest, match=r"a branch, a loop or a handler of the script changes .*name reads"):
        locks(script)


def test_a_script_changes_what_names_mean_between_its_branches() -> None:
    script = "begin if x = 1 then drop table z; end if; use other; repeat drop table z; until x = 1 end repeat; use dw; drop table plain; end; use other; drop table y"
    assert locks(script)[1] == {"z", "other.z", "plain", "other.y"}


@pytest.mark.parametrize(
    "sql",
    [
        "select f(1",
        "select * from t tablesample (-1 rows)",
        "create table t frobnicate",
        "create thing x",
        "create table t (i int check (3 = (select count(*) from u)))",
        "drop thing x",
        "insert t select 1",
        "insert into t",
        "insert into t replace if x select 1",
        "alter view v frobnicate",
        "show things",
        "load data inpath x into table t",
        "vacuum '/data'",
        "call lake.system.register_table(metadata_file => 'x')",
        "execute p using 5",
        "select * from dw.`c/b`",
        "drop table `a b`",
        "call lake.system.f(table => )",
        "comment on column name is 'x'",
        "delete from (select 1)",
        "set catalog other",
        "select * from t where p = '${hivevar:p}'",
        "select * from identifier(:t)",
        "insert into identifier(:t) values (1)",
    ],
)
def test_a_refusal_tells_what_to_do_in_words_of_its_own(sql: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan_statements(sql)
    told = str(refused.value)
    assert any(
        step in told for step in ("reads and writes", "leave LOCK out", "constant text in IDENTIFIER", "write IMPORT")
    )
    assert not any(word in told for word in ("sqlglot", "Expecting", "Required keyword", "class '", "Unexpected token"))


def test_what_is_read_by_its_path_is_told(caplog: pytest.LogCaptureFixture) -> None:
    plan_statements("select * from json.`/data/new.json`")
    assert "/data/new.json is read by its path" in caplog.text


@pytest.mark.parametrize(
    "text", ["analyze tables compute statistics", "analyze tables in dw compute statistics noscan"]
)
def test_analyze_tables_reads_each_table_of_the_database(text: str) -> None:
    read, written = plan_statements(text, scans.Tables(), database="dw")
    tables = {each.table for each in read}
    assert tables == {"big", "daily", "hourly", "orders", "plain", "sales"}, "it reads no view"
    assert written == []
    with pytest.raises(InvalidRequest, match="without a metastore, the tables of the database are not known"):
        plan_statements(text)


@pytest.mark.parametrize(
    ("sql", "read", "written"),
    [
        ("select * from session.v", ["dw.big", "session.v"], []),
        ("select * from v", ["dw.big"], []),
        ("select * from system.session.v", ["dw.big"], []),
        ("drop view session.v", ["dw.big"], ["session.v"]),
        ("drop view v", ["dw.big"], []),
        ("alter view session.v rename to w; select * from w", ["dw.big"], []),
    ],
)
def test_in_older_spark_session_is_a_database(sql: str, read: list[str], written: list[str]) -> None:
    shared, exclusive = plan_statements(
        f"create temporary view v as select * from dw.big; {sql}", unpartitioned=["dw.big", "session.v"]
    )
    assert ([*map(str, shared)], [*map(str, exclusive)]) == (read, written)
