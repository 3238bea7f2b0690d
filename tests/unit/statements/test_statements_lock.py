"""What LOCK and UNLOCK do."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import (
    HiveLockError,
    InvalidRequest,
    LockTimeout,
    StoreUnavailable,
    Unsupported,
    Withdrawn,
)
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import DeferredGrant, LeaseLimit, LockObject
from airflow_hivelock.locks.statements.session import StatementSession
from tests.unit.statements.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator


DEADLINE_S = 30.0
T = LockObject("dw", "t")


def test_lock_table_stands_until_the_same_user_unlocks_exactly_that(session: StatementSession) -> None:
    lease = run(session, "lock table t partition (dt='2013-01-01') exclusive").records()[0]
    assert str(lease["owner"]).startswith("cli:ann:")
    run(session, "lock table t partition (dt='2013-01-02') exclusive; lock table t shared; lock table t shared")
    for other in ("unlock table u", "unlock database dw", "unlock table t partition (dt='2013-01-03')"):
        with pytest.raises(HiveLockError, match="is not locked"):
            run(session, other)
    assert len(run(session, "unlock table t").rows) == 2
    assert len(session.manager.show("dw.t/dt=2013-01-01")) == len(session.manager.show("dw.t/dt=2013-01-02")) == 1
    run(session, "unlock table t partition (dt='2013-01-01')")
    run(session, "unlock table t partition (dt='2013-01-02')")
    assert not session.manager.show()


def test_a_lock_that_must_wait_is_refused_or_waits_for_its_turn(
    manager: LockManager, session: StatementSession
) -> None:
    held = manager.acquire(owner="job", writes=["dw.t"])
    with pytest.raises(LockTimeout, match=r"job holds dw\.t EXCLUSIVE"):
        run(session, "lock table t shared")
    assert not manager.waiters()
    patient = StatementSession(manager, user="bob", timeout_s=DEADLINE_S)
    thread = threading.Thread(target=run, args=(patient, "lock table dw.t exclusive"))
    thread.start()
    deadline = time.monotonic() + DEADLINE_S
    while not manager.waiters():
        assert time.monotonic() < deadline
    manager.release(held)
    thread.join(DEADLINE_S)
    assert [holder.owner.split(":")[:2] for holder in manager.show("dw.t")] == [["cli", "bob"]]


def test_a_request_that_waits_is_withdrawn_by_force(manager: LockManager, session: StatementSession) -> None:
    lease = manager.acquire(owner="job", writes=["dw.t"])
    waiting = manager.begin(rules.request("rerun", writes=["dw.t"]), lambda: None)
    waiting.poll()
    with pytest.raises(InvalidRequest, match="reason"):
        run(session, "drop force request rerun")
    forceful = StatementSession(manager, user="ann", reason="wrong week")
    assert run(forceful, "drop force request 'rerun'").records() == [{"owner": "rerun"}]
    with pytest.raises(Withdrawn, match="ann: wrong week"):
        waiting.poll()
    for nobody in ("rerun", "job"):
        with pytest.raises(HiveLockError, match=f"{nobody} is not in the queue; SHOW WAITERS"):
            run(forceful, f"drop force request {nobody}")
    away = manager.begin(rules.request("late", writes=["dw.u"], deferred=DeferredGrant()), lambda: None)
    away.poll()
    with pytest.raises(HiveLockError, match="late waits for a worker slot, and its task may be starting"):
        run(forceful, "drop force request late")
    manager.verify(lease)


def test_the_priority_of_a_request_that_waits_is_changed_by_force(
    manager: LockManager, session: StatementSession
) -> None:
    limit = LeaseLimit("nightly", 1)
    lease = manager.acquire(owner="job", writes=["dw.t"], limit=limit)
    requests = [rules.request(owner, writes=["dw.t"]) for owner in ("first", "prod/priority/on/task/-1")]
    requests += [rules.request("parked", writes=["dw.u"], limit=limit)]
    requests += [rules.request("late", writes=["dw.u"], deferred=DeferredGrant(20))]
    waiting = [manager.begin(request, lambda: None) for request in requests]
    for one in waiting:
        one.poll()
    with pytest.raises(InvalidRequest, match=r"ALTER FORCE REQUEST .*reason"):
        run(session, "alter force request first priority 5")
    forceful = StatementSession(manager, user="ann", reason="due at 7")
    raised = run(forceful, "alter force request prod/priority/on/task/-1 priority 5").records()
    assert raised == [{"owner": "prod/priority/on/task/-1", "priority": 5, "position": 1}]
    assert run(forceful, "alter force request 'first' priority -3").records()[0]["priority"] == -3
    rows = run(session, "show waiters t").records()
    assert [(row["user"], row["priority"]) for row in rows] == [("prod/priority/on/task/-1", 5), ("first", -3)]
    refusals = {
        "first priority -3": "first has priority -3 already",
        "job priority 5": "job is not in the queue; SHOW WAITERS",
        "parked priority 5": "parked keeps its priority, because its position among those that wait for a lease",
        "late priority 5": "late keeps its priority, because it waits for a worker slot",
        "first": "PRIORITY is expected at its end",
        "": "the owner of a request, as SHOW WAITERS lists it, is expected at its end",
        "first priority high": "a whole number is expected",
        "first priority 10000000000": "Give a whole number up to",
    }
    for text, why in refusals.items():
        with pytest.raises(HiveLockError, match=why):
            run(forceful, f"alter force request {text}")
    assert [entry.reason for entry in manager.audit()] == ["priority 5: due at 7", "priority -3: due at 7"]
    manager.verify(lease)


@pytest.mark.parametrize("owner", ["prod/delays/run/task/-1", "cli:bob:1", "cli:ann:bob:1", "cli:an:1", "cli:ann"])
def test_what_others_hold_is_freed_by_force_alone(manager: LockManager, session: StatementSession, owner: str) -> None:
    lease = manager.acquire(owner=owner, writes=["dw.t"])
    with pytest.raises(HiveLockError, match=rf"{owner} holds it .* DROP FORCE LEASE {lease.id}"):
        run(session, "unlock table t")
    with pytest.raises(InvalidRequest, match="reason"):
        StatementSession(manager, user="ann", force=True)
    assert manager.find(lease.id)
    forceful = StatementSession(manager, user="ann", database="dw", force=True, reason="its cluster is gone")
    run(forceful, "unlock table t")
    (entry,) = manager.audit()
    assert (entry.lease_id, entry.user, entry.reason) == (lease.id, "ann", "its cluster is gone")


def test_unlock_leaves_other_readers_alone(manager: LockManager, session: StatementSession) -> None:
    lease = manager.acquire(owner="job", reads=["dw.t"])
    run(session, "lock table t shared; unlock table t")
    assert manager.leases() == [lease]
    assert not manager.audit()


def test_unlock_by_force_takes_no_lease_that_only_passes_through(manager: LockManager) -> None:
    lease = manager.acquire(owner="job", writes=["dw.t/dt=1"])
    forceful = StatementSession(manager, user="ann", force=True, reason="why")
    with pytest.raises(HiveLockError, match=r"job .lease .* holds dw\.t SHARED"):
        run(forceful, "unlock table dw.t")
    assert manager.find(lease.id)


class Catalog:
    """One table, by day and hour."""

    def table(self, table: LockObject) -> Table | None:
        return Table(("dt", "hr"), partition_types=("string", "int")) if table == T else None

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return iter(())

    def names(self, database: str = "") -> list[str]:
        return ["t", "unknown"] if database else ["dw"]


def test_columns_may_come_in_any_order_where_the_table_is_known(manager: LockManager) -> None:
    session = StatementSession(manager, user="ann", database="dw", catalog=Catalog())
    run(session, "lock table t partition (hr='05', dt='1') exclusive")
    assert manager.show("dw.t/dt=1/hr=5")
    for wrong, said in {
        "hr=5": "partitioned by dt=…/hr=…",
        "dt='1', x=5": "partitioned by dt=…/hr=…",
        "dt='1', hr='x'": "'x' is not a valid int",
    }.items():
        with pytest.raises(InvalidRequest, match=said):
            run(session, f"lock table t partition ({wrong}) shared")
    assert run(session, "show locks t partition (hr='05', dt='1')").text == "dw@t@dt=1/hr=5\tEXCLUSIVE"


def test_what_does_not_exist_is_not_locked_and_can_be_unlocked(manager: LockManager) -> None:
    run(StatementSession(manager, user="ann", database="dw"), "lock table tt shared")
    session = StatementSession(manager, user="ann", database="dw", catalog=Catalog())
    with pytest.raises(InvalidRequest, match=r"dw\.tt: there is no such table; did you mean dw\.t\?"):
        run(session, "lock table tt shared")
    assert run(session, "unlock table tt").rows


def test_locks_are_seen_and_freed_while_the_metastore_is_silent(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage of the metastore, people must see the locks and free a lease. Only the spelling of values needs it."""
    manager.acquire(owner="job", writes=["dw.t/dt=1/hr=5"])
    monkeypatch.setattr(Catalog, "table", Mock(side_effect=StoreUnavailable("the metastore did not answer")))
    session = StatementSession(manager, user="ann", database="dw", catalog=Catalog(), reason="its host is gone")
    assert run(session, "show locks t").text == "dw@t\tSHARED"
    assert run(session, "show locks t partition (dt='1', hr='5')").text == "dw@t@dt=1/hr=5\tEXCLUSIVE"
    with pytest.raises(StoreUnavailable):
        run(session, "lock table u shared")
    assert run(session, "drop force lease t").rows


