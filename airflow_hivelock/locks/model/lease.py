"""What an owner asks for, and what it is granted."""

from __future__ import annotations

import hashlib
import reprlib
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.invalid import InvalidRequest
from airflow_hivelock.locks.model.object import in_order, locks_from_json, locks_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_hivelock.locks.model.object import Lock, LockObject, LockType

MAX_OWNER_LENGTH = 2_000
MAX_QUERY_LENGTH = 10_000
"""A query is there for people to recognise; what is longer is cut."""

MAX_WORK_LENGTH = 10_000
MAX_LEASE_S = 366 * 86400
MAX_GROUP_LENGTH = 250
MAX_PRIORITY = 1_000_000_000


@dataclass(frozen=True)
class LeaseLimit:
    """A bound on the leases that are out at a time: a counting semaphore beside the locks.

    Granted with the locks, all or nothing, and given back with them. A request that waits for it holds nothing, and stands
    in nobody's way. Requests of one group that give different numbers are each held to their own.

    :param group: whose leases are counted, of all clients of the lock store.
    :param most: how many of them may be out, this one included.
    """

    group: str
    most: int

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group.strip() or not self.group.isprintable():
            raise InvalidRequest(f"{self.group!r:.80} is not a group of leases; name it in printable characters")
        if len(self.group) > MAX_GROUP_LENGTH:
            raise InvalidRequest(f"group {self.group[:40]!r}… is longer than {MAX_GROUP_LENGTH} characters")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or not 1 <= self.most <= MAX_LEASES:
            raise InvalidRequest(
                f"max_leases={self.most!r} of group {self.group!r}: a whole number from 1 to {MAX_LEASES:,}"
            )

    def __str__(self) -> str:
        return f"one of the {self.most} leases of {self.group!r}"


MAX_LEASES = 10_000


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
    :param priority: of those that wait, the larger goes first; but a request that has waited for as long as the store
        lets it be passed is passed no more.
    :param limit: how many leases of its kind may be out at a time; None: any number.
    :param late: it takes nothing: once it could have its locks it steps aside, holding nothing and in nobody's way, and
        its owner asks again, as a new arrival, with the worker slot in hand.
    :param asked: when the owner first asked for this, by the store's clock, where it has asked before. The store takes it
        for listings and for the history. It gives no earlier position. None: it asks for the first time.
    :param types: what Hive's transactional manager is to be asked for in the place of what the modes say. Other stores know
        no types, and take the modes.
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
    late: bool = False
    types: Mapping[LockObject, LockType] = field(default_factory=dict, hash=False)
    asked: datetime | None = None

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
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or abs(self.priority) > MAX_PRIORITY:
            raise InvalidRequest(
                f"priority={self.priority!r} of {self.owner}: a whole number up to {MAX_PRIORITY:,}; the larger goes first"
            )
        if not isinstance(self.named, str) or "\0" in self.named:
            raise InvalidRequest(f"{self.owner}: named={self.named!r:.80} must be a text that every store can keep")
        object.__setattr__(self, "query", _kept(self.query))
        object.__setattr__(self, "locks", in_order(self.locks))


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


def put_work(works: Iterable[Work], name: str, application: str | None, token: int) -> tuple[Work, ...]:
    """*works* with *application* under that name; None: with nothing."""
    others = tuple(work for work in works if work.name != name)
    return others if application is None else (*others, Work(name, application, token))


def token_of(works: Iterable[Work], name: str, otherwise: int) -> int:
    """The token of what runs under that name, of which there may be nothing."""
    return next((work.token for work in works if work.name == name), otherwise)


@dataclass(frozen=True)
class Lease:
    """A granted request.

    :param id: unique for ever in its store.
    :param token: the fencing token: of its last start of work, or else of its grant or take-over. It only grows, and of two
        leases that conflict, the later one's is larger.
    :param attempt: the attempt of the owner that acquired it or took it over last.
    :param epoch: which process acts for the owner; a take-over raises it. Releases and renewals name it,
        so that a late one of an earlier attempt touches nothing.
    :param locks: what it holds; sorted by object, whatever the order in which they are given.
    :param since: when it was granted, by the store's clock.
    :param works: what runs under it, as far as it was recorded.
    :param expires: when it is no longer trusted unless renewed, by the store's clock, as of when it was read.
    :param given: what it has held and has given back since.
    :param whole: as :class:`LockRequest` has it.
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
    given: tuple[Lock, ...] = field(default=(), compare=False)
    whole: frozenset[LockObject] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "locks", in_order(self.locks))

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


def _kept(query: str) -> str:
    """As much of *query* as is kept, in characters that every store can keep."""
    if not isinstance(query, str):
        raise InvalidRequest(f"query={query!r:.80} must be a text")
    return query[:MAX_QUERY_LENGTH].encode("utf-8", "replace").decode().replace("\0", "")


@lru_cache(maxsize=4_096)
def owner_key(owner: str) -> str:
    """A short name for *owner* in a store: 64 bits of its SHA-256 in hex."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]
