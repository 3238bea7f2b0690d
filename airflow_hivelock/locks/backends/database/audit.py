"""The audit trail: a row per force release, per work that was declared over, or per change of a group."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.backends.database.values import MOST_US, decode, encode, instant
from airflow_hivelock.locks.errors import StoreCorrupted, UpgradeNeeded
from airflow_hivelock.locks.model import ForcedRelease

if TYPE_CHECKING:
    from sqlalchemy import Row

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.store import Store
    from airflow_hivelock.locks.backends.database.transaction import StoreTransaction

log = logging.getLogger(__name__)


def write(store: Store, transaction: StoreTransaction, record: Record, reason: str, user: str) -> None:
    """Write an entry about a request or its lease."""
    put(store, transaction, record.lease_id, record.owner, record.locks, reason, user)


def write_other(store: Store, transaction: StoreTransaction, owner: str, reason: str, user: str) -> None:
    """Write an entry about something that has no locks."""
    put(store, transaction, "", owner, encode(()), reason, user)


def put(
    store: Store, transaction: StoreTransaction, lease_id: str, owner: str, locks: str, reason: str, user: str
) -> None:
    entry = {"lease_id": lease_id, "owner": owner, "locks": locks, "reason": reason, "user_name": user}
    values: dict[str, Any] = {**entry, "at_us": store.clock_us, "more": formats.WRITES.text()}
    transaction.ask(insert(store.tables.audit).values(**values))


def read(store: Store) -> list[ForcedRelease]:
    """The entries, oldest first. An unreadable one is logged, and hides none of the others."""
    table = store.tables.audit
    rows = store.read(lambda connection: connection.execute(select(table).order_by(table.c.number)).all())
    return [entry for row in rows if (entry := _parse(row))]


def _parse(row: Row[Any]) -> ForcedRelease | None:
    try:
        formats.take_text(row.more, f"entry {row.number} of the audit trail")
        validate.texts(dict(row._mapping), ("lease_id", "owner", "locks", "user_name", "reason"))
        at = instant(validate.number(row.at_us, "at_us", MOST_US))
        return ForcedRelease(row.lease_id, row.owner, decode(row.locks, row.owner), row.user_name, row.reason, at)
    except UpgradeNeeded as error:
        validate.complain(log, str(error), 0)
        return None
    except (TypeError, ValueError, StoreCorrupted) as error:
        validate.complain(log, f"entry {row.number} of the audit trail was not written by a force release: {error}", 0)
        return None
