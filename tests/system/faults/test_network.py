"""Networks that are slow, that come and go, and that swallow everything."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, LockTimeout, StoreUnavailable, connect
from tests.support.patience import until
from tests.system.faults.conftest import DAY, SESSION_S, WHOLE, again

if TYPE_CHECKING:
    from tests.system.faults.conftest import Site

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), WHOLE]

ANSWER_S = 2 * SESSION_S + SESSION_S
"""Until one call says that the store does not answer: for a connection, and then for the answer."""
SLACK_S = 20
"""For a machine with other things to do."""


def refuses(manager: LockManager) -> None:
    with pytest.raises(LockTimeout, match="first"):
        manager.acquire(owner="rival", writes=[DAY])


def test_a_slow_network_only_takes_time(site: Site) -> None:
    site.proxy.latency_s = 0.1
    lease = site.far.acquire(owner="first", writes=[DAY])
    refuses(site.near)
    site.far.renew(lease)
    assert site.far.release(lease)


def test_a_year_of_partitions_on_a_thin_line(site: Site) -> None:
    site.proxy.bytes_per_s = 300_000  # a message must pass within a third of the session, or its heartbeat is late
    lease = again(lambda: site.far.acquire(owner="first", writes=["dw.delays/dt=2013-01-01..2013-12-31"]))
    assert len(site.near.show()) == 1 + 1 + 365
    assert again(lambda: site.far.release(lease))
    assert site.near.show() == []


def test_a_line_that_comes_and_goes_lets_nobody_in_twice(site: Site) -> None:
    """Three owners on one partition, through connections that are all cut after every 97 requests."""
    inside, most, turns = 0, 0, 0
    over = threading.Event()
    entry = threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most, turns
        with connect_again(site.url) as manager:
            for turn in range(1_000):
                if over.is_set():
                    return
                lease = manager.acquire(owner=f"{number}-{turn}", writes=[DAY], timeout_s=None)
                with entry:
                    inside, turns = inside + 1, turns + 1
                    most = max(most, inside)
                time.sleep(0.01)
                with entry:
                    inside -= 1
                again(partial(manager.release, lease))

    site.proxy.cut_every = 97
    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work, number) for number in range(3)]
        try:
            until(lambda: turns >= 9 or any(one.done() for one in working), "nine turns")
        finally:
            over.set()
            site.proxy.cut_every = None
        for one in working:
            one.result(60)
    assert most == 1
    site.near.sweep()
    assert [*site.near.show(), *site.near.waiters()] == []


def connect_again(url: str) -> LockManager:
    return again(lambda: connect(url))


@pytest.mark.parametrize("way", ["partitioned", "half open"])
def test_a_call_into_silence_ends_and_what_is_held_stays_held(site: Site, way: str) -> None:
    """Packets are swallowed, or the server's end is gone and the client was not told."""
    lease = site.far.acquire(owner="first", writes=[DAY])
    begun = time.monotonic()
    if way == "partitioned":
        with site.proxy.partition(), pytest.raises(StoreUnavailable) as said:
            site.far.renew(lease)
    else:
        site.proxy.forget()
        with pytest.raises(StoreUnavailable) as said:
            site.far.renew(lease)
    print(f"after {time.monotonic() - begun:.1f} s: {said.value}")
    assert time.monotonic() - begun < ANSWER_S + SLACK_S
    refuses(site.near)
    again(lambda: site.far.renew(lease))
    assert again(lambda: site.far.release(lease))
    assert not site.near.release(lease)
    assert site.near.show() == []


def test_answers_that_are_swallowed_are_those_of_a_release_that_was_done(site: Site) -> None:
    lease = site.far.acquire(owner="first", writes=[DAY])
    site.proxy.downstream.clear()
    with pytest.raises(StoreUnavailable):
        site.far.release(lease)
    assert site.near.show() == []
    second = site.near.acquire(owner="second", writes=[DAY])
    site.proxy.downstream.set()
    assert again(lambda: site.far.release(lease)) is False
    assert site.near.release(second), "a successor's lock was freed"


def test_a_store_that_accepts_and_says_nothing_is_said_to_be_silent(site: Site) -> None:
    begun = time.monotonic()
    with site.proxy.partition(), pytest.raises(StoreUnavailable) as said:
        connect(site.url)
    print(f"after {time.monotonic() - begun:.1f} s: {said.value}")
    assert time.monotonic() - begun < ANSWER_S + SLACK_S


def test_an_acquire_that_waits_bears_an_outage(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert site.far.release(site.far.acquire(owner="before", writes=[DAY]))
    with ThreadPoolExecutor() as pool:
        with site.proxy.partition():
            asked = pool.submit(site.far.acquire, owner="first", writes=[DAY], timeout_s=120)
            until(lambda: "does not answer; asking again" in caplog.text or asked.done(), "it to ask again")
        lease = asked.result(120)
    refuses(site.near)
    assert again(lambda: site.far.release(lease))
    assert [*site.near.show(), *site.near.waiters()] == []


def test_a_waiter_that_is_cut_off_blocks_nobody_and_waits_on_when_it_is_back(site: Site) -> None:
    first = site.near.acquire(owner="first", writes=[DAY])
    with ThreadPoolExecutor() as pool:
        cut_off = pool.submit(site.far.acquire, owner="cut off", writes=[DAY], timeout_s=None)
        until(lambda: [waiter.owner for waiter in site.near.waiters()] == ["cut off"], "it to wait")
        with site.proxy.partition():
            site.near.release(first)
            second = site.near.acquire(owner="second", writes=[DAY], timeout_s=120)
            assert not cut_off.done()
        assert site.near.release(second)
        lease = cut_off.result(120)
    assert [holder.owner for holder in site.near.show(DAY)] == ["cut off"]
    assert again(lambda: site.far.release(lease))
    assert [*site.near.show(), *site.near.waiters()] == []
