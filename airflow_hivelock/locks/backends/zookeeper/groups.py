"""Groups with their settings, holders and waiters: listed, changed, and cleaned up.

A change of the settings raises the version above the group's permits in its own transaction. So a grant that was
decided by the earlier settings is refused. The first request in the group's queue watches the node of the settings.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import groups
from airflow_hivelock.locks.backends.zookeeper import permits
from airflow_hivelock.locks.backends.zookeeper.client import Check, Commit, Create, Delete, Get, Refused, SetData, Sync
from airflow_hivelock.locks.backends.zookeeper.record import Share
from airflow_hivelock.locks.errors import AccessDenied, StoreCorrupted
from airflow_hivelock.locks.model import GroupUse, Member, owner_key

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Op
    from airflow_hivelock.locks.backends.zookeeper.permits import GroupLook, Parked
    from airflow_hivelock.locks.backends.zookeeper.record import Record
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore
    from airflow_hivelock.locks.model import Group

log = logging.getLogger(__name__)


class GroupListing(NamedTuple):
    """A group for listings, with the records of its requests.

    :param holders: see :func:`.permits.holders`.
    :param waiters: the entries of its queue, in order, each with its record; None: it belongs to no request.
    """

    seen: GroupLook
    holders: dict[int, Record | None]
    waiters: list[tuple[Parked, Record | None]]


class GroupNodes:
    """The part of the backend that keeps groups."""

    store: ZooKeeperStore

    def groups(self) -> list[GroupUse]:
        store, above = self.store, self.store.layout.groups
        keys = store.names(above)
        nodes = store.client.submit(*(Get(f"{above}/{key}", lenient=True) for key in keys))
        named = sorted(
            (node.data.decode("utf-8", "replace"), key) for node, key in zip(nodes, keys, strict=True) if node
        )
        found = [(name, read(store, key, listing=True)) for name, key in named]
        uses = [_use(name, group) for name, group in found if group]
        return [use for use in uses if use.stored or use.holding or use.waiting]

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        store, key = self.store, owner_key(name)
        limit, changing = store.layout.limit(key), store.retry(f"group {name!r} changed while it was written")
        while True:
            permits.look(store, Share(name, 1))  # it makes the group's nodes
            node = store.client.submit(Sync(), Get(limit))[1]
            before = permits.settings(node, limit)
            if before is None and group is None:
                return False
            owner, change = groups.entry(name, before, group, reason)
            written = permits.encode(group) if group else b""
            if node is None:
                ops: list[Op] = [Create(limit, written)]
            elif group is None:
                ops = [Check(limit, node.stat.version), Delete(limit)]
            else:
                ops = [SetData(limit, written, node.stat.version)]
            audited = store.audited("", owner, (), change, user)
            done = store.client.submit(Commit((*audited, *ops, SetData(store.layout.permits(key), b"", -1))))[0]
            if not isinstance(done, Refused):
                return True
            store.format.read()  # a stamp that has changed refuses each try
            changing.again()


def _use(name: str, group: GroupListing) -> GroupUse:
    holding = Counter(holder.owner for holder in group.holders.values() if holder)
    waiting = [Member(one.owner, group.seen.terms(one)[0]) for _, one in group.waiters if one and one.parked]
    return GroupUse(name, group.seen.stored, tuple(Member(*one) for one in holding.items()), tuple(waiting))


def read(store: ZooKeeperStore, key: str, *, listing: bool) -> GroupListing | None:
    """Read a group. Raises StoreCorrupted if a record cannot be read, and this is no *listing*."""
    if (seen := permits.look_at(store, key, listing=listing)) is None:
        return None
    holding = permits.holders(store, seen, listing=listing)
    records = store.read_all([one.key for one in seen.parked], listing=listing)
    waiters = [
        (one, record if record is not None and one.has(record) else None)
        for one, record in zip(seen.parked, records, strict=True)
    ]
    return GroupListing(seen, holding, waiters)


def sweep(store: ZooKeeperStore) -> int:
    """Delete permits and entries that belong to no request; return how many there were.

    They always go with their records, so this is a precaution. But such a permit would keep its group waiting forever.
    A group with an unreadable record is left alone, because the record may be a newer version's lease.
    """
    swept = 0
    for key in sorted(store.names(store.layout.groups)):
        try:
            group = read(store, key, listing=False)
        except (StoreCorrupted, AccessDenied) as error:
            log.warning("The permits of a group cannot be cleaned up: %s", error)
            continue
        if group is None:
            continue
        void = [number for number, holder in group.holders.items() if holder is None]
        swept += permits.delete_void(store, group.seen, void)
        queue = store.layout.parked(group.seen.key)
        left = [Commit((Delete(f"{queue}/{one.name}"),)) for one, record in group.waiters if record is None]
        swept += sum(not isinstance(outcome, Refused) for outcome in store.client.submit(*left))
    return swept
