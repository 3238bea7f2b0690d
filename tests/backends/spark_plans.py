"""Statements of Spark, and the locks of each on the tables of test_hive_locks_in_spark.py: ! for EXCLUSIVE."""

PLANS = {
    "insert overwrite dw.h partition (dt = 'x', hr = 07) select k from dw.v where dt < '2024-01-03'": (
        "dw.h/dt=x/hr=7! dw.src/dt=2024-01-02 dw.v"
    ),
    "insert into dw.h partition (dt = 'x', hr) select k, 1 from dw.t": "dw.h/dt=x! dw.t",
    "insert into dw.h select k, dt, 1 from dw.src where dt = '2024-01-01'": "dw.h! dw.src/dt=2024-01-01",
    "insert into dw.src partition (dt = '2024-01-05') select 1": "dw.src!",
    "insert into dw.t select k from dw.src where dt = '2024-01-01' and k in (select k from dw.h where dt = '2024-01-01')": (
        "dw.h/dt=2024-01-01/hr=1 dw.src/dt=2024-01-01 dw.t!"
    ),
    "from dw.src insert into dw.t select k insert into dw.p select k": (
        "dw.p! dw.src/dt=2024-01-01 dw.src/dt=2024-01-02 dw.t!"
    ),
    "with c as (select * from dw.src) insert into dw.t select k from c": (
        "dw.src/dt=2024-01-01 dw.src/dt=2024-01-02 dw.t!"
    ),
    "create table dw.c as select k from dw.src where dt = '2024-01-01'": "dw.c! dw.src/dt=2024-01-01",
    "create table dw.c (k int)": "dw.c!",
    "create table if not exists dw.t (k int)": "dw.t",
    "create table dw.c like dw.t": "dw.c! dw.t",
    "create view dw.v2 as select * from dw.v": "dw.src dw.v dw.v2!",
    "create or replace temporary view tv as select * from dw.src": "",
    "alter table dw.h drop partition (dt = '2024-01-01', hr = 1)": "dw.h/dt=2024-01-01/hr=1!",
    "alter table dw.h drop partition (dt = '2024-01-01')": "dw.h/dt=2024-01-01!",
    "alter table dw.h add partition (dt = '2024-01-09', hr = 1)": "dw.h/dt=2024-01-09/hr=1!",
    "alter table dw.h partition (dt = '2024-01-01', hr = 1) rename to partition (dt = '2024-01-01', hr = 2)": (
        "dw.h/dt=2024-01-01/hr=1! dw.h/dt=2024-01-01/hr=2!"
    ),
    "alter table dw.h rename to dw.hh": "dw.h! dw.hh!",
    "alter table dw.h rename to hh": "dw.h! dw.hh!",
    "alter view dw.v rename to vv": "dw.v! dw.vv!",
    "alter view made rename to other": "",
    "alter table dw.h set tblproperties ('a' = 'b')": "dw.h!",
    "alter table dw.src add columns (z int)": "dw.src!",
    "truncate table dw.h partition (dt = '2024-01-01')": "dw.h/dt=2024-01-01!",
    "msck repair table dw.h": "dw.h!",
    "drop table dw.h": "dw.h!",
    "drop view dw.v": "dw.v!",
    "drop database dw cascade": "dw!",
    "delete from dw.src where k in (select k from dw.t)": "dw.src! dw.t",
    "analyze table dw.h compute statistics": "dw.h/dt=2024-01-01/hr=1",
    "analyze tables in dw compute statistics noscan": (
        "dw.delays dw.flights/dt=2013-01-15 dw.h/dt=2024-01-01/hr=1 dw.p dw.src/dt=2024-01-01 dw.src/dt=2024-01-02 dw.t"
    ),
    "cache table dw.t": "dw.t",
    "load data local inpath '/nowhere' into table dw.h partition (dt = '2024-01-01', hr = 1)": "dw.h/dt=2024-01-01/hr=1!",
    "insert overwrite directory '/nowhere' using parquet select * from dw.t": "dw.t",
    "show partitions dw.h": "dw.h",
    "show tables in dw": "dw",
    "describe dw.t": "dw.t",
    "use dw": "",
    "set a = b": "",
    "explain select * from dw.t": "",
    "select * from dw.src where dt = '2024-01-01' or k = 5": "dw.src/dt=2024-01-01 dw.src/dt=2024-01-02",
    "select (select max(k) from dw.src where dt = '2024-01-02') from dw.t": "dw.src/dt=2024-01-02 dw.t",
    "select * from dw.h h join dw.src s on h.dt = s.dt where s.dt = '2024-01-01'": (
        "dw.h/dt=2024-01-01/hr=1 dw.src/dt=2024-01-01"
    ),
    "select * from dw.src where false": "dw.src",
    "select * from (select * from dw.src where rand() < 0.5) where dt = '2024-01-01'": (
        "dw.src/dt=2024-01-01 dw.src/dt=2024-01-02"
    ),
    "select * from dw.src where rand() < 0.5 and dt = '2024-01-01'": "dw.src/dt=2024-01-01",
}
