"""The values that everything else speaks of. All frozen; all checked when made, so that no bad one exists."""

from __future__ import annotations

import enum
import itertools
import reprlib
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import names, validate
from airflow_hivelock.locks.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_OWNER_LENGTH = 2_000
MAX_QUERY_LENGTH = 10_000
"""A query is there for people to recognise; what is longer is cut."""

MAX_WORK_LENGTH = 10_000
MAX_LEASE_S = 366 * 86400


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


@dataclass(frozen=True)
class LockRequest:
    """All that one owner asks for at once: granted whole or not at all.

    :param owner: who asks. The same owner asking again for the same locks gets the same lease.
    :param locks: parents included, one lock an object (see :func:`rules.request`); kept sorted by object, whatever the
        order in which they are given.
    :param lease_s: how long the lease is trusted without renewal, in seconds.
    :param attempt: orders the tries of one owner; a later one takes over, an earlier one is Superseded.
    :param wait: False for a request that is to be refused where it would have to wait.
    :param query: shown by Hive's ``SHOW LOCKS … EXTENDED``; the SQL or job that the locks are for. Only its first
        characters are kept.
    :param named: what *locks* was planned from, where that depends on the day: a table has more partitions at the
        second try than at the first. Where it is given, it and not *locks* tells whether an owner asks for the same
        again, and the locks of the first time stand.
    :param whole: what is SHARED for its own sake though other locks lie below it: *locks* alone cannot tell it from
        a parent.
    """

    owner: str
    locks: tuple[Lock, ...]
    lease_s: float = 3600.0
    attempt: int = 0
    wait: bool = True
    query: str = ""
    named: str = ""
    whole: frozenset[LockObject] = frozenset()

    def __post_init__(self) -> None:
        if not isinstance(self.owner, str) or not self.owner.strip() or not self.owner.isprintable():
            raise InvalidRequest(f"{self.owner!r} is not an owner; name who asks for the locks in printable characters")
        if len(self.owner) > MAX_OWNER_LENGTH:
            raise InvalidRequest(f"owner {self.owner[:40]!r}… is longer than {MAX_OWNER_LENGTH:,} characters")
        if not self.locks:
            raise InvalidRequest(f"{self.owner} asks for no locks; name at least one object in reads or writes")
        if not isinstance(self.lease_s, int | float) or not 1 <= self.lease_s <= MAX_LEASE_S:
            raise InvalidRequest(f"lease_s={self.lease_s!r} of {self.owner}: a lease lasts between 1 s and a year")
        if isinstance(self.attempt, bool) or not isinstance(self.attempt, int) or self.attempt < 0:
            raise InvalidRequest(f"attempt={self.attempt!r} of {self.owner}: attempts count 0, 1, 2, …")
        if self.attempt > validate.MOST_NUMBER:
            raise InvalidRequest(f"{self.owner}: no attempt has a number of {self.attempt.bit_length()} bits")
        if not isinstance(self.named, str) or "\0" in self.named:
            raise InvalidRequest(f"{self.owner}: named={self.named!r:.80} must be a text that every store can keep")
        object.__setattr__(self, "query", _kept(self.query))
        object.__setattr__(self, "locks", _in_order(self.locks))


@dataclass(frozen=True)
class Work:
    """A job that runs under a lease, by the name that its starter gave it.

    :param application: what runs, in its starter's words: enough to find out whether it has ended.
    :param token: its fencing token; a later start under the same name gets a larger one, and shuts this one out.
    """

    name: str
    application: str
    token: int

    def __post_init__(self) -> None:
        try:
            for text in (self.name, self.application):
                if len(validate.text(text, "work")) > MAX_WORK_LENGTH:
                    raise ValueError(f"longer than {MAX_WORK_LENGTH:,} characters")
            validate.number(self.token, "token")
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"{str(self.name)[:80]!r} is not to be recorded as work under a lease: {error}"
            ) from error


