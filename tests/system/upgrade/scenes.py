"""What happens to the components of two versions on one store: one function for each event."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.fleet import Fleet
from tests.support.spans import Span, noted, overlaps
from tests.system.upgrade.process import ACTOR, Process, Refused, options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fleet import Worker

WORKERS = 4
DAY = "dw.flights/dt=2013-01-01"


class Row(NamedTuple):
    """A row of the table: what a component did, and how that ended."""

    component: str
    store: str
    event: str
    outcome: str


class Site:
    """The versions, and one lock store.

    :param targets: where each version is installed.
    """

    def __init__(self, store: str, url: str, targets: dict[str, Path], folder: Path) -> None:
        self.store, self.url, self.targets, self.folder = store, url, targets, folder
        self.rows: list[Row] = []
        self._fleet = Fleet()
        self._number = 0

    def start(self, version: str) -> Process:
        made = Process(self.targets[version], self.url)
        self._fleet.join(made)
        return made.connected()

    def close(self) -> None:
        self._fleet.kill()

    def row(self, component: str, event: str, outcome: str) -> None:
        self.rows.append(Row(component, self.store, event, outcome))

    def names(self) -> tuple[str, str]:
        """An owner and an object that no other scene uses."""
        self._number += 1
        return f"here/dag/run/t{self._number}/-1", f"{DAY}{self._number:02}"


def beside(site: Site, one: str, other: str) -> None:
    """The components of two versions that read each other's data."""
    a, b = site.start(one), site.start(other)
    from_to = f"{one} → {other}"

    owner, day = site.names()
    first = a.do("acquire", owner=owner, writes=[day])
    a.kill()
    again = b.do("acquire", owner=owner, writes=[day], attempt=2)
    assert again["id"] == first["id"], "the retry has another lease"
    assert b.do("use") > again["token"] >= first["token"]
    assert b.do("release") is True
    site.row("holder", f"{from_to}: killed; the retry takes its lease over, renews, works, releases", "same lease")

    a = site.start(one)
    owner, day = site.names()
    passed = a.do("acquire", owner=owner, writes=[day])
    assert b.do("take", lease=passed)["id"] == passed["id"]
    b.do("use")
    assert a.do("use")
    assert b.do("release") is True
    site.row("task", f"{from_to}: a lease passed by XCom is used by both, and released", "released")

    owner, day = site.names()
    later, last = f"{owner[:-3]}-later/-1", f"{owner[:-3]}-last/-1"
    holder = site.start(other)
    held = holder.do("acquire", owner=owner, writes=[day])
    waits, behind, second = site.start(one), site.start(other), site.start(other)
    waits.begin("acquire", owner=later, writes=[day])
    assert waits.is_silent()
    behind.begin("acquire", owner=last, writes=[day])
    assert behind.is_silent()
    assert a.do("page")[:2] == b.do("page")[:2] == [1, 2]
    assert a.do("cli") == b.do("cli") == 0
    site.row("page, CLI", f"{one} and {other} list a holder and two waiters of both", "the same")
    waits.kill()
    second.begin("acquire", owner=later, writes=[day], attempt=2)
    assert second.is_silent()
    assert holder.do("release") is True
    got = second.hear()
    assert got["token"] > held["token"]
    assert behind.is_silent(), "the waiter behind was granted as well: a conflict"
    assert second.do("release") is True
    behind.hear()
    assert behind.do("release") is True
    site.row("waiter", f"{from_to}: killed; the next process keeps its position", "in order")

    owner, day = site.names()
    goes_on = a.do("acquire", owner=owner, writes=[day])
    over = site.start(one).do("acquire", owner=owner.replace("/run/", "/over/"), writes=["dw.over"])
    assert b.do("keep") == {}
    assert a.do("use")
    assert a.do("force", lease_id=over["id"]) is False, "the keeper has left the lease of a run that is over"
    assert a.do("force", lease_id=goes_on["id"]) is True
    site.row("keeper", f"{other}: renews leases of {one}, frees the one of an ended run", "freed 1")
    site.row("user", f"{one}: force release of a lease that {other} renews", "freed, audited")

    path, arguments = a.do("defers")
    assert b.do("waits", path=path, arguments=arguments) == ["HiveLockTrigger", ["dw.t"], True]
    site.row("triggerer", f"a worker of {one} defers to {other}", "unknown arguments are ignored and kept")
    assert b.do("page")[:2] == [0, 0]
    site.close()


def first_connection(site: Site, old: str, new: str) -> None:
    """The new version connects for the first time while the old one holds and waits."""
    owner, day = site.names()
    holder, waiter = site.start(old), site.start(old)
    holder.do("acquire", owner=owner, writes=[day])
    waiter.begin("acquire", owner=f"{owner[:-3]}-waits/-1", writes=[day])
    assert waiter.is_silent()
    newer = site.start(new)
    assert newer.do("page")[:2] == [1, 1]
    holder.do("use")
    assert holder.do("release") is True
    waiter.hear()
    assert waiter.do("release") is True
    site.row("holder, waiter", f"{old}: {new} connects first and raises the format", "renews, releases; granted")
    site.close()


