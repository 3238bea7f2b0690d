"""Lock objects, lock modes, and the names of objects.

Names have the form of Airflow's NamedHivePartitionSensor: ``dw``, ``dw.flights``, ``dw.flights/dt=2013-01-01/hr=04`` or
``spark_catalog.dw.flights``. A value can be a range of dates or of whole numbers, with both ends:
``dw.flights/dt=2013-01-01..2013-01-31``.

The partition is in Hive's escaped form, as ``SHOW PARTITIONS`` prints it: ``%3A`` means ``:``. A name can also contain
the plain character, except ``/``, ``=`` and ``*``, and ``{`` as in ``{ds}``. Both spellings name the same object. A
value in quotes is refused, because only SQL quotes values. Write a quote that belongs to the value as ``%27``.
"""

from __future__ import annotations

import enum
import itertools
import re
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.invalid import InvalidRequest, RequestTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CATALOG = "spark_catalog"
"""Spark's name for the catalog with Hive's tables."""

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for a null or empty partition value."""

MAX_OBJECTS = 10_000
"""The most objects of one range. For more, a user locks the table."""

MAX_LEVELS = 60
"""The most levels of a partition. Listings read as many levels."""

MAX_NAME_LENGTH = 10_000
"""In characters. ZooKeeper and the caches of this module can store names of this length."""

# org.apache.hadoop.hive.common.FileUtils.charToEscape, Hive 2.3
_ESCAPED = frozenset([*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\\x7f{[]^"])
_IDENTIFIER = re.compile(r"[a-z0-9_]+", re.ASCII)
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
# ZooKeeper refuses these in any path (org.apache.zookeeper.common.PathUtils).
_UNSTORABLE = re.compile("[\x00\x80-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
# ZooKeeperHiveLockManager takes a node with such a name for a lock. SHOW LOCKS then fails for all clients.
_LOOKS_LIKE_A_LOCK = re.compile(r"-(SHARED|EXCLUSIVE)-[0-9]+$")
_PARTITION_ELSEWHERE = re.compile(
    r"(?P<database>\w+)[.@](?P<table>\w+)(?:[.@]|\s*partition\s*\(|\s+)(?P<levels>\w+\s*=.*)", re.IGNORECASE | re.DOTALL
)
_RANGE = re.compile(r"(?P<first>.*?)\.\.(?P<last>.*)", re.DOTALL)
_NO_VALUE = re.compile(r"\*|(?<!\{)\{(?![{%#])|%(?:\(\w+\))?s|^\d{4}-\d\d-\d\d:\d")  # a pattern, a template, a slice
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


@lru_cache(maxsize=4_096)
def identifier(text: str, what: str, name: str) -> str:
    """Return *text*, the name of a database or a table, in lower case.

    :param what: ``database`` or ``table``, for the error message.
    :param name: the whole name of the object, for the error message.
    :raises InvalidRequest: the name contains characters other than Hive's letters, digits and ``_``.
    """
    lowered = text.lower()
    if not _IDENTIFIER.fullmatch(lowered):
        raise InvalidRequest(
            f"{name!r}: {text!r} is not a {what} name. Use letters, digits and '_', as in 'dw.flights/dt=2013-01-01'"
        )
    return lowered


@lru_cache(maxsize=65_536)
def escape(text: str) -> str:
    """Hive's ``FileUtils.escapePathName``. An empty value becomes :data:`DEFAULT_PARTITION`."""
    if not text:
        return DEFAULT_PARTITION
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """Hive's ``FileUtils.unescapePathName``: the inverse of :func:`escape` for every value except the empty one."""
    return _PERCENT.sub(lambda match: chr(int(match[1], 16)), text)


def unescape_level(level: str) -> tuple[str, str]:
    """The column and the value of *level*, a part ``column=value`` of a partition's name in Hive's form."""
    column, _, value = level.partition("=")
    return unescape(column).lower(), "" if value == DEFAULT_PARTITION else unescape(value)


