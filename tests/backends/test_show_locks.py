"""The statements here and real Hive's: how both print the same locks, and how both read the same text."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import HiveLockError, LockManager, LockTimeout, connect
from airflow_hivelock.locks.statements.parse import parse
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.locks.statements.statement import AcquireLock
from tests.support.servers import HiveError, HiveSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration

DAY = "dw.t partition (dt='2013-01-01')"
ODD = "dw.odd partition (ds='10:00/x=y%z {a}', hr=5)"
FORMS = [
    "show locks",
    "SHOW LOCKS extended -- all of it",
    "show locks dw.t",
    "show locks `dw`.`T` EXTENDED",
    f"show locks {DAY}",
    "show locks dw.t PARTITION(DT='2013-01-''01') extended",
    "show locks dw.u extended",
    "show locks dw.odd extended",
    "show locks dw.free",
    "show locks dw.free extended",
]
SEED = 20130101


@pytest.fixture(scope="module")
def hive(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveSession]:
    config = {"hive.zookeeper.namespace": "hive_show_locks", "hive.lock.sleep.between.retries": "1s"}
    with HiveSession(tmp_path_factory.mktemp("hive"), zookeeper=zookeeper, config=config) as session:
        session.run("create database dw")
        for table in ("t", "u", "free"):
            session.run(f"create table dw.{table} (x int) partitioned by (dt string)")
            session.run(f"alter table dw.{table} add partition (dt='2013-01-01') partition (dt='2013-01-02')")
        session.run("create table dw.odd (x int) partitioned by (ds string, hr int)")
        session.run("alter table dw.odd add partition (ds='10:00/x=y%z {a}', hr=5)")
        yield session


@pytest.fixture
def manager(zookeeper: ZooKeeperServer, hive: HiveSession) -> Iterator[LockManager]:
    with connect(f"zookeeper://{zookeeper.hosts}/hive_show_locks?root=/hivelock_show_locks") as manager:
        yield manager
        for lease in manager.leases():
            manager.force_release(lease.id, reason="the test is over", user="test")
        assert not manager.show(), "a lock was left behind"


@pytest.fixture
def session(manager: LockManager) -> StatementSession:
    return StatementSession(manager, user="ann")


def ours(session: StatementSession, statement: str) -> list[str]:
    (result,) = session.run(statement)
    assert result.text is not None
    return result.text.split("\n") if result.text else []


def in_order(lines: list[str]) -> list[str]:
    """Hive leaves to chance which of several SHARED locks on one object comes first."""
    starts = [number for number, line in enumerate(lines) if re.match(r"\w+@.*\t(SHARED|EXCLUSIVE)$", line)]
    assert starts[:1] == [0][: len(lines)], lines
    blocks = [lines[start:end] for start, end in pairwise([*starts, len(lines)])]
    firsts = [block[0] for block in blocks]
    ordered = sorted(blocks, key=lambda block: (firsts.index(block[0]), block))
    assert [block[0] for block in ordered] == firsts, "locks of one object are not together"
    return [line for block in ordered for line in block]


def hives_own(hive: HiveSession, manager: LockManager) -> Callable[[], None]:
    """Explicit locks of Hive's, two readers on one partition, and a query over several lines with a tab."""
    statements = [f"lock table {DAY} shared"] * 2 + [f"lock table {ODD} exclusive", "lock table dw.u\n\tshared -- two"]
    for statement in statements:
        hive.run(statement)

    def end() -> None:
        for target in (DAY, ODD, "dw.u"):
            hive.run(f"unlock table {target}")

    return end


def all_ours(hive: HiveSession, manager: LockManager) -> Callable[[], None]:
    """Leases of several objects, and a lock of the command line."""
    list(StatementSession(manager, user="ann").run("lock table dw.u exclusive"))
    for owner in ("prod/delays/2013-01-01: daily/delays/-1", "reader"):
        manager.acquire(owner=owner, reads=["dw.t/dt=2013-01-01..2013-01-31"], query="insert\n: overwrite\tx")
    manager.acquire(owner="writer", writes=["dw.t2/dt=2013-01-01", "dw.odd/ds=10%3A00%2Fx%3Dy%25z %7Ba}/hr=5", "other"])
    return lambda: None


def a_query_of_hives_beside_ours(hive: HiveSession, manager: LockManager) -> Callable[[], None]:
    """A query that waits for a lock of ours keeps what it has got so far."""
    lease = manager.acquire(owner="job", writes=["dw.u/dt=2013-01-02"])
    client = hive.session("writer")
    client.run("set hive.lock.numretries=100")
    query = "insert overwrite table dw.u\n  partition (dt='2013-01-02') select x\tfrom dw.t where dt='2013-01-01'"
    insert = client.submit(query)
    deadline = time.monotonic() + 60
    while len([holder for holder in manager.show() if holder.explicit is False]) < 4:
        assert time.monotonic() < deadline, manager.show()
        time.sleep(0.05)

    def end() -> None:
        manager.release(lease)
        insert.result(60)

    return end


@pytest.mark.parametrize("locks", [hives_own, all_ours, a_query_of_hives_beside_ours])
def test_we_print_what_hive_prints_byte_for_byte(
    hive: HiveSession,
    manager: LockManager,
    session: StatementSession,
    locks: Callable[[HiveSession, LockManager], Callable[[], None]],
) -> None:
    end = locks(hive, manager)
    try:
        assert len(ours(session, "show locks")) > 3, "nothing to see"
        for statement in FORMS:
            assert in_order(ours(session, statement)) == in_order(hive.run(statement)), statement
    finally:
        end()


