"""SET statements: Hive's settings that concern locks, and their effect here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hivelock.locks import url
from airflow_hivelock.locks.hive import properties
from airflow_hivelock.locks.hive.properties import (
    CONCURRENCY,
    DYNAMIC,
    LOCK_MANAGER,
    NUMRETRIES,
    SLEEP,
    STRICT,
    XLOCK_IOW,
    XLOCK_WRITE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

OFF = f"SET {CONCURRENCY}=false"
RISK = "other work may overwrite data while it is read, and two writers may lose each other's data"

TRANSACTIONS = {STRICT: "strict", XLOCK_WRITE: "xlock_write", XLOCK_IOW: "xlock_iow"}
"""The settings of :class:`TxnSettings`, by Hive's names."""

_LINE = re.compile(r"set\s+(?:hiveconf:)?([a-z0-9_.\-]+)\s*=(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """A statement ``SET name=value``.

    :param name: in lower case.
    """

    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Setting | None:
        """Parse a SET statement. None: *text* only shows settings, or is another statement."""
        found = _LINE.fullmatch(text.strip())
        return cls(found[1].lower(), found[2].strip()) if found else None

    @property
    def meaning(self) -> str:
        """The effect of this setting here, as a text for the user."""
        if self.name in (NUMRETRIES, SLEEP):
            return "limits how long a statement waits for locks, if no timeout is given"
        if self.name == DYNAMIC:
            return "changes no lock. The connection's setting locks decides what dynamic partitions lock"
        if self.name in TRANSACTIONS:
            return "selects the lock types of SQL in a metastore, if locks is hive"
        if self.name.startswith("hive.txn.") or self.name == LOCK_MANAGER:
            return "changes no lock. The URL or the connection names the lock store"
        return "does not concern locks, and is ignored"

    def __str__(self) -> str:
        return f"SET {self.name}={self.value} {self.meaning}"

    @property
    def truth(self) -> bool:
        """The value as a boolean.

        :raises InvalidRequest: it is neither true nor false. Hive would use its default.
        """
        return url.truth(f"SET {self.name}", self.value)


def patience_s(settings: Iterable[Setting]) -> float | None:
    """Return for how long Hive tries to lock after these settings, in seconds. None: they do not set it.

    :param settings: in the order of their statements. The last one of each name counts.
    :raises InvalidRequest: a value is not a whole number, or not a time.
    """
    last: dict[str, str] = {}
    names = (f"SET {NUMRETRIES}", f"SET {SLEEP}")
    found: float | None = None
    for each in settings:
        if each.name in (NUMRETRIES, SLEEP):
            last[each.name] = each.value
            found = properties.patience_s(last.get(NUMRETRIES), last.get(SLEEP), names)
    return found


@dataclass(frozen=True)
class TxnSettings:
    """Hive's settings for the lock types of writes in its transactional manager. The defaults are Hive's.

    :param strict: INSERT INTO a plain table takes EXCLUSIVE.
    :param xlock_write: UPDATE, DELETE and MERGE wait for each other.
    :param xlock_iow: INSERT OVERWRITE of an ACID table waits for readers.
    """

    strict: bool = True
    xlock_write: bool = True
    xlock_iow: bool = True

    def after(self, *settings: Setting) -> TxnSettings:
        """Return a copy with these settings, applied in order.

        :raises InvalidRequest: a value is neither true nor false.
        """
        return replace(self, **{TRANSACTIONS[each.name]: each.truth for each in settings if each.name in TRANSACTIONS})


DEFAULT_TXN = TxnSettings()
