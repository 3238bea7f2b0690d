"""What is read before a grant: all of it in one session, each node after the one above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Children, Get, Listing, Node


class Snapshot(NamedTuple):
    """The root of the queues, the queues, and Hive's objects, as they were: whatever is in the way is among these."""

    root: Node | None
    queues: Sequence[Listing | None]
    objects: Sequence[Any]


class SnapshotReads(NamedTuple):
    """What to read for that, in this order."""

    root: Get
    queues: Sequence[Children]
    objects: Sequence[Get | Children]

    def all(self) -> list[Get | Children]:
        return [self.root, *self.queues, *self.objects]

    def snapshot(self, replies: Sequence[Any]) -> Snapshot:
        root, *others = replies
        return Snapshot(root, others[: len(self.queues)], others[len(self.queues) :])
