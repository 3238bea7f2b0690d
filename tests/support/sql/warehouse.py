"""The tables that the statements are about: as DDL for Hive, and as a catalog where there is no metastore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockObject
from airflow_hivelock.locks.hive.catalog import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

DATABASE = "dw"
DAYS, HOURS = ("2013-01-01", "2013-01-02", "2013-01-03"), (4, 5)

DDL = (
    "create database dw",
    "create database other",
    *(f"create table dw.{name} (x int, y string)" for name in ("u", "w")),
    *(f"create table dw.{name} (x int, y string) partitioned by (dt string)" for name in ("t", "t2")),
    "create table dw.h (x int, y string) partitioned by (dt string, hr int)",
    "create table dw.d (x int, y string) partitioned by (day date)",
    "create table dw.o (x int, y string) partitioned by (dt string) stored as orc",
    *(f"alter table dw.t add partition (dt='{day}')" for day in DAYS),
    *(f"alter table dw.h add partition (dt='{day}', hr={hour})" for day in DAYS[:2] for hour in HOURS),
    *(f"alter table dw.d add partition (day='{day}')" for day in DAYS[:2]),
    "alter table dw.o add partition (dt='2013-01-01')",
    "alter table dw.t2 add partition (dt='2013-02-01')",
    "create view dw.all_t as select * from dw.t",
    "create view dw.big_u (big) as select x from dw.u where x > 1",
    "create view dw.part_t partitioned on (dt) as select * from dw.t",
    "create view dw.day_t as select x, y from dw.all_t where dt = '2013-01-02'",
)

_VIEW = "VIRTUAL_VIEW"
TABLES = {
    **dict.fromkeys(("dw.u", "dw.w"), Table()),
    **dict.fromkeys(("dw.t", "dw.t2", "dw.o"), Table(("dt",), partition_types=("string",))),
    "dw.h": Table(("dt", "hr"), partition_types=("string", "int")),
    "dw.d": Table(("day",), partition_types=("date",)),
    "dw.all_t": Table(table_type=_VIEW, view_text="select `t`.`x`, `t`.`y`, `t`.`dt` from `dw`.`t`"),
    "dw.part_t": Table(
        ("dt",),
        partition_types=("string",),
        table_type=_VIEW,
        view_text="select `t`.`x`, `t`.`y`, `t`.`dt` from `dw`.`t`",
    ),
    "dw.big_u": Table(
        table_type=_VIEW,
        view_text="SELECT `x` AS `big` FROM (select `u`.`x` from `dw`.`u` where `u`.`x` > 1) `dw.big_u`",
    ),
    "dw.day_t": Table(
        table_type=_VIEW,
        view_text="select `all_t`.`x`, `all_t`.`y` from `dw`.`all_t` where `all_t`.`dt` = '2013-01-02'",
    ),
}
PARTITIONS = (
    *(f"dw.t/dt={day}" for day in DAYS),
    *(f"dw.h/dt={day}/hr={hour}" for day in DAYS[:2] for hour in HOURS),
    *(f"dw.d/day={day}" for day in DAYS[:2]),
    "dw.o/dt=2013-01-01",
    "dw.t2/dt=2013-02-01",
)


class Warehouse:
    """A catalog that knows them."""

    def table(self, table: LockObject) -> Table | None:
        return TABLES.get(str(table))

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return (partition for partition in map(LockObject.parse, PARTITIONS) if partition.is_below(below))

    def names(self, database: str = "") -> list[str]:
        tables = [name.split(".") for name in TABLES]
        return [table for place, table in tables if place == database] if database else [DATABASE, "other"]
