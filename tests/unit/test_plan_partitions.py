"""The partitions that a statement names: their values, their order, and the conditions on them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, LockObject, rules
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.plan import plan_statements
from tests.support.sql.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def locks(sql: str, catalog: Any = None, **options: Any) -> list[str]:
    """The locks of the statement, with parents and without the database, as ``S t1``."""
    found = rules.with_parents(*plan_statements(sql, catalog, **options))
    shown = ((str(lock.object).removeprefix("default").removeprefix("."), lock.mode.value[0]) for lock in found)
    return [f"{'X' if mode == 'E' else mode} {name}" for name, mode in shown if name]


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
    "sql",
    [
        "insert overwrite table i partition (ds='x') select 1",
        "insert into i partition (ds='x', hr) select 1",
        "alter table i drop partition (ds='x')",
        "truncate table i partition (ds='x')",
        "delete from i where ds='x'",
        "load data inpath '/x' into table i partition (ds='x')",
        "alter table i add partition field days(at)",
        "alter table i drop partition field bucket(16, id)",
        "alter table i convert to iceberg",
        "create table i (id int) partitioned by spec (bucket(16, id)) stored by iceberg",
    ],
)
def test_a_table_whose_partitions_are_not_hives_is_locked_whole(sql: str) -> None:
    assert locks(sql, Lake()) == ["X i"]


def test_a_change_of_a_table_with_commits_of_its_own_locks_it_whole() -> None:
    assert locks("delete from hudi where ds='x'", Lake()) == ["X hudi"]


ON = "merge into t using u on t.ds = 'x' and t.hr = 1 and t.k = u.k when"


@pytest.mark.parametrize(
    ("sql", "changed"),
    [
        ("delete from t where ds = 'x' and hr = 1 and k in (select k from u)", "t/ds=x/hr=1"),
        ("delete from t as a where a.hr = '01' and 'x' = a.ds", "t/ds=x/hr=1"),
        ("delete from t where ds in ('x', 'y')", "t/ds=x t/ds=y"),
        ("delete from t where ds = 'x' and hr > 1", "t/ds=x"),  # a rival can create an hour
        ("delete from t where ds between '2024-01-01' and '2024-01-02'", "t"),
        ("delete from t where hr = 1", "t"),
        ("delete from t where ds = 'x' or k = 1", "t"),
        ("delete from t where ds = 'x' or rand() < 0.5", "t"),
        ("delete from t where ds = lower('x')", "t"),
        ("delete from t where ds = 20240101", "t"),
        ("delete from t where ds = 'x' and k > (select max(k) from u where u.g = t.g)", "t"),  # Spark can read t twice
        ("set hive.optimize.ppd=false; delete from t where ds = 'x'", "t"),
        ("delete from t", "t"),
        ("update t set k = 1, g = ds where ds = 'x' and hr = 1", "t/ds=x/hr=1"),
        ("update t set k = 1, `DS` = 'x' where ds = 'x' and hr = 1", "t"),
        (f"{ON} matched and u.g = 1 then delete when matched then update set t.k = u.k", "t/ds=x/hr=1"),
        (f"{ON} not matched then insert (k, hr, ds) values (u.k, 1, 'x')", "t/ds=x/hr=1"),
        (f"{ON} not matched then insert (k, hr, ds) values (u.k, '02', 'y')", "t/ds=x/hr=1 t/ds=y/hr=2"),
        (f"{ON} not matched then insert (k, hr, ds) values (u.k, u.hr, 'x')", "t/ds=x t/ds=x/hr=1"),
        (f"{ON} not matched then insert (k, ds) values (u.k, u.ds)", "t"),
        (f"{ON} not matched then insert values (u.k, 'x', 1)", "t"),  # in Iceberg, any column can be the last
        (f"{ON} not matched then insert *", "t"),
        (f"{ON} matched then update set *", "t"),
        (f"{ON} matched then update set ds = u.ds", "t"),
        (f"{ON} not matched by source and t.ds = 'x' then delete", "t"),
        ("merge into t using u on u.ds = 'x' when matched then delete", "t"),
        ("merge into t using u using (ds, hr) when matched then delete", "t"),
        ("merge into t using stage.t on stage.t.ds = 'x' and default.t.ds = 'y' when matched then delete", "t/ds=y"),
        ("with u as (select 1 k) merge into t using u on t.ds = 'x' and t.k = u.k when matched then delete", "t/ds=x"),
    ],
)
def test_a_change_locks_the_partitions_that_it_certainly_keeps_to(sql: str, changed: str) -> None:
    declared = {"unpartitioned": ["default.u", "stage.t"], "partition_columns": HOURLY}
    found = plan_statements(sql, **declared)[1]  # type: ignore[arg-type]
    assert " ".join(str(each).removeprefix("default.") for each in found) == changed
    assert plan_statements(sql, unpartitioned=["default.u", "stage.t"])[1] == [LockObject("default", "t")]


def test_a_change_of_no_row_keeps_its_table() -> None:
    assert locks("delete from t where ds = 'x' and ds = 'y'", partition_columns=HOURLY) == ["S t"]


def test_hives_merge_inserts_partition_columns_last() -> None:
    sql = "merge into a using u on a.ds = 'x' and a.k = u.k when not matched then insert values (u.k, 'y')"
    assert [str(each) for each in plan_statements(sql, Lake())[1]] == ["default.a/ds=x", "default.a/ds=y"]


class Lake(Warehouse):
    """A catalog with a table of Iceberg, of Hudi and of Hive's transactions."""

    def table(self, table: LockObject) -> Table | None:
        return {
            "default.i": Table(format="iceberg"),
            "default.hudi": Table(("ds",), partition_types=("string",), format="hudi"),
            "default.a": Table(("ds",), partition_types=("string",), transactional=True),
        }.get(str(table))


