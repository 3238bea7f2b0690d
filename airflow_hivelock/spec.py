"""What a task wants locked, declared once by the names of the operators' arguments, and the owner for which it does.

Operators and triggers have an attribute for each field, since Airflow renders attributes. The arguments of a trigger,
the check when the DAG is parsed and what the planner gets are all made of a :class:`LockSpec`.
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
from airflow_hivelock.locks.plan import check_names, check_statements, plan, plan_sql, tries_s, turned_off

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.locks.model import LockObject, LockRequest


@dataclass(frozen=True)
class Owner:
    """A task instance, whichever its try.

    :param installation: the id of the Airflow that it belongs to, from the connection: two installations on one
        lock store never share a lease, and neither judges the other's stale.
    :param map_index: -1 for a task that is not mapped.
    :param hold: which of the leases that the task takes while it runs, beside that for its own work; ``""``: that one.
    """

    installation: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    hold: str = ""

    @classmethod
    def of(cls, installation: str, ti: Any) -> Self:
        """The owner that the task instance *ti* is."""
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
        """What the task's own work is called under its lease, in all of its tries."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    @property
    def query(self) -> str:
        """What SHOW LOCKS … EXTENDED shows a person who meets the lock."""
        mapped = f" map index {self.map_index}" if self.map_index >= 0 else ""
        return f"dag {self.dag_id} run {self.run_id} task {self.task_id}{mapped}"

    def __str__(self) -> str:
        parts = astuple(self) if self.hold else astuple(self)[:-1]
        return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in parts)


MOST_PARTITIONS = 2_000
"""Of how many partitions a table that is read whole is locked one by one: about what one ZooKeeper transaction carries."""

MOST_SQL = 200
"""How many characters of SQL the log shows."""

OFF = {"support_concurrency": False}
"""What a lock task returns in place of a lease where locking is turned off."""


def _names(name: str, given: Any) -> list[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Collection):
        raise InvalidRequest(f"{name}={given!r} must be a list of names, as in [{given!r}]")
    return list(given)


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidRequest(f"{name}={given!r} must be one text: of statements, separated by ';', or a name")
    return given


def _columns(name: str, given: Any) -> dict[str, Any]:
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"{name}={given!r} must be a dict, as in {{'dw.t': ['dt']}}")
    return {table: list(columns) if isinstance(columns, tuple) else columns for table, columns in given.items()}


def _switch(name: str, given: Any) -> bool | None:
    if given not in (None, True, False):
        raise InvalidRequest(f"{name}={given!r}; use True, False or None")
    return given  # type: ignore[no-any-return]


def _kept_as(plain: Callable[[str, Any], Any], *, rendered: bool = False) -> dict[str, Any]:
    return {"plain": plain, "rendered": rendered}


@dataclass(frozen=True)
class LeaseTerms:
    """On which terms a lease is granted beside its locks, in plain values: fit for a trigger's arguments."""

    max_leases: int | None = None
    lease_group: str | None = None
    lock_priority: int = 1

    def __post_init__(self) -> None:
        """:raises InvalidRequest: naming the input that cannot be meant."""
        priority = self.lock_priority
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
            raise InvalidRequest(
                f"lock_priority={priority!r}; give a whole number up to {MAX_PRIORITY:,}: the larger goes first"
            )
        if self.max_leases is None and self.lease_group is not None:
            raise InvalidRequest(
                f"lease_group={self.lease_group!r} bounds nothing without max_leases; say how many leases of the group "
                "may be out at a time"
            )
        self.limit("the DAG")

    @classmethod
    def of(cls, task: Any) -> Self:
        """What an operator, or a trigger, says.

        :raises InvalidRequest: naming the attribute that cannot be meant.
        """
        return cls(**{name: getattr(task, name) for name in TERMS})

    def limit(self, dag_id: str) -> LeaseLimit | None:
        """How many leases of which group may be out at a time: of the DAG's own, where no group is named."""
        if self.max_leases is None:
            return None
        return LeaseLimit(dag_id if self.lease_group is None else self.lease_group, self.max_leases)