def test_a_lock_of_ours_reads_as_the_same_lock_of_hives(
    hive: HiveSession, manager: LockManager, session: StatementSession
) -> None:
    def masked(statement: str) -> list[str]:
        return [re.sub(r"^(LOCK_QUERYID|LOCK_TIME):.*\t", r"\1:\t", line) for line in hive.run(statement)]

    for target, mode in ((DAY, "exclusive"), ("dw.u", "shared")):
        forms = [f"show locks {target}", f"show locks {target} extended"]
        hive.run(f"lock table {target} {mode}")
        expected = [masked(form) for form in forms]
        hive.run(f"unlock table {target}")
        list(session.run(f"lock table {target} {mode}"))
        assert [masked(form) for form in forms] == expected
        list(session.run(f"unlock table {target}"))
        assert [masked(form) for form in forms] == [[], []]


def test_what_hive_gets_wrong_is_right_here(hive: HiveSession, manager: LockManager, session: StatementSession) -> None:
    list(session.run(f"lock table {ODD} exclusive"))
    name = "dw@odd@ds=10%3A00%2Fx%3Dy%25z %7Ba}/hr=5\tEXCLUSIVE"
    assert name in hive.run("show locks")
    assert (hive.run(f"show locks {ODD}"), ours(session, f"show locks {ODD}")) == ([], [name])
    assert ours(session, "show locks database dw") == ["dw\tSHARED"]
    assert hive.run("show locks database dw") == hive.run("show locks"), "of all databases, and without their own locks"
    list(session.run("lock database dw shared; unlock database dw"))
    with pytest.raises(HiveError, match="Database dw is not locked"):
        hive.run("unlock database dw")


def test_lock_table_here_and_in_hive_keep_each_other_out(
    hive: HiveSession, manager: LockManager, session: StatementSession
) -> None:
    hive.run(f"lock table {DAY} exclusive")
    with pytest.raises(LockTimeout, match=r"holds dw\.t/dt=2013-01-01 EXCLUSIVE"):
        list(session.run(f"lock table {DAY} shared"))
    with pytest.raises(HiveLockError, match=r"\(Hive\) holds .* DROP FORCE LOCK"):
        list(session.run(f"unlock table {DAY}"))
    assert hive.run("show locks") == ["dw@t@dt=2013-01-01\tEXCLUSIVE"]
    hive.run(f"unlock table {DAY}")
    list(session.run(f"lock table {DAY} shared"))
    for statement in (f"lock table {DAY} exclusive", "lock table dw.t exclusive"):
        with pytest.raises(HiveError):
            hive.run(statement)
    hive.run(f"lock table {DAY} shared")
    list(session.run(f"unlock table {DAY}"))
    assert hive.run("show locks") == ["dw@t@dt=2013-01-01\tSHARED"], "UNLOCK here frees the user's own lock, no other"
    hive.run(f"unlock table {DAY}")


@pytest.mark.parametrize("statement", ["unlock table dw.t", f"unlock table {DAY}", "unlock database dw"])
def test_what_is_not_locked_is_refused_in_hives_words(
    hive: HiveSession, session: StatementSession, statement: str
) -> None:
    with pytest.raises(HiveError, match=r"\w+ dw[.t]* is not locked"):
        hive.run(statement)
    with pytest.raises(HiveLockError, match=r"\w+ dw[.t]*(/dt=2013-01-01)? is not locked"):
        list(session.run(statement))


def literals() -> list[str]:
    """String literals as a person would hardly write them."""
    dice = random.Random(SEED)
    pieces = ["a", " ", "é", ";", "--", "''", '""', "=", "/", "%", "{", "\n", r"\n", r"\\", r"\'", r"\"", r"\%", r"\_"]
    pieces += [r"\062", r"\177", r"\u0041", r"\u00e9", r"\z", r"\8", r"\t", r"\b", r"\Z", r"\062x", r"\29"]
    found = ["05", "7L", "date '2012-12-31'", "'a' 'b'", "'a'\"b\"", "'it''s'"]
    while len(found) < 60:
        quote = dice.choice("'\"")
        body = "".join(dice.choices(pieces, k=dice.randint(1, 5))).replace('""' if quote == "'" else "''", "")
        found.append(f"{quote}{body}{quote}")
    return found


def test_we_read_a_literal_as_hive_does_or_refuse_it(hive: HiveSession) -> None:
    """Hive tells in an error which partition it has looked for."""
    read, refused = 0, []
    for literal in literals():
        statement = f"lock table dw.t partition (dt={literal}) shared"
        with pytest.raises(HiveError) as said:
            hive.run(statement)
        found = re.search(r"Partition \{dt=(.*)\} for table dw\.t does not exist", said.value.message, re.DOTALL)
        try:
            (parsed,) = parse(statement)
        except HiveLockError:
            refused.append(literal)
            continue
        assert isinstance(parsed, AcquireLock)
        assert found, f"Hive refuses {statement}: {said.value.message}"
        assert parsed.target.partition == (("dt", found[1]),), statement
        read += 1
    assert read > 40, refused
