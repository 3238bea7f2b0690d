"""The request of an owner, and the lease that the store grants."""

from __future__ import annotations

import hashlib
import re
import reprlib
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.invalid import InvalidRequest
from airflow_hivelock.locks.model.object import in_order, locks_from_json, locks_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_hivelock.locks.model.group import LeaseLimit
    from airflow_hivelock.locks.model.object import Lock, LockObject, LockType

MAX_OWNER_LENGTH = 2_000
MAX_QUERY_LENGTH = 10_000
"""The stored part of a query. People only need to recognise it."""

MAX_WORK_LENGTH = 10_000
MAX_LEASE_S = 366 * 86400
MAX_PRIORITY = 1_000_000_000
MAX_INVITATION_S = 3600.0


@dataclass(frozen=True)
class DeferredGrant:
    """The deferred grant of a request whose task works under the locks. The task needs a worker slot before its locks.

    :param invitation_s: for a call of the trigger. At its turn, the request takes no locks. It keeps its queue position
        for this time while Airflow starts the worker, in seconds by the store's clock. 0: it leaves the queue, and the
        worker's request is a new arrival.
    :param has_slot: for a call of the worker. The request takes its locks if it has no blocker. Otherwise it joins no
        queue, and the trigger waits again.
    """

    invitation_s: float = 0.0
    has_slot: bool = False

    def __post_init__(self) -> None:
        given = self.invitation_s
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_INVITATION_S:
            raise InvalidRequest(
                f"invitation_s={given!r} is invalid. Give seconds, at most {MAX_INVITATION_S:,.0f}. 0 turns invitations off"
            )


def check_priority(priority: Any, owner: str = "", name: str = "priority") -> None:
    """Check the priority of a request.

    :param name: the name of the value, for the error message.
    :raises InvalidRequest: the priority is invalid. The message names *owner*, if there is one.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
        raise InvalidRequest(
            f"{name}={priority!r}{owner and f' of {owner}'} is invalid. Give a whole number up to {MAX_PRIORITY:,}. The larger goes first"
        )


@dataclass(frozen=True)
class LockRequest:
    """All locks that one owner asks for at once. The store grants all of them, or none.

    :param owner: the identity that asks. An owner that asks again for the same locks gets the same lease.
    :param locks: one lock for each object, with the parents (see :func:`rules.request`). They are sorted by object.
    :param lease_s: how long the lease lasts without renewal, in seconds.
    :param attempt: the number of the owner's try. A later attempt takes over. An earlier one gets Superseded.
    :param wait: False refuses the request if it would have to wait.
    :param query: the SQL or the job that needs the locks. Hive's ``SHOW LOCKS … EXTENDED`` shows the first characters.
    :param named: the text from which *locks* was planned. A later attempt with the same text continues the request,
        even if the table has more partitions now and *locks* differs. The locks of the first attempt stay.
    :param whole: parents in *locks* that the request also names itself.
    :param priority: the waiter with the larger priority goes first. The store limits for how long a request can be
        overtaken.
    :param limit: the limit on the leases of its group; None: it is in no group.
    :param deferred: its deferred grant; None: it takes its locks at its turn.
    :param asked: when the owner first asked for these locks, by the store's clock, for listings and the history. It
        gives no earlier queue position. None: the owner asks for the first time.
    :param types: the lock types for Hive's transactional manager, instead of the modes. Other stores ignore them.
    """

    owner: str
    locks: tuple[Lock, ...]
    lease_s: float = 3600.0
    attempt: int = 0
    wait: bool = True
    query: str = ""
    named: str = ""
    whole: frozenset[LockObject] = frozenset()
    priority: int = 1
    limit: LeaseLimit | None = None
    deferred: DeferredGrant | None = None
    types: Mapping[LockObject, LockType] = field(default_factory=dict, hash=False)
    asked: datetime | None = None

    @property
    def has_slot(self) -> bool:
        """Whether the task's worker asks. Then the request joins no queue."""
        return self.deferred is not None and self.deferred.has_slot

    def __post_init__(self) -> None:
        if not isinstance(self.owner, str) or not self.owner.strip() or not self.owner.isprintable():
            raise InvalidRequest(f"{self.owner!r} is not an owner. Give a name of printable characters")
        if len(self.owner) > MAX_OWNER_LENGTH:
            raise InvalidRequest(
                f"owner {self.owner[:40]!r}… is longer than {MAX_OWNER_LENGTH:,} characters. Give a shorter name"
            )
        if not self.locks:
            raise InvalidRequest(f"{self.owner} asks for no locks. Name at least one object in reads or writes")
        if not isinstance(self.lease_s, int | float) or not 1 <= self.lease_s <= MAX_LEASE_S:
            raise InvalidRequest(
                f"lease_s={self.lease_s!r} of {self.owner} is invalid. A lease lasts between 1 s and a year"
            )
        if isinstance(self.attempt, bool) or not isinstance(self.attempt, int) or self.attempt < 0:
            raise InvalidRequest(f"attempt={self.attempt!r} of {self.owner} is invalid. Attempts count 0, 1, 2, …")
        if self.attempt > validate.MOST_NUMBER:
            raise InvalidRequest(
                f"{self.owner}: the attempt has {self.attempt.bit_length()} bits, which is too large. Give at most 63 bits"
            )
        check_priority(self.priority, self.owner)
        if not isinstance(self.named, str) or "\0" in self.named:
            raise InvalidRequest(
                f"{self.owner}: named={self.named!r:.80} is invalid. Give a text without a NUL character"
            )
        object.__setattr__(self, "query", _kept(self.query))
        object.__setattr__(self, "locks", in_order(self.locks))


