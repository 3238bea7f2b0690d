"""The settings of groups: rows that each grant reads in its own transaction.

A change keeps out the requests of the group as a grant does, so none of them decides by the settings from before.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, update

from airflow_hivelock.locks import formats, groups
from airflow_hivelock.locks.backends.database.listings import ListedRows
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.request import group_lock
from airflow_hivelock.locks.backends.database.values import parse_group
from airflow_hivelock.locks.model import Group, GroupUse, LeaseLimit, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction


class GroupRows(ListedRows):
    """The part of the backend that keeps groups."""

    def groups(self) -> list[GroupUse]:
        stored = self.settings()
        members: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self.present():
            if record.group_key is not None and record.state is not State.WAITING:
                members[record.lease_group].append(record)
        return [_use(name, stored.get(name), members[name]) for name in sorted({*stored, *members})]

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        store, table, request = self.store, self.store.tables.group, self.store.tables.request
        key, keys = group_lock(store.tables.name, LeaseLimit(name))

        def put(transaction: StoreTransaction) -> bool:
            store.admit(transaction)
            store.dialect.enter(transaction, keys)
            before = next(map(parse_group, transaction.ask(store.tables.settings, of_group=key).rows), None)
            if group is None:
                if before is None:
                    return False
                transaction.ask(delete(table).where(table.c.group_key == key))
            else:
                values = {"name": group.name, "leases": group.leases, "weight": group.weight, "comment": group.comment}
                values["more"] = formats.WRITES.text()
                if before is None:
                    transaction.ask(insert(table).values(group_key=key, **values))
                else:
                    transaction.ask(update(table).where(table.c.group_key == key).values(**values))
            store.audit(transaction, *groups.entry(name, before, group, reason), user)
            store.dialect.notify_group(transaction, key)
            # For the parked requests that poll: their rows have changed.
            parked = request.c.group_key == key, request.c.state == State.PARKED.value
            transaction.ask(update(request).where(*parked).values(ahead=None))
            return True

        return store.transact(put)


def _use(name: str, stored: Group | None, records: Sequence[Record]) -> GroupUse:
    def members(*, waiting: bool) -> tuple[Member, ...]:
        found = [record for record in records if (record.state is State.PARKED) is waiting]
        found.sort(key=lambda record: record.position if waiting else (record.place,))
        return tuple(Member(record.owner, record.terms(stored)[1]) for record in found)

    return GroupUse(name, stored, members(waiting=False), members(waiting=True))
