"""Statements over the memory backend: how they are read, what they do, and what they print."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.errors import (
    HiveLockError,
    InvalidRequest,
    LeaseAlreadyExists,
    LockLost,
    LockTimeout,
    Unsupported,
)
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.hive.transactional import TransactionalLock
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import Blocker, Holder, LockMode, LockObject, Waiter, WaitsFor
from airflow_hivelock.locks.statements import hints, render
from airflow_hivelock.locks.statements.parse import parse
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.locks.statements.statement import (
    SYNTAX,
    AcquireLock,
    DropForceLease,
    DropForceLock,
    ExplainLocks,
    ShowLease,
    ShowLocks,
    ShowWaiters,
    Statement,
    Unlock,
    Use,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_hivelock.locks.statements.statement import Result

DEADLINE_S = 30.0
T = LockObject("dw", "t")
DAY = LockObject("dw", "t", (("dt", "2013-01-01"),))


@pytest.fixture
def manager() -> LockManager:
    return LockManager(MemoryBackend())


@pytest.fixture
def session(manager: LockManager) -> StatementSession:
    return StatementSession(manager, user="ann", database="dw")


def run(session: StatementSession, text: str) -> Result:
    """The last statement's result."""
    *_, last = session.run(text)
    return last


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SHOW LOCKS", ShowLocks(None, False)),
        ("show locks extended;", ShowLocks(None, True)),
        ("show locks t", ShowLocks(T, False)),
        ("show locks `extended` extended", ShowLocks(LockObject("dw", "extended"), True)),
        ("Show Locks other.T Extended", ShowLocks(LockObject("other", "t"), True)),
        ("show locks t partition (dt='2013-01-01') extended", ShowLocks(DAY, True)),
        ("show locks database other", ShowLocks(LockObject("other"), False)),
        ("show locks schema other extended", ShowLocks(LockObject("other"), True)),
        ("lock table t shared", AcquireLock(T, LockMode.SHARED, "lock table t shared")),
        (
            "-- why\nLOCK\tTABLE `DW` . `T` -- what\n EXCLUSIVE -- how",
            AcquireLock(T, LockMode.EXCLUSIVE, "LOCK\tTABLE `DW` . `T` -- what\n EXCLUSIVE"),
        ),
        ("lock table exclusive exclusive", AcquireLock(LockObject("dw", "exclusive"), LockMode.EXCLUSIVE, "")),
        ("lock database d shared", AcquireLock(LockObject("d"), LockMode.SHARED, "lock database d shared")),
        ("unlock table t partition(DT = date '2013-01-01')", Unlock(DAY)),
        ("unlock table t partition (`dt`='2013' \"-01\"'-01')", Unlock(DAY)),
        (r"unlock table t partition (dt='\062013\-01-0\u0031')", Unlock(DAY)),
        ("unlock table t partition (dt='2013-01-01', hr=04)", Unlock(LockObject("dw", "t", (*DAY.partition, ("hr", "4"))))),
        (r"unlock table t partition (s='a;b\'c /=%\\')", Unlock(LockObject("dw", "t", (("s", r"a;b'c /=%" + "\\"),)))),
        ("unlock schema d", Unlock(LockObject("d"))),
        ("show lease *", ShowLease(None)),
        ("show lease t", ShowLease(T)),
        ("show waiters", ShowWaiters(None)),
        ("Show Waiters other.T;", ShowWaiters(LockObject("other", "t"))),
        ("show waiters t partition (dt='2013-01-01')", ShowWaiters(DAY)),
        ("show waiters database other", ShowWaiters(LockObject("other"))),
        ("drop force lease *", DropForceLease(None)),
        ("drop force lease t", DropForceLease(T)),
        ("drop force lease t partition (dt='2013-01-01')", DropForceLease(DAY)),
        ("drop force lease 0a1b2c-17", DropForceLease("0a1b2c-17")),
        ("drop force lease 17", DropForceLease("17")),
        ("drop force lease 'any id'", DropForceLease("any id")),
        ("drop force lock ann_2026_1d7b-4e10", DropForceLock("ann_2026_1d7b-4e10", None)),
        ("drop force lock 'ann on_2026' on table t", DropForceLock("ann on_2026", T)),
        ("Drop Force Lock ann_1e9-c on database other", DropForceLock("ann_1e9-c", LockObject("other"))),
        ("explain locks select ';' from t -- all", ExplainLocks("select ';' from t", "dw")),
        ("use Other", Use("other")),
    ],
)  # fmt: skip
def test_statements_are_read_as_hive_reads_them(text: str, statement: Statement) -> None:
    (parsed,) = parse(text, "dw")
    if isinstance(statement, AcquireLock) and not statement.text:
        statement = AcquireLock(statement.target, statement.mode, text)
    assert parsed == statement


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("show tables", r"is not run here\. EXPLAIN LOCKS shows .* The statements are:\nSHOW LOCKS"),
        ("show locks extended extended", "the end of the statement is expected at 'extended'"),
        ("show locks partition (dt='1')", "a name .* is expected at .partition"),
        ("lock table t", "SHARED or EXCLUSIVE is expected at its end"),
        ("lock table t ſhared", "SHARED or EXCLUSIVE is expected at 'ſhared'"),
        ("lock table t shared exclusive", "the end of the statement"),
        ("lock t shared", "TABLE or DATABASE is expected at 't shared'"),
        ("lock database d partition (dt='1') shared", "SHARED or EXCLUSIVE"),
        ("lock table a.b.c shared", "SHARED or EXCLUSIVE"),
        ("lock table 2013t shared", "a name .in back quotes"),
        ("lock table `a b` shared", "'a b' is not a table name"),
        ("lock table `dw.t` shared", r"'dw\.t' is not a table name"),
        ("lock table `\u212a` shared", "letters, digits"),
        ("lock table 't' shared", "a name"),
        ("lock table t partition () shared", "a name"),
        ("drop force lock on table t", "the id of Hive's query, .* is expected at 'on table t'"),
        ("drop force lock a b", "the id of Hive's query, .* is expected at 'a b'"),
        ("drop force lock a-1 on t", "TABLE or DATABASE is expected at 't'"),
        ("lock table t partition (dt) shared", "= is expected"),
        ("lock table t partition (dt=) shared", "the value of dt"),
        ("lock table t partition (dt='') shared", "a value of dt that is not empty"),
        ("lock table t partition (dt=2013-01-01) shared", "'.' or ',' is expected at '-01-01"),
        ("lock table t partition (dt=-1) shared", "the value of dt"),
        ("lock table t partition (dt=1.5) shared", "the value of dt"),
        ("lock table t partition (dt='1' shared", "'.' or ','"),
        ("lock table t partition (dt='1', DT='2') shared", "names a partition column twice"),
        ("lock table t partition (dt='x-SHARED-1') shared", "ends like a lock of Hive's"),
        (r"lock table t partition (dt='\u12') shared", "four hexadecimal digits"),
        ("lock table t partition (dt='1) shared", "does not end"),
        ("lock table t -- \udcff\n shared", "not in UTF-8"),
        ("unlock database d.t", "the end of the statement"),
        ("show lease", "a name"),
        ("show waiters *", "a name"),
        ("show waiters t extended", "the end of the statement"),
        ("drop force lease", "a name"),
        ("drop force lease a-1 b-2", "the end of the statement"),
        ("drop force lease *, t", "the end of the statement"),
        ("explain locks", "the statement to explain"),
        ("explain select 1", "is not run here"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse(text, "dw")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("show lock t", "Did you mean SHOW LOCKS?"),
        ("SHOW LOKCS", "Did you mean SHOW LOCKS?"),
        ("locks", "Did you mean SHOW LOCKS?"),
        ("show leases *", "Did you mean SHOW LEASE?"),
        ("show waiter", "Did you mean SHOW WAITERS?"),
        ("unlok table t", "Did you mean UNLOCK TABLE?"),
        ("drop forced lease *", "Did you mean DROP FORCE LEASE?"),
        ("show locks dw.t/dt=2013-01-01", "Did you mean show locks dw.t PARTITION (dt='2013-01-01')?"),
        ("lock table t/dt=1/hr=04 exclusive", "Did you mean lock table t PARTITION (dt='1', hr='04') exclusive?"),
        ("drop force lease dw.t/dt=2013-01-01", "Did you mean drop force lease dw.t PARTITION (dt='2013-01-01')?"),
        (
            "show locks dw.t/dt='2013-01-01' extended",
            "Did you mean show locks dw.t PARTITION (dt='2013-01-01') extended?",
        ),
        (
            "show locks t partition (dt=2013-01-01)",
            "Write a value that is not a whole number in quotes: dt='2013-01-01'",
        ),
        ("show locks t partition (dt=2013-01-01, hr=4)", "in quotes: dt='2013-01-01'"),
        ("show locks t partition (c=abc)", "in quotes: c='abc'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(text, "dw")
    assert hint in str(refused.value)


@pytest.mark.parametrize("text", ["select 1", "show tables", "truncate table t", "insert into t select 1 / 2"])
def test_another_statement_is_not_taken_for_a_slip(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(text, "dw")
    assert "Did you mean" not in str(refused.value)


def test_every_statement_can_be_meant() -> None:
    lines = [line for line in SYNTAX.splitlines() if not line.startswith(("USE", "SET", "UNLOCK {"))]
    assert [line for line in lines if not line.startswith(hints.BEGINNINGS)] == []


def test_nothing_runs_unless_all_of_it_can_be_read(session: StatementSession) -> None:
    for end in ("; lock table", "; drop force lease *"):  # the second one: without a reason
        with pytest.raises(InvalidRequest):
            session.run("lock table t shared" + end)
    assert not session.manager.show()


def test_use_holds_for_what_follows_and_for_the_session(session: StatementSession) -> None:
    run(session, "lock table t shared; use b; lock table t shared;; lock table `dw`.u shared")
    assert {str(holder.object) for holder in session.manager.show()} == {"dw", "dw.t", "b", "b.t", "dw.u"}
    run(session, "lock table u shared")
    assert session.manager.show("b.u")


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


@pytest.mark.parametrize(
    ("what", "freed"),
    [
        ("*", {"a", "b", "c", "d"}),
        ("t", {"a", "b"}),
        ("t partition (dt='1')", {"b"}),
        ("other.t", {"d"}),
        ("nothing", set()),
        ("{c}", {"c"}),
        ("'{c}'", {"c"}),
    ],
)
def test_drop_force_lease_drops_what_it_names_and_says_who_and_why(
    manager: LockManager, what: str, freed: set[str]
) -> None:
    leases = {
        owner: manager.acquire(owner=owner, reads=[name])
        for owner, name in {"a": "dw.t", "b": "dw.t/dt=1", "c": "dw", "d": "other.t"}.items()
    }
    session = StatementSession(manager, user="ann", database="dw", reason="gone")
    result = run(session, f"drop force lease {what.format(c=leases['c'].id)}")
    assert {record["user"] for record in result.records()} == freed
    assert {lease.owner for lease in manager.leases()} == set(leases) - freed
    assert {(entry.owner, entry.user, entry.reason) for entry in manager.audit()} == {
        (owner, "ann", "gone") for owner in freed
    }


def test_a_lease_that_does_not_stand_is_not_dropped_in_silence(manager: LockManager) -> None:
    with pytest.raises(HiveLockError, match="no lease memory-99 stands; SHOW LEASE"):
        run(StatementSession(manager, user="ann", reason="gone"), "drop force lease memory-99")


def test_show_lease_has_a_row_for_each_object(manager: LockManager, session: StatementSession) -> None:
    lease = manager.acquire(owner="job", reads=["other.u"], writes=["dw.t/dt=1"], lease_s=60)
    rows = run(session, "show lease *").records()
    assert _leased(rows) == [("dw", "t", "dt=1", "x"), ("other", "u", "", "s")]
    assert {(row["lease_id"], row["user"], row["token"]) for row in rows} == {(lease.id, "job", lease.token)}
    assert str(rows[0]["start_utc"]).endswith("+00:00")
    assert str(rows[0]["start_utc"]) < str(rows[0]["end_utc"])
    assert len(run(session, "show lease t").rows) == 1
    assert _leased(run(session, "show lease * extended").records()) == [
        ("dw", "", "", "s"),
        ("dw", "t", "", "s"),
        ("dw", "t", "dt=1", "x"),
        ("other", "", "", "s"),
        ("other", "u", "", "s"),
    ]
    assert len(run(session, "show lease t extended").rows) == 2


def test_show_lease_has_a_table_that_was_asked_for_beside_its_day(
    manager: LockManager, session: StatementSession
) -> None:
    manager.acquire(owner="job", reads=["dw.t"], writes=["dw.t/dt=1"])
    assert _leased(run(session, "show lease *").records()) == [("dw", "t", "", "s"), ("dw", "t", "dt=1", "x")]


def _leased(records: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("db_name", "table_name", "partition_name", "lease_type")) for row in records]


def test_a_script_grabs_a_lease_and_gives_it_back_a_part_at_a_time(
    manager: LockManager, session: StatementSession
) -> None:
    grabbed = run(
        session, "grab lease t partition (dt=1) exclusive, t partition (dt=2) exclusive, other.u shared"
    ).records()
    assert len({row["lease_id"] for row in grabbed}) == 1
    lease_id = str(grabbed[0]["lease_id"])
    assert _leased(grabbed) == [("dw", "t", "dt=1", "x"), ("dw", "t", "dt=2", "x"), ("other", "u", "", "s")]
    for text in (f"drop lease {lease_id} on t partition (dt=1), other.u", f"extend lease '{lease_id}'"):
        run(session, text)
    (left,) = manager.leases()
    assert [str(lock) for lock in left.locks] == ["dw SHARED", "dw.t SHARED", "dw.t/dt=2 EXCLUSIVE"]
    again = run(session, f"drop lease {lease_id} on t partition (dt=1)")
    assert again.rows == ()
    (dropped,) = run(session, f"drop lease {lease_id}").records()
    assert dropped["objects"] == "dw.t/dt=2"
    assert not manager.leases()
    for gone in (f"drop lease {lease_id}", "drop lease 123", "drop lease 123 on t"):
        with pytest.raises(LockLost, match=r"no lease .* is held: it was dropped, has expired or was freed by force"):
            run(session, gone)
    with pytest.raises(LockLost, match="grab another"):
        run(session, f"extend lease {lease_id}")


def test_a_lease_that_is_in_the_way_is_named_and_nothing_is_grabbed(manager: LockManager) -> None:
    ann, bob = (
        StatementSession(manager, user="ann", database="dw"),
        StatementSession(manager, user="bob", database="dw"),
    )
    (row, _) = run(ann, "grab lease t exclusive, u shared").records()
    assert row["user"] == "ann"
    with pytest.raises(LeaseAlreadyExists, match="ann"):
        run(bob, "grab lease v exclusive, t shared")
    assert len(manager.leases()) == 1
    for text in ("drop lease {}", "extend lease {}", "drop lease {} on t"):
        with pytest.raises(HiveLockError, match="not bob's, but ann"):
            run(bob, text.format(row["lease_id"]))
    for text in ("grab lease t", "grab lease t shared, t exclusive", "drop lease on t", "extend lease", "drop lease"):
        with pytest.raises(InvalidRequest):
            run(ann, text)
    with pytest.raises(InvalidRequest, match="never held"):
        run(ann, f"drop lease {row['lease_id']} on v")
    assert len(manager.leases()) == 1


@pytest.fixture
def queue(manager: LockManager) -> Iterator[None]:
    """Two days are held; an ALTER TABLE waits for both, a rerun of five days behind it, another table's job for itself."""
    held = ["dw.t/dt=1", "dw.t/dt=2", "dw.u"]
    for number, name in enumerate(held):
        manager.acquire(owner=f"day {number}", writes=[name])
    rerun = [f"dw.t/dt={day}" for day in range(1, 6)]
    waiting = [
        manager.begin(rules.request(owner, writes=writes), lambda: None)
        for owner, writes in {"alter": ["dw.t"], "rerun": rerun, "other": ["dw.u"]}.items()
    ]
    for request in waiting:
        request.poll()
    yield
    for request in waiting:
        request.withdraw()


@pytest.mark.usefixtures("queue")
def test_show_waiters_prints_the_queue_and_who_is_in_the_way(session: StatementSession) -> None:
    result = run(session, "show waiters")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "NOW", result.text or "")
    assert text.split("\n") == [
        "1\talter waits for dw.t EXCLUSIVE since NOW",
        "\tday 1 holds dw.t SHARED",
        "\tday 0 holds dw.t SHARED",
        "2\trerun waits for dw.t/dt=1 EXCLUSIVE, dw.t/dt=2 EXCLUSIVE, dw.t/dt=3 EXCLUSIVE and 2 more since NOW",
        "\talter waits ahead for dw.t EXCLUSIVE",
        "\tday 1 holds dw.t/dt=2 EXCLUSIVE",
        "\tday 0 holds dw.t/dt=1 EXCLUSIVE",
        "1\tother waits for dw.u EXCLUSIVE since NOW",
        "\tday 2 holds dw.u EXCLUSIVE",
    ]
    rows = result.records()
    assert [list(row) for row in rows] == 3 * [
        ["place", "user", "waits_for", "priority", "wants", "since_utc", "in_the_way"]
    ]
    assert [(row["place"], row["user"]) for row in rows] == [(1, "alter"), (2, "rerun"), (1, "other")]
    assert rows[1]["wants"] == ", ".join(f"dw.t/dt={day} EXCLUSIVE" for day in range(1, 6))
    assert rows[2]["in_the_way"] == "day 2 holds dw.u EXCLUSIVE"
    assert str(rows[0]["since_utc"]).endswith("+00:00")


def test_show_waiters_tells_a_slot_and_a_counted_lease_from_a_lock(
    session: StatementSession, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = rules.request("any", writes=["dw.t/dt=1"]).locks
    counted = Blocker("day 2", day[-1].object, day[-1].mode, group="reruns")
    told = [
        Waiter("day 1", day, 0, manager.now(), (), 10, WaitsFor.SLOT),
        Waiter("day 3", day, 1, manager.now(), (counted,), 1, WaitsFor.LEASE),
    ]
    monkeypatch.setattr(manager.backend, "waiters", lambda target=None: told)
    result = run(session, "show waiters")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "NOW", result.text or "")
    assert text.split("\n") == [
        "0\tday 1 waits for a worker slot, holding nothing, to lock dw.t/dt=1 EXCLUSIVE since NOW, priority 10",
        "1\tday 3 waits for a lease of its group, holding nothing, to lock dw.t/dt=1 EXCLUSIVE since NOW",
        "\tday 2 holds a lease of 'reruns'",
    ]
    assert [(row["user"], row["waits_for"], row["priority"]) for row in result.records()] == [
        ("day 1", "slot", 10),
        ("day 3", "lease", 1),
    ]


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("target", "users"),
    [
        ("t", ["alter", "rerun"]),
        ("t partition (dt='1')", ["alter", "rerun"]),
        ("t partition (dt='9')", ["alter"]),
        ("u", ["other"]),
        ("database dw", ["alter", "rerun", "other"]),
        ("nothing", []),
    ],
)
def test_show_waiters_of_an_object_has_those_who_want_what_it_lies_in_too(
    session: StatementSession, target: str, users: list[str]
) -> None:
    result = run(session, f"show waiters {target}")
    assert [row["user"] for row in result.records()] == users
    assert bool(result.text) == bool(users)


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
        "dt='1', hr='x'": "'x' is no int",
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


