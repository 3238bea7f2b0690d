"""The settings of groups: who may hold how many leases, and how a change reaches those that wait.

A change raises the version above the group's permits in its own transaction. So a grant that was decided by the settings
from before is refused. The first in the group's queue watches the node of the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks import groups
from airflow_hivelock.locks.backends.zookeeper import audit, group_settings, permits
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Create, Delete, Get, Refused, SetData, Sync
from airflow_hivelock.locks.backends.zookeeper.listings import read_group
from airflow_hivelock.locks.backends.zookeeper.share import Share
from airflow_hivelock.locks.model import GroupUse, Member, owner_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Node, Op
    from airflow_hivelock.locks.backends.zookeeper.listings import GroupListing
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import Group


class GroupNodes:
    """The part of the backend that keeps groups."""

    store: ZooKeeperStore

    def groups(self) -> list[GroupUse]:
        store, above = self.store, self.store.layout.groups
        keys = store.names(above)
        nodes = store.client.submit(*(Get(f"{above}/{key}") for key in keys))
        named = sorted(
            (node.data.decode("utf-8", "replace"), key) for node, key in zip(nodes, keys, strict=True) if node
        )
        found = [(name, read_group(store, key, listing=True)) for name, key in named]
        uses = [_use(name, group) for name, group in found if group]
        return [use for use in uses if use.stored or use.holding or use.waiting]

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        store, key = self.store, owner_key(name)
        limit, changing = store.layout.limit(key), store.retry(f"group {name!r} changed while it was written")
        while True:
            permits.look(store, Share(name, 1))  # it makes the group's nodes
            node = store.client.submit(Sync(), Get(limit))[1]
            before = group_settings.parse(node, limit)
            if before is None and group is None:
                return False
            owner, change = groups.entry(name, before, group, reason)
            entry = audit.entry(store.layout, "", owner, (), change, user)
            ops = [*_writes(limit, node, group), SetData(store.layout.permits(key), b"", -1), entry]
            done = store.client.submit(Commit((store.format.check(), *ops)))[0]
            if not isinstance(done, Refused):
                return True
            store.format.read()  # a stamp that has changed refuses each try
            changing.again()


def _writes(path: str, node: Node | None, group: Group | None) -> Sequence[Op]:
    """The operations that write or delete the settings, if they are still as in *node*."""
    if group is None:
        return [Check(path, node.stat.version), Delete(path)] if node else []
    data = group_settings.encode(group)
    return [SetData(path, data, node.stat.version)] if node else [Create(path, data)]


def _use(name: str, group: GroupListing) -> GroupUse:
    holding: dict[str, int] = {}
    for holder in group.holders.values():
        if holder:
            holding[holder.owner] = holding.get(holder.owner, 0) + 1
    waiting = [Member(one.owner, group.seen.terms(one)[0]) for _, one in group.waiters if one and one.parked]
    return GroupUse(name, group.seen.stored, tuple(Member(*one) for one in holding.items()), tuple(waiting))
