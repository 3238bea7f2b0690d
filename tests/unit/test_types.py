"""Which types SQL takes of Hive's transactional manager."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_hivelock.locks import LockMode, LockObject, rules
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN, Setting
from airflow_hivelock.locks.model import LockType
from airflow_hivelock.locks.plan import plan_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = {
    "dw.a": Table(transactional=True),
    "dw.ap": Table(("dt",), partition_types=("string",), transactional=True),
    "dw.u": Table(),
    "dw.t": Table(("dt",), partition_types=("string",)),
    "dw.i": Table(transactional=True, format="iceberg"),
    "dw.s": Table(("dt",), provider="parquet", partition_types=("string",)),
}


class Catalog:
    def table(self, table: LockObject) -> Table | None:
        return TABLES.get(f"{table.database}.{table.table}")

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return (LockObject("dw", below.table, (("dt", day),)) for day in "12")

    def names(self, database: str = "") -> list[str]:
        return [name.removeprefix("dw.") for name in TABLES] if database else ["dw"]


def taken(sql: str, reads: LockType = LockType.SHARED_READ) -> dict[str, str]:
    found = plan_sql(sql, Catalog(), database="dw", locks="hive")
    types = rules.components(rules.request("me", found.reads, found.writes, types=found.types), reads)
    return {str(target).removeprefix("dw."): kind.name for target, kind in types.items()}


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("insert into a select x from u", {"a": "SHARED_READ", "u": "SHARED_READ"}),
        ("set hive.txn.xlock.write=false; insert into a values (1)", {"a": "SHARED_WRITE"}),
        ("insert into ap partition (dt='1') values (1)", {"ap/dt=1": "SHARED_READ"}),
        ("insert into ap partition (dt) select x, dt from u", {"ap": "SHARED_READ", "u": "SHARED_READ"}),
        ("update a set x=1", {"a": "EXCL_WRITE"}),
        ("set hive.txn.xlock.write=false; delete from a where x=1", {"a": "SHARED_WRITE"}),
        ("insert overwrite table a select x from u", {"a": "EXCLUSIVE", "u": "SHARED_READ"}),
        ("set hive.txn.xlock.iow=false; insert overwrite table a values (1)", {"a": "EXCL_WRITE"}),
        ("set hive.txn.xlock.write=false; insert overwrite table a values (1)", {"a": "EXCL_WRITE"}),
        ("insert into u values (1)", {"u": "EXCLUSIVE"}),
        ("set hive.txn.strict.locking.mode=false; insert into u values (1)", {"u": "SHARED_READ"}),
        ("set hive.txn.strict.locking.mode=false; insert overwrite table u values (1)", {"u": "EXCLUSIVE"}),
        ("insert into t partition (dt) select x, dt from u", {"t": "EXCLUSIVE", "u": "SHARED_READ"}),
        ("insert into i values (1)", {"i": "EXCLUSIVE"}),
        ("insert into nobody_knows values (1)", {"nobody_knows": "EXCLUSIVE"}),
        ("insert into a values (1); update a set x=2", {"a": "EXCL_WRITE"}),
        ("insert into a values (1); drop table a", {"a": "EXCLUSIVE"}),
        ("insert into a select x from a", {"a": "SHARED_WRITE"}),
        ("insert into ap partition (dt) select x, dt from ap where dt='1'", {"ap": "SHARED_WRITE"}),
        (
            "insert into ap partition (dt) select x, dt from u; alter table ap drop partition (dt='1')",
            {"ap": "SHARED_READ", "ap/dt=1": "EXCLUSIVE", "u": "SHARED_READ"},
        ),
        ("set hive.txn.strict.locking.mode=false; insert into s partition (dt='1') values (1)", {"s": "EXCLUSIVE"}),
    ],
)
def test_what_is_written_takes_the_type_that_hive_takes(sql: str, types: dict[str, str]) -> None:
    assert taken(sql) == types


def test_an_insert_beside_a_reading_type_of_its_own_covers_only_what_is_no_stronger() -> None:
    sql = "insert into ap partition (dt='1') select x from u"
    assert taken(sql, LockType.SHARED_WRITE) == {"ap/dt=1": "SHARED_READ", "u": "SHARED_WRITE"}


@pytest.mark.parametrize(
    ("excl_write", "takes"),
    [
        (True, {"dw.ap": "SHARED_READ TABLE", "dw.ap/dt=1": "SHARED_WRITE PARTITION"}),
        (False, {"dw.ap": "SHARED_READ TABLE"}),
    ],
)
def test_what_is_read_below_an_insert_is_kept_from_an_update(excl_write: bool, takes: dict[str, str]) -> None:
    backend = MetastoreBackend(cast("Any", SimpleNamespace(timeout_s=300.0)))
    backend.store.excl_write = excl_write
    types = {LockObject("dw", "ap"): LockType.SHARED_READ}
    found = backend.takes(rules.request("me", ["dw.ap/dt=1"], ["dw.ap"], types=types))
    assert {str(lock.object): said for lock, said in found.items()} == takes


def test_only_with_hives_table_and_other_stores_take_the_modes() -> None:
    for follows in ("stricter", "documented"):
        assert plan_sql("insert into a values (1)", Catalog(), database="dw", locks=follows).types == {}
    found = plan_sql("insert into a values (1)", Catalog(), database="dw", locks="hive")
    locks = {str(lock.object): lock.mode for lock in rules.request("me", found.reads, found.writes).locks}
    assert locks == {"dw": LockMode.SHARED, "dw.a": LockMode.EXCLUSIVE}


def test_a_setting_is_true_or_false() -> None:
    assert DEFAULT_TXN.after(Setting("hive.txn.xlock.iow", "FALSE")).xlock_iow is False
    assert DEFAULT_TXN.after(Setting("hive.txn.timeout", "300s")) == DEFAULT_TXN
    with pytest.raises(InvalidRequest, match=r"SET hive.txn.xlock.write='maybe'"):
        DEFAULT_TXN.after(Setting("hive.txn.xlock.write", "maybe"))
