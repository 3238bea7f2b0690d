"""What a metastore grants by mistake, and what it excludes: our guards against HIVE-15077 and HIVE-22888, where a release has them."""

from __future__ import annotations

import itertools
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import Lease, LockLost, LockManager, LockMode, LockTimeout, rules
from airflow_hivelock.locks.backends.metastore.row import NUMBERS
from airflow_hivelock.locks.model import LockType as Type
from tests.backends.metastores import (
    DAY,
    EXCL_WRITE,
    HIVE,
    TABLE,
    Hive,
    S,
    X,
    has_excl_write,
    hides_older_locks,
    passes_waiting_writers,
)
from tests.conformance import Polling

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[[], LockManager]


pytestmark = pytest.mark.integration


@pytest.fixture
def manager(connect_metastore: Connect) -> LockManager:
    return connect_metastore()


@passes_waiting_writers
def test_a_waiting_writer_is_not_let_in_beside_a_reader_who_came_later(
    manager: LockManager, raw_metastore: Hive
) -> None:
    """HIVE-15077: the reader passes the waiting writer, who is then granted without a look at it."""
    first = raw_metastore.lock((S, TABLE))
    ours = Polling.queued(manager, "writer", writes=[TABLE])
    late = raw_metastore.lock((S, TABLE))
    assert raw_metastore.granted(late), "the server is without the fault: this test shows nothing"
    raw_metastore.unlock(first)
    assert [str(by) for by in ours.blocked().by] == [f"hive_query_1 holds {TABLE} SHARED"]
    assert {holder.owner for holder in manager.show(TABLE)} == {"hive_query_1"}
    raw_metastore.unlock(late)
    assert ours.granted()


@passes_waiting_writers
def test_that_writer_is_let_in_if_it_believes_the_metastore(manager: LockManager, raw_metastore: Hive) -> None:
    first, writer, late = raw_metastore.lock((S, TABLE)), raw_metastore.lock((X, TABLE)), raw_metastore.lock((S, TABLE))
    raw_metastore.unlock(first)
    assert raw_metastore.granted(writer)
    assert raw_metastore.granted(late)
    assert {holder.mode for holder in manager.show(TABLE)} == {LockMode.SHARED, LockMode.EXCLUSIVE}


@pytest.mark.skipif(HIVE < "3", reason=f"Hive {HIVE} has HIVE-15077")
def test_a_waiting_writer_is_passed_by_nobody(manager: LockManager, raw_metastore: Hive) -> None:
    first = raw_metastore.lock((S, TABLE))
    ours = Polling.queued(manager, "writer", writes=[TABLE])
    late = raw_metastore.lock((S, TABLE))
    assert not raw_metastore.granted(late), "the server has the fault: the guards against it are needed for it"
    raw_metastore.unlock(first)
    assert ours.granted()
    assert not raw_metastore.granted(late)


@pytest.mark.skipif(HIVE < "4", reason=f"Hive {HIVE} has HIVE-22888")
@pytest.mark.parametrize(("held", "wanted"), [([(S, TABLE)], TABLE), ([(S, DAY)], DAY), ([(S, DAY), (S, "dw")], DAY)])
def test_shared_on_the_database_hides_nobody_from_hive_either(
    raw_metastore: Hive, manager: LockManager, held: list[tuple[int, str]], wanted: str
) -> None:
    raw_metastore.lock(*held, agent="report")
    raw_metastore.lock((S, "dw"), agent="create table")
    assert not raw_metastore.granted(raw_metastore.lock((X, wanted))), (
        "the server has the fault: the guards against it are needed for it"
    )


@hides_older_locks
@pytest.mark.parametrize(("held", "wanted"), [([(S, TABLE)], TABLE), ([(S, DAY)], DAY), ([(S, DAY), (S, "dw")], DAY)])
def test_shared_on_the_database_hides_no_reader_below_it(
    manager: LockManager, raw_metastore: Hive, held: list[tuple[int, str]], wanted: str
) -> None:
    """HIVE-22888: the check of locks stops at the first pair that may be ignored."""
    reader, creator = raw_metastore.lock(*held, agent="report"), raw_metastore.lock((S, "dw"), agent="create table")
    naive = raw_metastore.lock((X, wanted))
    assert raw_metastore.granted(naive), "the server is without the fault: this test shows nothing"
    raw_metastore.unlock(naive)
    with pytest.raises(LockTimeout, match=rf"report holds {wanted} SHARED"):
        manager.acquire(owner="writer", writes=[wanted])
    assert {holder.owner for holder in manager.show()} == {"report", "create table"}
    waiting = Polling(manager, "waiting writer", writes=[wanted])
    for _ in range(3):
        waiting.blocked()
        assert [waiter.owner for waiter in manager.waiters()] == ["waiting writer"], "it has lost its place"
    waiting.pending.withdraw()
    assert manager.waiters() == []
    raw_metastore.unlock(reader)
    assert manager.acquire(owner="writer", writes=[wanted]), "SHARED on a database keeps nobody from its tables"
    raw_metastore.unlock(creator)