def test_rows_are_sorted_and_shown_as_hive_does(manager: LockManager, session: StatementSession) -> None:
    manager.acquire(owner="b", reads=["dw.t", "dw.t/s=a b/hr=1", "dw.t/s=a/hr=1"], writes=["dw.t2"], query="a\n\tb")
    result = run(session, "show locks")
    assert result.text == (
        "dw@t\tSHARED\ndw@t@s=a\tSHARED\ndw@t@s=a b\tSHARED\ndw@t@s=a b/hr=1\tSHARED\ndw@t@s=a/hr=1\tSHARED\n"
        "dw@t2\tEXCLUSIVE"
    )
    assert [record["object"] for record in result.records()] == [
        *("dw.t", "dw.t/s=a", "dw.t/s=a b", "dw.t/s=a b/hr=1", "dw.t/s=a/hr=1", "dw.t2")
    ]
    extended = (run(session, "show locks t2 extended").text or "").split("\n")
    assert extended[1] == "LOCK_QUERYID:b\t "
    assert extended[3:] == ["LOCK_MODE:EXPLICIT\t ", "LOCK_QUERYSTRING:a b\t "]
    assert run(session, "show locks nothing extended").text == ""


def test_a_query_over_several_lines_makes_the_rows_that_hive_makes_of_it() -> None:
    """As Hive 2.3.10 printed them; of a lock without four fields it prints the first row alone."""
    now = LockManager(MemoryBackend()).now()
    query = "insert overwrite\n  table\tx\ty\nselect 1\r\nfrom\ru\n\nend"
    holders = [
        Holder(T, LockMode.EXCLUSIVE, "q", now, details=("q", "1", "EXPLICIT", query)),
        Holder(T, LockMode.SHARED, "q", now),
    ]
    assert render.show_locks(holders, extended=True).split("\n") == [
        "dw@t\tEXCLUSIVE",
        "LOCK_QUERYID:q\t ",
        "LOCK_TIME:1\t ",
        "LOCK_MODE:EXPLICIT\t ",
        "LOCK_QUERYSTRING:insert overwrite\t ",
        "  table\tx",
        "select 1\t ",
        "from\t ",
        "u\t ",
        "\t ",
        "end\t ",
        "dw@t\tSHARED",
    ]


