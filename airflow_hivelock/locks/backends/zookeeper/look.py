"""What is looked at before a grant; and what need not be looked at again.

Who locks one table over and over, day by day, knows what it would see there: what it saw last time, and what it has done
itself since. The transaction that grants at once fails where that is not so (:mod:`.foretold`), so the look can be left
out. To fail costs a write; so it is, once a look has found everything as it was expected.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks.backends.zookeeper.client import Create, Delete, Get, Listing, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Children, Client, Op

    Done = tuple[Op, Any]
    """An operation of a transaction's, and its reply."""

SURE_AFTER = 1
"""After how many looks in a row that have found what was expected."""

SURE_FOR_S = 60.0
"""Whose last look is older looks again: its zxid gives the epoch, and has to be younger than records that were swept."""

MOST_FOLLOWED = 100
"""What a transaction of more operations has changed is looked at again, which is little beside it."""


class Look(NamedTuple):
    """What was seen of the root of the queues, the queues, and Hive's objects: who is in the way is among these."""

    root: Node | None
    queues: Sequence[Listing | None]
    objects: Sequence[Any]

    def all(self) -> list[Any]:
        return [self.root, *self.queues, *self.objects]


class Looks(NamedTuple):
    """What to read for that, in this order."""

    root: Get
    queues: Sequence[Children]
    objects: Sequence[Get | Children]

    def all(self) -> list[Get | Children]:
        return [self.root, *self.queues, *self.objects]

    def seen(self, replies: Sequence[Any]) -> Look:
        root, *others = replies
        return Look(root, others[: len(self.queues)], others[len(self.queues) :])


@dataclass(frozen=True)
class _Remembered:
    """A look, and what was done after it.

    :param sure: how many looks in a row had found what was expected.
    """

    looks: Looks
    look: Look
    done: tuple[Done, ...]
    sure: int
    at: float
    connection: int

    @cached_property
    def now(self) -> Look:
        """What it would see now."""
        return _followed(self.looks, self.look, self.done)


class Memory:
    """The last look that led to a grant at once, as it would be now if nobody else had come since.

    Always one whole look, for its parts tell nothing unless each is as old as those above it. Who has gone meanwhile is
    still in it, and in the way. Of two threads one may undo what the other has told: what is out of date proves nothing.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._last: _Remembered | None = None

    def recall(self, looks: Looks) -> Look | None:
        """What *looks* would show; None where it has to be looked at."""
        last = self._last
        if last is None or last.sure < SURE_AFTER or last.looks != looks:
            return None
        if last.connection != self._client.connection or self._clock() - last.at > SURE_FOR_S:
            return None
        return last.now

    def forget(self) -> None:
        """Somebody else has come."""
        self._last = None

    def granted(self, looks: Looks, look: Look, ops: Sequence[Op], replies: Sequence[Any]) -> None:
        """*look* was still true when these were done."""
        last, self._last = self._last, None
        if len(ops) > MOST_FOLLOWED or None in look.all():
            return
        right = last is not None and last.looks == looks and (last.now is look or _same(last.now, look))
        sure = last.sure + 1 if last and right else 0
        done = tuple(zip(ops, replies, strict=True))
        self._last = _Remembered(looks, look, done, sure, self._clock(), self._client.connection)

    def removed(self, deletes: Sequence[Delete]) -> None:
        """This process has done these since."""
        last = self._last
        if last is not None:
            done = (*last.done, *((op, True) for op in deletes))
            self._last = replace(last, done=done) if len(done) <= MOST_FOLLOWED else None


def _followed(looks: Looks, look: Look, done: Iterable[Done]) -> Look:
    """*look*, as it is after what was *done*."""
    made: defaultdict[str, list[str]] = defaultdict(list)
    gone: defaultdict[str, set[str]] = defaultdict(set)
    for op, reply in done:
        if isinstance(op, Create):
            parent, _, name = reply.rpartition("/")
            made[parent].append(name)
        elif isinstance(op, Delete):
            parent, _, name = op.path.rpartition("/")
            gone[parent].add(name)

    def now(path: str, seen: Node | Listing) -> Node | Listing:
        if isinstance(seen, Node):
            return Node(seen.data, seen.stat._replace(created=seen.stat.created + len(made[path])))
        names = tuple(name for name in (*seen.names, *made[path]) if name not in gone[path])
        return Listing(names, seen.czxid, seen.created + len(made[path]))

    return looks.seen([now(read.path, seen) for read, seen in zip(looks.all(), look.all(), strict=True)])


def _same(one: Look, other: Look) -> bool:
    return [*map(_unordered, one.all())] == [*map(_unordered, other.all())]


def _unordered(seen: Any) -> Any:
    return (frozenset(seen.names), *seen[1:]) if isinstance(seen, Listing) else seen