TERMS = tuple(each.name for each in fields(LeaseTerms))


@dataclass(frozen=True)
class LockSpec:
    """What a task wants locked, in plain values: fit for a trigger's arguments."""

    reads: Sequence[str] = field(metadata=_kept_as(_names, rendered=True))
    writes: Sequence[str] = field(metadata=_kept_as(_names, rendered=True))
    lock_sql: str = field(default="", metadata=_kept_as(_text, rendered=True))
    lock_database: str = field(default="default", metadata=_kept_as(_text))
    unpartitioned: Sequence[str] = field(default=(), metadata=_kept_as(_names))
    partition_columns: Mapping[str, Sequence[str]] | None = field(default=None, metadata=_kept_as(_columns))
    support_concurrency: bool | None = field(default=None, metadata=_kept_as(_switch))

    def __post_init__(self) -> None:
        """:raises InvalidRequest: naming the input that is of another type."""
        for each in fields(self):
            plain = each.metadata["plain"](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, plain)

    @classmethod
    def of(cls, task: Any) -> Self:
        """What an operator, or a trigger, says.

        :raises InvalidRequest: naming the attribute that is of another type.
        """
        return cls(**{name: getattr(task, name) for name in FIELDS})

    def check(self) -> None:
        """Look at what no metastore is needed for.

        :raises InvalidRequest: naming the input that is wrong.
        """
        check_names(self.reads, self.writes, self.unpartitioned, self.partition_columns)
        check_statements(self.lock_sql, self.lock_database, self.unpartitioned, self.partition_columns)

    def locks(self, hook: HiveLockHook, log: Any) -> bool:
        """Whether to lock; if not, says loudly what that risks. The twin of ``hive.support.concurrency``."""
        on = hook.settings.concurrency if self.support_concurrency is None else self.support_concurrency
        by = f"connection {hook.hivelock_conn_id!r}" if self.support_concurrency is None else "support_concurrency"
        if on and self.support_concurrency is None and not self.reads and not self.writes:
            on = not turned_off(self.lock_sql, self.lock_database, self.unpartitioned, self.partition_columns)
            by = OFF_IN_SQL
        if not on:
            log.warning(
                "NOT LOCKED: locking is turned off by %s. Others may overwrite what this task reads while it reads it, "
                "two writers may lose each other's data, and a Hive query may read half of what is written here. "
                "Would be locked: reads %s writes %s%s",
                by,
                list(self.reads),
                list(self.writes),
                f" sql {_short(self.lock_sql)}" if self.lock_sql else "",
            )
        return on

    def timeout_s(self, hook: HiveLockHook) -> float | None:
        """How long to wait where the task does not say: as its SQL sets Hive's retries, or as the connection does."""
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
        late: bool = False,
        asked: datetime | None = None,
    ) -> LockRequest:
        """The locks that reading and writing this data takes. Blocks where a metastore is asked.

        :param lease_s: how long the lease is trusted without renewal, in seconds.
        :param wait: False to be refused what is not free.
        :param late: takes nothing, and steps aside once it could.
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
            late=late,
            types=types,
            asked=asked,
        )

    def _digest(self) -> str:
        """Tells one SQL from another where the text itself would be too long to keep."""
        return f" sql {hashlib.sha256(self.lock_sql.encode()).hexdigest()}" if self.lock_sql else ""


FIELDS = tuple(each.name for each in fields(LockSpec))

RENDERED = tuple(each.name for each in fields(LockSpec) if each.metadata["rendered"])
"""Those that Airflow renders: the operators' template fields."""


def _short(sql: str) -> str:
    return repr(sql if len(sql) <= MOST_SQL else f"{sql[:MOST_SQL]}…")