def test_transactional_rows_are_what_hive_prints_where_it_locks_in_the_metastore() -> None:
    """The text is what DDLTask.dumpLockInfo of Hive 2.3.10 wrote for these three locks."""
    lock = TransactionalLock
    rows = [
        lock(7, 1, "dw", "t", "dt=2013-01-01", "ACQUIRED", "SHARED_READ", "root", "host1", None, None, 1795332941243,
             1795332941000, "hive_1"),
        lock(8, 2, "dw", None, None, "WAITING", "EXCLUSIVE", "eve", "host2", blocked_by=(7, 1), txn_id=12),
        lock(9, None, "dw", None, None, "WAITING", "SHARED_WRITE", "u", "h", txn_id=12, last_heartbeat_ms=5),
    ]  # fmt: skip
    assert render.render_transactional(rows) == (
        "Lock ID\tDatabase\tTable\tPartition\tState\tBlocked By\tType\tTransaction ID\tLast Heartbeat\tAcquired At\t"
        "User\tHostname\tAgent Info\n"
        "7.1\tdw\tt\tdt=2013-01-01\tACQUIRED\t            \tSHARED_READ\tNULL\t1795332941243\t1795332941000\troot\t"
        "host1\thive_1\t\n"
        "8.2\tdw\tNULL\tNULL\tWAITING\t7.1\tEXCLUSIVE\t12\t0\tNULL\teve\thost2\tNULL\t\n"
        "9\tdw\tNULL\tNULL\tWAITING\t            \tSHARED_WRITE\t12\t5\tNULL\tu\th\tNULL\t"
    )