@pytest.mark.parametrize(
    ("sql", "locked"),
    [
        ("select * from default.i.snapshots", "S i"),
        ("select * from spark_catalog.default.i", "S i"),
        ("select * from default.i.branch_audit b join default.i", "S i"),
        ("insert into default.i.branch_audit select 1", "X i"),
        ("delete from default.i.branch_audit where id = 1", "X i"),
    ],
)
def test_a_branch_or_a_metadata_table_is_locked_as_its_table(sql: str, locked: str) -> None:
    assert locks(sql, Lake()) == [locked]


def test_a_name_of_three_parts_is_in_a_catalog_of_its_own_if_its_begin_is_no_iceberg_table() -> None:
    for catalog in (Lake(), None):
        with pytest.raises(InvalidRequest, match="is in a catalog of its own"):
            locks("select * from default.j.snapshots", catalog)


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
    """A table with a partition for each day, and a table with partitions of a type without an order."""

    def table(self, table: LockObject) -> Table | None:
        kinds = {"daily": "string", "numbered": "int", "padded": "char(10)", "null": "string", "zeros": "string"}
        return Table(("p",), partition_types=(kinds[table.table],)) if table.table in kinds else None

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        values: Sequence[str] = {
            "daily": ["2013-01-01", "2013-1-2", "10", "9"],
            "numbered": ["10", "9", "-1"],
            "padded": ["a", "b"],
            "null": ["", "a"],
            "zeros": ["07", "7", "9"],
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
        ("numbered where p not in ('9')", {"10", "-1"}),
        ("numbered where p not in ('09', '-1')", {"10", "9"}),  # Spark without ANSI compares these as strings
        ("zeros where p not in (7)", {"07", "9"}),
        ("zeros where p <> 7", {"9"}),
        ("numbered where p not like '09'", {"10", "9", "-1"}),
        ("zeros where p not like '07'", {"7", "9"}),
        (r"daily where p > '\u0039'", {"2013-01-01", "2013-1-2", "10", "9"}),  # an escape: its meaning is not certain
    ],
)
def test_a_partition_is_left_out_only_where_the_condition_is_certainly_false(where: str, values: set[str]) -> None:
    reads, writes = plan_statements(f"select * from {where}", Daily())
    assert {target.path[2].removeprefix("p=") for target in reads if target.partition} == values
    assert not writes


@pytest.mark.parametrize(
    ("dropped", "values"),
    [
        ("zeros drop partition (p > 10)", {"7", "9"}),  # Hive drops what is above '10'
        ("zeros drop partition (p != 7)", {"07", "9"}),
        ("numbered drop partition (p < 10)", {"9", "-1"}),
        ("numbered drop partition (p > '09')", {"10"}),
        ("zeros drop partition (p = null)", {"__HIVE_DEFAULT_PARTITION__"}),  # a rival can create it
        ("numbered drop partition (p = null)", {"__HIVE_DEFAULT_PARTITION__"}),
    ],
)
def test_drop_partition_locks_all_that_hive_drops(dropped: str, values: set[str]) -> None:
    _, writes = plan_statements(f"alter table {dropped}", Daily())
    assert {target.path[2].removeprefix("p=") for target in writes} == values


def test_too_many_partitions_are_read_under_exclusive(caplog: pytest.LogCaptureFixture) -> None:
    reads, writes = plan_statements("select * from daily where p <> 'x'", Daily(), limit=2)
    assert (reads, [str(target) for target in writes]) == ([], ["default.daily"])
    assert "more than 2 partitions" in caplog.text


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