@dataclass(frozen=True)
class Work:
    """Work that is recorded under a lease.

    :param name: the name that its starter gave it. One lease can have several works.
    :param application: the starter's description of the running processes or jobs. Other processes use it to check
        whether the work has ended.
    :param token: its fencing token. A later start with the same name gets a larger token, and the guard then refuses
        this one.
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
                f"{str(self.name)[:80]!r} cannot be recorded as work under a lease: {error}"
            ) from error


def put_work(works: Iterable[Work], name: str, application: str | None, token: int) -> tuple[Work, ...]:
    """*works* with *application* under *name*. None removes the name."""
    others = tuple(work for work in works if work.name != name)
    return others if application is None else (*others, Work(name, application, token))


def token_of(works: Iterable[Work], name: str, otherwise: int) -> int:
    """The token of the work *name*, or *otherwise* if there is none."""
    return next((work.token for work in works if work.name == name), otherwise)


@dataclass(frozen=True)
class Lease:
    """A granted request.

    :param id: no other lease in its store ever has this id.
    :param token: the fencing token of the last start of work, or else of the grant or take-over. It only grows. If two
        leases conflict, the later one has the larger token.
    :param attempt: the owner's attempt that acquired the lease or last took it over.
    :param epoch: shows which process acts for the owner. Each take-over raises it. Renewals and releases contain it, so
        a late call of an earlier attempt changes nothing.
    :param locks: the locks that it holds, sorted by object.
    :param since: the time of the grant, by the store's clock.
    :param works: the recorded work under it.
    :param expires: the expiry time when the lease was read, by the store's clock.
    :param released: the locks that partial releases have ended.
    :param whole: as in :class:`LockRequest`.
    :param stamp: the format of the version that passed it on; see :meth:`to_json`.
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
    released: tuple[Lock, ...] = field(default=(), compare=False)
    whole: frozenset[LockObject] = field(default=frozenset(), compare=False)
    stamp: formats.Stamp = field(default=formats.WRITES, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "locks", in_order(self.locks))

    def work(self, name: str) -> Work | None:
        """The work *name*, or None."""
        return next((work for work in self.works if work.name == name), None)

    def unchanged(self, seen: Lease | None) -> bool:
        """Whether the lease is the same as in the snapshot *seen*: it was not taken over, and its work is the same.

        True if *seen* is None.
        """
        return seen is None or (self == seen and self.works == seen.works)

    def to_json(self) -> dict[str, Any]:
        """The lease in plain values, for XComs and trigger arguments. It has no secrets. Its work is left out, because
        that changes."""
        return {
            "id": self.id,
            "token": self.token,
            "attempt": self.attempt,
            "epoch": self.epoch,
            "owner": self.owner,
            "locks": locks_to_json(self.locks),
            "lease_s": self.lease_s,
            "since": self.since.isoformat(),
            **self.stamp.fields(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Lease:
        """The inverse of :meth:`to_json`.

        :raises InvalidRequest: *data* is not a lease.
        :raises UpgradeNeeded: *data* needs a reader of a later format.
        """
        try:
            if not isinstance(data, dict):
                raise TypeError(f"it is of type {type(data).__name__}")
            data = dict(data)
            stamp = formats.take(data, _PASSED, "a passed lease")
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
                stamp=stamp,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            shown = {name: data[name] for name in ("id", "owner") if name in data} if isinstance(data, dict) else data
            raise InvalidRequest(
                f"{reprlib.repr(shown)} is not a lease ({error}). Pass the value that the lock task returned"
            ) from error


_PASSED = ("id", "token", "attempt", "epoch", "owner", "locks", "lease_s", "since")
"""The fields of a lease in an XCom."""


_SECRET = re.compile(
    r"""((?:passw|passphrase|pwd|secret|token|credential|(?:access|account|api|private|shared).?key)[\w.-]{0,80}['"`]?"""
    r"""(?:\s*+(?:=>|[=:])\s*+|\s++))"""
    r"""(?:r?'(?:[^'\\]|\\.|'')*(?:'|\Z)|r?"(?:[^"\\]|\\.|"")*(?:"|\Z)|(?<==)[^\s&;,'")]+)"""
    r"""|(://[^\s/:@'"]{0,80}:)[^\s/@'"]{1,300}(?=@)""",
    re.IGNORECASE | re.DOTALL,
)
"""A literal after the name of a secret, as in ``OPTIONS (password 'x')`` and ``jdbc:…?password=x``, or the password of a
URL. Every client of the store may read the locks.
"""


def _kept(query: str) -> str:
    """Return the part of *query* that is stored, in characters that all stores accept, without passwords."""
    if not isinstance(query, str):
        raise InvalidRequest(f"query={query!r:.80} must be a text")
    text = query[:MAX_QUERY_LENGTH].encode("utf-8", "replace").decode().replace("\0", "")
    return _SECRET.sub(r"\1\2***", text)


@lru_cache(maxsize=4_096)
def owner_key(owner: str) -> str:
    """A short name for *owner* in a store: 64 bits of its SHA-256 in hex."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]
