"""What can be locked, and how."""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import names
from airflow_hivelock.locks.invalid import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable


class LockMode(enum.Enum):
    """Hive's two lock modes, by the names that SHOW LOCKS prints."""

    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"


@dataclass(frozen=True, order=True)
class LockObject:
    """A database, a table, or a partition (or a prefix of one), in canonical form.

    :param partition: pairs of column and unescaped value, outermost level first.
    """

    database: str
    table: str = ""
    partition: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.database, str) or not isinstance(self.table, str):
            raise InvalidRequest(f"{self.database!r:.80} and {self.table!r:.80} are no names of a database and a table")
        shown = self.database + (f".{self.table}" if self.table else "")
        object.__setattr__(self, "database", names.identifier(self.database, "database", shown))
        if self.table:
            object.__setattr__(self, "table", names.identifier(self.table, "table", shown))
        elif self.partition:
            raise InvalidRequest(f"{shown!r}: a partition needs its table")
        if len(self.partition) > names.MAX_LEVELS:
            raise InvalidRequest(
                f"{shown}: a partition of {len(self.partition)} levels; at most {names.MAX_LEVELS} have a lock"
            )
        levels = tuple(names.partition_level(column, value, shown) for column, value in self.partition)
        object.__setattr__(self, "partition", levels)
        longest = 3 * sum(map(len, itertools.chain((shown,), *levels))) + len(names.DEFAULT_PARTITION) * len(levels)
        if longest > names.MAX_NAME_LENGTH and len(self._name) > names.MAX_NAME_LENGTH:
            raise InvalidRequest(
                f"{self._name[:40]!r}… is longer than {names.MAX_NAME_LENGTH:,} characters as Hive escapes it, too long "
                "for the name of a lock object"
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.database, self.table, self.partition))

    def __reduce__(self) -> tuple[type[LockObject], tuple[Any, ...]]:
        return LockObject, (self.database, self.table, self.partition)  # another process has other hashes

    @classmethod
    def parse(cls, name: str) -> LockObject:
        """The one object that *name* stands for (see :mod:`~airflow_hivelock.locks.names`).

        :raises InvalidRequest: for a malformed name, and for a range.
        """
        objects = cls.parse_all(name)
        if len(objects) != 1:
            raise InvalidRequest(f"{name!r} names {len(objects)} objects where one is wanted")
        return objects[0]

    @classmethod
    def parse_all(cls, name: str) -> list[LockObject]:
        """Every object that *name*, which may hold ranges, stands for, in order."""
        return list(_parsed(name) if isinstance(name, str) and ".." not in name else _parse_all(name))

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The components of its znode below Hive's namespace, outermost first, escaped as Hive does."""
        levels = (f"{names.escape(column)}={names.escape(value)}" for column, value in self.partition)
        return (self.database, self.table, *levels) if self.table else (self.database,)

    @cached_property
    def parent(self) -> LockObject | None:
        """What it lies in: the upper partition level, the table or the database; a database lies in nothing."""
        if self.partition:
            return _upper(self.database, self.table, self.partition[:-1])
        return _upper(self.database) if self.table else None

    @property
    def parents(self) -> tuple[LockObject, ...]:
        """All that it lies in, outermost first: the database, the table, each upper partition level."""
        parent = self.parent
        return (*parent.parents, parent) if parent else ()

    def is_below(self, other: LockObject) -> bool:
        """Whether *other* is one of its parents."""
        return len(other.path) < len(self.path) and self.path[: len(other.path)] == other.path

    def __str__(self) -> str:
        return self._name

    @cached_property
    def _name(self) -> str:
        head = f"{self.database}.{self.table}" if self.table else self.database
        # Hive leaves these as they are; but in a name, '..' makes a range and a space at the end a typing error.
        name = "/".join((head, *self.path[2:])).replace("..", "%2E%2E")
        return f"{name[:-1]}%20" if name.endswith(" ") else name


def _parse_all(name: str) -> tuple[LockObject, ...]:
    database, table, spec = names.split(name)
    return tuple(LockObject(database, table or "", partition) for partition in names.expand(spec, name))


_parsed = lru_cache(maxsize=16_384)(_parse_all)
"""The one object of a name that holds no range: requests, records and tickets name the same ones over and over."""

_upper = lru_cache(maxsize=4_096)(LockObject)
"""Objects that many others lie in: each is checked, and its path made, once."""


@dataclass(frozen=True)
class Lock:
    """A mode on an object."""

    object: LockObject
    mode: LockMode

    def __str__(self) -> str:
        return f"{self.object} {self.mode.value}"


def locks_to_json(locks: Iterable[Lock]) -> dict[str, str]:
    """Object names to ``"S"`` or ``"X"``: the compact form that records and XComs carry."""
    return {str(lock.object): "X" if lock.mode is LockMode.EXCLUSIVE else "S" for lock in locks}


def locks_from_json(data: dict[str, str]) -> tuple[Lock, ...]:
    """The inverse of :func:`locks_to_json`, sorted by object: PostgreSQL's jsonb and MySQL's JSON reorder the keys."""
    modes = {"S": LockMode.SHARED, "X": LockMode.EXCLUSIVE}
    return in_order(Lock(LockObject.parse(name), modes[mode]) for name, mode in data.items())


def in_order(locks: Iterable[Lock]) -> tuple[Lock, ...]:
    return tuple(sorted(locks, key=attrgetter("object.database", "object.table", "object.partition")))
