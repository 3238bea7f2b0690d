"""What one transaction can carry, and what becomes of a request that is more."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.zookeeper.layout import LockData
from airflow_hivelock.locks.errors import RequestTooLarge
from airflow_hivelock.locks.model import LockObject

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.layout import Layout
    from airflow_hivelock.locks.model import Lock, LockRequest

log = logging.getLogger(__name__)

MAX_PACKET_BYTES = 1_000_000
"""Just under ZooKeeper's default ``jute.maxbuffer``; a larger packet would cost the whole connection."""

_OP_BYTES = 23  # an operation's header and lengths


def fitting(request: LockRequest, layout: Layout, acl_bytes: int) -> LockRequest:
    """*request* as one transaction can carry it: where its partitions are too many, EXCLUSIVE on their table, of the
    table with the most of them first. All or nothing would be lost by several transactions.

    :raises RequestTooLarge: with every partition escalated to its table it is too large still.
    """
    fixed_bytes = 2 * (_OP_BYTES + acl_bytes) + len(LockData.of(request, 0).encode()) + 3 * len("/LOCK-EXCLUSIVE-0")
    fixed_bytes += 3 * len(f"{layout.namespace}/")

    def size_bytes(lock: Lock) -> int:
        # Its object, itself, its line in the record; an object's name is as long as its path below the namespace.
        return fixed_bytes + 3 * len(str(lock.object).encode())

    said_bytes = len(json.dumps([request.owner, request.query, request.named]).encode())  # in the record
    left_bytes = MAX_PACKET_BYTES - said_bytes - sum(map(size_bytes, request.locks))
    below: dict[LockObject, list[Lock]] = {}
    if left_bytes < 0:
        for lock in request.locks:
            if lock.object.partition:
                below.setdefault(LockObject(lock.object.database, lock.object.table), []).append(lock)
    locks = request.locks
    for table, partitions in sorted(below.items(), key=lambda entry: -len(entry[1])):
        if left_bytes < 0:
            left_bytes += sum(map(size_bytes, partitions))
            locks = rules.escalate(locks, table)
            log.warning(
                "%s asks for %d locks below %s, too many for one transaction of ZooKeeper's: it gets EXCLUSIVE on the table",
                *(request.owner, len(partitions), table),
            )
    if left_bytes < 0:
        raise RequestTooLarge(
            f"{request.owner} asks for {len(locks):,} tables and databases, {-left_bytes:,} bytes more than ZooKeeper takes "
            "at once; lock fewer at a time"
        )
    return request if locks is request.locks else replace(request, locks=locks)
