"""The request of an owner, and the lease that it is granted."""

from __future__ import annotations

import hashlib
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
"""A query is there for people to recognise; a longer one is cut."""

MAX_WORK_LENGTH = 10_000
MAX_LEASE_S = 366 * 86400
MAX_PRIORITY = 1_000_000_000
MAX_INVITATION_S = 3600.0


@dataclass(frozen=True)
class DeferredGrant:
    """The deferred grant of a request: its task works under it, and so needs a worker slot as well as locks.

    :param invitation_s: for a call of the trigger. At its turn the request takes no locks, and keeps its queue position
        for so many seconds, by the store's clock, while Airflow finds a slot. 0: it goes away, and is a new arrival
        when it comes back.
    :param has_slot: the worker calls. The request takes its locks if no request blocks it. Otherwise it joins no queue,
        and its trigger waits.
    """

    invitation_s: float = 0.0
    has_slot: bool = False

    def __post_init__(self) -> None:
        given = self.invitation_s
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_INVITATION_S:
            raise InvalidRequest(
                f"invitation_s={given!r} is invalid. Give seconds, at most {MAX_INVITATION_S:,.0f}; 0 turns invitations off"
            )


def check_priority(priority: int, owner: str) -> None:
    """Check a priority.

    :raises InvalidRequest: no request of *owner* can have it.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
        raise InvalidRequest(
            f"priority={priority!r} of {owner} is invalid. Give a whole number up to {MAX_PRIORITY:,}. The larger goes first"
        )


@dataclass(frozen=True)
class LockRequest:
    """Everything that one owner asks for at once: granted whole or not at all.

    :param owner: the identity that asks. If an owner asks again for the same locks, it gets the same lease.
    :param locks: one lock per object, parents included (see :func:`rules.request`). They are sorted by object.
    :param lease_s: how long the lease is trusted without renewal, in seconds.
    :param attempt: orders the tries of one owner; a later one takes over, an earlier one is Superseded.
    :param wait: False: refuse the request if it would have to wait.
    :param query: the SQL or job that the locks are for; Hive's ``SHOW LOCKS … EXTENDED`` shows it. Only its first
        characters are kept.
    :param named: the text that *locks* was planned from, if the plan depends on the day: a table has more partitions at
        the second try than at the first. If it is given, an owner that asks with the same text asks for the same again,
        whatever *locks* is. The locks of the first try stay.
    :param whole: objects that are SHARED for their own sake although other locks are below them. *locks* alone does not
        distinguish them from parents.
    :param priority: the waiter with the larger priority goes first. But a request that has waited for the store's bound
        is not overtaken any longer.
    :param limit: how many leases its group may hold at a time; None: any number.
    :param deferred: its grant is deferred, because its task works under it; None: it takes its locks as soon as it can.
    :param asked: when the owner first asked for this, by the store's clock, if it has asked before. The store uses it
        in listings and in the history. It gives no earlier position. None: the owner asks for the first time.
    :param types: the lock types to take in Hive's transactional manager in place of the modes. Other stores ignore
        them.
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
        """Whether the worker calls. Then the request joins no queue."""
        return self.deferred is not None and self.deferred.has_slot

    def __post_init__(self) -> None:
        if not isinstance(self.owner, str) or not self.owner.strip() or not self.owner.isprintable():
            raise InvalidRequest(f"{self.owner!r} is not an owner. Give a name of printable characters")
        if len(self.owner) > MAX_OWNER_LENGTH:
            raise InvalidRequest(f"owner {self.owner[:40]!r}… is longer than {MAX_OWNER_LENGTH:,} characters")
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
                f"{self.owner}: the attempt's number is too large, with {self.attempt.bit_length()} bits"
            )
        check_priority(self.priority, self.owner)
        if not isinstance(self.named, str) or "\0" in self.named:
            raise InvalidRequest(f"{self.owner}: named={self.named!r:.80} must be a text that every store can keep")
        object.__setattr__(self, "query", _kept(self.query))
        object.__setattr__(self, "locks", in_order(self.locks))


@dataclass(frozen=True)
class Work:
    """A job that runs under a lease, by the name that its starter gave it.

    :param application: the starter's description of what runs: enough to find out whether it has ended.
    :param token: its fencing token; a later start under the same name gets a larger one, and the guard refuses this
        one.
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
    """*works* with *application* under that name; None: without that name."""
    others = tuple(work for work in works if work.name != name)
    return others if application is None else (*others, Work(name, application, token))


def token_of(works: Iterable[Work], name: str, otherwise: int) -> int:
    """The token of the work with that name, or *otherwise* if there is none."""
    return next((work.token for work in works if work.name == name), otherwise)


@dataclass(frozen=True)
class Lease:
    """A granted request.

    :param id: unique forever in its store.
    :param token: the fencing token of the last start of work, or else of the grant or take-over. It only grows. If two
        leases conflict, the later one has the larger token.
    :param attempt: the attempt of the owner that last acquired it or took it over.
    :param epoch: which process acts for the owner; a take-over raises it. Releases and renewals carry it, so that a
        late call of an earlier attempt changes nothing.
    :param locks: the locks that it holds, sorted by object.
    :param since: when it was granted, by the store's clock.
    :param works: the recorded work under it.
    :param expires: when it is no longer trusted unless renewed, by the store's clock, at the time of reading.
    :param released: the locks that partial releases have ended.
    :param whole: as in :class:`LockRequest`.
    :param stamp: of the version that passed it on; see :meth:`to_json`.
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
        """The work with that name, or None."""
        return next((work for work in self.works if work.name == name), None)

    def unchanged(self, seen: Lease | None) -> bool:
        """Whether it was not taken over, and no work began or ended under it, since it was *seen*; True if *seen* is
        None."""
        return seen is None or (self == seen and self.works == seen.works)

    def to_json(self) -> dict[str, Any]:
        """Plain values, fit for XCom and trigger arguments: without secrets, and without work, because that changes."""
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

        :raises InvalidRequest: when *data* is not what :meth:`to_json` gives.
        :raises UpgradeNeeded: it is for readers of a later format.
        """
        try:
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


def _kept(query: str) -> str:
    """Return the part of *query* that is stored, in characters that every store accepts."""
    if not isinstance(query, str):
        raise InvalidRequest(f"query={query!r:.80} must be a text")
    return query[:MAX_QUERY_LENGTH].encode("utf-8", "replace").decode().replace("\0", "")


@lru_cache(maxsize=4_096)
def owner_key(owner: str) -> str:
    """A short name for *owner* in a store: 64 bits of its SHA-256 in hex."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]
