"""A ZooKeeper with a full disk, with small packets, and with a clock that jumps."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockTimeout, StoreUnavailable, connect
from tests.support.servers import ZooKeeperServer
from tests.system.faults.conftest import DAY, WHOLE, again

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_hivelock.locks import Lease, LockManager

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), WHOLE]

SESSION_S = 4
DISK_BYTES = 4 << 20


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A file system of its own in memory, for *directory*; only root can have one."""
    directory.mkdir(parents=True)
    size = f"size={DISK_BYTES}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", directory], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def fill(path: Path) -> None:
    """Until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def test_a_full_disk_of_the_server_loses_nothing_that_was_granted(tmp_path: Path) -> None:
    """ZooKeeper ends itself when it cannot write its log. A write that it has answered is in there."""
    with small_disk(tmp_path / "zookeeper" / "data"):
        server = ZooKeeperServer(tmp_path, config={"preAllocSize": "64"})  # KiB
        with server, connect(f"{server.url}?timeout_s={SESSION_S}") as manager:
            first = manager.acquire(owner="first", writes=[DAY])
            filler = tmp_path / "zookeeper" / "data" / "filler"
            fill(filler)
            granted, said = until_refused(manager)
            print(f"after {len(granted)} more leases: {said}")
            assert server.process.wait(60) != 0
            server.stop()
            filler.unlink()
            server.start()
            with connect(server.url) as near:
                owners = {lease.owner for lease in near.leases()}
                assert owners >= {"first", *(lease.owner for lease in granted)}
                assert len(near.show()) == sum(len(lease.locks) for lease in near.leases())
                with pytest.raises(LockTimeout, match="first"):
                    near.acquire(owner="rival", writes=[DAY])
            for lease in (first, *granted):
                assert again(partial(manager.release, lease))
            # If the refused request only has a queue position, its session's next request ends that.
            again(partial(manager.acquire, owner="next", writes=["dw.next"]))
            with connect(server.url) as near:
                for lease in near.leases():  # what the refused one may have got, too
                    assert near.release(lease)
                assert [*near.show(), *near.waiters()] == []


def until_refused(manager: LockManager) -> tuple[list[Lease], StoreUnavailable]:
    granted = []
    for number in range(100_000):
        try:
            granted.append(manager.acquire(owner=f"more {number}", writes=[f"dw.t{number}"]))
        except StoreUnavailable as error:
            return granted, error
    raise AssertionError("it was never full")


class SmallPackets(ZooKeeperServer):
    """Takes no packet larger than 64 KiB; by default it is 1 MiB."""

    def environment(self) -> Mapping[str, str]:
        return {"JAVA_TOOL_OPTIONS": "-Djute.maxbuffer=65536"}


def test_a_server_that_takes_less_at_once_is_named_in_the_error(tmp_path: Path) -> None:
    with SmallPackets(tmp_path) as server, connect(f"{server.url}?timeout_s={SESSION_S}") as manager:
        small = manager.acquire(owner="small", writes=[DAY])
        with pytest.raises(StoreUnavailable, match=r"jute\.maxbuffer may be smaller than this request, [\d,]+ bytes"):
            manager.acquire(owner="large", writes=["dw.flights/dt=2013-01-01..2014-12-31"])
        assert {holder.owner for holder in manager.show()} == {"small"}
        assert manager.waiters() == []
        assert manager.release(small)


class Offset(ZooKeeperServer):
    """Its wall clock is off, by libfaketime; the monotonic one is not."""

    off = "+0"

    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(faketime()), "FAKETIME": self.off, "DONT_FAKE_MONOTONIC": "1"}


def faketime() -> str:
    """The library out of Debian's package of that name."""
    found = os.environ.get("FAKETIME_LIBRARY", "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
    if not os.path.exists(found):
        pytest.skip(f"{found} is not there: install libfaketime")
    return found


@pytest.mark.parametrize("off", ["+2d", "-2d"])
def test_a_servers_clock_that_jumps_frees_nothing(off: str, tmp_path: Path) -> None:
    server = Offset(tmp_path)
    with server, connect(f"{server.url}?timeout_s={SESSION_S}") as manager:
        begun = manager.now()
        first = manager.acquire(owner="first", writes=[DAY], lease_s=60)
        server.kill()
        server.off = off
        server.start()
        with connect(server.url) as near:
            assert abs((near.now() - begun).total_seconds()) > 86_400, "the clock did not jump"
            near.sweep()
            with pytest.raises(LockTimeout, match="first"):
                near.acquire(owner="rival", writes=[DAY])
            (lease,) = near.leases()
            assert lease.expires
            assert (lease.expires < near.now()) == (off == "+2d"), "suspect, and no more"
        again(partial(manager.renew, first))
        lease = manager.find(first.id)  # type: ignore[assignment]
        assert lease.expires
        assert lease.expires > manager.now()
        assert manager.release(first)
        second = manager.acquire(owner="second", writes=[DAY])
        assert second.token > first.token, "tokens are no times"
        assert manager.release(second)
