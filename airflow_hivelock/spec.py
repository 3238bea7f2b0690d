"""The locks that a task declares, by the names of the operators' arguments, and the owner of its request.

Operators and triggers have an attribute for each field, because Airflow renders attributes. A :class:`LockSpec` is the
source of a trigger's arguments, of the check at DAG parsing, and of the planner's input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.commits import check_commits
from airflow_hivelock.locks.hive.settings import OFF as OFF_IN_SQL
from airflow_hivelock.locks.model import MAX_PRIORITY, LeaseLimit, LockType
from airflow_hivelock.locks.model.group import MAX_LEASES, check_weight
from airflow_hivelock.locks.plan import check_names, check_statements, plan, plan_sql, tries_s, turned_off

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.locks.model import DeferredGrant, LockObject, LockRequest


@dataclass(frozen=True)
class Owner:
    """A task instance, over all of its tries.

    :param installation: the id of its Airflow, from the connection: two installations on one lock store never share a
        lease, and neither regards the other's lease as stale.
    :param map_index: -1 for a task that is not mapped.
    :param hold: the name of a further lease that the task takes while it runs; ``""``: the lease for its own work.
    """

    installation: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    hold: str = ""

    @classmethod
    def of(cls, installation: str, ti: Any) -> Self:
        """The owner for the task instance *ti*."""
        map_index = -1 if ti.map_index is None else ti.map_index
        return cls(installation, ti.dag_id, ti.run_id, ti.task_id, map_index)

    @classmethod
    def parse(cls, text: Any) -> Self | None:
        """The inverse of ``str()``; None for an owner that is no task of any Airflow."""
        if not isinstance(text, str):
            return None
        parts = [unquote(part) for part in text.split("/")]
        try:
            installation, dag_id, run_id, task_id, map_index, *hold = parts
            return cls(installation, dag_id, run_id, task_id, int(map_index), *hold)
        except (ValueError, TypeError):
            return None

    @property
    def work(self) -> str:
        """The name of the task's own work under its lease, in all of its tries."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    @property
    def query(self) -> str:
        """The text that SHOW LOCKS … EXTENDED shows for the lock."""
        mapped = f" map index {self.map_index}" if self.map_index >= 0 else ""
        return f"dag {self.dag_id} run {self.run_id} task {self.task_id}{mapped}"

    def __str__(self) -> str:
        parts = astuple(self) if self.hold else astuple(self)[:-1]
        return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in parts)


MOST_PARTITIONS = 2_000
"""A table that is read whole has its partitions locked one by one up to this number: about one ZooKeeper transaction.
"""

MOST_SQL = 200
"""How many characters of SQL the log shows."""

OFF = {"support_concurrency": False}
"""The value that a lock task returns in place of a lease if locking is turned off."""


def _names(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Collection):
        raise InvalidRequest(f"{name}={value!r} must be a list of names, as in [{value!r}]")
    return list(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name}={value!r} must be one text: statements separated by ';', or a name")
    return value


def _columns(name: str, value: Any) -> dict[str, Any]:
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{name}={value!r} must be a dict, as in {{'dw.t': ['dt']}}")
    return {table: list(columns) if isinstance(columns, tuple) else columns for table, columns in value.items()}


def _switch(name: str, given: Any) -> bool | None:
    if given not in (None, True, False):
        raise InvalidRequest(f"{name}={given!r} is invalid. Use True, False or None")
    return given  # type: ignore[no-any-return]


def _kept_as(plain: Callable[[str, Any], Any], *, rendered: bool = False) -> dict[str, Any]:
    return {"plain": plain, "rendered": rendered}


