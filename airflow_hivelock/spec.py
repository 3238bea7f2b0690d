"""The locks that a task declares, the terms of its lease, and the owner of its request.

The fields have the names of the operators' arguments. Operators and triggers have an attribute for each field, because
Airflow renders attributes. A trigger takes the fields as arguments. DAG parsing checks them, and the planner reads
them.
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
from airflow_hivelock.locks.model import LeaseLimit, LockType, check_priority
from airflow_hivelock.locks.model.group import MAX_LEASES, check_weight
from airflow_hivelock.locks.plan import TaskSql, check_names, plan, plan_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.locks.model import DeferredGrant, LockObject, LockRequest


BACKFILL = "backfill__"
"""The start of the id of a backfill's run. Airflow, too, reads the kind of a run from its id."""

MOST_MAP_INDEX = 2**31 - 1
"""Airflow's database keeps a map index in 32 bits."""


@dataclass(frozen=True)
class Owner:
    """A task instance. All its tries are the same owner.

    :param installation: the id of its Airflow, from the connection. Two Airflows on one lock store share no lease, and
        a keeper frees only the leases of its own Airflow.
    :param map_index: -1 for a task that is not mapped.
    :param hold: the name of a second lease that the task takes while it runs; ``""``: the lease for the task's own
        work.
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
        """The inverse of ``str()``. None: the owner is not a task."""
        if not isinstance(text, str):
            return None
        parts = [unquote(part) for part in text.split("/")]
        try:
            installation, dag_id, run_id, task_id, map_index, *hold = parts
            found = cls(installation, dag_id, run_id, task_id, int(map_index), *hold)
        except (ValueError, TypeError):
            return None
        # Any client can write an owner. Airflow has no such task, and answers a question about it with errors.
        return found if all(map(str.isprintable, parts)) and -1 <= found.map_index <= MOST_MAP_INDEX else None

    @property
    def work(self) -> str:
        """The name of the task's work under its lease. It is the same in all tries."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    @property
    def query(self) -> str:
        """The text that SHOW LOCKS … EXTENDED shows if the task has no SQL."""
        mapped = f" map index {self.map_index}" if self.map_index >= 0 else ""
        return f"dag {self.dag_id} run {self.run_id} task {self.task_id}{mapped}"

    def __str__(self) -> str:
        parts = astuple(self) if self.hold else astuple(self)[:-1]
        return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in parts)


def priority_in(run_id: str, priority: int) -> int:
    """The priority of a task in one run. In a backfill it is at most 0, so that daily runs of the same DAG go first."""
    return min(priority, 0) if run_id.startswith(BACKFILL) else priority


MOST_PARTITIONS = 2_000
"""A read of a whole table locks its partitions one by one up to this number. About as many fit into one ZooKeeper
transaction.
"""

MOST_SQL = 200
"""How many characters of SQL the log shows."""

OFF = {"support_concurrency": False}
"""The value that a lock task returns instead of a lease if locking is turned off."""


def _names(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Collection):
        listed = isinstance(value, str) and value.startswith("[")
        example = value if isinstance(value, str) and not listed else "dw.flights"
        native = ". If it is a template, set render_template_as_native_obj=True in the DAG" if listed else ""
        raise InvalidRequest(f"{name}={value!r} must be a list of names, as in [{example!r}]{native}")
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
    if given is not None and not isinstance(given, bool):  # 1 == True, but "is True" decides about SET in SQL
        raise InvalidRequest(f"{name}={given!r} is invalid. Use True, False or None")
    return given


def _kept_as(plain: Callable[[str, Any], Any], *, rendered: bool = False) -> dict[str, Any]:
    return {"plain": plain, "rendered": rendered}


