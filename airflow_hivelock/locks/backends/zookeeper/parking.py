"""Waiting for one of a group's permits: in order, each behind the next before it; the first watches the permits themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks import queueing
from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.backends.zookeeper import groups
from airflow_hivelock.locks.backends.zookeeper.client import Exists, Get
from airflow_hivelock.locks.backends.zookeeper.groups import GroupLook, Parked
from airflow_hivelock.locks.backends.zookeeper.positions import DEAD_RECHECK_S
from airflow_hivelock.locks.backends.zookeeper.record import Record
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.locks.queueing import Position, QueuePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_hivelock.locks.backends.zookeeper.client import Create
    from airflow_hivelock.locks.backends.zookeeper.share import Share
    from airflow_hivelock.locks.backends.zookeeper.store import ZooKeeperStore

MOST_SAID = 3
"""How many requests that are in the way a waiter is told."""


def park(store: ZooKeeperStore, record: Record, passing_s: float) -> tuple[Record, Create]:
    """*record* as it is parked, at a place that is chosen once; and what takes it.

    As in the tables' queues (:mod:`.positions`), it is the place of the earliest of lower priority that may be passed.
    """
    share = record.share
    assert share is not None
    if not share.place and (claim := _claim(store, record, share, passing_s)):
        share = share._replace(place=claim[0], placed_ms=claim[1])
    return store.groups.park(replace(record, share=share))


def _claim(store: ZooKeeperStore, record: Record, share: Share, passing_s: float) -> tuple[int, int] | None:
    others = [other for other in store.groups.look(share).parked if other.key != record.key]
    own = Position.newcomer(record.priority)
    if not queueing.may_overtake(own, [other.position for other in others]):
        return None
    since = store.groups.placed_ms(owner_key(share.group), others)
    places = [QueuePlace(other.position, placed_ms) for other, placed_ms in zip(others, since, strict=True)]
    oldest_ms = store.time_ms() - int(passing_s * 1000)
    found = queueing.claim(own, places, oldest_ms)
    return (found.position.turn, found.since) if found else None


def wait(store: ZooKeeperStore, record: Record, wake: Callable[[], None]) -> Blocked | GroupLook | None:
    """A parked request's look at its group: who is in the way, or a look that shows it a free permit. None: look again."""
    assert record.share is not None
    look = store.groups.look(record.share)
    mine = Parked.parse(record.share.ticket)
    assert mine is not None, "it is parked"
    if ahead := look.ahead(mine):
        return _wait_behind(store, record, ahead, wake)
    if look.free(record, mine) is None:
        look = store.groups.look(record.share, wake)
        if look.ahead(mine):
            return None
        if look.free(record, mine) is None:
            return _wait_for_one(store, record, look)
    return look


def _wait_for_one(store: ZooKeeperStore, record: Record, look: GroupLook) -> Blocked | None:
    """All permits are taken: by which leases. None: look again, because one was left behind."""
    assert record.share is not None
    key = owner_key(record.share.group)
    leases = store.groups.leases(key, look.numbers)
    records = _read(store, leases.values())
    owners = [(number, records.get(lease_id), lease_id) for number, lease_id in leases.items()]
    if void := [number for number, other, lease_id in owners if not groups.has(other, number, lease_id)]:
        store.groups.strike(key, look, void)
        return None
    by = [groups.blocker(other, False) for _, other, _ in owners[:MOST_SAID] if other is not None]
    return Blocked(tuple(by)) if by else None


def _wait_behind(
    store: ZooKeeperStore, record: Record, ahead: Sequence[Parked], wake: Callable[[], None]
) -> Blocked | None:
    """Watch the nearest place, and the life of its owner. A dead request keeps its place until its turn has come."""
    assert record.share is not None
    nearest, first = ahead[-1], ahead[0]
    path = f"{store.layout.parked(owner_key(record.share.group))}/{nearest.name}"
    standing, *nodes = store.client.submit(
        Exists(path, wake), *(Get(store.layout.record(place.key)) for place in (nearest, first))
    )
    if standing is None:
        return None
    other, leader = (
        Record.decode(node, store.layout.record(place.key)) if node else None
        for node, place in zip(nodes, (nearest, first), strict=True)
    )
    # A place and its record are written together, and no session reads backwards: one that its record does not name is void.
    if void := {
        place.name
        for place, found in ((nearest, other), (first, leader))
        if found is None or not groups.stands_at(found, place)
    }:
        store.groups.leave(owner_key(record.share.group), sorted(void))
        return None
    assert other is not None
    assert leader is not None
    # Signs of life are read after the records: gone while it still waits means dead.
    life, leaders_life = store.client.submit(
        Exists(store.layout.alive(nearest.key), wake), Exists(store.layout.alive(first.key))
    )
    recheck_s = None
    if life is None:
        recheck_s = DEAD_RECHECK_S
        if leaders_life is None:
            look = store.groups.look(record.share, wake)
            if look.free(leader, first) is not None:
                store.break_dead(leader)
                return None
            if _wait_for_one(store, leader, look) is None:
                return None
    by = [groups.blocker(other, True)] + ([groups.blocker(leader, True)] if first != nearest else [])
    # One before its group at the tables' queues is granted or leaves the group's queue at once.
    return Blocked(tuple(by), passing=other.queued or not other.wait, recheck_s=recheck_s)


class Group(NamedTuple):
    """A group as people are shown it, with the records of all that have to do with it.

    :param holders: the leases that are counted, by the numbers of their permits.
    :param void: permits that are no standing request's.
    :param waiters: places and who stands there, in order.
    :param left: places where nobody stands.
    """

    key: str
    look: GroupLook
    holders: dict[int, Record]
    void: list[int]
    waiters: list[tuple[Parked, Record]]
    left: list[str]


def every(store: ZooKeeperStore) -> list[Group]:
    """All groups, for listings and for a sweep: a record that cannot be read is logged, and is nobody's."""
    found = []
    for key in store.groups.listed():
        if (look := store.groups.look_at(key)) is None:
            continue
        leases = store.groups.leases(key, look.numbers)
        owners = {number: lease_id.partition("-")[0] for number, lease_id in leases.items() if lease_id}
        keys = list({*owners.values(), *(place.key for place in look.parked)})
        records = dict(zip(keys, store.read_all(keys), strict=True))
        named = {number: records[owner] for number, owner in owners.items()}
        holders = {n: other for n, other in named.items() if other and groups.has(other, n, leases[n])}
        places = [(place, records[place.key]) for place in look.parked]
        waiters = [(place, other) for place, other in places if other and groups.stands_at(other, place)]
        left = {place.name for place in look.parked} - {place.name for place, _ in waiters}
        found.append(Group(key, look, holders, sorted(leases.keys() - holders), waiters, sorted(left)))
    return found


def sweep(store: ZooKeeperStore) -> int:
    """Take away permits and places that are no request's; how many there were. They always go with their records: no more than
    a precaution, but a permit of nobody's would keep its group waiting for ever."""
    return sum(
        store.groups.strike(group.key, group.look, group.void) + store.groups.leave(group.key, group.left)
        for group in every(store)
    )


def _read(store: ZooKeeperStore, lease_ids: Iterable[str]) -> dict[str, Record | None]:
    """The records that may be of these leases."""
    given = [lease_id for lease_id in lease_ids if lease_id]
    paths = [store.layout.record(lease_id.partition("-")[0]) for lease_id in given]
    nodes = store.client.submit(*map(Get, paths))
    records = (Record.decode(node, path) if node else None for node, path in zip(nodes, paths, strict=True))
    return dict(zip(given, records, strict=True))