@hides_older_locks
@pytest.mark.parametrize("call", [LockManager.renew, LockManager.verify])
def test_a_reader_learns_that_a_writer_was_let_in_beside_it(
    manager: LockManager, raw_metastore: Hive, call: Callable[[LockManager, Lease], None]
) -> None:
    lease = manager.acquire(owner="reader", reads=[DAY])
    raw_metastore.lock((S, "dw"))
    call(manager, lease)
    intruder = raw_metastore.lock((X, DAY), agent="insert overwrite")
    assert raw_metastore.granted(intruder)
    with pytest.raises(
        LockLost,
        match=rf"reader: .*insert overwrite holds {DAY} EXCLUSIVE, although that conflicts with lease {lease.id}",
    ):
        call(manager, lease)


def test_readers_and_writers_of_ours_stay_apart_where_the_metastore_lets_both_in(
    connect_metastore: Connect, raw_metastore: Hive
) -> None:
    """All clients meet the second fault at once: no two conflict, and every client gets its turn."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    inside: dict[str, bool] = {}
    broken: list[str] = []

    def work(name: str, writes: bool) -> None:
        dice = random.Random(f"{seed} {name}")
        for turn in range(4):
            owner = f"{name} {turn}"
            named: dict[str, Any] = {"writes" if writes else "reads": [dice.choice((TABLE, DAY))]}
            with connect_metastore() as session:
                lease = session.acquire(owner=owner, timeout_s=120, **named)
                inside[owner] = writes
                now = dict(inside)
                if len(now) > 1 and any(now.values()):
                    broken.append(f"{owner} beside {now}")
                session.verify(lease)
                del inside[owner]
                session.release(lease)

    kept = raw_metastore.lock((S, "dw"))
    threads = [threading.Thread(target=work, args=(f"{what}{i}", what == "w")) for what in "rw" for i in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        raw_metastore.granted(kept)  # a heartbeat, too
        threads[0].join(0.2)
        threads = [thread for thread in threads if thread.is_alive()]
    assert not broken, f"seed {seed}"
    assert not inside, "somebody did not get through"


@pytest.mark.parametrize(("one", "other"), [(TABLE, TABLE), (TABLE, DAY), (DAY, TABLE)])
def test_types_exclude_one_another_as_the_rules_say(
    connect_metastore: Connect, raw_metastore: Hive, one: str, other: str
) -> None:
    connect_metastore()
    types = [kind for kind in Type if kind is not Type.EXCL_WRITE or HIVE >= "4"]
    for held, wanted in itertools.product(types, types):
        first, second = (raw_metastore.lock((NUMBERS[kind], name)) for kind, name in ((held, one), (wanted, other)))
        excluded = rules.types_conflict(held, wanted, excl_write=HIVE >= "4")
        assert raw_metastore.granted(second) is not excluded, f"{held.name} on {one}, {wanted.name} on {other}"
        raw_metastore.unlock(second)
        raw_metastore.unlock(first)


@has_excl_write
def test_an_update_of_hives_does_not_pass_beside_a_reader(manager: LockManager, raw_metastore: Hive) -> None:
    lease = manager.acquire(owner="reader", reads=[DAY])
    assert manager.acquire(owner="another reader", reads=[DAY]), "readers keep one another away"
    update = raw_metastore.lock((EXCL_WRITE, TABLE), agent="update")
    assert not raw_metastore.granted(update)
    manager.release(lease)
    manager.force_release_all(DAY, reason="the test is over", user="pytest")
    assert raw_metastore.granted(update)
    with pytest.raises(LockTimeout, match=f"update holds {TABLE} EXCLUSIVE"):
        manager.acquire(owner="late reader", reads=[DAY])


def test_readers_pass_hives_own_reads_and_inserts_and_each_other(manager: LockManager, raw_metastore: Hive) -> None:
    assert raw_metastore.granted(raw_metastore.lock((S, TABLE), agent="insert into an ACID table"))
    for owner in ("reader", "another"):
        lease = manager.acquire(owner=owner, reads=[DAY])
        assert manager.acquire(owner=owner, reads=[DAY]) == lease
    assert raw_metastore.granted(raw_metastore.lock((S, DAY)))
    (row,) = [row for row in manager.backend.transactional(None) if row.lock_id == lease.token]  # type: ignore[attr-defined]
    assert row.type == ("SHARED_WRITE" if HIVE >= "4" else "SHARED_READ")
