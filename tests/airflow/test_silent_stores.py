"""Lock stores that answer nothing delay no other store: neither in a triggerer nor on the page."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from airflow_hivelock import comms, hooks
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import StoreUnavailable
from airflow_hivelock.triggers import keeper
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.triggers.threads import MOST
from airflow_hivelock.ui.reads import SharedReads
from tests.airflow.page import CURRENT, Login, hold, looks, page
from tests.airflow.tasks import OBJECT, OWNER, holders, trigger
from tests.airflow.triggerer import DEADLINE_S, Triggerer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from airflow_hivelock.locks import Lease, LockManager


LOOKS = 40
"""The page had 32 threads for all stores."""

_number = itertools.count()


class Silent:
    """Connections to stores that answer nothing, not even to a request for a session. *asked*: how often."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.asked = 0


@contextmanager
def silent(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[Silent]:
    """Stores that are silent until the end, and then refuse."""
    stores = Silent([f"silent{next(_number)}" for _ in range(count)])
    urls = [f"memory://{name}" for name in stores.names]
    end = threading.Event()

    def connected(url: str) -> LockManager:
        if url not in urls:
            return connect(url)
        stores.asked += 1
        end.wait(60)
        raise StoreUnavailable(f"{url} does not answer")

    monkeypatch.setattr(hooks, "connect", connected)
    for name in stores.names:
        fields = {"conn_type": "hivelock", "host": name, "extra": {"backend": "memory", "installation": "here"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    try:
        yield stores
    finally:
        end.set()


def waits(conn_id: str, run: str) -> Any:
    return trigger(hivelock_conn_id=conn_id, owner=f"here/dag/{run}/lock/-1", ends_task=False)


async def test_waiters_of_silent_stores_delay_no_grant_and_no_clean_up_of_another(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent(monkeypatch, MOST) as stores:
        for name in stores.names:
            for number in range(MOST):
                await triggerer.defer(waits(name, f"{name}-{number}"))
        await triggerer.until(lambda: stores.asked, "a silent store to be asked")
        granted = await triggerer.defer(trigger(ends_task=False))
        await triggerer.event(granted)
        assert holders(manager) == [OWNER]
        queued = await triggerer.defer(waits("hivelock_default", "later"))
        await triggerer.until(lambda: bool(manager.waiters()), "the later one to wait")
        triggerer.states = {"lock": "failed"}
        for each in (queued, granted):
            await triggerer.user_acts(each)
        assert (list(manager.waiters()), holders(manager)) == ([], [])


async def test_keepers_of_silent_stores_delay_no_renewal_in_another(
    manager: LockManager, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keepers of a few silent stores used all of asyncio's own threads."""

    async def go_on(*_: Any) -> bool:
        return True

    renewed: list[str] = []
    renew = manager.renew

    def noted(lease: Lease) -> None:
        renewed.append(lease.owner)
        renew(lease)

    monkeypatch.setattr(comms, "all_go_on", go_on)
    monkeypatch.setattr(keeper, "_is_due", lambda *_: True)
    monkeypatch.setattr(manager, "renew", noted)
    manager.acquire(owner=OWNER, writes=[OBJECT])
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    with silent(monkeypatch, 2) as stores:
        keeping = [asyncio.create_task(HiveLockKeeper(name)._keep()) for name in stores.names]
        await triggerer.until(lambda: stores.asked == 2, "each store to be asked")
        assert await asyncio.wait_for(HiveLockKeeper()._keep(), DEADLINE_S) == {}
        assert renewed == [OWNER]
    await asyncio.wait(keeping)
    assert all(isinstance(task.exception(), StoreUnavailable) for task in keeping)


async def test_the_threads_of_a_silent_store_are_few_and_end_with_its_waiters(
    triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(threading.enumerate())

    def mine() -> list[threading.Thread]:
        gc.collect()
        return [each for each in set(threading.enumerate()) - others if each.name.startswith("hivelock_")]

    with silent(monkeypatch, 1) as stores:
        waiters = [await triggerer.defer(waits(stores.names[0], f"r{number}")) for number in range(5 * MOST)]
        await triggerer.until(lambda: len(mine()) >= MOST, "the store to be asked")
        assert len(mine()) == MOST
    for each in waiters:
        await triggerer.user_acts(each)
    triggerer.runner.triggers.clear()
    await triggerer.until(lambda: not mine(), "the threads to end")


async def test_many_looks_at_a_silent_store_leave_the_page_of_another_quick(
    login: Login, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(manager)
    cookies = dict(login("viewer").cookies)
    monkeypatch.setattr(looks, "reads", SharedReads("store", patience_s=5))
    transport = httpx.ASGITransport(page.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://page", cookies=cookies) as client:
        with silent(monkeypatch, 1) as stores:
            [name] = stores.names
            gone = [asyncio.create_task(client.get(f"/api/v1/{name}/leases/{number}")) for number in range(LOOKS)]
            async with asyncio.timeout(DEADLINE_S):
                while not stores.asked:
                    await asyncio.sleep(0.01)
            answer = await client.get(CURRENT)
            assert answer.status_code == 200
            assert len(answer.json()["leases"]) == 1
            assert not any(task.done() for task in gone)
        assert {task.status_code for task in await asyncio.gather(*gone)} == {503}
