"""How statements are read, and that no text breaks a session."""

from __future__ import annotations

import os
import random
import re

import pytest

from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, Unsupported
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import LockMode, LockObject
from airflow_hivelock.locks.statements import hints
from airflow_hivelock.locks.statements.parse import parse
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.locks.statements.statement import (
    SYNTAX,
    AcquireLock,
    DropForceLease,
    DropForceLock,
    DropForceRequest,
    ExplainLocks,
    Reserve,
    ShowAudit,
    ShowHistory,
    ShowLease,
    ShowLocks,
    ShowWaiters,
    Statement,
    Unlock,
    Use,
)
from tests.unit.statements.running import run

T = LockObject("dw", "t")
DAY = LockObject("dw", "t", (("dt", "2013-01-01"),))


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
        ("reserve t until '06:00'", Reserve(T, "06:00")),
        ("reserve t partition (dt='2013-01-01') until '06:00' reason 'it' 's'", Reserve(DAY, "06:00", "its")),
        ("reserve database d until '23:30' reason 'why'", Reserve(LockObject("d"), "23:30", "why")),
        ("show waiters", ShowWaiters(None)),
        ("Show Waiters other.T;", ShowWaiters(LockObject("other", "t"))),
        ("show waiters t partition (dt='2013-01-01')", ShowWaiters(DAY)),
        ("show waiters database other", ShowWaiters(LockObject("other"))),
        ("show history", ShowHistory()),
        ("Show History other.T", ShowHistory(LockObject("other", "t"))),
        ("show history database other owner 'daily' limit 20", ShowHistory(LockObject("other"), "daily", 20)),
        ("show history owner 'daily'", ShowHistory(None, "daily")),
        ("show history `limit` limit 1", ShowHistory(LockObject("dw", "limit"), "", 1)),
        ("show audit t partition (dt='2013-01-01') limit 3", ShowAudit(DAY, "", 3)),
        ("show audit", ShowAudit()),
        ("drop force lease *", DropForceLease(None)),
        ("drop force lease t", DropForceLease(T)),
        ("drop force lease t partition (dt='2013-01-01')", DropForceLease(DAY)),
        ("drop force lease 0a1b2c-17", DropForceLease("0a1b2c-17")),
        ("drop force lease 17", DropForceLease("17")),
        ("drop force lease 'any id'", DropForceLease("any id")),
        ("drop force request here/etl/run+1/job/-1", DropForceRequest("here/etl/run+1/job/-1")),
        ("drop force request 'my job'", DropForceRequest("my job")),
        ("drop force lock ann_2026_1d7b-4e10", DropForceLock("ann_2026_1d7b-4e10", None)),
        ("drop force lock 123", DropForceLock("123", None)),
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
        ("show tables", r"cannot run here\. EXPLAIN LOCKS shows .* The statements are:\nSHOW LOCKS"),
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
        (
            "drop force lock on table t",
            "the id of Hive's query, or of a lock in a metastore, .* is expected at 'on table t'",
        ),
        ("show history owner daily", "a part of the owner, in quotes, is expected at 'daily'"),
        ("show audit limit many", "a whole number is expected at 'many'"),
        ("show audit limit 5 owner 'x'", "the end of the statement is expected"),
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
        ("lock table t partition (dt='x-SHARED-1') shared", "ends like a lock of Hive"),
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
        ("drop force lease ''", r"a lease's id, as SHOW LEASE \* lists it, is expected at \"''\""),
        ("drop lease ' '", r"a lease's id, as SHOW LEASE \* lists it, is expected at"),
        ("extend lease '' on t", r"a lease's id, as SHOW LEASE \* lists it, is expected at"),
        ("drop force lock ''", "the id of Hive's query, .* as SHOW LOCKS … EXTENDED has it, is expected at"),
        ("drop force request ''", "the owner of a request, as SHOW WAITERS lists it, is expected at"),
        ("explain locks", "the statement to explain"),
        ("explain select 1", "cannot run here"),
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


def test_other_settings_are_passed_over_and_each_is_said(
    session: StatementSession, caplog: pytest.LogCaptureFixture
) -> None:
    for line in ("set", "set -v", "set hive.txn.manager", "set mapred.job.name=a=b 'c'"):
        assert run(session, line).text == ""
    assert caplog.messages == ["SET mapred.job.name=a=b 'c' does not concern locks, and is ignored"]
    run(session, "set hive.txn.manager=org.apache.hadoop.hive.ql.lockmgr.DbTxnManager")
    assert (
        caplog.records[-1].levelname,
        "changes no lock. The URL or the connection names" in caplog.messages[-1],
    ) == (
        "WARNING",
        True,
    )


@pytest.mark.parametrize("statement", ["show transactions", "abort transactions 7 8"])
def test_a_store_without_transactions_says_where_they_are(session: StatementSession, statement: str) -> None:
    session.reason = "stuck"
    with pytest.raises(Unsupported, match="Hive keeps them in its metastore"):
        run(session, statement)


def test_an_abort_has_its_reason_and_its_ids(session: StatementSession) -> None:
    with pytest.raises(InvalidRequest, match=r"ABORT TRANSACTIONS by \w+ needs a reason"):
        session.run("abort transactions 7")
    for text in ("abort transactions", "abort transactions 7, 8", "abort transactions all"):
        with pytest.raises(InvalidRequest, match="a transaction's id is expected"):
            session.run(text)