@dataclass(frozen=True)
class LeaseTerms:
    """The terms of a lease in addition to its locks. A trigger can take these plain values as arguments."""

    max_leases: int | None = None
    lease_group: str | None = None
    lock_priority: int = 1
    weight: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        :raises InvalidRequest: a value is invalid. The message names it.
        """
        check_priority(self.lock_priority, name="lock_priority")
        if self.weight is not None:
            check_weight(self.weight, "how many leases of its group a task counts for")
            if self.max_leases is None and self.lease_group is None:
                raise InvalidRequest(
                    f"weight={self.weight!r} has no effect, because the task is in no group. Set lease_group or max_leases"
                )
        self.limit("the DAG")

    @classmethod
    def of(cls, task: Any) -> Self:
        """Read the terms from the attributes of an operator or a trigger.

        :raises InvalidRequest: a value is invalid. The message names it.
        """
        return cls(**{name: getattr(task, name) for name in TERMS})

    def limit(self, dag_id: str) -> LeaseLimit | None:
        """The limit of the task's group. None: the task is in no group.

        The group is ``lease_group``, or else the DAG. Without ``max_leases`` only the limit in the lock store applies.
        """
        if self.max_leases is None and self.lease_group is None:
            return None
        group = dag_id if self.lease_group is None else self.lease_group
        return LeaseLimit(group, MAX_LEASES if self.max_leases is None else self.max_leases, self.weight or 0)


TERMS = tuple(each.name for each in fields(LeaseTerms))


@dataclass(frozen=True)
class LockSpec:
    """The locks that a task declares. A trigger can take these plain values as arguments."""

    reads: Sequence[str] = field(metadata=_kept_as(_names, rendered=True))
    writes: Sequence[str] = field(metadata=_kept_as(_names, rendered=True))
    lock_sql: str = field(default="", metadata=_kept_as(_text, rendered=True))
    lock_database: str = field(default="default", metadata=_kept_as(_text, rendered=True))
    unpartitioned: Sequence[str] = field(default=(), metadata=_kept_as(_names))
    partition_columns: Mapping[str, Sequence[str]] | None = field(default=None, metadata=_kept_as(_columns))
    support_concurrency: bool | None = field(default=None, metadata=_kept_as(_switch))

    def __post_init__(self) -> None:
        """Check the types.

        :raises InvalidRequest: a value has the wrong type. The message names it.
        """
        for each in fields(self):
            plain = each.metadata["plain"](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, plain)

    @classmethod
    def of(cls, task: Any) -> Self:
        """Read the declaration from the attributes of an operator or a trigger.

        :raises InvalidRequest: a value has the wrong type. The message names it.
        """
        return cls(**{name: getattr(task, name) for name in FIELDS})

    def check(self) -> None:
        """Check the values as far as that needs no metastore.

        :raises InvalidRequest: a value is invalid. The message names it.
        """
        check_names(self.reads, self.writes, self.unpartitioned, self.partition_columns)
        self.task_sql.check()

    @property
    def task_sql(self) -> TaskSql:
        """The task's SQL with the declared tables."""
        return TaskSql(self.lock_sql, self.lock_database, self.unpartitioned, self.partition_columns)

    def takes_locks(self, hook: HiveLockHook, log: Any) -> bool:
        """Whether the task takes locks, like ``hive.support.concurrency``. If not, log a warning with the risks."""
        on = hook.settings.concurrency if self.support_concurrency is None else self.support_concurrency
        by = f"connection {hook.hivelock_conn_id!r}" if self.support_concurrency is None else "support_concurrency"
        if on and self.support_concurrency is None and not self.reads and not self.writes:
            on = not self.task_sql.turned_off()
            by = OFF_IN_SQL
        if not on:
            log.warning(
                "NOT LOCKED: locking is turned off by %s. Other work may overwrite data while this task reads it. Two writers may "
                "lose each other's data. A Hive query may read half of this task's output. "
                "With locking on, this task would lock: reads %s writes %s%s",
                by,
                list(self.reads),
                list(self.writes),
                f" sql {_short(self.lock_sql)}" if self.lock_sql else "",
            )
        return on

    def timeout_s(self, hook: HiveLockHook) -> float | None:
        """The longest wait for locks if the task sets none, in seconds. None: without a limit.

        ``SET`` statements in the task's SQL can give it, as Hive's retries. Otherwise the connection gives it.
        """
        own = self.task_sql.tries_s() if self.lock_sql else None
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
        """Plan the locks, and make the request for them. This blocks while it asks a metastore.

        :param lease_s: how long the lease lasts without renewal, in seconds.
        :param wait: False refuses the request if it would have to wait.
        :param deferred: the deferred grant, if the task itself works under the locks and so needs a worker slot.
        :param asked: when the task first asked, by the lock store's clock; None: it asks for the first time.
        :raises InvalidRequest: a value is invalid. The message names it.
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
            # Sorted, because a set has another order in the process of the next try.
            named=f"reads {' '.join(sorted(self.reads))} writes {' '.join(sorted(self.writes))}{self._digest()}",
            priority=priority_in(owner.run_id, terms.lock_priority),
            limit=terms.limit(owner.dag_id),
            deferred=deferred,
            types=types,
            asked=asked,
        )

    def _digest(self) -> str:
        """A short text that differs for different SQL. The SQL itself may be too long to store."""
        return f" sql {hashlib.sha256(self.lock_sql.encode()).hexdigest()}" if self.lock_sql else ""


FIELDS = tuple(each.name for each in fields(LockSpec))

RENDERED = tuple(each.name for each in fields(LockSpec) if each.metadata["rendered"])
"""The operators' template fields."""


def _short(sql: str) -> str:
    return repr(sql if len(sql) <= MOST_SQL else f"{sql[:MOST_SQL]}…")