@lru_cache(maxsize=65_536)
def partition_level(column: str, value: str, name: str) -> tuple[str, str]:
    """Check one level of a partition. Return the column in lower case, and the value; ``""`` is NULL."""
    if not isinstance(column, str) or not isinstance(value, str):
        raise InvalidRequest(
            f"{name!r}: a partition level is a pair of texts, as in ('hr', '4'), not {(column, value)!r:.80}"
        )
    level = f"{escape(column.lower())}={escape(value)}"
    if not column or column != column.strip():
        raise InvalidRequest(f"{name!r}: {column!r} is not a column. Write a partition level as in 'dt=2013-01-01'")
    if unstorable := _UNSTORABLE.search(level):
        raise InvalidRequest(f"{name!r}: {level!r} contains {unstorable[0]!r}, which ZooKeeper cannot store in a path")
    if _LOOKS_LIKE_A_LOCK.search(level):
        raise InvalidRequest(
            f"{name!r}: {level!r} ends like a lock of Hive. A node with that name would break SHOW LOCKS for all "
            "clients. Lock the level above it instead"
        )
    return column.lower(), "" if value == DEFAULT_PARTITION else value


def split(name: str) -> tuple[str, str | None, list[list[tuple[str, str]]]]:
    """Split *name* into the database, the table or None, and the values of each partition level.

    A level has one value, or all values of its range. Each value has its column.

    :raises InvalidRequest: the name is malformed. The message has the wrong part.
    """
    if not isinstance(name, str) or not name or name != name.strip(" \t\r\n"):
        raise InvalidRequest(
            f"{name!r} is not the name of a lock object. Write 'dw', 'dw.flights' or 'dw.flights/dt=2013-01-01'"
        )
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"{name[:40]!r}… is longer than {MAX_NAME_LENGTH:,} characters, which is too long for the name of a lock object"
        )
    head, *levels = name.split("/")
    if len(levels) > MAX_LEVELS:
        raise InvalidRequest(
            f"{name[:80]!r}…: the partition has {len(levels)} levels, but at most {MAX_LEVELS} can be locked. Lock an upper level"
        )
    if "=" in head:
        raise InvalidRequest(
            f"{name!r} has a partition where the table belongs. Write the partition after '/', as in {_with_partition(name)!r}"
        )
    if head.count(".") == 2:  # in Spark and Trino, the catalog comes first
        catalog, _, head = head.partition(".")
        if catalog.lower() != CATALOG:
            raise InvalidRequest(
                f"{name!r} is in the catalog {catalog!r}. Hive does not know that catalog, so its locks do not protect the table. If "
                f"the catalog uses Hive's own metastore, name Hive's table {head!r}"
            )
    database, dot, table = head.partition(".")
    database = identifier(database, "database", name)
    if not dot:
        if levels:
            raise InvalidRequest(f"{name!r}: a partition needs its table, as in 'dw.flights/dt=2013-01-01'")
        return database, None, []
    table = identifier(table, "table", name)
    if len(levels) == 1 and not levels[0]:
        raise InvalidRequest(f"{name!r} ends in '/'. Name a partition, or remove the '/' to lock the table")
    spec = [list(_values(level, name)) for level in levels]
    columns = [values[0][0] for values in spec]
    if len(set(columns)) != len(columns):
        raise InvalidRequest(f"{name!r} names a partition column twice. Name each column once")
    return database, table, spec


def _with_partition(name: str) -> str:
    """The probable correct form of *name*.

    This knows ``dw.a.dt=1``, ``dw@a@dt=1`` from SHOW LOCKS, and ``dw.a PARTITION (dt='1')`` from SQL.
    """
    found = _PARTITION_ELSEWHERE.fullmatch(name)
    if found is None:
        return "dw.flights/dt=2013-01-01"
    levels = [level.partition("=") for level in re.split("[,/]", found["levels"].rstrip(" )"))]
    pairs = ((column.strip(), value.strip(" '\"")) for column, _, value in levels)
    written = "/".join(map("=".join, pairs))
    return f"{found['database']}.{found['table']}/{written}"


def expand(
    spec: list[list[tuple[str, str]]], name: str, limit: int = MAX_OBJECTS
) -> Iterator[tuple[tuple[str, str], ...]]:
    """The partitions in the ranges that :func:`split` returned, in order.

    :raises RequestTooLarge: there are more than *limit* partitions.
    """
    count = 1
    for level in spec:
        count *= len(level)
    if count > limit:
        raise RequestTooLarge(
            f"{name!r} names {count:,} partitions, but at most {limit:,} can be locked one by one. Lock the table instead"
        )
    return itertools.product(*spec)