def test_columns_may_be_declared_where_no_catalog_knows_them(manager: LockManager) -> None:
    run(StatementSession(manager, user="ann"), "lock table dw.t partition (n='x') shared")
    with pytest.raises(InvalidRequest, match=r"'07' looks like .* partition_columns=\{'dw.t': \['n string'\]\}"):
        run(StatementSession(manager, user="ann"), "lock table dw.t partition (n='07') shared")
    declared = {"dw.t": ["d date", "n string"]}
    session = StatementSession(manager, user="ann", partition_columns=declared)
    run(session, "lock table dw.t partition (n='07', d='2024-2-9') exclusive")
    assert manager.show("dw.t/d=2024-02-09/n=07")
    explained = run(session, "explain locks insert into dw.t partition (n='07', d='2024-2-9') select 1").text
    assert "dw.t.d=2024-02-09/n=07 -> EXCLUSIVE" in (explained or "").split("\n")
    assert run(session, "unlock table dw.t partition (n='07', d='2024-2-9')").rows
    with pytest.raises(InvalidRequest, match="'strng' is not a type"):
        StatementSession(manager, user="ann", partition_columns={"dw.t": ["n strng"]})


def test_a_store_that_frees_what_nobody_renews_takes_no_lock_table(manager: LockManager) -> None:
    class Metastore(MemoryBackend):
        capabilities = type(MemoryBackend.capabilities)(parents=False, expires=True)

    session = StatementSession(LockManager(Metastore()), user="ann")
    with pytest.raises(Unsupported, match="Hive refuses it there"):
        run(session, "lock table t shared")


