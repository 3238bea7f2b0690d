"""The values in the columns of a row: locks, work and objects as text, times as microseconds since 1970."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Lock, LockObject, Work, locks_from_json, locks_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


def decode_works(text: str, whose: str) -> tuple[Work, ...]:
    """Parse the work under a lease. Raises StoreCorrupted if another program wrote it."""
    return _read(_decoded_works, text, f"what runs under the lease of {whose}")


def decode_objects(text: str, whose: str) -> frozenset[LockObject]:
    """Parse objects, one name per line. Raises StoreCorrupted if another program wrote them."""
    return _read(_objects, text, f"what {whose} reads for its own sake")


def _read(parse: Callable[[str], Read], text: str, what: str) -> Read:
    try:
        return parse(text)
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise StoreCorrupted(f"{what}, {text[:80]!r}, were not written by airflow-hivelock") from error


def _objects(text: str) -> frozenset[LockObject]:
    return frozenset(map(LockObject.parse, text.splitlines()))


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
