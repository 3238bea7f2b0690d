"""Hive's own locks and transactions in a metastore: shown, honoured and freed."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest
from hmsclient.genthrift.hive_metastore import ttypes as hive

from airflow_hivelock.locks import HiveLockError, InvalidRequest, LockManager, LockObject, LockTimeout, Unsupported
from airflow_hivelock.locks.statements.session import StatementSession
from tests.backends.metastores import DAY, TABLE, Hive, S, W, X

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[[], LockManager]


pytestmark = pytest.mark.integration


@pytest.fixture
def manager(connect_metastore: Connect) -> LockManager:
    return connect_metastore()


def test_the_commit_of_iceberg_waits_under_a_lease_on_its_own_table(manager: LockManager, raw_metastore: Hive) -> None:
    """Hudi's metastore provider and Trino take the same lock. The guide has the settings against that."""
    lease = manager.acquire(owner="the job that commits", reads=[TABLE])
    commit = raw_metastore.lock((X, TABLE), agent="Iceberg-1f2e")
    assert not raw_metastore.granted(commit)
    assert [(waiter.owner, str(waiter.blocked_by[0])) for waiter in manager.waiters(TABLE)] == [
        ("Iceberg-1f2e", f"the job that commits holds {TABLE} SHARED")
    ]
    manager.release(lease)
    assert raw_metastore.granted(commit)


def test_a_transactions_lock_is_shown_and_honoured_and_ends_with_the_transaction(
    manager: LockManager, raw_metastore: Hive
) -> None:
    with raw_metastore.transaction() as transaction:
        number = raw_metastore.lock((W, TABLE), transaction=transaction, agent="hive_update_7")
        (holder,) = manager.show(TABLE)
        assert (holder.owner, holder.lease_id, holder.token, holder.expires) == ("hive_update_7", None, number, None)
        assert holder.query == f"SHARED_WRITE, transaction {transaction}"
        assert manager.acquire(owner="reader", reads=[DAY]), "SHARED_WRITE lets readers pass"
        with pytest.raises(LockTimeout, match="hive_update_7"):
            manager.acquire(owner="writer", writes=[TABLE])
        with pytest.raises(Unsupported, match=rf"lock {number} of .* ABORT TRANSACTIONS {transaction}$"):
            manager.force_unlock(str(number), reason="stuck", user="ops")
    assert [holder.owner for holder in manager.show()] == ["reader"]


def test_a_transaction_is_shown_and_aborted_with_its_locks(
    manager: LockManager, raw_metastore: Hive, caplog: pytest.LogCaptureFixture
) -> None:
    with raw_metastore.transaction() as transaction:
        raw_metastore.lock((W, TABLE), transaction=transaction, agent="hive_update_8")
        session = StatementSession(manager, user="ops", reason="its session is gone")
        (shown,) = session.run("show transactions")
        (mine,) = [each for each in shown.records() if each["Transaction ID"] == transaction]
        assert (mine["Transaction State"], mine["User"], mine["Hostname"]) == ("OPEN", "ann", "gateway")
        with pytest.raises(HiveLockError, match="transaction 999999 is not open, so none was aborted"):
            list(session.run(f"abort transactions {transaction} 999999"))
        assert manager.show(TABLE)
        with caplog.at_level(logging.WARNING):
            (ended,) = session.run(f"abort transactions {transaction}")
        assert ended.rows == ((transaction, "ann", "gateway"),)
        assert f"ops aborted transaction {transaction} of ann ({TABLE} SHARED): its session is gone" in caplog.text
        assert manager.show() == []
        (shown,) = session.run("show transactions")
        assert "OPEN" not in [e["Transaction State"] for e in shown.records() if e["Transaction ID"] == transaction]