@dataclass(frozen=True)
class Lease:
    """A granted request.

    :param id: unique for ever in its store.
    :param token: the fencing token: of its last start of work, or else of its grant. It only grows, and of two leases
        that conflict, the later one's is larger.
    :param attempt: the attempt of the owner that acquired it or took it over last.
    :param epoch: which process acts for the owner; a take-over raises it. Releases and renewals name it,
        so that a late one of an earlier attempt touches nothing.
    :param locks: sorted by object, whatever the order in which they are given.
    :param since: when it was granted, by the store's clock.
    :param works: what runs under it, as far as it was recorded.
    :param expires: when it is no longer trusted unless renewed, by the store's clock, as of when it was read.
    """

    id: str
    token: int
    attempt: int
    epoch: int
    owner: str
    locks: tuple[Lock, ...]
    lease_s: float
    since: datetime = field(compare=False)
    works: tuple[Work, ...] = field(default=(), compare=False)
    expires: datetime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "locks", _in_order(self.locks))

    def work(self, name: str) -> Work | None:
        """What runs under that name."""
        return next((work for work in self.works if work.name == name), None)

    def unchanged(self, seen: Lease | None) -> bool:
        """Whether nobody has taken it over, and no work begun or ended under it, since it was *seen*; None: nobody looked."""
        return seen is None or (self == seen and self.works == seen.works)

    def to_json(self) -> dict[str, Any]:
        """Plain values, fit for XCom and trigger arguments; holds no secret, and not what runs, which changes."""
        return {
            "id": self.id,
            "token": self.token,
            "attempt": self.attempt,
            "epoch": self.epoch,
            "owner": self.owner,
            "locks": locks_to_json(self.locks),
            "lease_s": self.lease_s,
            "since": self.since.isoformat(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Lease:
        """The inverse of :meth:`to_json`.

        :raises InvalidRequest: when *data* is not what :meth:`to_json` gives.
        """
        try:
            validate.texts(data, ("id", "owner", "since"))
            validate.numbers(data, ("token", "attempt", "epoch"))
            since = datetime.fromisoformat(data["since"])
            if since.tzinfo is None:
                raise ValueError("since has no time zone")
            return cls(
                id=data["id"],
                token=data["token"],
                attempt=data["attempt"],
                epoch=data["epoch"],
                owner=data["owner"],
                locks=locks_from_json(data["locks"]),
                lease_s=validate.seconds(data["lease_s"], "lease_s", MAX_LEASE_S),
                since=since,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            shown = {name: data[name] for name in ("id", "owner") if name in data} if isinstance(data, dict) else data
            raise InvalidRequest(
                f"{reprlib.repr(shown)} is not a lease ({error}); pass what the lock task returned"
            ) from error


@dataclass(frozen=True)
class Holder:
    """One granted lock, ours or Hive's own.

    :param owner: ours: the request's owner; Hive's: its query id.
    :param lease_id: None for what Hive's own sessions hold.
    :param explicit: made by LOCK TABLE or a lease, not by a query of Hive's; None if it does not say.
    :param query: what the lock is for, as SHOW LOCKS EXTENDED shows it.
    :param details: what its node says in Hive's own format: query id, time, mode and query, as they stand there;
        None where there is no node, or Hive could not read it.
    """

    object: LockObject
    mode: LockMode
    owner: str
    since: datetime
    lease_id: str | None = None
    token: int | None = None
    expires: datetime | None = None
    explicit: bool | None = None
    query: str = ""
    details: tuple[str, ...] | None = None

    def __str__(self) -> str:
        whose = f"lease {self.lease_id}" if self.lease_id else "Hive"
        return f"{self.owner} ({whose}) holds {self.object} {self.mode.value} since {self.since:%Y-%m-%d %H:%M:%S}Z"


@dataclass(frozen=True)
class Blocker:
    """Who is in the way of a request, and where.

    :param waiting: True when it is itself still waiting, ahead in the queue.
    """

    owner: str
    object: LockObject
    mode: LockMode
    waiting: bool = False

    def __str__(self) -> str:
        verb = "waits ahead for" if self.waiting else "holds"
        return f"{self.owner} {verb} {self.object} {self.mode.value}"


@dataclass(frozen=True)
class Waiter:
    """A request in the queue.

    :param place: 1 for the first in line among those that it conflicts with.
    """

    owner: str
    locks: tuple[Lock, ...]
    place: int
    since: datetime
    blocked_by: tuple[Blocker, ...] = ()


@dataclass(frozen=True)
class Tenure:
    """One lease from its request to its end: the history that a timeline shows. Times are the store's.

    :param ended: None while it is held.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    asked: datetime
    granted: datetime
    ended: datetime | None = None


@dataclass(frozen=True)
class ForcedRelease:
    """An entry of the audit trail.

    :param at: when, by the store's clock.
    """

    lease_id: str
    owner: str
    locks: tuple[Lock, ...]
    user: str
    reason: str
    at: datetime


def locks_to_json(locks: Iterable[Lock]) -> dict[str, str]:
    """Object names to ``"S"`` or ``"X"``: the compact form that records and XComs carry."""
    return {str(lock.object): "X" if lock.mode is LockMode.EXCLUSIVE else "S" for lock in locks}


def _kept(query: str) -> str:
    """As much of *query* as is kept, in characters that every store can keep."""
    if not isinstance(query, str):
        raise InvalidRequest(f"query={query!r:.80} must be a text")
    return query[:MAX_QUERY_LENGTH].encode("utf-8", "replace").decode().replace("\0", "")


def locks_from_json(data: dict[str, str]) -> tuple[Lock, ...]:
    """The inverse of :func:`locks_to_json`, sorted by object: PostgreSQL's jsonb and MySQL's JSON reorder the keys."""
    modes = {"S": LockMode.SHARED, "X": LockMode.EXCLUSIVE}
    return _in_order(Lock(LockObject.parse(name), modes[mode]) for name, mode in data.items())


def _in_order(locks: Iterable[Lock]) -> tuple[Lock, ...]:
    return tuple(sorted(locks, key=attrgetter("object.database", "object.table", "object.partition")))
