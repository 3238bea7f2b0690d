"""What a task wants locked, and how: declared once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import (
    InvalidRequest,
)
from airflow_hivelock.locks.plan import check_names, check_statements, plan, plan_statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.locks.model import LockRequest
    from airflow_hivelock.work.owner import Owner


MOST_PARTITIONS = 2_000


"""Of how many partitions a table that is read whole is locked one by one: about what one ZooKeeper transaction carries."""


MOST_SQL = 200


"""How many characters of SQL the log shows."""


OFF = {"support_concurrency": False}


"""What a lock task returns in place of a lease where locking is turned off."""


@dataclass(frozen=True)
class LockSpec:
    """What a task wants locked, in plain values: fit for a trigger's arguments.

    :param sql: statements that are going to run: what they read and write is locked as well.
    :param database: what names in *sql* without a database are in.
    :param partition_columns: by table, the partition columns of those that no metastore is asked about.
    :param support_concurrency: whether to lock at all; None: as the connection says.
    :param timeout_s: how long to wait, in seconds; 0: not at all; None: as the connection says.
    """

    reads: Sequence[str]
    writes: Sequence[str]
    unpartitioned: Sequence[str] = ()
    sql: str = ""
    database: str = "default"
    partition_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    support_concurrency: bool | None = None
    lease_s: float = 3600.0
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        """:raises InvalidRequest: naming the input that is wrong: of another type, as out of another version's trigger."""
        for what, given in (("reads", self.reads), ("writes", self.writes), ("unpartitioned", self.unpartitioned)):
            if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
                raise InvalidRequest(f"{what}={given!r} must be a list of names, as in [{given!r}]")
        for what, text in (("lock_sql", self.sql), ("lock_database", self.database)):
            if not isinstance(text, str):
                raise InvalidRequest(f"{what}={text!r} must be one text: of statements, separated by ';', or a name")
        if not isinstance(self.partition_columns, Mapping):
            raise InvalidRequest(
                f"partition_columns={self.partition_columns!r} must be a dict, as in {{'dw.t': ['dt']}}"
            )
        if self.timeout_s is not None and not isinstance(self.timeout_s, int | float):
            raise InvalidRequest(f"timeout_s={self.timeout_s!r} must be seconds, or None for no end")
        if self.support_concurrency not in (None, True, False):
            raise InvalidRequest(f"support_concurrency={self.support_concurrency!r}; use True, False or None")

    def check(self) -> None:
        """Look at what no metastore is needed for.

        :raises InvalidRequest: naming the input that is wrong.
        """
        check_names(self.reads, self.writes, self.unpartitioned, self.partition_columns)
        check_statements(self.sql, self.database, self.unpartitioned, self.partition_columns)

    def locks(self, hook: HiveLockHook, log: Any) -> bool:
        """Whether to lock; if not, says loudly what that risks. The twin of ``hive.support.concurrency``."""
        on = hook.settings.concurrency if self.support_concurrency is None else self.support_concurrency
        if not on:
            by = f"connection {hook.hivelock_conn_id!r}" if self.support_concurrency is None else "support_concurrency"
            log.warning(
                "NOT LOCKED: locking is turned off by %s. Others may overwrite what this task reads while it reads it, "
                "two writers may lose each other's data, and a Hive query may read half of what is written here. "
                "Would be locked: reads %s writes %s%s",
                by,
                list(self.reads),
                list(self.writes),
                f" sql {_short(self.sql)}" if self.sql else "",
            )
        return on

    def left_s(self, hook: HiveLockHook) -> float | None:
        """How long to wait, in seconds; None: as long as it takes."""
        return hook.settings.lock_timeout_s if self.timeout_s is None else self.timeout_s

    def request(self, hook: HiveLockHook, owner: Owner, attempt: int) -> LockRequest:
        """The locks that reading and writing this data takes. Blocks where a metastore is asked.

        :raises InvalidRequest: naming the input that is wrong.
        """
        catalog, known = hook.catalog(), self.partition_columns
        reads, writes = plan(
            self.reads, self.writes, catalog, self.unpartitioned, partition_columns=known, limit=MOST_PARTITIONS
        )
        if self.sql:
            found = plan_statements(
                self.sql,
                catalog,
                database=self.database,
                unpartitioned=self.unpartitioned,
                partition_columns=known,
                dynamic=hook.settings.dynamic,
                limit=MOST_PARTITIONS,
            )
            reads, writes = [*reads, *found[0]], [*writes, *found[1]]
        return rules.request(
            str(owner),
            reads,
            writes,
            lease_s=self.lease_s,
            attempt=attempt,
            wait=self.left_s(hook) != 0,
            query=owner.query,
            named=f"reads {' '.join(self.reads)} writes {' '.join(self.writes)}{self._digest()}",
        )

    def _digest(self) -> str:
        """Tells one SQL from another where the text itself would be too long to keep."""
        return f" sql {hashlib.sha256(self.sql.encode()).hexdigest()}" if self.sql else ""


def _short(sql: str) -> str:
    return repr(sql if len(sql) <= MOST_SQL else f"{sql[:MOST_SQL]}…")
