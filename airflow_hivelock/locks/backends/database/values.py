"""The values in the columns of a row, and the rows of groups and of the audit trail.

Locks, work and objects are text. Times are microseconds since 1970.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.errors import StoreCorrupted, UpgradeNeeded
from airflow_hivelock.locks.model import ForcedRelease, Group, Lock, LockObject, Work, locks_from_json, locks_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Read = TypeVar("Read")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_US = validate.MOST_MS * 1000


def encode(locks: Iterable[Lock]) -> str:
    return compact(locks_to_json(locks))


compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode_works(works: Iterable[Work]) -> str:
    return json.dumps([(work.name, work.application, work.token) for work in works])


def decode(text: str, whose: str) -> tuple[Lock, ...]:
    """Parse locks. Raises StoreCorrupted if another program wrote them."""
    return _read(_decoded, text, f"the locks of {whose}")


def decode_request(text: str, whose: str) -> tuple[Lock, ...]:
    """Parse the locks of a request, which has at least one. Raises StoreCorrupted if another program wrote them."""
    if not (locks := decode(text, whose)):
        raise StoreCorrupted(f"the request of {whose} names no locks. Another program wrote it")
    return locks


def decode_works(text: str, whose: str) -> tuple[Work, ...]:
    """Parse the work under a lease. Raises StoreCorrupted if another program wrote it."""
    return _read(_decoded_works, text, f"the works under the lease of {whose}")


def decode_objects(text: str, whose: str) -> frozenset[LockObject]:
    """Parse objects, one name per line. Raises StoreCorrupted if another program wrote them."""
    return _read(_objects, text, f"the objects that {whose} names itself")


def _read(parse: Callable[[str], Read], text: str, what: str) -> Read:
    try:
        return parse(text)
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise StoreCorrupted(f"{what}, {text[:80]!r}, were not written by airflow-hivelock") from error


def _objects(text: str) -> frozenset[LockObject]:
    # Not splitlines(), which also splits at U+2028. A name may contain that, but no line feed.
    return frozenset(map(LockObject.parse, filter(None, text.split("\n"))))


@lru_cache(maxsize=128)  # a process that renews leases reads the same ones repeatedly
def _decoded(text: str) -> tuple[Lock, ...]:
    return locks_from_json(validate.load(text))


@lru_cache(maxsize=128)
def _decoded_works(text: str) -> tuple[Work, ...]:
    return tuple(Work(*work) for work in json.loads(text))


def instant(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def microseconds(at: datetime) -> int:
    """The inverse of :func:`instant`."""
    return (at - EPOCH) // timedelta(microseconds=1)


def later(us: int, seconds: float) -> int:
    return us + round(seconds * 1_000_000)


def foreign(row: Mapping[Any, Any], what: str, error: Exception) -> StoreCorrupted:
    """The error for a *row* that is not *what* this package writes."""
    return StoreCorrupted(f"{dict(row)!r:.200} is not {what} of airflow-hivelock ({error}). Another program wrote it")


def parse_group(row: Mapping[Any, Any]) -> Group:
    """The settings of a group.

    :raises StoreCorrupted: another program wrote the row.
    :raises UpgradeNeeded: it is for readers of a later format.
    """
    try:
        formats.take_text(row["more"], f"group {row['name']!r:.80}")
        validate.texts(row, ("name", "comment"))
        return Group(row["name"], row["leases"], row["weight"], row["comment"])
    except (TypeError, ValueError) as error:
        raise foreign(row, "a group", error) from error


def parse_audit(row: Mapping[Any, Any]) -> ForcedRelease:
    """An entry of the audit trail.

    :raises StoreCorrupted: it cannot be read.
    :raises UpgradeNeeded: it is for readers of a later format.
    """
    what = f"entry {row['number']} of the audit trail"
    try:
        formats.take_text(row["more"], what)
        validate.texts(row, ("lease_id", "owner", "locks", "user_name", "reason"))
        at, locks = instant(validate.number(row["at_us"], "at_us", MOST_US)), decode(row["locks"], row["owner"])
        return ForcedRelease(row["lease_id"], row["owner"], locks, row["user_name"], row["reason"], at)
    except UpgradeNeeded:
        raise
    except (TypeError, ValueError, StoreCorrupted) as error:
        raise StoreCorrupted(f"{what} was not written by a force release: {error}") from error
