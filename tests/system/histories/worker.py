"""One process that acquires, works and releases, until it is killed or dismissed.

Some of its requests are more urgent than others. Some grants are deferred, as for a task that first waits for its
worker slot. Some requests are counted among the few leases of a group.

It works on counters, a file for each partition, which only the lock protects: two holders at once would lose an update.
Each completed update is logged, and so is each lease that it gets.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_hivelock.locks import (
    InvalidRequest,
    Lease,
    LeaseLimit,
    LockLost,
    LockManager,
    LockMode,
    LockTimeout,
    StoreUnavailable,
    Withdrawn,
    connect,
    invitations,
    rules,
)
from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.model import DeferredGrant
from airflow_hivelock.locks.pending import PendingLease, Silent
from tests.support.fleet import dismissal

FEW = LeaseLimit("few", 2)
CHANGES = 0.03
"""How likely a worker stores another limit of that group before a request."""

PRIORITIES = (0, 1, 1, 5, 10)
DAYS = [f"2013-01-{day:02}" for day in range(1, 9)]


def main(url: str, directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    over = dismissal()
    log, returned, unknown = (
        (directory / f"{kind}-{os.getpid()}").open("a") for kind in ("log", "returned", "unknown")
    )
    with log, returned, unknown, _connected(url, over) as manager:
        turn = 0
        while not over.is_set():
            turn += 1
            if chance.random() < CHANGES:
                change_limit(manager, chance)
            owner = f"{os.getpid()}-{turn}"
            try:
                lease = acquire(manager, owner, chance)
            except StoreUnavailable:  # it leaves the queue later, unless this process ends first
                print(owner, file=unknown, flush=True)
                continue
            if lease is None:
                continue
            print(lease.id, time.time_ns() // 1_000_000, file=returned, flush=True)
            for name in work(manager, lease, directory, chance):
                log.write(f"{name}\n")
            log.flush()
            release(manager, lease)


def change_limit(manager: LockManager, chance: random.Random) -> None:
    """Store another limit of the group, or delete it."""
    with suppress(StoreUnavailable):
        if leases := chance.choice([0, 1, 2, 3]):
            manager.set_group("few", leases, weight=chance.choice([1, leases]), user="worker")
        else:
            manager.drop_group("few", user="worker")


def acquire(manager: LockManager, owner: str, chance: random.Random) -> Lease | None:
    """A request for something that others want too; None when it was refused or withdrawn.

    :raises StoreUnavailable: the store was away, so the outcome is unknown.
    """
    days = chance.sample(DAYS, chance.randint(1, 2))
    writes = ["dw.delays"] if chance.random() < 0.02 else [f"dw.delays/dt={day}" for day in days]
    reads = [f"dw.flights/dt={day}" for day in chance.sample(DAYS, 2)]
    if chance.random() < 0.1:
        writes, reads = [f"dw.flights/dt={day}" for day in days], []
    asked: dict[str, Any] = {
        "owner": owner,
        "reads": reads,
        "writes": writes,
        "priority": 1 if writes == ["dw.delays"] else chance.choice(PRIORITIES),
        "limit": replace(FEW, weight=chance.choice([0, 0, 1, 2])) if chance.random() < 0.25 else None,
    }
    timeout_s = chance.choice([0, 0.1, 5, 30])
    try:
        if chance.random() < 0.2:
            return with_slot(manager, asked, timeout_s, chance)
        return manager.acquire(**asked, timeout_s=timeout_s)
    except (InvalidRequest, LockTimeout, Withdrawn):  # invalid: heavier than the limit is now
        return None


def with_slot(manager: LockManager, asked: dict[str, Any], timeout_s: float, chance: random.Random) -> Lease | None:
    """A request that is invited, or goes away, and asks again once there is a slot. None: another was in the way each time."""
    woken = threading.Event()
    for _ in range(invitations.ROUNDS):
        late = DeferredGrant(chance.choice([0.0, 0.02, 0.5]))
        waits = rules.request(**asked, wait=timeout_s > 0, deferred=late)
        poll(manager.begin(waits, woken.set, timeout_s, outage_s=None), woken, Blocked, Silent)
        time.sleep(chance.random() / 50)  # until there is a slot
        if not late.invitation_s:
            return manager.acquire(**asked, timeout_s=timeout_s)
        worker = rules.request(**asked, wait=timeout_s > 0, deferred=DeferredGrant(late.invitation_s, has_slot=True))
        pending = manager.begin(worker, woken.set, timeout_s, outage_s=None)
        if isinstance(outcome := poll(pending, woken, Silent), Lease):
            return outcome
    pending.withdraw()
    return None


def poll(pending: PendingLease, woken: threading.Event, *waits: type) -> Lease | NeedsSlot | Blocked | Silent:
    """The first outcome that is none of *waits*. After an outage the request leaves the queue, as that of ``acquire`` does.

    :raises LockTimeout: there was none in that time.
    """
    try:
        while isinstance(outcome := pending.poll(), waits):
            woken.wait(pending.wait_s())
            woken.clear()
    except StoreUnavailable:
        with suppress(StoreUnavailable):
            pending.withdraw()
        raise
    return outcome


def work(manager: LockManager, lease: Lease, directory: Path, chance: random.Random) -> list[str]:
    """Increment the counter of each partition that is locked to be written; the names of those that were."""
    done = []
    for lock in lease.locks:
        if lock.mode is LockMode.EXCLUSIVE and lock.object.partition:
            name = str(lock.object).replace("/", "@")
            counter = directory / name
            value = int(counter.read_text()) if counter.exists() else 0
            time.sleep(chance.random() / 200)
            try:
                manager.verify(lease)
            except LockLost:
                break
            except StoreUnavailable:
                pass  # only a release frees a lease, so it is still held
            _write(counter, value + 1)
            done.append(name)
    return done


def release(manager: LockManager, lease: Lease) -> None:
    """Until it has succeeded: a lease that is not released is a leak."""
    while True:
        try:
            manager.release(lease)
        except StoreUnavailable:
            time.sleep(0.1)
        else:
            return


def _connected(url: str, over: threading.Event) -> LockManager:
    while True:
        try:
            return connect(url)
        except StoreUnavailable:
            if over.is_set():
                sys.exit(0)


def _write(counter: Path, value: int) -> None:
    scratch = counter.with_suffix(f".{os.getpid()}")
    scratch.write_text(str(value))
    scratch.replace(counter)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