def test_a_session_that_turns_locking_off_locks_nothing_as_in_hive(
    session: StatementSession, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(session, "set hive.support.concurrency=false").text == ""
    assert caplog.messages[-1].startswith("NOT LOCKED from here on: SET hive.support.concurrency=false; other work may")
    for sql in ("lock table t exclusive", "unlock table t"):
        with pytest.raises(HiveLockError, match="turned off in this session, by SET hive"):
            run(session, sql)
    result = run(session, "explain locks load data inpath '/in' into table t")
    assert result.text == "LOCK INFORMATION:\n-- NOT LOCKED: SET hive.support.concurrency=false"
    assert (result.records(), session.manager.show()) == ([], [])
    assert run(session, "show locks").text == ""
    run(session, "SET hive.support.concurrency = TRUE; lock table t exclusive")
    assert session.manager.show(T)
    with pytest.raises(InvalidRequest, match=r"'no' is invalid\. Use true or false"):
        run(session, "set hive.support.concurrency=no")


def test_hives_retry_settings_bound_how_long_lock_waits(
    session: StatementSession, caplog: pytest.LogCaptureFixture
) -> None:
    run(session, "set hive.lock.sleep.between.retries=200ms")
    assert session.timeout_s == 20
    run(session, "set hive.lock.numretries=2")
    assert session.timeout_s == 0.4
    assert caplog.messages[-1] == "LOCK waits for up to 0.4 s from here on: SET hive.lock.numretries=2"
    session.manager.acquire(owner="somebody", writes=["dw.t"])
    with pytest.raises(LockTimeout):
        run(session, "lock table t exclusive")
    for line in ("hive.lock.numretries=-1", "hive.lock.sleep.between.retries=soon"):
        with pytest.raises(InvalidRequest, match=f"SET {line.partition('=')[0]}="):
            run(session, f"set {line}")
