"""Real Hive runs statements under DbTxnManager, up to its locks: which types it asks for, and which we do with ``locks="hive"``."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, LockObject, rules
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.model import LockType
from airflow_hivelock.locks.plan import plan_sql
from airflow_hivelock.locks.statements.session import StatementSession
from tests.support.servers import HiveError, HiveSession, Metastore
from tests.support.servers.other_hiveserver2 import ReleasedHiveServer2
from tests.support.servers.releases import HIVE
from tests.support.sql.cases import CASES
from tests.support.sql.warehouse import DATABASE, DDL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.hive.catalog import Catalog
    from tests.support.servers import HiveClient
    from tests.support.servers.other_hiveserver2 import HiveServer2Client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

Types = dict[LockObject, LockType]

TELLS = "servers.TellLocks"
"""Hive calls its hooks once it has its locks: this one tells them, and ends the statement there."""

ACID = "clustered by (x) into 2 buckets stored as orc tblproperties ('transactional'='true')"
TABLES = (
    f"create table dw.a (x int, y string) {ACID}",
    f"create table dw.ap (x int, y string) partitioned by (dt string) {ACID}",
    *(f"alter table dw.ap add partition (dt='{day}')" for day in "12"),
    "create external table dw.e (x int, y string)",
    "create external table dw.ep (x int, y string) partitioned by (dt string)",
    "alter table dw.ep add partition (dt='1')",
)

LESS = {
    "table": "SHARED_READ on the table of partitions that are read, too, which Hive 4 no longer takes: it keeps writers from the "
    "other partitions. The lock on a partition conflicts with EXCLUSIVE on its table as it is",
    "database": "SHARED_READ on a database: it hides older locks from metastores before 4.0 (HIVE-22888). A lock on a table "
    "conflicts with EXCLUSIVE on its database as it is; a request for nothing else is refused",
}
"""Where we take less than Hive, and why: all there is."""

MORE = {
    "": "just what Hive takes, but for the two above",
    "compact": "EXCLUSIVE on what is rewritten. Hive only queues a compaction, and locks nothing",
    "made": "a name that is made is EXCLUSIVE. Hive locks its database only, or neither",
    "read": "what is also read is kept from those who overwrite it: SHARED_WRITE. Hive's query has a snapshot",
    "rows": "which partitions UPDATE, DELETE and MERGE change is not certain from their text: the table",
    "emptied": "EXCLUSIVE on what is truncated. Hive 4: EXCL_WRITE, for its readers have a snapshot",
}
"""Where we take more on tables of transactions, and why."""
IN_HIVE_4 = {
    "insert into a select x,y from a": "",
    "create table c as select x,y from a": "",
    "truncate table a": "emptied",
    "truncate table ap partition (dt='1')": "emptied",
}
"""Statements of which that is otherwise in Hive 4. What is read is SHARED_WRITE there, against EXCL_WRITE; Hive: SHARED_READ."""


@dataclass(frozen=True)
class Statement:
    """:param ours: what we take, r(ead), w(rite, shared) or x; as text. :param why: of :data:`MORE`."""

    sql: str
    ours: str
    why: str = ""
    settings: str = ""


EXTERNAL = ("e", "ep")
"""Hive 3 locks none of them. Hive 4 is told to: there they are most tables."""

LAX = "set hive.txn.strict.locking.mode=false"
STATEMENTS = [
    Statement(sql, ours, *rest)
    for sql, ours, *rest in (
        ("select * from a", "r(a)"),
        ("select * from ap", "r(ap)"),
        ("select * from ap where dt='1'", "r(ap/dt=1)"),
        ("select a.x from a join ap on a.x=ap.x where ap.dt='2'", "r(a) r(ap/dt=2)"),
        ("insert into a values (1,'a')", "r(a)"),
        ("insert into a select x,y from u", "r(a) r(u)"),
        ("insert into a select x,y from ap where dt='1'", "r(a) r(ap/dt=1)"),
        ("insert into a select x,y from a", "w(a)", "read"),
        ("insert into ap partition (dt='1') values (1,'a')", "r(ap/dt=1)"),
        ("insert into ap partition (dt='9') values (1,'a')", "r(ap/dt=9)"),
        ("insert into ap partition (dt) select x,y,'3' from u", "r(ap) r(u)"),
        ("from u insert into a select x,y insert into w select x,y", "r(a) r(u) x(w)"),
        ("update a set y='b' where x=1", "w(a)"),
        ("update a set y='b' where x in (select x from u)", "r(u) w(a)"),
        ("update ap set y='b' where dt='1' and x=1", "w(ap/dt=1)"),
        ("update ap set y='b' where x=1", "w(ap)", "rows"),
        ("delete from a where x=1", "w(a)"),
        ("delete from ap where dt='1'", "w(ap/dt=1)"),
        ("delete from ap", "w(ap)", "rows"),
        ("merge into a using u on a.x=u.x when matched then update set y=u.y", "r(u) w(a)"),
        ("merge into a using u on a.x=u.x when matched then delete", "r(u) w(a)"),
        ("merge into a using u on a.x=u.x when not matched then insert values (u.x,u.y)", "r(u) w(a)", "rows"),
        ("truncate table a", "x(a)"),
        ("truncate table ap partition (dt='1')", "x(ap/dt=1)"),
        ("drop table a", "x(a)"),
        ("alter table ap add partition (dt='7')", "r(ap)"),
        ("alter table ap drop partition (dt='1')", "x(ap/dt=1)"),
        ("alter table a add columns (z int)", "x(a)"),
        ("alter table a rename to b", "x(a)"),
        ("alter table a set tblproperties ('k'='v')", "r(a)"),
        ("alter table a compact 'major'", "x(a)", "compact"),
        ("analyze table a compute statistics", "r(a)"),
        ("create table c as select x,y from a", "r(a) x(c)", "made"),
        ("select * from e", "r(e)"),
        ("insert into e values (1,'a')", "x(e)"),
        ("insert overwrite table e select x,y from u", "r(u) x(e)"),
        ("insert into ep partition (dt='1') select x,y from u", "r(u) x(ep/dt=1)"),
        ("insert into ep partition (dt) select x,y,'1' from u", "r(u) x(ep)"),
        ("drop table e", "x(e)"),
        ("insert into t partition (dt) select x,y,'3' from u", "r(u) x(t)"),
        ("insert overwrite table h partition (dt='2013-01-01',hr) select x,y,1 from u", "r(u) x(h)"),
        ("insert into u select x,y from w", "r(u) r(w)", "", LAX),
        ("insert into t partition (dt='2013-01-01') select x,y from u", "r(t/dt=2013-01-01) r(u)", "", LAX),
        ("insert into t partition (dt) select x,y,'3' from u", "r(t) r(u)", "", LAX),
        ("insert into e values (1,'a')", "r(e)", "", LAX),
        ("insert into a values (1,'a')", "r(a)", "", LAX),
        ("insert overwrite table u select x,y from w", "r(w) x(u)", "", LAX),
    )
]


@dataclass(frozen=True)
class Servers:
    """:ivar other: a session that runs statements to their ends."""

    metastore_uri: str
    hive: HiveSession | HiveServer2Client
    other: HiveClient | HiveServer2Client


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    home = tmp_path_factory.mktemp("txn")
    with ExitStack() as running:
        if HIVE:
            server = running.enter_context(ReleasedHiveServer2(home, HIVE))
            found = Servers(server.metastore_uri, *(running.enter_context(server.session()) for _ in range(2)))
        else:
            metastore = running.enter_context(Metastore(home, transactional=True))
            manager = {"hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager"}
            session = running.enter_context(HiveSession(home, metastore=metastore, config=manager))
            found = Servers(metastore.uri, session, session.session("without hooks"))
        for statement in (*DDL, *TABLES, f"use {DATABASE}", f"set hive.exec.pre.hooks={TELLS}"):
            found.hive.run(statement)
        yield found


@pytest.fixture(scope="module")
def hive(servers: Servers) -> HiveSession | HiveServer2Client:
    return servers.hive


@pytest.fixture(scope="module")
def backend(servers: Servers) -> MetastoreBackend:
    return MetastoreBackend.connect(servers.metastore_uri.removeprefix("thrift://"))


def hives(hive: HiveSession | HiveServer2Client, sql: str) -> Types | None:
    """What Hive took for the statement; None where it refused it, or takes no locks for such a one."""
    try:
        hive.run(sql)
    except HiveError as error:
        if told := re.search(r"LOCKS\[(.*?)\]", error.message):
            # Hive 4 escapes the names of partitions a second time.
            pairs = (each.replace("%25", "%").split(" ", 1) for each in told[1].split("\t") if each)
            return {LockObject.parse(name): LockType[kind] for kind, name in pairs if not name.startswith("_dummy")}
    return None


def ours(backend: MetastoreBackend, catalog: Catalog, sql: str) -> Types:
    found = plan_sql(sql, catalog, database=DATABASE, locks="hive")
    if not (found.reads or found.writes):
        return {}
    taken = backend.store.components(rules.request("me", found.reads, found.writes, types=found.types))
    return {target: kind for target, kind in taken.items() if target.table or kind is LockType.EXCLUSIVE}


def uncovered(mine: Types, theirs: Types) -> dict[LockObject, LockType]:
    """Which of *theirs* none of *mine* covers, on the same object or on the table above it."""
    return {
        target: kind
        for target, kind in theirs.items()
        if not any(mine.get(each, 0) >= kind for each in (target, *target.parents) if each == target or each.table)
    }


def less(mine: Types, theirs: Types) -> dict[LockObject, LockType]:
    """Which of *theirs* we do not take, without a reason in :data:`LESS`."""
    return {
        target: kind
        for target, kind in uncovered(mine, theirs).items()
        if kind is not LockType.SHARED_READ or (target.table and not any(one.is_below(target) for one in mine))
    }


def _text(types: Types) -> str:
    letters = dict(zip(LockType, "rwex", strict=True))
    return " ".join(sorted(f"{letters[kind]}({str(target).removeprefix('dw.')})" for target, kind in types.items()))


def test_on_each_kind_of_table_we_take_hives_types_and_every_difference_has_its_reason(
    hive: HiveSession | HiveServer2Client, backend: MetastoreBackend, catalog: Catalog
) -> None:
    wrong = []
    for case in STATEMENTS:
        if case.settings:
            hive.run(case.settings)
        theirs = hives(hive, case.sql)
        if case.settings:
            hive.run(case.settings.replace("false", "true"))
        mine = ours(backend, catalog, f"{case.settings};{case.sql}")
        assert theirs is not None, case.sql
        more = {
            target: kind
            for target, kind in uncovered(theirs, mine).items()
            if not (HIVE or "").startswith("3") or target.table not in EXTERNAL
            if not backend.store.excl_write or kind is not LockType.SHARED_WRITE
        }
        why = IN_HIVE_4.get(case.sql, case.why) if backend.store.excl_write else case.why
        as_said = backend.store.excl_write or _text(mine) == case.ours
        if not as_said or less(mine, theirs) or bool(more) is not bool(why):
            wrong.append(
                f"{case.settings} {case.sql}\n  Hive: {_text(theirs)}\n  ours: {_text(mine)}\n  said: {case.ours} {why}"
            )
    assert not wrong, "\n".join(wrong)
    assert {case.why for case in STATEMENTS} | set(IN_HIVE_4.values()) == set(MORE)


def test_for_every_statement_on_plain_tables_we_take_no_less_than_hive(
    hive: HiveSession | HiveServer2Client, backend: MetastoreBackend, catalog: Catalog
) -> None:
    wrong, compared = [], 0
    for sql in (case.sql for case in CASES if case.hive != "no"):
        theirs = hives(hive, sql)
        if theirs:
            compared += 1
            mine = ours(backend, catalog, sql)
            if missed := less(mine, theirs):
                wrong.append(f"{sql}\n  Hive: {_text(theirs)}\n  ours: {_text(mine)}\n  missed: {_text(missed)}")
    assert not wrong, "\n".join(wrong)
    assert compared >= 200


@pytest.mark.skipif(HIVE is not None, reason="of the text of Hive's own driver; a HiveServer2 sends its header apart")
def test_show_transactions_is_hives_own(servers: Servers, backend: MetastoreBackend) -> None:
    listed = servers.other.run("show transactions")
    with LockManager(backend) as manager:
        (ours,) = StatementSession(manager, user="ann").run("show transactions")
    assert str(ours.text).split("\n")[0].split("\t") == listed[0].split("\t")