@dataclass(frozen=True)
class LeaseTerms:
    """The terms of a lease in addition to its locks, in plain values: fit for a trigger's arguments."""

    max_leases: int | None = None
    lease_group: str | None = None
    lock_priority: int = 1
    weight: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        :raises InvalidRequest: naming the invalid input.
        """
        priority = self.lock_priority
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
            raise InvalidRequest(
                f"lock_priority={priority!r} is invalid. Give a whole number up to {MAX_PRIORITY:,}. The larger goes first"
            )
        if self.weight is not None:
            check_weight(self.weight, "how many leases of its group a task counts for")
            if self.max_leases is None and self.lease_group is None:
                raise InvalidRequest(
                    f"weight={self.weight!r} has no effect, because the task is in no group. Set lease_group, or max_leases"
                )
        self.limit("the DAG")

    @classmethod
    def of(cls, task: Any) -> Self:
        """Read the terms from the attributes of an operator or a trigger.

        :raises InvalidRequest: naming the invalid attribute.
        """
        return cls(**{name: getattr(task, name) for name in TERMS})

    def limit(self, dag_id: str) -> LeaseLimit | None:
        """The limit on the leases of the group; without a named group, on those of the DAG.

        A group that is named without a limit has only the one in the lock store.
        """
        if self.max_leases is None and self.lease_group is None:
            return None
        group = dag_id if self.lease_group is None else self.lease_group
        return LeaseLimit(group, MAX_LEASES if self.max_leases is None else self.max_leases, self.weight or 0)


TERMS = tuple(each.name for each in fields(LeaseTerms))


@dataclass(frozen=True)
class LockSpec:
    """The locks that a task declares, in plain values: fit for a trigger's arguments."""

    reads: Sequence[str] = field(metadata=_kept_as(_names, rendered=True))
    writes: Sequence[str] = field(metadata=_kept_as(_names, rendered=True))
    lock_sql: str = field(default="", metadata=_kept_as(_text, rendered=True))
    lock_database: str = field(default="default", metadata=_kept_as(_text))
    unpartitioned: Sequence[str] = field(default=(), metadata=_kept_as(_names))
    partition_columns: Mapping[str, Sequence[str]] | None = field(default=None, metadata=_kept_as(_columns))
    support_concurrency: bool | None = field(default=None, metadata=_kept_as(_switch))

    def __post_init__(self) -> None:
        """Check the types.

        :raises InvalidRequest: naming the input of a wrong type.
        """
        for each in fields(self):
            plain = each.metadata["plain"](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, plain)

    @classmethod
    def of(cls, task: Any) -> Self:
        """Read the declaration from the attributes of an operator or a trigger.

        :raises InvalidRequest: naming the attribute of a wrong type.
        """
        return cls(**{name: getattr(task, name) for name in FIELDS})

    def check(self) -> None:
        """Check everything that needs no metastore.

        :raises InvalidRequest: naming the input that is wrong.
        """
        check_names(self.reads, self.writes, self.unpartitioned, self.partition_columns)
        check_statements(self.lock_sql, self.lock_database, self.unpartitioned, self.partition_columns)

    def locks(self, hook: HiveLockHook, log: Any) -> bool:
        """Whether to lock; if not, log a warning with the risks. The counterpart of ``hive.support.concurrency``."""
        on = hook.settings.concurrency if self.support_concurrency is None else self.support_concurrency
        by = f"connection {hook.hivelock_conn_id!r}" if self.support_concurrency is None else "support_concurrency"
        if on and self.support_concurrency is None and not self.reads and not self.writes:
            on = not turned_off(self.lock_sql, self.lock_database, self.unpartitioned, self.partition_columns)
            by = OFF_IN_SQL
        if not on:
            log.warning(
                "NOT LOCKED: locking is turned off by %s. Others may overwrite data while this task reads it, two writers may lose "
                "each other's data, and a Hive query may read half of this task's output. "
                "Would be locked: reads %s writes %s%s",
                by,
                list(self.reads),
                list(self.writes),
                f" sql {_short(self.lock_sql)}" if self.lock_sql else "",
            )
        return on

    def timeout_s(self, hook: HiveLockHook) -> float | None:
        """How long to wait if the task does not set it: Hive's retries from its SQL, or the connection's time-out."""
        own = None
        if self.lock_sql:
            own = tries_s(self.lock_sql, self.lock_database, self.unpartitioned, self.partition_columns)
        return hook.settings.lock_timeout_s if own is None else own

    def request(
        self,
        hook: HiveLockHook,
        owner: Owner,
        attempt: int,
        terms: LeaseTerms = LeaseTerms(),
        *,
        lease_s: float = 3600.0,
        wait: bool = True,
        deferred: DeferredGrant | None = None,
        asked: datetime | None = None,
    ) -> LockRequest:
        """Plan the locks for reading and writing this data. Blocks while it asks a metastore.

        :param lease_s: how long the lease is trusted without renewal, in seconds.
        :param wait: False: refuse the request if it would have to wait.
        :param deferred: the deferred grant: the task works under the locks, and needs a worker slot as well.
        :param asked: when the task first asked, by the lock store's clock; None if this is the first time.
        :raises InvalidRequest: naming the input that is wrong.
        """
        catalog, known = hook.catalog(), self.partition_columns
        reads, writes = plan(
            self.reads, self.writes, catalog, self.unpartitioned, partition_columns=known, limit=MOST_PARTITIONS
        )
        types: Mapping[LockObject, LockType] = {}
        if self.lock_sql:
            found = plan_sql(
                self.lock_sql,
                catalog,
                database=self.lock_database,
                unpartitioned=self.unpartitioned,
                partition_columns=known,
                locks=hook.settings.locks,
                limit=MOST_PARTITIONS,
                always=self.support_concurrency is True,
                txn=hook.settings.txn,
            )
            types = {
                target: max(kind, LockType.SHARED_WRITE) if target in reads else kind
                for target, kind in found.types.items()
                if target not in writes
            }
            reads, writes = [*reads, *found.reads], [*writes, *found.writes]
        if catalog is not None and hook.url.startswith("metastore:"):
            check_commits(reads, writes, catalog)
        return rules.request(
            str(owner),
            reads,
            writes,
            lease_s=lease_s,
            attempt=attempt,
            wait=wait,
            query=" ".join(self.lock_sql.split()) or owner.query,
            named=f"reads {' '.join(self.reads)} writes {' '.join(self.writes)}{self._digest()}",
            priority=terms.lock_priority,
            limit=terms.limit(owner.dag_id),
            deferred=deferred,
            types=types,
            asked=asked,
        )

    def _digest(self) -> str:
        """A text that distinguishes one SQL from another, because the SQL itself may be too long to store."""
        return f" sql {hashlib.sha256(self.lock_sql.encode()).hexdigest()}" if self.lock_sql else ""


FIELDS = tuple(each.name for each in fields(LockSpec))

RENDERED = tuple(each.name for each in fields(LockSpec) if each.metadata["rendered"])
"""The fields that Airflow renders: the operators' template fields."""


def _short(sql: str) -> str:
    return repr(sql if len(sql) <= MOST_SQL else f"{sql[:MOST_SQL]}…")