VOCABULARY = """show locks lock unlock table database schema partition extended shared exclusive lease drop force use explain
    t dw t1 `t` `a``b` memory-3 ( ) = , . ; * ' " ` -- /* */ dt dt='1' 'x' "y" 5 05 1e5 0x1 date null select {{ }} {% %} \\ \\'
    \\u0041 % ü \u212a ſ \x00 \ud800 @ # $ : :: - r'x' x'41' b'0' $$"""
WORDS = VOCABULARY.split()
LOCKS = "lock table dw.t partition (dt='{value}', hr={hour}) {mode}"


def hostile(dice: random.Random) -> str:
    """A lock statement that something has happened to, or words in a heap."""
    if dice.random() < 0.3:
        return " ".join(dice.choices(WORDS, k=dice.randint(0, 12)))
    text = LOCKS.format(
        value=dice.choice(["1", "a b", "x;y"]), hour=dice.randint(0, 9), mode=dice.choice(["shared", "exclusive"])
    )
    for _ in range(dice.randint(0, 4)):
        at = dice.randint(0, len(text))
        text = text[:at] + dice.choice([dice.choice(WORDS), "", " "]) + text[at + dice.randint(0, 3) :]
    return text


def _bare(text: str) -> str:
    return re.sub(r"['\"`\s]", "", text).lower()


