"""The connection is cut at each request of each call in turn: what was asked is done whole or not at all, and asking again settles it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import Lease, LockManager, LockTimeout, StoreUnavailable
from tests.system.faults.conftest import FULL
from tests.system.faults.proxy import Moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.system.faults.conftest import Site

    Call = Callable[[LockManager, Lease | None, str], object]

READS, WRITES = ["dw.flights/dt=2013-01-01"], ["dw.delays/dt=2013-01-01", "dw.delays/dt=2013-01-02"]
LOCKS = 6


def acquire(manager: LockManager, lease: Lease | None, owner: str) -> Lease:
    return manager.acquire(owner=owner, reads=READS, writes=WRITES)


def renew(manager: LockManager, lease: Lease | None, owner: str) -> None:
    assert lease
    manager.renew(lease)


def start_work(manager: LockManager, lease: Lease | None, owner: str) -> None:
    assert lease
    started = manager.start_work(lease, "job", "application")
    assert started.token > lease.token
    manager.check_token(lease.id, "job", started.token)


def release(manager: LockManager, lease: Lease | None, owner: str) -> None:
    assert lease
    manager.release(lease)


def force(manager: LockManager, lease: Lease | None, owner: str) -> None:
    assert lease
    manager.force_release(lease.id, reason="a test", user="nobody")


@pytest.mark.integration
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("moment", Moment if FULL else [Moment.AFTER], ids=lambda moment: moment.name.lower())
@pytest.mark.parametrize("call", [acquire, renew, start_work, release, force] if FULL else [acquire])
def test_a_call_that_is_cut_at_each_of_its_requests(site: Site, call: Call, moment: Moment) -> None:
    for at in itertools.count(1):
        owner = f"owner {at}"
        lease = None if call is acquire else acquire(site.near, None, owner)
        with site.proxy.trap(at, moment) as trap:
            said = outcome(call, site.far, lease, owner)
            whole(site.near, owner)
            if lease is None and isinstance(said, StoreUnavailable):
                assert [*site.near.show(), *site.near.waiters()] == [], "refused, and yet something was left"
            settle(call, site.far, lease, owner)
        whole(site.near, owner)
        trap.deliver()
        whole(site.near, owner)
        leave(site, owner, freed=call in (release, force))
        if not trap.sprung:
            break
    assert at > 1
    if call is force:
        assert [entry.owner for entry in site.near.audit()] == [f"owner {n}" for n in range(1, at + 1)]


def outcome(call: Call, manager: LockManager, lease: Lease | None, owner: str) -> object:
    try:
        return call(manager, lease, owner)
    except StoreUnavailable as error:
        return error


def settle(call: Call, manager: LockManager, lease: Lease | None, owner: str) -> object:
    """Ask again until there is an answer, as every client does."""
    said: object = None
    for _ in range(20):
        said = outcome(call, manager, lease, owner)
        if not isinstance(said, StoreUnavailable):
            return said
    raise AssertionError(f"no answer 20 times: {said}")


def whole(manager: LockManager, owner: str) -> None:
    """It holds everything that it asked for, or nothing."""
    held = manager.show()
    assert len(held) in (0, LOCKS), held
    assert {holder.owner for holder in held} <= {owner}


def leave(site: Site, owner: str, freed: bool) -> None:
    """The holder keeps others out until its release, which happens once, and leaves nothing."""
    held = site.near.lease_of(owner)
    assert (held is None) == freed
    if held:
        with pytest.raises(LockTimeout, match=owner):
            site.near.acquire(owner="rival", writes=WRITES[:1])
        site.near.verify(held)
        assert site.near.release(held)
    assert [*site.near.show(), *site.near.waiters(), *site.near.leases()] == []
    rival = site.near.acquire(owner=f"rival of {owner}", writes=["dw"])
    assert site.near.release(rival)
    assert not site.near.release(rival)
