"""How often the expected wait is right: it replays a history of leases, and compares each wait with its range.

``python -m tests.bench.expected`` replays a made-up month; ``--history FILE`` replays the JSON of SHOW HISTORY:
``hivelock --output json -e "SHOW HISTORY" > FILE``. ``--play SECONDS`` first makes a history in a real lock store.
Each wait is looked at when its task's log first has a range.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import time
from bisect import bisect_right
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect, rules
from airflow_hivelock.locks.backends.database.backend import HISTORY_S
from airflow_hivelock.locks.expected import MOST_READ, PastHolds, WaitRange, expected_waits
from airflow_hivelock.locks.model import Blocker, Lease, Lock, LockMode, LockObject, Tenure, Waiter
from airflow_hivelock.locks.queueing import conflict
from airflow_hivelock.waiting import STILL_S
from tests.support import documented

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

AT_S = STILL_S[0]
"""When a wait is looked at, in seconds after its request."""

KEPT_S = 300.0
"""How long a reader keeps the past holds, in seconds."""

DAYS, TABLES = 28, 12
SEED = 20130115
_LOCK = re.compile(r"(\S.*?) (SHARED|EXCLUSIVE)(?:, |$)")
START = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Seen:
    """A wait that was looked at.

    :param ahead: how many requests it waited for, waiters included.
    :param wait_s: how much longer it lasted, in seconds.
    """

    ahead: int
    wait_s: float
    expected: WaitRange | None

    @property
    def inside(self) -> bool:
        """Whether it ended inside its range."""
        return self.expected is not None and self.expected.least_s <= self.wait_s <= self.expected.most_s


def replay(tenures: Iterable[Tenure]) -> Iterator[Seen]:
    """Look at each wait in *tenures* that lasted longer than ``AT_S`` seconds, with what was known by then."""
    every = sorted((each for each in tenures if each.ended), key=lambda each: each.asked)
    by_end = sorted(every, key=_ended)
    ends = [_ended(each) for each in by_end]
    past, read = PastHolds(()), START.replace(year=1)
    there: list[Tenure] = []
    coming = deque(every)
    for each in every:
        now = each.asked + timedelta(seconds=AT_S)
        if each.granted <= now:
            continue
        if (now - read).total_seconds() > KEPT_S:
            first, last = (bisect_right(ends, at) for at in (now - timedelta(seconds=HISTORY_S), now))
            past, read = PastHolds(by_end[max(first, last - MOST_READ) : last]), now
        while coming and coming[0].asked <= now:
            there.append(coming.popleft())
        there = [one for one in there if _ended(one) > now]
        held = [one for one in there if one.granted <= now]
        waiting = [one for one in there if one.granted > now]
        waiters = [_waiter(one, waiting[:index], held) for index, one in enumerate(waiting)]
        found = expected_waits(past, map(_lease, held), waiters, now)
        ahead = next(len(waiter.blocked_by) for waiter in waiters if waiter.owner == each.owner)
        yield Seen(ahead, (each.granted - now).total_seconds(), found.get(each.owner))


def _ended(tenure: Tenure) -> datetime:
    assert tenure.ended
    return tenure.ended


def _lease(tenure: Tenure) -> Lease:
    return Lease(tenure.lease_id, 1, 1, 1, tenure.owner, tenure.locks, 3_600.0, tenure.granted)


def _waiter(tenure: Tenure, before: Sequence[Tenure], held: Sequence[Tenure]) -> Waiter:
    ahead = [
        Blocker(one.owner, lock.object, lock.mode, waiting)
        for those, waiting in ((before[::-1], True), (held, False))
        for one in those
        if (lock := _first_conflict(tenure.locks, one.locks))
    ]
    return Waiter(tenure.owner, tenure.locks, 1, tenure.asked, tuple(ahead))


def _first_conflict(locks: Iterable[Lock], theirs: Iterable[Lock]) -> Lock | None:
    modes = {lock.object: lock.mode for lock in locks}
    return next((lock for lock in theirs if lock.object in modes and conflict(modes[lock.object], lock.mode)), None)


def month() -> list[Tenure]:
    """Made-up leases of four weeks, granted in the order of their requests.

    Each table has two jobs that write it, one that reads it, and reruns of ten to thirty runs at once. Each job has its
    own median, from two minutes to an hour, and a log-normal spread. All jobs of a day are slower or quicker together,
    and one run of 30 takes three to ten times as long.
    """
    dice = random.Random(SEED)
    days = [dice.lognormvariate(0, 0.2) for _ in range(DAYS)]
    made: list[Tenure] = []
    for number in range(TABLES):
        table = LockObject("dw", f"t{number}")
        jobs = [("write0", LockMode.EXCLUSIVE), ("write1", LockMode.EXCLUSIVE), ("read", LockMode.SHARED)]
        asks: list[tuple[float, str, str, LockMode]] = []
        medians_s = {name: 60 * 2 ** dice.uniform(1, 6) for name, _ in jobs}
        spreads = {name: dice.uniform(0.1, 0.6) for name, _ in jobs}
        for name, mode in jobs:
            every_s = max(3_600.0, 6 * medians_s[name]) * dice.choice((1, 2, 4))
            at_s = dice.uniform(0, every_s)
            while at_s < DAYS * 86_400:
                asks.append((at_s, name, f"scheduled{at_s:.0f}", mode))
                at_s += every_s * dice.uniform(0.9, 1.1)
        for rerun in range(4):
            at_s = dice.uniform(7, DAYS) * 86_400
            asks += [
                (at_s + run, "write0", f"rerun{rerun}-{run}", LockMode.EXCLUSIVE) for run in range(dice.randint(10, 30))
            ]
        made += _granted(table, sorted(asks, key=lambda ask: ask[0]), medians_s, spreads, days, dice)
    return made


def _granted(
    table: LockObject,
    asks: Sequence[tuple[float, str, str, LockMode]],
    medians_s: dict[str, float],
    spreads: dict[str, float],
    days: Sequence[float],
    dice: random.Random,
) -> Iterator[Tenure]:
    """The leases on one table: each request waits for all earlier ones that conflict with it."""
    shared_end_s = exclusive_end_s = 0.0
    for at_s, job, run, mode in asks:
        exclusive = mode is LockMode.EXCLUSIVE
        granted_s = max(at_s, exclusive_end_s, shared_end_s if exclusive else 0.0)
        held_s = medians_s[job] * dice.lognormvariate(0, spreads[job]) * days[min(int(granted_s // 86_400), DAYS - 1)]
        if dice.random() < 1 / 30:
            held_s *= dice.uniform(3, 10)
        end_s = granted_s + held_s
        if exclusive:
            exclusive_end_s = end_s
        else:
            shared_end_s = max(shared_end_s, end_s)
        asked, granted, ended = (START + timedelta(seconds=each_s) for each_s in (at_s, granted_s, end_s))
        owner = f"prod/{table.table}/{run}/{job}/-1"
        locks = rules.with_parents(*(([], [table]) if exclusive else ([table], [])))
        yield Tenure(f"{owner}-lease", owner, tuple(locks), asked, granted, ended)


def play(seconds: float) -> list[Tenure]:
    """The history of a real lock store, SQLite, that eight jobs have used for so long: three write and one reads each
    of two tables. One second of it stands for a minute."""
    until = time.monotonic() + seconds
    with TemporaryDirectory() as scratch:
        url = f"sqlite:///{scratch}/leases.db"
        with connect(url) as manager, ThreadPoolExecutor() as pool:
            jobs = [(f"job{number}", f"dw.t{number % 2}", number // 2 == 3) for number in range(8)]
            for job in [pool.submit(_play_job, url, *each, until) for each in jobs]:
                job.result()
            tenures = manager.history()

    def minutes(at: datetime) -> datetime:
        return START + 60 * (at - tenures[0].asked)

    return [
        replace(each, asked=minutes(each.asked), granted=minutes(each.granted), ended=minutes(_ended(each)))
        for each in tenures
    ]


def _play_job(url: str, job: str, table: str, reads: bool, until: float) -> None:
    dice = random.Random(job)
    median_s, spread = 2 ** dice.uniform(0, 2), dice.uniform(0.1, 0.6)
    with connect(url) as manager:
        for run in itertools.count():
            if time.monotonic() > until:
                return
            shared, exclusive = ([table], []) if reads else ([], [table])
            owner = f"prod/play/{run}/{job}/-1"
            lease = manager.acquire(owner=owner, reads=shared, writes=exclusive, timeout_s=None)
            time.sleep(median_s * dice.lognormvariate(0, spread))
            manager.release(lease)
            time.sleep(median_s * dice.uniform(1, 6))


def read(path: str) -> list[Tenure]:
    """The leases in the JSON of SHOW HISTORY."""
    with open(path) as file:
        rows = json.load(file)
    found = []
    for row in rows:
        named = _LOCK.findall(row["locks"])
        reads, writes = ([name for name, mode in named if mode == wanted] for wanted in ("SHARED", "EXCLUSIVE"))
        asked, granted, ended = (
            datetime.fromisoformat(row[name]) if row[name] else None
            for name in ("asked_utc", "granted_utc", "ended_utc")
        )
        assert asked
        assert granted
        locks = tuple(rules.request("any", reads, writes).locks)
        found.append(Tenure(row["lease_id"], row["user"], locks, asked, granted, ended))
    return found


HEAD = ("requests ahead", "waits", "with a range", "ended inside", "wait, median", "width, median")


def report(seen: Sequence[Seen]) -> str:
    """The rows of the table: by how many requests were ahead."""
    lines = []
    for name, least, most in (("1", 1, 1), ("2 to 5", 2, 5), ("6 and more", 6, 10**9), ("all", 0, 10**9)):
        rows = [one for one in seen if least <= one.ahead <= most]
        ranged = [one for one in rows if one.expected]
        if ranged:
            inside = sum(one.inside for one in ranged) / len(ranged)
            wait = median(one.wait_s for one in ranged) / 60
            width = median(one.expected.most_s - one.expected.least_s for one in ranged if one.expected) / 60
            shares = (f"{len(ranged) / len(rows):.0%}", f"{inside:.0%}")
            lines.append((name, f"{len(rows):,}", *shares, f"{wait:.0f} min", f"{width:.0f} min"))
    return documented.table(HEAD, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", help="the JSON of SHOW HISTORY")
    parser.add_argument("--play", type=float, help="how long to use a real lock store, in seconds")
    wanted = parser.parse_args()
    tenures = read(wanted.history) if wanted.history else play(wanted.play) if wanted.play else month()
    print(report(list(replay(tenures))))


if __name__ == "__main__":
    main()
