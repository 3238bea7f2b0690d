"""The nodes in ZooKeeper, Hive's format of a lock node, and the size of one transaction.

::

    /hive_zookeeper_namespace/dw/flights/dt=2013-01-01/LOCK-SHARED-00000000007      granted locks, Hive's and ours
    /airflow_hivelock/requests/<owner key>         the owner's record
    /airflow_hivelock/alive/<owner key>            ephemeral: the liveness node of the process that waits for the owner
    /airflow_hivelock/away/<owner key>             the owner's request is AWAY: it waits for a worker slot, without a position
    /airflow_hivelock/queue/<db.table>             the table's queue
    /airflow_hivelock/queue/<db.table>/<owner key>-<ticket epoch>-<entry>-<scope>  a ticket in it
    /airflow_hivelock/groups/<group's key>/limit               the group's settings: its limit, default weight, comment
    /airflow_hivelock/groups/<group's key>/permits/<number>    a permit of the group is taken
    /airflow_hivelock/groups/<group's key>/queue/<owner key>-<ticket epoch>-<version>-<number>-<priority>-<since>    a parked request
    /airflow_hivelock/audit/<sequence>             force releases, and changes of groups
    /airflow_hivelock/format                       the store's stamp; every grant checks this node's version

Below Hive's namespace only lock nodes and object nodes may exist: anything else breaks Hive's SHOW LOCKS. This package
creates its lock nodes on ``LOCK-<MODE>-0``, so they have eleven digits where Hive's have ten. Hive reads both, and the
paths never collide.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from airflow_hivelock.locks import formats, rules
from airflow_hivelock.locks.backends.zookeeper.client import Create
from airflow_hivelock.locks.errors import InvalidRequest, RequestTooLarge
from airflow_hivelock.locks.model import Lock, LockMode, LockObject, LockRequest, locks_to_json, owner_key
from airflow_hivelock.locks.model.group import MAX_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

MAX_PACKET_BYTES = 1_000_000
"""Just under ZooKeeper's default ``jute.maxbuffer``; a larger packet would cost the whole connection."""

_OP_BYTES = 23  # an operation's header and lengths
_PERMIT_BYTES = 80  # the group's key, the permit's number, and the id of its lease
_LOCK = "LOCK-"
_LOCK_NODE = re.compile(r"LOCK-(SHARED|SEMI_SHARED|EXCLUSIVE)-([0-9]{1,18})")
_NAMESPACE = re.compile(r"(/[A-Za-z0-9_.-]+)+")
_OUR_NODE = re.compile(r"LOCK-(?:SHARED|EXCLUSIVE)-[0-9]{11}")
MAX_QUERY_LENGTH = 500
"""The part of a query in each lock node, in characters; a transaction has room for the nodes of a year. Hive keeps a
million."""

MAX_AUDITED_LENGTH = 30_000
"""From how many characters of locks on an entry of the audit trail leaves out the partitions."""

_LONGEST_NAME = 50
_REMEMBERED_BYTES = 4_096

MADE_HERE = b"airflow_hivelock"
"""The data of Hive's namespace if this package made it: then no Hive had locked below it. Hive makes it empty, and
never reads it."""

LOCK_PREFIXES = {mode: f"LOCK-{mode.value}-0" for mode in LockMode}
"""The zero makes eleven digits of the ten that ZooKeeper appends."""


@dataclass(frozen=True)
class LockNode:
    """The parts of a lock node's name. Hive 4's SEMI_SHARED excludes writers, so it counts as SHARED here."""

    name: str
    mode: LockMode
    sequence: int
    ours: bool

    @classmethod
    def parse(cls, name: str) -> LockNode | None:
        """Parse a name; None for an object node."""
        return _lock_node(name) if name.startswith(_LOCK) and len(name) < _LONGEST_NAME else None

    @classmethod
    def among(cls, names: Iterable[str]) -> list[LockNode]:
        """The lock nodes among *names*. A database's names also include its tables, and there can be thousands."""
        return [node for name in names if name.startswith(_LOCK) and (node := cls.parse(name))]

    @classmethod
    def of_hive(cls, names: Iterable[str]) -> list[LockNode]:
        """Hive's lock nodes among *names*. Each lease has a lock node on the database, so thousands can be ours."""
        ours = _OUR_NODE.fullmatch
        return [node for name in names if name.startswith(_LOCK) and not ours(name) and (node := cls.parse(name))]


