"""The settings of groups: rows that each grant reads in its own transaction.

A change keeps out the requests of the group as a grant does, so none of them decides by the settings from before.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, or_, select, update

from airflow_hivelock.locks import formats, groups, validate
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.request import group_lock
from airflow_hivelock.locks.backends.database.values import parse_group
from airflow_hivelock.locks.model import Group, GroupUse, LeaseLimit, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement

    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction

log = logging.getLogger(__name__)


class GroupRows:
    """The part of the backend that keeps groups."""

    store: Store

    def groups(self) -> list[GroupUse]:
        stored = self._stored()
        members: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self._listed(or_(self.store.queued, self.store.away, self.store.standing)):
            if record.group_key is not None and record.state is not State.WAITING:
                members[record.lease_group].append(record)
        return [_use(name, stored.get(name), members[name]) for name in sorted({*stored, *members})]

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        store, limit = self.store, LeaseLimit(name)
        key, keys = group_lock(store.tables.name, limit)

        def put(transaction: StoreTransaction) -> bool:
            store.admit(transaction)
            store.dialect.enter(transaction, keys)
            before = next(map(parse_group, transaction.ask(store.tables.settings, of_group=key).rows), None)
            if before is None and group is None:
                return False
            _write(store, transaction, key, before, group)
            store.audit(transaction, *groups.entry(name, before, group, reason), user)
            _wake(store, transaction, key)
            return True

        return store.transact(put)

    def _stored(self) -> dict[str, Group]:
        """The settings of all groups, by name."""
        rows = self.store.all(select(self.store.tables.group))
        found = (validate.readable(log, 0, parse_group, row) for row in rows)
        return {group.name: group for group in found if group}

    def _listed(self, *where: ColumnElement[bool]) -> list[Record]:
        raise NotImplementedError


def _write(store: Store, transaction: StoreTransaction, key: int, before: Group | None, group: Group | None) -> None:
    table = store.tables.group
    if group is None:
        transaction.ask(delete(table).where(table.c.group_key == key))
        return
    values = {"name": group.name, "leases": group.leases, "weight": group.weight, "comment": group.comment}
    values["more"] = formats.WRITES.text()
    if before is None:
        transaction.ask(insert(table).values(group_key=key, **values))
    else:
        transaction.ask(update(table).where(table.c.group_key == key).values(**values))


def _wake(store: Store, transaction: StoreTransaction, key: int) -> None:
    """Notify the requests that wait for a permit. Their rows are changed as well, for those that poll."""
    request = store.tables.request
    waiting = request.c.group_key == key, request.c.state == State.PARKED.value
    store.dialect.tell_group(transaction, key)
    transaction.ask(update(request).where(*waiting).values(ahead=None))


def _use(name: str, stored: Group | None, records: Sequence[Record]) -> GroupUse:
    def members(*, waiting: bool) -> tuple[Member, ...]:
        found = [record for record in records if (record.state is State.PARKED) is waiting]
        found.sort(key=lambda record: record.position if waiting else (record.place,))
        return tuple(Member(record.owner, record.terms(stored)[1]) for record in found)

    return GroupUse(name, stored, members(waiting=False), members(waiting=True))
