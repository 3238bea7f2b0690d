"""Two transactions on one request, of which the second begins before the first one is committed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from airflow_hivelock.locks import connect
from airflow_hivelock.locks.backends.database.transaction import StoreTransaction
from tests.backends.databases import DAY, HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks import Lease, LockManager
    from tests.support.servers import PostgresServer

pytestmark = pytest.mark.integration

OTHER_DAY = "dw.flights/dt=2013-01-02"


@pytest.fixture
def meet(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[object, object]]:
    """Run two calls at once: the second one while the first one's transaction has sent all but its commit."""

    def meet(first: Callable[[], object], second: Callable[[], object]) -> tuple[object, object]:
        real, reached, goes_on = StoreTransaction.flush, threading.Event(), threading.Event()

        def flush(transaction: StoreTransaction, *, commits: bool = False) -> None:
            if commits and threading.current_thread().name.startswith("first") and not reached.is_set():
                real(transaction)
                reached.set()
                assert goes_on.wait(HANG_S)
            real(transaction, commits=commits)

        with (
            ThreadPoolExecutor(1, "first") as one,
            ThreadPoolExecutor(1, "second") as two,
            monkeypatch.context() as held,
        ):
            held.setattr(StoreTransaction, "flush", flush)
            begun = one.submit(first)
            assert reached.wait(HANG_S)
            met = two.submit(second)
            wait_until(lambda: met.done() or _waits_for_a_row(postgres.url))
            goes_on.set()
            return begun.result(HANG_S), met.result(HANG_S)

    return meet


def _waits_for_a_row(url: str) -> bool:
    with closing(psycopg.connect(url)) as session:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event <> 'advisory'"
        found = session.execute(waiting).fetchone()
    return bool(found and found[0])


@pytest.mark.parametrize(
    "end",
    [
        lambda manager, lease: manager.release(lease),
        lambda manager, lease: manager.force_release(lease.id, reason="stale", user="ann"),
    ],
    ids=["release", "force"],
)
def test_an_end_that_meets_a_partial_release_leaves_nothing(
    end: Callable[[LockManager, Lease], bool], meet: Callable[..., tuple[object, object]], postgres_url: str
) -> None:
    with connect(postgres_url) as part, connect(postgres_url) as whole:
        lease = part.acquire(owner="holder", writes=[DAY, OTHER_DAY])
        _, ended = meet(lambda: part.release(lease, objects=[DAY]), lambda: end(whole, lease))
        assert ended is True
        assert whole.release(whole.acquire(owner="next", writes=["dw.flights"], timeout_s=HANG_S))


@pytest.mark.parametrize("take_over", [False, True], ids=["work", "take-over"])
def test_a_lease_that_changes_meanwhile_is_not_freed_by_who_has_seen_it_before(
    take_over: bool, meet: Callable[..., tuple[object, object]], postgres_url: str
) -> None:
    with connect(postgres_url) as task, connect(postgres_url) as keeper:
        lease = task.acquire(owner="task", writes=[DAY])
        seen = keeper.find(lease.id)

        def change() -> Lease:
            held = task.acquire(owner="task", writes=[DAY], attempt=1) if take_over else lease
            return task.start_work(held, "job", "application_1")

        _, freed = meet(change, lambda: keeper.force_release(lease.id, reason="stale", user="keeper", seen=seen))
        assert freed is False
        assert [held.owner for held in keeper.leases()] == ["task"]