def test_no_text_breaks_a_session_or_locks_what_it_does_not_name() -> None:
    seed = int(os.environ.get("STATEMENTS_SEED", random.SystemRandom().randrange(2**32)))
    print(f"STATEMENTS_SEED={seed}")
    dice = random.Random(seed)
    locked = refused = 0
    for _ in range(4_000):
        text = hostile(dice)
        session = StatementSession(LockManager(MemoryBackend()), user="eve", reason="why")
        try:
            for result in session.run(text):
                result.records()
        except HiveLockError:
            refused += 1
        bare = _bare(text)
        for lease in session.manager.leases():
            leaf = max((lock.object for lock in lease.locks), key=lambda target: len(target.path))
            locked += 1
            assert re.search("lock.*(table|database|schema).*(shared|exclusive)", text, re.IGNORECASE | re.DOTALL), text
            names = [leaf.database, leaf.table, *(column for column, _ in leaf.partition)]
            assert all(_bare(name) in bare for name in names if name != "default"), (text, leaf)
            if "\\" not in text and "--" not in text and "/*" not in text:
                assert all(_bare(value) in bare for _, value in leaf.partition), (text, leaf)
    assert min(locked, refused) > 200, "nothing was tried"


def test_a_session_that_turns_locking_off_locks_nothing_as_in_hive(
    session: StatementSession, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(session, "set hive.support.concurrency=false").text == ""
    assert caplog.messages[-1].startswith("NOT LOCKED from here on: SET hive.support.concurrency=false; others may")
    for sql in ("lock table t exclusive", "unlock table t"):
        with pytest.raises(HiveLockError, match="turned off in this session, by SET hive"):
            run(session, sql)
    result = run(session, "explain locks load data inpath '/in' into table t")
    assert result.text == "LOCK INFORMATION:\n-- NOT LOCKED: SET hive.support.concurrency=false"
    assert (result.records(), session.manager.show()) == ([], [])
    assert run(session, "show locks").text == ""
    run(session, "SET hive.support.concurrency = TRUE; lock table t exclusive")
    assert session.manager.show(T)
    with pytest.raises(InvalidRequest, match="'no': use true or false"):
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


def test_show_locks_extended_names_the_job_that_runs_under_the_lease(session: StatementSession) -> None:
    lease = session.manager.acquire(owner="o", writes=["dw.t"], query="INSERT INTO dw.t SELECT 1")
    assert "LOCK_QUERYSTRING:INSERT INTO dw.t SELECT 1\t" in (run(session, "show locks t extended").text or "")
    for application in ("", "[", "{}", "[1]", '{"kind":"processes"}', '{"job_id":1}'):
        session.manager.start_work(lease, "submit", application)
        assert run(session, "show locks t extended").records()[0]["query"] == "INSERT INTO dw.t SELECT 1"
    session.manager.start_work(lease, "submit", '{"kind":"spark","conn_id":"c","job_id":"application_1_0001"}')
    said = "INSERT INTO dw.t SELECT 1 (runs as application_1_0001)"
    result = run(session, "show locks t extended")
    assert (f"LOCK_QUERYSTRING:{said}\t" in (result.text or ""), result.records()[0]["query"]) == (True, said)


def test_other_settings_are_passed_over_and_each_is_said(
    session: StatementSession, caplog: pytest.LogCaptureFixture
) -> None:
    for line in ("set", "set -v", "set hive.txn.manager", "set mapred.job.name=a=b 'c'"):
        assert run(session, line).text == ""
    assert caplog.messages == ["SET mapred.job.name=a=b 'c' has nothing to do with locks, and is passed over"]
    run(session, "set hive.txn.manager=org.apache.hadoop.hive.ql.lockmgr.DbTxnManager")
    assert (caplog.records[-1].levelname, "changes no lock: the lock store is" in caplog.messages[-1]) == (
        "WARNING",
        True,
    )


@pytest.mark.parametrize(
    ("follows", "properties_set", "format_set", "said"),
    [
        ("stricter", "EXCLUSIVE", "EXCLUSIVE", "by the stricter of Hive's documents and real Hive"),
        ("documented", "EXCLUSIVE", "SHARED", "as Hive's documents have it"),
        ("hive", "SHARED", "EXCLUSIVE", "as real Hive has it"),
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
    backend = ZooKeeperBackend.__new__(ZooKeeperBackend)  # nobody is asked
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
        "-- by the stricter of Hive's documents and real Hive; too many for one transaction of this lock store, which takes tables",
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
        "-- by the stricter of Hive's documents and real Hive; this lock store has a hierarchy of its own, and takes nothing "
        "on what lies above",
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


@pytest.mark.parametrize("statement", ["show transactions", "abort transactions 7 8"])
def test_a_store_without_transactions_says_where_they_are(session: StatementSession, statement: str) -> None:
    session.reason = "stuck"
    with pytest.raises(Unsupported, match="Hive keeps them in its metastore"):
        run(session, statement)


def test_an_abort_has_its_reason_and_its_ids(session: StatementSession) -> None:
    with pytest.raises(InvalidRequest, match=r"ABORT TRANSACTIONS: \w+ must say why"):
        session.run("abort transactions 7")
    for text in ("abort transactions", "abort transactions 7, 8", "abort transactions all"):
        with pytest.raises(InvalidRequest, match="a transaction's id is expected"):
            session.run(text)
