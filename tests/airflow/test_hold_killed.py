"""A task that Airflow kills in ``with hold(…)``."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from threading import Event, Timer
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS

from airflow_hivelock import hold
from airflow_hivelock.locks import LockManager
from airflow_hivelock.operators.acquiring import TaskKilled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import Lease
    from tests.airflow.conftest import Run as Python


def kill() -> None:
    """What Airflow does in its handler of SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def sigterm() -> Iterator[None]:
    """``dag.test()`` leaves Airflow's handler in place."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def loop() -> Iterator[None]:
    """Airflow takes the event loop that there is. It does not close one that ``get_event_loop()`` makes for it."""
    with closing(asyncio.new_event_loop()) as opened:
        asyncio.set_event_loop(opened)
        yield
    asyncio.set_event_loop(None)


def dies_in_its_body() -> None:
    with hold(writes=["dw.a"]), hold(writes=["dw.b"]):
        kill()


def dies_after_the_inner_one() -> None:
    with hold(writes=["dw.a"]):
        with hold(writes=["dw.b"]):
            pass
        kill()


async def dies_in_a_loop() -> None:
    async def work(name: str) -> None:
        with hold(writes=[name]):
            await asyncio.sleep(5)

    async def end() -> None:
        await asyncio.sleep(0.1)
        kill()

    await asyncio.gather(work("dw.a"), work("dw.b"), end())


def dies_in_a_loop_of_its_own() -> None:
    async def end() -> None:
        kill()
        await asyncio.sleep(5)

    with hold(writes=["dw.a"]):
        asyncio.run(end())


def dies_with_threads() -> None:
    def work(name: str) -> None:
        with hold(writes=[name]):
            began.set()
            Event().wait(0.2)

    began = Event()
    with ThreadPoolExecutor(1) as pool:
        results = pool.map(work, ["dw.a", "dw.b", "dw.c"])
        began.wait()
        kill()
        list(results)


def dies_while_it_acquires() -> None:
    Timer(0.2, kill).start()
    with hold(writes=["dw.a"]), hold(writes=["dw.others"]):
        pass


def dies_while_it_releases() -> None:
    def release(self: LockManager, lease: Lease, **options: Any) -> Any:
        kill()
        return before(self, lease, **options)

    before = LockManager.release
    with patch.object(LockManager, "release", release), hold(writes=["dw.a"]), hold(writes=["dw.b"]):
        pass


@pytest.mark.parametrize(
    "works",
    [
        dies_in_its_body,
        dies_after_the_inner_one,
        pytest.param(
            dies_in_a_loop, marks=pytest.mark.skipif(not AIRFLOW_V_3_2_PLUS, reason="Airflow 3.1 awaits nothing")
        ),
        dies_in_a_loop_of_its_own,
        dies_with_threads,
        dies_while_it_acquires,
        dies_while_it_releases,
    ],
)
@pytest.mark.usefixtures("sigterm", "loop")
def test_a_kill_ends_the_body_and_frees_the_locks(
    works: Callable[[], Any], manager: LockManager, python: Python
) -> None:
    """Otherwise Airflow kills the process seconds later, and only its host can see that it has ended."""
    other = manager.acquire(owner="other", writes=["dw.others"])
    raised: list[Any] = []

    def note(context: Any) -> None:
        raised.append(context["exception"])

    assert python(works, on_failure_callback=note).tasks == {"work": "failed"}
    assert isinstance(raised[0], TaskKilled | asyncio.CancelledError)
    assert {holder.owner for holder in manager.show()} == {"other"}
    manager.release(other)


@pytest.mark.usefixtures("sigterm")
def test_a_kill_after_its_locks_are_released_ends_nothing(manager: LockManager, python: Python) -> None:
    def work() -> None:
        with hold(writes=["dw.a"]):
            pass
        kill()

    assert python(work).state == "success"


@pytest.mark.usefixtures("sigterm")
def test_a_time_out_during_the_release_does_not_keep_the_locks(
    manager: LockManager, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow calls on_kill() after the time-out, and the lock store can answer by then."""
    release = LockManager.release
    asked: list[Lease] = []

    def time_out_once(self: LockManager, lease: Lease, **options: Any) -> Any:
        asked.append(lease)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGALRM)
        return release(self, lease, **options)

    def work() -> None:
        with hold(writes=["dw.a"]):
            pass

    monkeypatch.setattr(LockManager, "release", time_out_once)
    assert python(work, execution_timeout=timedelta(minutes=5)).state == "failed"
    assert len(asked) == 2
    assert not manager.show()