@dataclass(frozen=True)
class LockData:
    """A lock node's data: ``queryId:lockTime:EXPLICIT|IMPLICIT:query:clientIp``, and in this package's nodes the
    owner's key.

    Hive ignores everything after the fifth field (``HiveLockObject.HiveLockObjectData``, Hive 2.3 to 4).
    """

    query_id: str
    time_ms: int | None
    explicit: bool | None
    query: str
    owner_key: str = ""
    details: tuple[str, ...] | None = None

    def encode(self) -> bytes:
        fields = (
            _field(self.query_id),
            str(self.time_ms or 0),
            "EXPLICIT" if self.explicit else "IMPLICIT",
            _field(self.query)[:MAX_QUERY_LENGTH],
            _host(),
            self.owner_key,
        )
        return ":".join(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> LockData:
        """Parse data; never fails. Fields that cannot be read stay empty."""
        # All lock nodes of a request have the same data, so it is cached. But Hive 3 keeps a million characters of a
        # query in each.
        return _lock_data(data) if len(data) < _REMEMBERED_BYTES else cls._decode(data)

    @classmethod
    def _decode(cls, data: bytes) -> LockData:
        text = data.decode("utf-8", "replace")
        fields = text.split(":")
        # Java's split drops empty fields at the end. With fewer than four fields Hive shows none of them.
        details = tuple(fields[:4]) if text.rstrip(":").count(":") >= 3 else None
        fields += [""] * (6 - len(fields))
        time_ms = int(fields[1]) if fields[1].isascii() and fields[1].isdigit() and len(fields[1]) < 15 else None
        explicit = {"EXPLICIT": True, "IMPLICIT": False}.get(fields[2])
        return cls(fields[0], time_ms, explicit, fields[3], fields[5], details)


@lru_cache(maxsize=16_384)
def _lock_node(name: str) -> LockNode | None:
    if not (match := _LOCK_NODE.fullmatch(name)):
        return None
    mode = LockMode.EXCLUSIVE if match[1] == "EXCLUSIVE" else LockMode.SHARED
    return LockNode(name, mode, int(match[2]), _OUR_NODE.fullmatch(name) is not None)


_lock_data = lru_cache(maxsize=4_096)(LockData._decode)


@dataclass(frozen=True)
class Layout:
    """The paths.

    :param namespace: Hive's ``hive.zookeeper.namespace``.
    :param root: this package's own nodes, outside Hive's namespace.
    :param query_chars: how much of a query a lock node contains, like ``hive.lock.query.string.max.length``.
    """

    namespace: str = "/hive_zookeeper_namespace"
    root: str = "/airflow_hivelock"
    query_chars: int = MAX_QUERY_LENGTH

    def __post_init__(self) -> None:
        for what, path in (("namespace", self.namespace), ("root", self.root)):
            if not _NAMESPACE.fullmatch(path) or {".", ".."} & set(path.split("/")):
                raise InvalidRequest(
                    f"{what}={path!r} is not a ZooKeeper path. Write one, as in '/hive_zookeeper_namespace'"
                )
        if self.root == self.namespace or self.root.startswith(f"{self.namespace}/"):
            raise InvalidRequest(
                f"root={self.root!r} is below Hive's namespace {self.namespace!r}, which would break SHOW LOCKS. Keep them apart"
            )
        if self.namespace.startswith(f"{self.root}/"):
            raise InvalidRequest(f"Hive's namespace {self.namespace!r} is below root={self.root!r}. Keep them apart")

    @property
    def directories(self) -> tuple[str, ...]:
        """The nodes that must exist before the first request, parents first."""
        ours = (f"{self.root}/{name}" for name in ("requests", "alive", "away", "queue", "audit"))
        return tuple(part for path in (self.namespace, self.root, *ours) for part in _ancestry(path))

    @property
    def above(self) -> str:
        """The path that contains Hive's namespace. Hive's clean-up deletes the namespace, but nothing above it."""
        return self.namespace.rpartition("/")[0] or "/"

    def lock_data(self, request: LockRequest, now_ms: int) -> bytes:
        """The data of every lock node of *request*."""
        query = _cut(_field(request.query or f"airflow_hivelock {request.owner}"), self.query_chars)
        return LockData(request.owner, now_ms, True, query, owner_key(request.owner)).encode()

    def object(self, target: LockObject) -> str:
        return "/".join((self.namespace, *target.path))

    @property
    def records(self) -> str:
        return f"{self.root}/requests"

    def record(self, key: str) -> str:
        return f"{self.root}/requests/{key}"

    @property
    def alives(self) -> str:
        return f"{self.root}/alive"

    def alive(self, key: str) -> str:
        return f"{self.root}/alive/{key}"

    @property
    def aways(self) -> str:
        return f"{self.root}/away"

    def away(self, key: str) -> str:
        return f"{self.root}/away/{key}"

    @property
    def queues(self) -> str:
        return f"{self.root}/queue"

    def queue(self, unit: str) -> str:
        return f"{self.root}/queue/{unit}"

    @property
    def groups(self) -> str:
        """The node of the groups. It is made with the first request that has a limit."""
        return f"{self.root}/groups"

    def limit(self, key: str) -> str:
        return f"{self.root}/groups/{key}/limit"

    def permits(self, key: str) -> str:
        return f"{self.root}/groups/{key}/permits"

    def parked(self, key: str) -> str:
        return f"{self.root}/groups/{key}/queue"

    @property
    def audit(self) -> str:
        return f"{self.root}/audit"

    @property
    def format(self) -> str:
        """The node of the store's stamp, which every grant checks."""
        return f"{self.root}/format"


def _ancestry(path: str) -> list[str]:
    parts = path.split("/")[1:]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _field(text: str) -> str:
    # Hive splits at colons, and deletes them from its own queries; a line break would corrupt SHOW LOCKS' rows.
    return " ".join(text.replace(":", "").split()) or "-"


def _cut(text: str, most: int) -> str:
    """Cut a query like Hive 3 and later; they refuse a bound without room for the dots."""
    return f"{text[: most - 3]}..." if len(text) > most > 3 else text[:most]


@cache
def _host() -> str:
    return _field(socket.gethostname())


def audit_entry(layout: Layout, lease_id: str, owner: str, locks: tuple[Lock, ...], reason: str, user: str) -> Create:
    """The entry of the audit trail, for the transaction that it describes.

    The lock nodes of the largest requests nearly fill a transaction, so then the entry leaves out the partitions.
    """
    if sum(len(str(lock.object)) for lock in locks) >= MAX_AUDITED_LENGTH:
        locks = tuple(lock for lock in locks if not lock.object.partition)
    data = {"lease": lease_id, "owner": owner, "locks": locks_to_json(locks), "reason": reason, "user": user}
    data |= formats.WRITES.fields()
    return Create(f"{layout.audit}/", json.dumps(data, ensure_ascii=False).encode(), sequential=True)


def fitting(request: LockRequest, layout: Layout, acl_bytes: int) -> LockRequest:
    """*request* as one transaction can carry it. With too many partitions it gets EXCLUSIVE on their table.

    The table with the most partitions comes first.

    :raises RequestTooLarge: that is still too large.
    """
    fixed_bytes = 2 * (_OP_BYTES + acl_bytes) + len(layout.lock_data(request, 0)) + 3 * len("/LOCK-EXCLUSIVE-0")
    fixed_bytes += 3 * len(f"{layout.namespace}/")

    def size_bytes(lock: Lock) -> int:
        # The object's node, the lock node, and the record's entry. An object's name is as long as its path.
        name_bytes = len(str(lock.object).encode())
        return fixed_bytes + 3 * name_bytes

    text_bytes = len(json.dumps([request.owner, request.query, request.named]).encode())  # the texts in the record
    left_bytes = MAX_PACKET_BYTES - text_bytes - sum(map(size_bytes, request.locks))
    if request.limit:  # the store may have any default weight
        left_bytes -= MAX_WEIGHT * (_OP_BYTES + acl_bytes + len(layout.permits("")) + _PERMIT_BYTES)
    locks = request.locks
    while left_bytes < 0 and (partitions := [lock.object for lock in locks if lock.object.partition]):
        tables = Counter(LockObject(target.database, target.table) for target in partitions)
        ((table, number),) = tables.most_common(1)
        left_bytes += sum(size_bytes(lock) for lock in locks if lock.object.partition and table in lock.object.parents)
        locks = rules.escalate(locks, table)
        log.warning(
            "%s asks for %d locks below %s, too many for one transaction of ZooKeeper. It gets EXCLUSIVE on the table instead",
            *(request.owner, number, table),
        )
    if left_bytes < 0:
        raise RequestTooLarge(
            f"{request.owner} asks for {len(locks):,} tables and databases, {-left_bytes:,} bytes more than ZooKeeper takes "
            "in one transaction. Lock fewer at a time"
        )
    return request if locks is request.locks else replace(request, locks=locks)
