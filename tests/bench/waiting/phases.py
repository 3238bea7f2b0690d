"""The phases to measure, one function each. Each leaves the site as it was: without waiters and leases."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.bench.samples import Samples
from tests.bench.waiting.site import LOCKED, Load

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease
    from tests.bench.waiting.site import Site

EVERY_S = 3.0
"""How often the unrelated DAG is started."""

SETTLE_S = 30.0
"""In which comes to rest what the waiters' coming has set in motion."""


@dataclass(frozen=True)
class Idle:
    """A thousand waiters, and nothing happens."""

    waiters: int
    load: Load
    memory_bytes: int


@dataclass(frozen=True)
class Way:
    """One way to wait.

    :param delays_s: how late the unrelated DAG began, in seconds.
    :param most_slots: how many worker slots the waiting took at most.
    :param drained_s: from the release until all were over.
    :param idle: what their waiting alone costs, where that was measured.
    """

    name: str
    runs: int
    delays_s: Samples
    most_slots: int
    load: Load
    drained_s: float
    idle: Idle | None


@dataclass(frozen=True)
class HandOvers:
    """Passing one lock down a line of tasks, in seconds."""

    granted_s: Samples
    succeeded_s: Samples


def idle_starts(site: Site, count: int) -> Samples:
    """The unrelated DAG's delays without waiters."""
    return site.delays_s(site.starts(count, EVERY_S))


def way(site: Site, name: str, runs: int, starts: int, idle_s: float = 0) -> Way:
    """*runs* blocked runs that wait in this way: first alone for *idle_s*, then together with the unrelated DAG."""
    before = site.triggerer_memory_bytes()
    dag_id, held = f"rerun_{name}", site.hold()
    site.block(dag_id, runs)
    idle = _idle(site, runs, before, idle_s) if idle_s else None
    slots: list[int] = []
    spent: list[Load] = []
    begun: list[str] = []
    with site.measured(spent):
        for _ in range(starts):
            begun += site.starts(1, EVERY_S)
            slots.append(site.in_slots(dag_id))
    drained_s = site.drain(dag_id, held)
    return Way(name, runs, site.delays_s(begun), max(slots), spent[0], drained_s, idle)


def hand_overs(site: Site, runs: int) -> HandOvers:
    """*runs* tasks that want the lock for themselves, one after the other; by ZooKeeper's and the database's clocks."""
    held = site.hold()
    site.block("one_by_one", runs)
    order = [waiter.owner for waiter in site.locks.waiters()]
    _pass_down(site, held, order)
    tenures = {one.owner: one for one in site.locks.history()}
    line = [tenures[owner] for owner in (held.owner, *order)]
    ended = site.ended("one_by_one")
    granted_s, succeeded_s = [], []
    for before, after in pairwise(line):
        assert before.ended is not None, f"it holds again, or still: {before}"
        granted_s.append((after.granted - before.ended).total_seconds())
        succeeded_s.append(ended[after.owner.split("/")[2]] - before.ended.timestamp())
    return HandOvers(Samples.of(granted_s), Samples.of(succeeded_s))


def _idle(site: Site, waiters: int, memory_before_bytes: int, seconds: float) -> Idle:
    time.sleep(SETTLE_S)
    memory_bytes = site.triggerer_memory_bytes() - memory_before_bytes
    spent: list[Load] = []
    with site.measured(spent):
        time.sleep(seconds)
    return Idle(waiters, spent[0], memory_bytes)


def killed_triggerer(site: Site, waiters: int) -> float:
    """SIGKILL the triggerer with so many waiting; how long until all of them wait again, in their order."""
    held = site.hold()
    site.block("one_by_one", waiters)
    order = [waiter.owner for waiter in site.locks.waiters()]
    before = site.signs_of_life()
    triggerer = site.airflow.process("triggerer")
    triggerer.kill()
    begun = time.monotonic()
    triggerer.launch().await_ready()

    def all_again() -> bool:
        now = site.signs_of_life()
        return len(now) == waiters and not set(now.values()) & set(before.values())

    site.wait(all_again, "all to wait again")
    took = time.monotonic() - begun
    assert [waiter.owner for waiter in site.locks.waiters()] == order, "the queue has another order"
    _pass_down(site, held, order)
    return took


def _pass_down(site: Site, held: Lease, order: list[str]) -> None:
    """Release the lock to one after the other, as listed."""
    for owner in order:
        site.locks.release(held)
        taken = site.wait(partial(site.locks.lease_of, owner), f"{owner} to hold the lock")
        assert taken
        held = taken
        holders = {holder.owner for holder in site.locks.show(LOCKED)}
        assert holders == {owner}, f"granted twice: {holders}"
    site.wait(lambda: site.blocked("one_by_one") == 0, "the line to be over")
    site.locks.release(held)
