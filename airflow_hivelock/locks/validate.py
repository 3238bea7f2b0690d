"""Checks of values from a lock store. Each raises ValueError or TypeError if the value is invalid.

Other clients may write to the store, and JSON allows values that would fail later: numbers that are no time, lone
surrogates that cannot be printed, and lists that are nested too deeply. So each value is checked when it is read.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.invalid import StoreCorrupted

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Mapping

Value = TypeVar("Value")

MOST_NUMBER = 2**63 - 1
MOST_MS = 250_000_000_000_000
"""A time in the year 9892. Python's times end in 9999, and the end of a lease must be before that."""


@lru_cache(maxsize=1_000)
def complain(log: logging.Logger, error: str, version: int) -> None:
    """Log an unreadable value, but only once for each *version*, because a page reads it every second."""
    log.warning("%s", error)


def readable(log: logging.Logger, version: int, parse: Callable[..., Value], *stored: object) -> Value | None:
    """The result of *parse*, for a listing. An unreadable value is logged, and is None: it hides none of the others."""
    try:
        return parse(*stored)
    except StoreCorrupted as error:
        complain(log, str(error), version)
        return None


def load(data: bytes | str) -> dict[str, Any]:
    """Parse *data*, a JSON object."""
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(found, dict):
        raise TypeError(f"{type(found).__name__} in place of an object")
    return found


def texts(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Check that the named *values* are text that can be written as UTF-8."""
    for name in names:
        text(values[name], name)


def text(value: Any, name: str) -> str:
    """Return *value*, which must be text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type(value).__name__}, not text")
    value.encode()
    return value


def numbers(values: Mapping[str, Any], names: Iterable[str], most: int = MOST_NUMBER) -> None:
    """Check that the named *values* are whole numbers from 0 to *most*."""
    for name in names:
        number(values[name], name, most)


def number(value: Any, name: str, most: int = MOST_NUMBER) -> int:
    """Return *value*, which must be a whole number from 0 to *most*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {type(value).__name__}, not a whole number")
    if not 0 <= value <= most:
        raise ValueError(f"{name} is not between 0 and {most}")
    return value


def seconds(value: Any, name: str, most: float) -> float:
    """Return *value*, which must be a number from 0 to *most*."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {type(value).__name__}, not a number")
    if not 0 <= value <= most:  # this refuses NaN as well
        raise ValueError(f"{name} is not between 0 and {most}")
    return float(value)


def one_line(value: Any, name: str, most: int = 300) -> str:
    """Return *value*, which must be one printable line of at most *most* characters."""
    if not text(value, name).isprintable() or len(value) > most:
        raise ValueError(f"{name}={value!r:.80}")
    return str(value)
