"""EXPLAIN LOCKS: what it prints, and that it locks nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.statements.session import StatementSession
from tests.unit.statements.running import run


@pytest.mark.parametrize(
    ("follows", "properties_set", "format_set", "said"),
    [
        ("stricter", "EXCLUSIVE", "EXCLUSIVE", "by the stricter of Hive's documents and real Hive"),
        ("documented", "EXCLUSIVE", "SHARED", "as in Hive's documents"),
        ("hive", "SHARED", "EXCLUSIVE", "as in real Hive"),
    ],
)
def test_explain_locks_follows_the_table_of_commands_that_is_chosen_and_says_so(
    manager: LockManager, follows: Any, properties_set: str, format_set: str, said: str
) -> None:
    session = StatementSession(manager, user="ann", database="dw", partition_columns={"dw.t": ["dt"]}, locks=follows)
    for sql, mode in (
        ("alter table t set tblproperties ('owner' = 'ann')", properties_set),
        ("alter table t set fileformat orc", format_set),
    ):
        result = run(session, f"explain locks {sql}")
        assert (result.text or "").split("\n")[-2:] == [f"dw.t -> {mode}", f"-- {said}"]
        assert result.records()[-1]["follows"] == follows
    with pytest.raises(InvalidRequest, match="use one of stricter"):
        StatementSession(manager, user="ann", locks="both")  # type: ignore[arg-type]


def test_explain_locks_knows_tables_without_partitions(manager: LockManager) -> None:
    session = StatementSession(manager, user="ann", database="dw", unpartitioned=["dw.u"])
    assert "dw.u -> SHARED" in (run(session, "explain locks select * from u").text or "")


SQL = "insert into t partition (dt='2013-01-01') select * from u where dt='2013-01-01'"


def test_explain_locks_tells_what_is_made_in_zookeeper() -> None:
    backend = ZooKeeperBackend.__new__(ZooKeeperBackend)  # no server is asked
    backend.store = cast("Any", SimpleNamespace(layout=Layout(namespace="/hive"), acl_bytes=31))
    session = StatementSession(LockManager(backend), user="ann", database="dw", partition_columns={"dw.u": ["dt"]})
    result = run(session, f"explain locks {SQL}")
    assert [each["store"] for each in result.records()] == [
        "/hive/dw/LOCK-SHARED-0",
        "/hive/dw/t/LOCK-SHARED-0",
        "/hive/dw/t/dt=2013-01-01/LOCK-EXCLUSIVE-0",
        "/hive/dw/u/LOCK-SHARED-0",
        "/hive/dw/u/dt=2013-01-01/LOCK-SHARED-0",
    ]
    days = ", ".join(f"'{number:0200}x'" for number in range(3000))
    result = run(session, f"explain locks select * from u where dt in ({days})")
    assert (result.text or "").split("\n")[1:] == [
        "dw -> SHARED",
        "dw.u -> EXCLUSIVE",
        "-- by the stricter of Hive's documents and real Hive; too many for one transaction of this lock store, so it locks tables",
    ]
    assert [each["store"] for each in result.records()[:3]] == [
        "/hive/dw/LOCK-SHARED-0",
        "/hive/dw/u/LOCK-EXCLUSIVE-0",
        None,
    ]


@pytest.mark.parametrize(("excl_write", "reads"), [(False, "SHARED_READ"), (True, "SHARED_WRITE")])
def test_explain_locks_shows_no_parents_where_the_metastore_is_asked_for_none(excl_write: bool, reads: str) -> None:
    backend = MetastoreBackend(cast("Any", SimpleNamespace(timeout_s=300.0)))
    backend.store.excl_write = excl_write
    session = StatementSession(LockManager(backend), user="ann", database="dw", partition_columns={"dw.u": ["dt"]})
    result = run(session, f"explain locks {SQL}")
    assert (result.text or "").split("\n") == [
        "LOCK INFORMATION:",
        "dw.t.dt=2013-01-01 -> EXCLUSIVE",
        "dw.u.dt=2013-01-01 -> SHARED",
        "-- by the stricter of Hive's documents and real Hive; this lock store has its own hierarchy, and takes no locks "
        "on parents",
    ]
    assert [(each["mode"], each["store"]) for each in result.records()] == [
        ("SHARED", None),
        ("SHARED", None),
        ("EXCLUSIVE", "EXCLUSIVE PARTITION"),
        ("SHARED", None),
        ("SHARED", f"{reads} PARTITION"),
    ]
    with pytest.raises(InvalidRequest, match="SHARED on a database hides older locks"):
        run(session, "explain locks show tables")


def test_explain_locks_prints_what_a_statement_would_lock_and_locks_nothing(session: StatementSession) -> None:
    result = run(session, "use b; explain locks insert into dw.t partition (dt='2013-01-01') select ';' from u")
    assert (result.text or "").split("\n") == [
        "LOCK INFORMATION:",
        "b -> SHARED",
        "b.u -> EXCLUSIVE",
        "dw -> SHARED",
        "dw.t -> SHARED",
        "dw.t.dt=2013-01-01 -> EXCLUSIVE",
        "-- by the stricter of Hive's documents and real Hive",
    ]
    assert result.records()[-1] == {
        "object": "dw.t/dt=2013-01-01",
        "mode": "EXCLUSIVE",
        "follows": "stricter",
        "store": "EXCLUSIVE",
    }
    assert not session.manager.show()
    with pytest.raises(InvalidRequest):
        run(session, "explain locks nonsense")


def test_explain_locks_knows_the_variables_that_the_session_has_set(manager: LockManager) -> None:
    session = StatementSession(manager, user="ann", database="dw", partition_columns={"dw.u": ["dt"]})
    run(session, "set hivevar:day=2013-01-01; set hive.support.concurrency=true")
    explained = run(session, "explain locks select * from u where dt='${hivevar:day}'").text or ""
    assert "dw.u.dt=2013-01-01 -> SHARED" in explained
    run(session, "set hive.support.concurrency=false")
    assert "NOT LOCKED" in (run(session, "explain locks select * from u where dt='${day}'").text or "")
    with pytest.raises(InvalidRequest, match="the value of this variable is not known"):
        run(session, "explain locks select * from u where dt='${hivevar:hour}'")
