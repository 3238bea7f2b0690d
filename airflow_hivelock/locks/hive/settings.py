"""SET lines, as Hive reads them: which of its settings bear on locks, and what they mean here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.duration import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

CONCURRENCY = "hive.support.concurrency"
NUMRETRIES = "hive.lock.numretries"
SLEEP = "hive.lock.sleep.between.retries"

DEFAULT_NUMRETRIES, DEFAULT_SLEEP = 100, "60s"
"""Hive's own."""

OFF = f"SET {CONCURRENCY}=false"
RISK = "others may overwrite what is read while it is read, and two writers may lose each other's data"

TRANSACTIONS = {
    "hive.txn.strict.locking.mode": "strict",
    "hive.txn.xlock.write": "xlock_write",
    "hive.txn.xlock.iow": "xlock_iow",
}
"""The settings that :class:`TxnSettings` has, by Hive's names."""

_LINE = re.compile(r"set\s+(?:hiveconf:)?([a-z0-9_.\-]+)\s*=(.*)", re.IGNORECASE | re.DOTALL)
_COUNT = re.compile("[0-9]{1,12}")


@dataclass(frozen=True)
class Setting:
    """``SET name=value``. :param name: in lower case."""

    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Setting | None:
        """The setting that a statement makes; None for one that only shows settings, or for something else."""
        found = _LINE.fullmatch(text.strip())
        return cls(found[1].lower(), found[2].strip()) if found else None

    @property
    def meaning(self) -> str:
        """What becomes of it here, in words."""
        if self.name in (NUMRETRIES, SLEEP):
            return "bounds how long locks are waited for, where no timeout is given"
        if self.name == "hive.exec.dynamic.partition.mode":
            return "changes no lock: whose table of commands is followed (locks) says what dynamic partitions lock"
        if self.name in TRANSACTIONS:
            return "chooses the types that SQL takes in a metastore, where real Hive's table is followed (locks)"
        if self.name.startswith("hive.txn.") or self.name == "hive.lock.manager":
            return "changes no lock: the lock store is that of the URL, or of the connection"
        return "has nothing to do with locks, and is passed over"

    def __str__(self) -> str:
        return f"SET {self.name}={self.value} {self.meaning}"

    @property
    def truth(self) -> bool:
        """:raises InvalidRequest: it is neither true nor false; Hive would take its default."""
        if self.value.lower() not in ("true", "false"):
            raise InvalidRequest(f"SET {self.name}={self.value!r:.80}: use true or false")
        return self.value.lower() == "true"

    @property
    def count(self) -> int:
        """:raises InvalidRequest: it is no whole number."""
        if not _COUNT.fullmatch(self.value):
            raise InvalidRequest(f"SET {self.name}={self.value!r:.80}: give a whole number")
        return int(self.value)

    @property
    def time_s(self) -> float:
        """:raises InvalidRequest: it is no time."""
        if (found := seconds(self.value)) is None:
            raise InvalidRequest(f"SET {self.name}={self.value!r:.80}: give a time, as in 60s")
        return found


def patience_s(said: Iterable[Setting]) -> float | None:
    """For how long Hive tries once these have been set, one after the other; None where none of them says it.

    :raises InvalidRequest: one that is no number, or no time.
    """
    retries: int | None = None
    sleep_s: float | None = None
    for each in said:
        if each.name == NUMRETRIES:
            retries = each.count
        elif each.name == SLEEP:
            sleep_s = each.time_s
    if retries is None and sleep_s is None:
        return None
    sleep_s = seconds(DEFAULT_SLEEP) if sleep_s is None else sleep_s
    return (DEFAULT_NUMRETRIES if retries is None else retries) * (sleep_s or 0.0)


@dataclass(frozen=True)
class TxnSettings:
    """Which types Hive's transactional manager takes for what is written; Hive's own defaults.

    :param strict: INSERT INTO a plain table is EXCLUSIVE.
    :param xlock_write: UPDATE, DELETE and MERGE keep each other away.
    :param xlock_iow: INSERT OVERWRITE of an ACID table keeps readers away.
    """

    strict: bool = True
    xlock_write: bool = True
    xlock_iow: bool = True

    def after(self, *settings: Setting) -> TxnSettings:
        """What they are once these have been set, one after the other.

        :raises InvalidRequest: one that is neither true nor false.
        """
        return replace(self, **{TRANSACTIONS[each.name]: each.truth for each in settings if each.name in TRANSACTIONS})


DEFAULT_TXN = TxnSettings()