def _values(level: str, name: str) -> Iterator[tuple[str, str]]:
    column, equals, text = level.partition("=")
    if not equals or "=" in text or not text:
        raise InvalidRequest(
            f"{name!r}: {level!r} is not a partition level. Write 'column=value', and '%3D' for a '=' in the value"
        )
    if text[0] in "'\"" and text[-1] == text[0]:
        bare, kept = text.replace(text[0], ""), text.replace(text[0], escape(text[0]))
        raise InvalidRequest(
            f"{name!r}: write a value without quotes, as in '{column}={bare}'. If the quotes belong to the value, write "
            f"'{column}={kept}'"
        )
    if _NO_VALUE.search(text):
        kept = re.sub(r"%(?=\(|s)", "%25", text).replace("{", "%7B").replace("*", "%2A").replace(":", "%3A")
        raise InvalidRequest(
            f"{name!r}: {text!r} is not a plain value. Write a template as '{{{{ ds }}}}', a range as '2013-01-01..2013-01-31', or "
            f"{kept!r} if the value is really that text. To lock all partitions, name the table"
        )
    column = unescape(column)
    bounds = _RANGE.fullmatch(text)
    values = _range(bounds["first"], bounds["last"], name) if bounds else [unescape(text)]
    for value in values:
        yield partition_level(column, value, name)


def _range(first: str, last: str, name: str) -> Iterator[str]:
    if _WHOLE_NUMBER.fullmatch(first) and _WHOLE_NUMBER.fullmatch(last):
        low, high = int(first), int(last)
        if len(first) != len(last) and any(len(bound) > 1 and bound[0] == "0" for bound in (first, last)):
            raise InvalidRequest(f"{name!r}: the bounds of {first!r}..{last!r} must have the same number of digits")
        width = len(first) if len(first) == len(last) else 0
        _bounded(high - low + 1, first, last, name)
        return (f"{number:0{width}d}" for number in range(low, high + 1))
    try:
        start, end = date.fromisoformat(first), date.fromisoformat(last)
        if (start.isoformat(), end.isoformat()) != (first, last):
            raise ValueError("the dates are not in the form of partitions")
    except ValueError as error:
        raise InvalidRequest(
            f"{name!r}: {first!r}..{last!r} is not a range. Both ends must be dates, as in "
            "'dt=2013-01-01..2013-01-31', or whole numbers, as in 'hr=00..23'. "
            "If the value itself contains '..', write '%2E%2E'"
        ) from error
    days = (end - start).days + 1
    _bounded(days, first, last, name)
    return ((start + timedelta(days=day)).isoformat() for day in range(days))


def _bounded(count: int, first: str, last: str, name: str) -> None:
    if count < 1:
        raise InvalidRequest(f"{name!r}: the range {first!r}..{last!r} ends before it begins. Swap its ends")
    if count > MAX_OBJECTS:
        raise RequestTooLarge(
            f"{name!r} ranges over {count:,} values, but at most {MAX_OBJECTS:,} can be locked one by one. Lock the table instead"
        )


class LockMode(enum.Enum):
    """Hive's two lock modes. SHOW LOCKS prints these names."""

    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"


class LockType(enum.IntEnum):
    """The lock types of Hive's transactional manager, from weak to strong. SHOW LOCKS prints these names.

    Other lock managers of Hive only have the two modes. See :func:`.rules.types_conflict`.
    """

    SHARED_READ = 1
    SHARED_WRITE = 2
    EXCL_WRITE = 3
    EXCLUSIVE = 4