def crowd(site: Site, versions: tuple[str, str], seconds: float, seed: int) -> None:
    """Workers of both versions on the same objects, killed and replaced by another version at random."""
    dice = random.Random(seed)
    folder = site.folder / "crowd"
    folder.mkdir()
    until = time.monotonic() + seconds
    attempts, killed = [0] * WORKERS, 0
    working: dict[int, Worker] = {}
    with Fleet() as fleet:

        def start(number: int) -> None:
            attempts[number] += 1
            target, mine = site.targets[dice.choice(versions)], (attempts[number], folder, dice.randrange(10**6))
            owner = f"here/dag/run/w{number}/-1"
            working[number] = fleet.start(ACTOR, "work", site.url, owner, *mine, **options(target))

        for number in range(WORKERS):
            start(number)
        while time.monotonic() < until:
            time.sleep(dice.uniform(2.0, 5.0))
            number = dice.randrange(WORKERS)
            fleet.lose(working[number])
            killed += 1
            start(number)
        fleet.end()
    held, lost = turns(noted(folder / "notes"))
    conflicts = overlaps(held)
    looks = site.start(versions[1])
    left = looks.do("page")[:2]
    outcome = f"{len(held)} grants, {killed} kills, {len(conflicts)} conflicts, {len(lost)} lost leases, {sum(left)} leaked leases"
    site.row("workers", f"{versions[0]} and {versions[1]}, killed at random (seed {seed})", outcome)
    site.close()
    assert len(held) > 10, "too little happened"
    assert (conflicts, lost, left) == ([], [], [0, 0]), f"{outcome}: {conflicts[:20]}, {lost[:20]}"


def turns(notes: list[str]) -> tuple[list[Span], list[str]]:
    """When each owner held what, and the leases that were lost. The lease of a killed process is held on by its owner."""
    begun: dict[tuple[str, str], float] = {}
    held, lost = [], []
    for note in notes:
        what, owner, wanted, at = note.split(maxsplit=4)[:4]
        begin = begun.setdefault((owner, wanted), float(at))
        if what != "begin":
            held.append(Span(begin, float(at), owner, wanted))
            del begun[owner, wanted]
        if what == "lost":
            lost.append(note)
    held += [Span(begin, who=owner, on=wanted) for (owner, wanted), begin in begun.items()]
    return held, lost


def too_old(site: Site, old: str, new: str) -> None:
    """The new version raises the lowest reader while the old one is connected."""
    owner, day = site.names()
    holder, waiter, other, keeper = (site.start(old) for _ in range(4))
    held = holder.do("acquire", owner=owner, writes=[day])
    waiter.begin("acquire", owner=f"{owner[:-3]}-waits/-1", writes=[day])
    assert waiter.is_silent()
    stuck = site.start(old).do("acquire", owner="here/dag/over/stuck/-1", writes=["dw.stuck"])
    newer = site.start(new)

    def refused(component: str, event: str, act: Callable[[], Any]) -> None:
        try:
            found = act()
        except Refused as error:
            site.row(component, f"{old}: {event}", f"refused: {error}")
        else:
            raise AssertionError(f"{site.store}: {component} of {old} was not refused at: {event}: {found}")

    refused("worker", "asks for locks", lambda: other.do("acquire", owner=f"{owner}x", writes=["dw.free"]))
    refused("user", "force release", lambda: other.do("force", lease_id=stuck["id"]))
    suspects = keeper.do("keep")
    assert "upgrade airflow-hivelock here too" in suspects[stuck["id"]], suspects
    site.row("keeper", f"{old}: frees the lease of an ended run", f"suspect: {suspects[stuck['id']]}")
    refused("process", "connects", lambda: site.start(old))
    assert holder.do("use") > held["token"]
    assert holder.do("release") is True
    site.row("holder", f"{old}: renews, works and releases its own lease", "released")
    refused("waiter", "is at its turn", waiter.hear)
    assert newer.do("page")[:2] == [1, 0], "the refused waiter is in the queue still"
    passed = newer.do("acquire", owner=owner, writes=[day], attempt=3)
    refused("task", f"gets a lease of {new} by XCom", lambda: other.do("take", lease=passed))
    refused("retry", f"takes a lease of {new} over", lambda: other.do("acquire", owner=owner, writes=[day], attempt=4))
    assert newer.do("release") is True
    assert newer.do("keep") == {}
    assert newer.do("page")[:2] == [0, 0], "a leaked lease"
    site.row("keeper", f"{new}: frees the lease of an ended run of {old}", "freed; 0 leaked leases")
    site.close()
