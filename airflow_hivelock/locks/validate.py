"""What comes out of a lock store, where others may write as well: read whole, or refused with a ValueError or TypeError.

JSON lets through what later breaks whoever works with it: numbers that are no time, half characters that cannot be
printed, lists so deep that nothing may look into them. So each value is looked at once, where it comes in.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Mapping

MOST_NUMBER = 2**63 - 1
MOST_MS = 250_000_000_000_000
"""In the year 9892: Python's times end in 9999, and a lease, added to one, must not go beyond."""


@lru_cache(maxsize=1_000)
def complain(log: logging.Logger, error: str, version: int) -> None:
    """Log what cannot be read once for each *version* of it: a page looks every second."""
    log.warning("%s", error)


def load(data: bytes | str) -> dict[str, Any]:
    """The object that *data* is in JSON."""
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(found, dict):
        raise TypeError(f"{type(found).__name__} in place of an object")
    return found


def texts(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Check that those of *values* are text, and can be written as UTF-8."""
    for name in names:
        text(values[name], name)


def text(value: Any, name: str) -> str:
    """*value*, which is text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type(value).__name__}, not text")
    value.encode()
    return value


def numbers(values: Mapping[str, Any], names: Iterable[str], most: int = MOST_NUMBER) -> None:
    """Check that those of *values* are whole numbers from 0 to *most*."""
    for name in names:
        number(values[name], name, most)


def number(value: Any, name: str, most: int = MOST_NUMBER) -> int:
    """*value*, which is a whole number from 0 to *most*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {type(value).__name__}, not a whole number")
    if not 0 <= value <= most:
        raise ValueError(f"{name} is not between 0 and {most}")
    return value


def seconds(value: Any, name: str, most: float) -> float:
    """*value*, which is a number from 0 to *most*."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {type(value).__name__}, not a number")
    if not 0 <= value <= most:  # nor is NaN
        raise ValueError(f"{name} is not between 0 and {most}")
    return float(value)


def one_line(value: Any, name: str, most: int = 300) -> str:
    """*value*, which is one line of text that a person can read."""
    if not text(value, name).isprintable() or len(value) > most:
        raise ValueError(f"{name}={value!r:.80}")
    return str(value)
