"""The entries of the audit trail."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.backends.zookeeper.client import Create
from airflow_hivelock.locks.backends.zookeeper.record import instant
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import ForcedRelease, locks_from_json, locks_to_json

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Node
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.model import Lock

log = logging.getLogger(__name__)

MAX_AUDITED_LENGTH = 30_000
_TEXTS = ("lease", "owner", "user", "reason")


def entry(layout: Layout, lease_id: str, owner: str, locks: tuple[Lock, ...], reason: str, user: str) -> Create:
    """The entry of the audit trail, for the transaction that it describes. The lock nodes of the largest requests
    nearly fill a transaction, so the entry then leaves out the partitions."""
    if sum(len(str(lock.object)) for lock in locks) >= MAX_AUDITED_LENGTH:
        locks = tuple(lock for lock in locks if not lock.object.partition)
    data = {"lease": lease_id, "owner": owner, "locks": locks_to_json(locks), "reason": reason, "user": user}
    data |= formats.WRITES.fields()
    return Create(f"{layout.audit}/", json.dumps(data, ensure_ascii=False).encode(), sequential=True)


def parse(node: Node, path: str) -> ForcedRelease | None:
    """Parse an entry. One that cannot be read is logged, and is None."""
    try:
        data = validate.load(node.data)
        formats.take(data, (*_TEXTS, "locks"), path)
        validate.texts(data, _TEXTS)
        locks = locks_from_json(data["locks"])
        at = instant(node.stat.ctime_ms)
        return ForcedRelease(data["lease"], data["owner"], locks, data["user"], data["reason"], at)
    except StoreCorrupted as error:
        validate.complain(log, str(error), node.stat.mzxid)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        validate.complain(log, f"{path} was not written by a force release: {error}", node.stat.mzxid)
    return None
