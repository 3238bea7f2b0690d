"""What happens to the components of two versions on one store: one function for each event."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.system.upgrade.process import ACTOR, Process, Refused, environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
        self._open = ExitStack()
        self._number = 0

    def start(self, version: str) -> Process:
        made = Process(self.targets[version], self.url).connected()
        self._open.callback(made.kill)
        return made

    def close(self) -> None:
        self._open.close()

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
    first = a.ask("acquire", owner=owner, writes=[day])
    a.kill()
    again = b.ask("acquire", owner=owner, writes=[day], attempt=2)
    assert again["id"] == first["id"], "the retry has another lease"
    assert b.ask("use") > again["token"] >= first["token"]
    assert b.ask("release") is True
    site.row("holder", f"{from_to}: killed; the retry takes its lease over, renews, works, releases", "same lease")

    a = site.start(one)
    owner, day = site.names()
    passed = a.ask("acquire", owner=owner, writes=[day])
    assert b.ask("take", lease=passed)["id"] == passed["id"]
    b.ask("use")
    assert a.ask("use")
    assert b.ask("release") is True
    site.row("task", f"{from_to}: a lease passed by XCom is used by both, and released", "released")

    owner, day = site.names()
    later, last = f"{owner[:-3]}-later/-1", f"{owner[:-3]}-last/-1"
    holder = site.start(other)
    held = holder.ask("acquire", owner=owner, writes=[day])
    waits, behind, second = site.start(one), site.start(other), site.start(other)
    waits.send("acquire", owner=later, writes=[day])
    assert waits.still_waits()
    behind.send("acquire", owner=last, writes=[day])
    assert behind.still_waits()
    assert a.ask("page")[:2] == b.ask("page")[:2] == [1, 2]
    assert a.ask("cli") == b.ask("cli") == 0
    site.row("page, CLI", f"{one} and {other} list a holder and two waiters of both", "the same")
    waits.kill()
    second.send("acquire", owner=later, writes=[day], attempt=2)
    assert second.still_waits()
    assert holder.ask("release") is True
    got = second.answer()
    assert got["token"] > held["token"]
    assert behind.still_waits(), "the waiter behind was granted as well: a conflict"
    assert second.ask("release") is True
    behind.answer()
    assert behind.ask("release") is True
    site.row("waiter", f"{from_to}: killed; the next process keeps its position", "in order")

    owner, day = site.names()
    goes_on = a.ask("acquire", owner=owner, writes=[day])
    over = site.start(one).ask("acquire", owner=owner.replace("/run/", "/over/"), writes=["dw.over"])
    assert b.ask("keep") == {}
    assert a.ask("use")
    assert a.ask("force", lease_id=over["id"]) is False, "the keeper has left the lease of a run that is over"
    assert a.ask("force", lease_id=goes_on["id"]) is True
    site.row("keeper", f"{other}: renews leases of {one}, frees the one of an ended run", "freed 1")
    site.row("user", f"{one}: force release of a lease that {other} renews", "freed, audited")

    path, arguments = a.ask("defers")
    assert b.ask("waits", path=path, arguments=arguments) == ["HiveLockTrigger", ["dw.t"], True]
    site.row("triggerer", f"a worker of {one} defers to {other}", "unknown arguments are ignored and kept")
    assert b.ask("page")[:2] == [0, 0]
    site.close()


def first_connection(site: Site, old: str, new: str) -> None:
    """The new version connects for the first time while the old one holds and waits."""
    owner, day = site.names()
    holder, waiter = site.start(old), site.start(old)
    holder.ask("acquire", owner=owner, writes=[day])
    waiter.send("acquire", owner=f"{owner[:-3]}-waits/-1", writes=[day])
    assert waiter.still_waits()
    newer = site.start(new)
    assert newer.ask("page")[:2] == [1, 1]
    holder.ask("use")
    assert holder.ask("release") is True
    waiter.answer()
    assert waiter.ask("release") is True
    site.row("holder, waiter", f"{old}: {new} connects first and raises the format", "renews, releases; granted")
    site.close()


def crowd(site: Site, versions: tuple[str, str], seconds: float, seed: int) -> None:
    """Workers of both versions on the same objects, killed and replaced by another version at random."""
    dice = random.Random(seed)
    folder = site.folder / "crowd"
    folder.mkdir()
    until = time.time() + seconds
    logs, running, attempts, killed = [], {}, [0] * WORKERS, 0

    def start(number: int) -> None:
        attempts[number] += 1
        owner, version = f"here/dag/run/w{number}/-1", dice.choice(versions)
        log = (folder / f"{number}-{attempts[number]}.log").open("w+")
        logs.append(log)
        arguments = [site.url, owner, str(attempts[number]), str(folder), str(until), str(dice.randrange(10**6))]
        running[number] = subprocess.Popen(
            [sys.executable, str(ACTOR), "work", *arguments],
            env=environment(site.targets[version]),
            cwd=site.folder,
            stdout=log,
            stderr=log,
        )

    for number in range(WORKERS):
        start(number)
    while time.time() < until:
        time.sleep(dice.uniform(2.0, 5.0))
        number = dice.randrange(WORKERS)
        running[number].send_signal(signal.SIGKILL)
        running[number].wait()
        killed += 1
        start(number)
    codes = [process.wait(180) for process in running.values()]
    lines = []
    for log in logs:
        log.seek(0)
        lines += log.read().splitlines()
        log.close()
    conflicts, lost, done = (sum(line.startswith(word) for line in lines) for word in ("CONFLICT", "LOST", "DONE"))
    looks = site.start(versions[1])
    left = looks.ask("page")[:2]
    outcome = f"{done} grants, {killed} kills, {conflicts} conflicts, {lost} lost leases, {sum(left)} leaked leases"
    site.row("workers", f"{versions[0]} and {versions[1]}, killed at random (seed {seed})", outcome)
    site.close()
    problems = [line for line in lines if not line.startswith("DONE")]
    assert codes == [0] * WORKERS, problems[-20:]
    assert done > 10, "too little happened"
    assert (conflicts, lost, left) == (0, 0, [0, 0]), problems


def too_old(site: Site, old: str, new: str) -> None:
    """The new version raises the lowest reader while the old one is connected."""
    owner, day = site.names()
    holder, waiter, other, keeper = (site.start(old) for _ in range(4))
    held = holder.ask("acquire", owner=owner, writes=[day])
    waiter.send("acquire", owner=f"{owner[:-3]}-waits/-1", writes=[day])
    assert waiter.still_waits()
    stuck = site.start(old).ask("acquire", owner="here/dag/over/stuck/-1", writes=["dw.stuck"])
    newer = site.start(new)

    def refused(component: str, event: str, act: Callable[[], Any]) -> None:
        try:
            found = act()
        except Refused as error:
            site.row(component, f"{old}: {event}", f"refused: {error}")
        else:
            raise AssertionError(f"{site.store}: {component} of {old} was not refused at: {event}: {found}")

    refused("worker", "asks for locks", lambda: other.ask("acquire", owner=f"{owner}x", writes=["dw.free"]))
    refused("user", "force release", lambda: other.ask("force", lease_id=stuck["id"]))
    suspects = keeper.ask("keep")
    assert "upgrade airflow-hivelock here too" in suspects[stuck["id"]], suspects
    site.row("keeper", f"{old}: frees the lease of an ended run", f"suspect: {suspects[stuck['id']]}")
    refused("process", "connects", lambda: Process(site.targets[old], site.url).connected())
    assert holder.ask("use") > held["token"]
    assert holder.ask("release") is True
    site.row("holder", f"{old}: renews, works and releases its own lease", "released")
    refused("waiter", "is at its turn", waiter.answer)
    assert newer.ask("page")[:2] == [1, 0], "the refused waiter is in the queue still"
    passed = newer.ask("acquire", owner=owner, writes=[day], attempt=3)
    refused("task", f"gets a lease of {new} by XCom", lambda: other.ask("take", lease=passed))
    refused("retry", f"takes a lease of {new} over", lambda: other.ask("acquire", owner=owner, writes=[day], attempt=4))
    assert newer.ask("release") is True
    assert newer.ask("keep") == {}
    assert newer.ask("page")[:2] == [0, 0], "a leaked lease"
    site.row("keeper", f"{new}: frees the lease of an ended run of {old}", "freed; 0 leaked leases")
    site.close()