@dataclass(frozen=True, order=True)
class LockObject:
    """A database, a table, a partition, or a prefix of a partition's levels. Equal objects have equal values.

    :param partition: pairs of column and unescaped value, outermost level first.
    """

    database: str
    table: str = ""
    partition: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.database, str) or not isinstance(self.table, str):
            raise InvalidRequest(
                f"{self.database!r:.80} and {self.table!r:.80} are not names of a database and a table"
            )
        shown = self.database + (f".{self.table}" if self.table else "")
        object.__setattr__(self, "database", identifier(self.database, "database", shown))
        if self.table:
            object.__setattr__(self, "table", identifier(self.table, "table", shown))
        elif self.partition:
            raise InvalidRequest(f"{shown!r}: a partition needs its table")
        if len(self.partition) > MAX_LEVELS:
            raise InvalidRequest(
                f"{shown}: the partition has {len(self.partition)} levels, but at most {MAX_LEVELS} can be locked. Lock an upper level"
            )
        levels = tuple(partition_level(column, value, shown) for column, value in self.partition)
        object.__setattr__(self, "partition", levels)
        longest = 3 * sum(map(len, itertools.chain((shown,), *levels))) + len(DEFAULT_PARTITION) * len(levels)
        if longest > MAX_NAME_LENGTH and len(self._name) > MAX_NAME_LENGTH:
            raise InvalidRequest(
                f"{self._name[:40]!r}… is longer than {MAX_NAME_LENGTH:,} characters with Hive's escapes, which is too long "
                "for the name of a lock object"
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.database, self.table, self.partition))

    def __reduce__(self) -> tuple[type[LockObject], tuple[Any, ...]]:
        # The hash of a text is different in each process, so the cached hash must not be pickled.
        return LockObject, (self.database, self.table, self.partition)

    @classmethod
    def parse(cls, name: str) -> LockObject:
        """Return the object with this *name*.

        :raises InvalidRequest: the name is malformed, or it is a range.
        """
        objects = cls.parse_all(name)
        if len(objects) != 1:
            raise InvalidRequest(f"{name!r} names {len(objects)} objects, but only one is allowed here")
        return objects[0]

    @classmethod
    def parse_all(cls, name: str) -> list[LockObject]:
        """Return all objects of this *name*, in order. The name can contain ranges."""
        return list(_parsed(name) if isinstance(name, str) and ".." not in name else _parse_all(name))

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The names of its nodes below Hive's namespace in ZooKeeper, outermost first, with Hive's escapes."""
        levels = (f"{escape(column)}={escape(value)}" for column, value in self.partition)
        return (self.database, self.table, *levels) if self.table else (self.database,)

    @cached_property
    def parent(self) -> LockObject | None:
        """The object one level above: a partition level, the table or the database. None for a database."""
        if self.partition:
            return _upper(self.database, self.table, self.partition[:-1])
        return _upper(self.database) if self.table else None

    @property
    def parents(self) -> tuple[LockObject, ...]:
        """All objects above it, outermost first: the database, the table, each upper partition level."""
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
        # Hive does not escape '..' and spaces. In a name, '..' would be a range, and a final space a typing error.
        name = "/".join((head, *self.path[2:])).replace("..", "%2E%2E")
        return f"{name[:-1]}%20" if name.endswith(" ") else name


def _parse_all(name: str) -> tuple[LockObject, ...]:
    database, table, spec = split(name)
    return tuple(LockObject(database, table or "", partition) for partition in expand(spec, name))


_parsed = lru_cache(maxsize=16_384)(_parse_all)
"""The objects of a name without a range. They are cached, because requests, records and tickets repeat names."""

_upper = lru_cache(maxsize=4_096)(LockObject)
"""Parents. They are cached, because many objects share one: its name is checked once, and its path is built once."""


@dataclass(frozen=True)
class Lock:
    """A lock: a mode on an object."""

    object: LockObject
    mode: LockMode

    def __str__(self) -> str:
        return f"{self.object} {self.mode.value}"


def locks_to_json(locks: Iterable[Lock]) -> dict[str, str]:
    """The locks in the compact form of records and XComs: object names with ``"S"`` or ``"X"``."""
    return {str(lock.object): "X" if lock.mode is LockMode.EXCLUSIVE else "S" for lock in locks}


def locks_from_json(data: dict[str, str]) -> tuple[Lock, ...]:
    """The inverse of :func:`locks_to_json`. It sorts by object, because PostgreSQL and MySQL reorder the keys of
    JSON."""
    modes = {"S": LockMode.SHARED, "X": LockMode.EXCLUSIVE}
    return in_order(Lock(LockObject.parse(name), modes[mode]) for name, mode in data.items())


def in_order(locks: Iterable[Lock]) -> tuple[Lock, ...]:
    return tuple(sorted(locks, key=attrgetter("object.database", "object.table", "object.partition")))
