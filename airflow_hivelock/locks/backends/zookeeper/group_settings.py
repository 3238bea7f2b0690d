"""The node with a group's settings."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Group

if TYPE_CHECKING:
    from airflow_hivelock.locks.backends.zookeeper.client import Node

log = logging.getLogger(__name__)

_FIELDS = ("name", "leases", "weight", "comment")


def encode(group: Group) -> bytes:
    data = {"name": group.name, "leases": group.leases, "weight": group.weight, "comment": group.comment}
    return json.dumps(data | formats.WRITES.fields(), separators=(",", ":"), ensure_ascii=False).encode()


def parse(node: Node | None, path: str) -> Group | None:
    """The settings in a node; None if there is none.

    :raises StoreCorrupted: another program wrote it.
    :raises UpgradeNeeded: it is for readers of a later format.
    """
    if node is None:
        return None
    try:
        data = validate.load(node.data)
        formats.take(data, _FIELDS, path)
        return Group(**data)
    except (TypeError, ValueError) as error:
        raise StoreCorrupted(
            f"{path} is no group of airflow-hivelock: {node.data[:80]!r} ({error}). Another program wrote it"
        ) from error


def readable(node: Node | None, path: str) -> Group | None:
    """The settings in a node. Those that cannot be read are logged, and are None."""
    try:
        return parse(node, path)
    except StoreCorrupted as error:
        validate.complain(log, str(error), node.stat.mzxid if node else 0)
        return None
