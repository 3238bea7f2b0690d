"""Replays a log: each update must be an action of the specification, and each lease be returned when it may be."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tests.system.histories.trace import promises
from tests.system.histories.trace.actions import LEFT_OUT, OF_HIVE, OF_NODES, OF_ROWS, SPECIFIED
from tests.system.histories.trace.episodes import Episodes
from tests.system.histories.trace.reading import Reader
from tests.system.histories.trace.rows import RowReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from tests.system.histories.trace.actions import Action
    from tests.system.histories.trace.rows import RowTransaction
    from tests.system.histories.trace.state import State, Step
    from tests.system.histories.transactions import Transaction

NEAREST = 3
MOST = 5
"""After so many steps that are not allowed, the rest is not looked at."""


class _Committed(Protocol):
    """A transaction of a store, in the order of the commits."""

    @property
    def zxid(self) -> int: ...

    @property
    def time_ms(self) -> int: ...


One = TypeVar("One", bound=_Committed)
Read = TypeVar("Read", bound=_Committed, contravariant=True)


class StoreReader(Protocol[Read]):
    """Reads the transactions of one kind of store as steps."""

    @property
    def state(self) -> State: ...

    def steps(self, transaction: Read, /) -> Iterator[Step]: ...

    def name_of(self, key: str) -> str: ...

    def lease(self, lease_id: str) -> tuple[str, int]: ...


class Returned(NamedTuple):
    """A worker logged, at that time, that a caller had this lease. *zxid*: of the last transaction before, if it is known."""

    time_ms: int
    lease_id: str
    zxid: int = 0

    def before(self, transaction: _Committed) -> bool:
        return self.zxid < transaction.zxid if self.zxid else self.time_ms < transaction.time_ms


@dataclass
class Trace:
    """The result.

    :param processes: how many processes took the steps, if the caller knows.
    :param wrong: the steps that the specification does not allow, as text.
    :param actions: how often each action was taken.
    :param counted: in ZooKeeper, how many grants took a permit of their group.
    :param passed: in ZooKeeper, how often a request that waited was passed.
    """

    transactions: int = 0
    returned: int = 0
    seconds: float = 0.0
    actions: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    processes: int = 0
    counted: int = 0
    passed: int = 0

    def __str__(self) -> str:
        steps = ", ".join(f"{number} {name}" for name, number in self.actions.most_common())
        of = f" of {self.processes} processes" if self.processes else ""
        passed = f"; {self.passed} times one was passed, {self.counted} leases counted" if self.passed else ""
        return (
            f"trace{of}: {self.transactions} transactions and {self.returned} returned leases validated in "
            f"{self.seconds:.1f} s; {steps}{passed}"
        )


VALIDATED: list[Trace] = []
"""The traces of the test that runs. :mod:`.summary` counts them."""


def validate(
    transactions: Sequence[Transaction],
    layout: Layout,
    returned: Collection[Returned] | None = None,
    *,
    passing_s: float = 3600.0,
    hive: bool = False,
) -> Trace:
    """Replay the *transactions* of ZooKeeper.

    :param returned: when leases were returned to their callers. A caller's log may be late, and is never early. None: no caller
        has logged them.
    :param passing_s: for how long a request that waits may be passed.
    :param hive: whether Hive's clients were there. If not, nothing but a release deletes a lock node.
    """
    reader = Reader(layout)
    reader.state.last = {
        one.session: one.zxid for one in transactions if any(write.data is not None for write in one.writes)
    }
    episodes = Episodes(passing_s)
    without = OF_ROWS if hive else OF_ROWS | OF_HIVE
    note = None if hive else episodes.note  # UNLOCK TABLE can end a lease under the hands of its caller
    trace = _replay(transactions, reader, returned or (), without, hive=hive, note=note)
    trace.counted, trace.passed = episodes.counted, episodes.passed
    if not hive:
        trace.wrong += episodes.overlaps(None if returned is None else {one.lease_id for one in returned})
    # Other tests may use the same server.
    here = (f"{layout.namespace}/", f"{layout.root}/")
    trace.transactions = sum(any(write.path.startswith(here) for write in one.writes) for one in transactions)
    return trace


def validate_rows(
    transactions: Sequence[RowTransaction], returned: Iterable[Returned] = (), *, passing_s: float, dead_s: float
) -> Trace:
    """Replay the *transactions* of a database.

    :param passing_s: for how long a request that waits may be passed.
    :param dead_s: after so long without a sign of life, a process is taken for dead.
    """
    return _replay(transactions, RowReader(passing_s, dead_s), returned, OF_NODES, hive=False)


def _replay(
    transactions: Sequence[One],
    reader: StoreReader[One],
    returned: Iterable[Returned],
    without: Collection[str],
    *,
    hive: bool,
    note: Callable[[Step], Iterable[str]] | None = None,
) -> Trace:
    """
    :param without: the actions that are not allowed.
    :param note: hears of each step, and gives the promises that it breaks.
    """
    began, trace = time.perf_counter(), Trace(len(transactions))
    VALIDATED.append(trace)
    returns = sorted(returned, key=lambda one: (one.zxid, one.time_ms), reverse=True)
    allowed = {name: action for name, action in (SPECIFIED | LEFT_OUT).items() if name not in without}
    for transaction in transactions:
        while returns and returns[-1].before(transaction):
            _return(trace, reader, returns.pop())
        for step in reader.steps(transaction):
            found = next((name for name, action in allowed.items() if next(action(step), None) is None), None)
            broken = [*promises.after(step, hive=hive), *(note(step) if note else ())] if step.key else []
            if not found or broken:
                trace.wrong.append(_text(reader, step, found, allowed, broken))
            trace.actions[found or "none"] += 1
        if len(trace.wrong) >= MOST:
            break
    while returns and len(trace.wrong) < MOST:
        _return(trace, reader, returns.pop())
    trace.seconds = time.perf_counter() - began
    return trace


def _return(trace: Trace, reader: StoreReader[One], returned: Returned) -> None:
    key, epoch = reader.lease(returned.lease_id)
    why = list(promises.return_lease(reader.state, key, epoch))
    if why:
        trace.wrong.append(
            f"return_lease of {returned.lease_id} ({reader.name_of(key)}) is not allowed:\n"
            f"  state before: {reader.state.of(key)}\n" + "".join(f"  {reason}\n" for reason in why)
        )
    if reader.state.has_lease(key, epoch):
        reader.state.returned[key] = epoch
    trace.returned += 1
    trace.actions["return_lease"] += 1


def _text(
    reader: StoreReader[One], step: Step, found: str | None, allowed: Mapping[str, Action], broken: Sequence[str]
) -> str:
    """The step, the state before it, and the actions that come nearest."""
    lines = [
        f"{step.zxid:#x}: a step of {step.key or 'no owner'} ({reader.name_of(step.key)}) is not allowed",
        f"  state before: {step.before}",
        f"  state after:  {step.after}",
    ]
    if step.made or step.gone:
        lines.append(f"  objects: created {sorted(step.made)}, deleted {sorted(step.gone)}")
    lines += [f"  breaks {promise}" for promise in broken]
    if found:
        lines.append(f"  it is {found}, apart from that")
    else:
        reasons = {name: list(action(step)) for name, action in allowed.items()}
        nearest = sorted(reasons, key=lambda name: len(reasons[name]))[:NEAREST]
        lines += [f"  {name} would be allowed, but: {'; '.join(reasons[name])}" for name in nearest]
    for key, other in list(step.world.rivals(step.key))[:NEAREST]:
        lines.append(f"  conflicts with {key} ({reader.name_of(key)}): {other}")
    return "\n".join(lines)


def returned_leases(directory: Path) -> list[Returned]:
    """The leases in the workers' logs. The last line of a killed worker may be cut off."""
    lines = [line.split() for log in directory.glob("returned-*") for line in log.read_text().splitlines()]
    return [Returned(int(line[1]), line[0]) for line in lines if len(line) == 2]
