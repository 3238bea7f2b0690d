"""Two ``with hold(…)`` in threads of one task. Their processes have one mark."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from airflow.sdk import task

from airflow_hivelock import hold
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import MARK, Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from airflow_hivelock.locks import Lease, LockManager
    from tests.airflow.conftest import Run as Python

DEADLINE_S = 30


@contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that the body of a ``hold()`` starts."""
    with subprocess.Popen(["sleep", "300"]) as process:
        try:
            yield process
        finally:
            process.kill()


def is_recorded(lease: Lease | None, process: subprocess.Popen[bytes]) -> bool:
    """Whether the record in *lease* includes *process*."""
    assert lease is not None
    (work,) = lease.works
    application = applications.of(work)
    assert isinstance(application, Processes)
    return process.pid in application.living()


class Threads:
    """Two bodies. The second begins during the first and continues after it."""

    def __init__(self) -> None:
        self.begun = Event()
        self.joined = Event()

    def run(self, second: Callable[..., None], error: Exception | None = None) -> None:
        """Call *second* in the second body after the end of the first, with its locks and a process that it has started.

        :param error: the first body ends with it.
        """
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(self._first, error)
            pool.submit(self._second, first, second).result(DEADLINE_S)

    def _first(self, error: Exception | None) -> None:
        with hold(writes=["dw.a"]):
            self.begun.set()
            assert self.joined.wait(DEADLINE_S)
            if error:
                raise error

    def _second(self, first: Future[None], act: Callable[..., None]) -> None:
        assert self.begun.wait(DEADLINE_S)
        with hold(writes=["dw.b"]) as held, ExitStack() as stack:
            before = stack.enter_context(child())
            self.joined.set()
            first.exception(DEADLINE_S)
            act(held, before)


@pytest.mark.parametrize("own", [False, True], ids=["without a lease of the task", "with a lease of the task"])
def test_the_first_that_ends_does_not_remove_the_mark_of_the_other(
    own: bool, manager: LockManager, python: Python
) -> None:
    seen: list[Any] = []

    def second(held: Any, before: subprocess.Popen[bytes]) -> None:
        with child() as later:
            lease = manager.find(held.lease.id)
            seen.extend([is_recorded(lease, before), is_recorded(lease, later)])

    def work() -> None:
        outer = os.environ.get(MARK)
        Threads().run(second)
        seen.append(os.environ.get(MARK) == outer)

    options: Any = {"decorator": task.hivelock, "writes": ["dw.own"]} if own else {}
    assert python(work, **options).state == "success"
    assert seen == [True, True, True]
    assert MARK not in os.environ
    assert not manager.show()


def test_an_error_in_one_does_not_end_the_processes_of_the_other(manager: LockManager, python: Python) -> None:
    seen: list[Any] = []

    def second(held: Any, before: subprocess.Popen[bytes]) -> None:
        seen.append(before.poll() is None)
        seen.append({str(holder.object) for holder in manager.show() if holder.object.table})

    def work() -> None:
        Threads().run(second, RuntimeError("no such table"))

    assert python(work).state == "success"
    runs, held = seen
    assert runs
    assert held == {"dw.a", "dw.b"}, "it is unknown which of them has started the process"


def test_an_error_in_the_last_one_ends_the_processes_and_frees_its_locks(manager: LockManager, python: Python) -> None:
    with ExitStack() as stack:

        def second(held: Any, before: subprocess.Popen[bytes]) -> None:
            left.append(stack.enter_context(child()))
            raise RuntimeError("no such table")

        def work() -> None:
            Threads().run(second)

        left: list[subprocess.Popen[bytes]] = []
        assert python(work).state == "failed"
        assert not psutil.pid_exists(left[0].pid)
        assert MARK not in os.environ
        assert not manager.show()
