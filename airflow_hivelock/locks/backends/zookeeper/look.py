"""What is looked at before a grant: all of it in one session, each node after the one above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Children, Get, Listing, Node


class Look(NamedTuple):
    """What was seen of the root of the queues, the queues, and Hive's objects: whoever is in the way is among these."""

    root: Node | None
    queues: Sequence[Listing | None]
    objects: Sequence[Any]


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
