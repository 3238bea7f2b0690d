"""Rows that are read one by one under their locks: an iterator that is collected before its last row."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import LockManager, LockObject
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark import interception
from airflow_hivelock.spark.holding import Planned
from airflow_hivelock.spark.leases import DriverLeases, DriverName
from airflow_hivelock.spark.statements import StatementLocks
from tests.support.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import Lease

HANG_S = 20.0
SELECT = Plan([LockObject("dw", "t")], [], {})


@pytest.fixture
def manager() -> LockManager:
    return LockManager(MemoryBackend())


@pytest.fixture
def released_by(manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that have released a lease."""
    threads: list[str] = []
    release = manager.release

    def noted(lease: Lease) -> bool:
        threads.append(threading.current_thread().name)
        return release(lease)

    monkeypatch.setattr(manager, "release", noted)
    return threads


ended_early = Mock(return_value=True)


@pytest.fixture
def leases(manager: LockManager) -> Iterator[DriverLeases]:
    ended_early.reset_mock()
    leases = DriverLeases(manager, DriverName("local-1", "local"), progress=False, ended=ended_early)
    yield leases
    leases.close()


@pytest.fixture
def begin(leases: DriverLeases, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Begin to read two rows, as ``DataFrame.toLocalIterator`` does."""
    planned: Planned = Planned(SELECT, lambda: planned)
    plans: Any = Mock(of_frame=Mock(return_value=planned))
    locks = StatementLocks(Mock(), plans, leases)
    monkeypatch.setattr(interception, "_locks_of", lambda session: locks)
    read = interception._iterator(lambda frame: iter([1, 2]))

    def begun() -> Any:
        rows = read(SimpleNamespace(sparkSession=None, _jdf=None))
        assert next(rows) == 1
        return rows

    return begun


def released(manager: LockManager) -> None:
    until(lambda: not manager.leases(), "no lease", HANG_S)


def test_an_iterator_collected_inside_the_renewal_does_not_hang_its_thread(
    begin: Callable[[], Any], leases: DriverLeases, manager: LockManager
) -> None:
    """The collector can run whenever an object is created, also while the thread adds a lease."""
    rows = [begin()]

    def collect() -> None:
        with leases._renewal._guard:
            rows.clear()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert not thread.is_alive()
    released(manager)
    with leases.locked(SELECT, "the next statement"):
        assert len(manager.leases()) == 1


@pytest.mark.parametrize("in_a_cycle", [False, True], ids=["at once", "in a cycle"])
def test_a_finalizer_asks_no_store(
    begin: Callable[[], Any], manager: LockManager, released_by: list[str], in_a_cycle: bool
) -> None:
    """A call of the store can wait, and its client may have called the collector."""
    rows = begin()
    if in_a_cycle:
        rows.itself = rows
    del rows
    gc.collect()
    released(manager)
    assert released_by == ["hive-locks"]
    assert not ended_early.called


def test_an_iterator_that_is_read_to_its_end_releases_in_its_own_thread(
    begin: Callable[[], Any], manager: LockManager, released_by: list[str]
) -> None:
    assert list(begin()) == [2]
    assert not manager.leases()
    rows = begin()
    rows.close()
    assert not manager.leases()
    assert released_by == [threading.current_thread().name] * 2


def test_an_iterator_that_outlives_the_locks_is_collected(
    begin: Callable[[], Any], leases: DriverLeases, manager: LockManager
) -> None:
    rows, abandoned = begin(), begin()
    leases.close()
    assert not manager.leases()
    del abandoned
    assert next(rows) == 2
    rows.close()
    assert len(manager.history()) == 1


def test_a_statement_keeps_the_locks_of_an_iterator_that_is_collected_meanwhile(
    begin: Callable[[], Any], leases: DriverLeases, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewal, rows = leases._renewal, [begin()]
    waits = Mock(side_effect=renewal._wait)
    monkeypatch.setattr(renewal, "_wait", waits)

    def has_looked() -> bool:
        renewal.wake()
        return waits.call_count >= before + 2  # between two waits, the thread looks at all open rows

    with leases.locked(SELECT, "a statement"):
        rows.clear()
        before = waits.call_count
        until(has_looked, "a look of the renewal thread", HANG_S)
        assert len(manager.leases()) == 1
    released(manager)


def test_a_statement_does_not_rely_on_an_iterator_that_was_collected_before(
    begin: Callable[[], Any], leases: DriverLeases, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [begin()]
    monkeypatch.setattr(leases._renewal, "end_rows", Mock(side_effect=OSError))
    rows.clear()
    with leases.locked(SELECT, "a statement"):
        assert len(manager.leases()) == 2


AT_EXIT = """
from unittest.mock import Mock
from airflow_hivelock.locks import LockManager, LockObject
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark.holding import Planned
from airflow_hivelock.spark.leases import DriverLeases, DriverName
from airflow_hivelock.spark.statements import StatementLocks

planned = Planned(Plan([LockObject("dw", "t")], [], {}), lambda: planned)
leases = DriverLeases(LockManager(MemoryBackend()), DriverName("local-1", "local"))
rows = StatementLocks(Mock(), Mock(of_frame=Mock(return_value=planned)), leases).rows(Mock(), lambda: iter([1, 2]))
rows.itself = rows
next(rows)
"""


def test_an_open_iterator_does_not_disturb_the_exit_of_python() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