def test_a_lock_of_hives_own_is_freed_by_its_id_and_the_log_says_who_and_why(
    manager: LockManager, raw_metastore: Hive, caplog: pytest.LogCaptureFixture
) -> None:
    number = raw_metastore.lock((X, DAY), (S, "dw.airports"), agent="trino_7")
    other = raw_metastore.lock((S, "dw.airports"), agent="a living reader")
    held = {str(holder.object): holder for holder in manager.show() if holder.hive_id == str(number)}
    assert held.keys() == {DAY, "dw.airports"}
    assert held[DAY].heartbeat is not None
    careless, session = (StatementSession(manager, user="ops", reason=why) for why in ("", "its client is gone"))
    with pytest.raises(InvalidRequest, match="needs a reason") as asked:
        careless.run(f"drop force lock {number}")
    shown = [line for line in str(asked.value).splitlines() if line.startswith(f"lock {number}: ")]
    assert len(shown) == 2, "what would be freed is shown before"
    for part in (r"ann at gateway \(trino_7\)", "acquired: 20.* ago", "last heartbeat: 20.* ago", "transaction: none"):
        assert re.search(part, shown[0])
    with pytest.raises(Unsupported, match="is on 2 objects, and a metastore frees it whole"):
        list(session.run(f"drop force lock {number} on table dw.airports"))
    with pytest.raises(HiveLockError, match=rf"no lock {number} on dw\.other is held"):
        list(session.run(f"drop force lock {number} on table dw.other"))
    assert {holder.hive_id for holder in manager.show()} == {str(number), str(other)}
    with caplog.at_level(logging.WARNING):
        (freed,) = session.run(f"drop force lock {number}")
    assert {(row["lock_id"], row["user"], row["object"]) for row in freed.records()} == {
        (number, "ann", DAY),
        (number, "ann", "dw.airports"),
    }
    assert re.search(
        f"ops force-released lock {number} of trino_7 .*{DAY} EXCLUSIVE.*: its client is gone", caplog.text
    )
    assert [holder.hive_id for holder in manager.show()] == [str(other)], "the reader keeps its lock"
    for wrong, error in ((number, "is held"), (999999, "no lock 999999 is held; SHOW LOCKS"), ("hive_q-1", "Lock ID")):
        with pytest.raises(HiveLockError, match=error):
            list(session.run(f"drop force lock {wrong}"))


def test_a_waiting_lock_of_a_transaction_is_not_freed_either(manager: LockManager, raw_metastore: Hive) -> None:
    """The metastore itself would remove it: its UNLOCK refuses only the granted locks of transactions."""
    holder = raw_metastore.lock((X, TABLE), agent="writer")
    with raw_metastore.transaction() as transaction:
        number = raw_metastore.lock((X, TABLE), transaction=transaction, agent="hive_update_9")
        with pytest.raises(Unsupported, match=f"ABORT TRANSACTIONS {transaction}$"):
            manager.force_unlock(str(number), reason="stuck", user="ops")
        with manager.backend.store.client() as client:  # type: ignore[attr-defined]
            assert number in {row.id for row in client.rows()}
    raw_metastore.unlock(holder)


def test_a_lease_is_no_lock_of_hives_and_a_lock_of_hives_no_lease(manager: LockManager, raw_metastore: Hive) -> None:
    lease = manager.acquire(owner="reader", reads=[DAY])
    with pytest.raises(InvalidRequest, match=rf"is not Hive's\. .* DROP FORCE LEASE {lease.id} frees it"):
        manager.force_unlock(lease.id.partition("-")[2], reason="stuck", user="ops")
    manager.verify(lease)
    number = raw_metastore.lock((S, DAY), agent="reader")
    for lease_id in (f"metastore-{number}", "metastore-999999", "another-store-1"):
        assert not manager.force_release(lease_id, reason="typo", user="ops")
    assert raw_metastore.granted(number)


def test_show_locks_is_that_of_hives_transactional_manager(manager: LockManager, raw_metastore: Hive) -> None:
    lease = manager.acquire(owner="ours", writes=["dw.shown/dt=2013-01-01"])
    raw_metastore.lock((hive.LockType.SHARED_READ, "dw.shown/dt=2013-01-01"))
    session = StatementSession(manager, user="ann")
    (shown,) = session.run("SHOW LOCKS dw.shown PARTITION (dt='2013-01-01')")
    assert len(shown.columns) == 13
    held, waits = shown.records()
    assert (held["Lock ID"], held["State"], held["Type"]) == (f"{lease.token}.1", "ACQUIRED", "EXCLUSIVE")
    assert (held["Database"], held["Table"], held["Partition"]) == ("dw", "shown", "dt=2013-01-01")
    assert (waits["State"], waits["Blocked By"], waits["Type"]) == ("WAITING", f"{lease.token}.1", "SHARED_READ")
    assert str(shown.text).startswith("Lock ID\tDatabase\tTable\tPartition\tState\tBlocked By\t")
    (everything,) = session.run("SHOW LOCKS")
    assert everything.text == shown.text
    assert [result.rows for result in session.run("SHOW LOCKS dw.other; SHOW LOCKS DATABASE lake")] == [(), ()]
    manager.release(lease)


@pytest.mark.parametrize("value", ["US", "a:b", "100%", "x"])
def test_show_locks_of_a_partition_finds_it_in_each_releases_spelling(manager: LockManager, value: str) -> None:
    """Hive 3.1 keeps names of partitions in lower case, and Hive 4 escapes them again."""
    lease = manager.acquire(owner="writer", writes=[LockObject("dw", "spelt", (("p", value),))])
    session = StatementSession(manager, user="ann")
    (shown, other) = session.run(f"SHOW LOCKS dw.spelt PARTITION (p='{value}'); SHOW LOCKS dw.spelt PARTITION (p='y')")
    assert [row[0] for row in shown.rows] == [f"{lease.token}.1"]
    assert other.rows == ()
    manager.release(lease)
