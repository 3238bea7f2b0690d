"""The spelling in which Hive and Spark store a value of a partition column.

Locks on two spellings of one value do not conflict. So names must have the spelling that Hive and Spark store. It was
measured with Hive 2.3.10 (ADD PARTITION, LOAD DATA) and Spark 4.3.0 (ADD PARTITION, INSERT):

==================  ====================  ==============================================================
type                stored as             refused, because the two store it differently or not at all
==================  ====================  ==============================================================
string, varchar(n)  as it is written      more than n characters: Hive cuts them off, Spark refuses them
char(n)             filled up with ' '    the same
tinyint … bigint    ``7`` for 07 and +7   other texts, and numbers out of range (Hive: 300 is the tinyint 44)
date                ``2024-02-09`` for    days that do not exist (Hive: 2024-02-30 is 2024-03-01)
                    2024-2-9
boolean             ``true``, ``false``   all except these two, in any case (Hive: each text is true)
decimal(p,s)        ``1.25``              fewer than s decimals: Hive keeps ``1.5``, Spark ``1.50``
double, float       ``1.5`` for 1.50      numbers that are kept with an exponent, and too many digits
timestamp           ``2024-02-09 10:…``   whole seconds: Hive keeps ``10:00:00.0``, Spark ``10:00:00``
==================  ====================  ==============================================================

If the type is unknown, a value is refused if it looks like another spelling of a date, a number or a boolean. A
timestamp is also refused, because a date column keeps only its date.
"""

from __future__ import annotations

import re
from datetime import date, time
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_hivelock.locks.invalid import InvalidRequest
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import LockObject

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
INTEGERS = frozenset(_BITS)
"""The types with values that compare as whole numbers."""

STRING = re.compile(r"string|varchar\((\d+)\)", re.ASCII)
"""The types that store each value as it is written."""

_CHAR = re.compile(r"char\((\d+)\)", re.ASCII)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)
_DIGITS = {"double": 15, "float": 6}
_KINDS = (STRING, _CHAR, _DECIMAL)
_SYNONYMS = {"integer": "int", "double precision": "double", "decimal": "decimal(10,0)", "numeric": "decimal(10,0)"}

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_SCIENTIFIC = re.compile(_NUMBER.pattern + "[eE][+-]?[0-9]+", re.ASCII)
_DAY = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", re.ASCII)
_MOMENT = re.compile(_DAY.pattern + r"(?:[ T]([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?)?", re.ASCII)
_MOMENT_LIKE = re.compile(_DAY.pattern + "[ T].*", re.ASCII | re.DOTALL)


def type_of(text: str) -> str:
    """Return the metastore's name of the type that a user wrote as *text*.

    :raises InvalidRequest: *text* is not a type of a partition column.
    """
    kind = re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.lower().split()))
    kind = _SYNONYMS.get(kind, kind.replace("numeric(", "decimal("))
    kind = re.sub(r"^(decimal\(\d+)\)$", r"\1,0)", kind)
    if kind in ("date", "timestamp", "boolean", *INTEGERS, *_DIGITS) or any(each.fullmatch(kind) for each in _KINDS):
        return kind
    raise InvalidRequest(
        f"{text!r} is not a type of a partition column. Use one of string, varchar(n), char(n), date, timestamp, "
        "boolean, tinyint, smallint, int, bigint, decimal(p,s), double and float"
    )


def canonical(value: str, kind: str) -> str:
    """Return the spelling of *value* that Hive and Spark store in a column of type *kind*.

    :param value: without Hive's escapes. ``""`` and the default partition's name mean NULL.
    :param kind: Hive's type, in lower case; empty if it is unknown.
    :raises InvalidRequest: Hive and Spark store no common spelling. The message has the reason and what to write. The
        caller adds the object.
    """
    if value in ("", DEFAULT_PARTITION):
        return value
    if kind in INTEGERS:
        return _whole(value, kind)
    if kind == "date":
        return _date(value)
    if kind == "boolean":
        return _boolean(value)
    if kind == "timestamp":
        return _timestamp(value)
    if kind in _DIGITS:
        return _floating(value, kind)
    if match := STRING.fullmatch(kind):
        return _short(value, int(match[1]) if match[1] else len(value), kind)
    if match := _CHAR.fullmatch(kind):
        return _short(value.rstrip(" "), int(match[1]), kind).ljust(int(match[1]))
    if match := _DECIMAL.fullmatch(kind):
        return _decimal(value, int(match[1]), int(match[2]), kind)
    return _plain(value)


def as_written(kind: str) -> bool:
    """Whether Hive and Spark store values of this type as they are written. True if the type is unknown."""
    return not kind or STRING.fullmatch(kind) is not None


def is_date(text: str) -> bool:
    """Whether *text* is a date in the spelling that Hive and Spark store, ``2013-01-01``."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


@lru_cache(maxsize=16_384)
def check_spelling(target: LockObject) -> None:
    """Refuse a partition of unknown types if one of its values looks like another spelling.

    :raises InvalidRequest: the message has the usual spelling, and a way to lock the value as it is written.
    """
    for column, value in target.partition:
        try:
            canonical(value, "")
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{target}: {error}, and the type of {column} is unknown here. Locks on two spellings of a value do not conflict. "
                "Write the value as Hive and Spark store it. A LockObject is used as it is written"
            ) from error


def _whole(value: str, kind: str) -> str:
    if not _WHOLE.fullmatch(value) or not -(1 << _BITS[kind]) <= int(value) < 1 << _BITS[kind]:
        raise InvalidRequest(f"{value!r} is not a valid {kind}. Write a whole number in its range, as in 7")
    return str(int(value))


def _date(value: str) -> str:
    match = _DAY.fullmatch(value)
    try:
        return date(*map(int, match.groups())).isoformat() if match else _no_date(value)
    except ValueError:
        return _no_date(value)


def _no_date(value: str) -> str:
    raise InvalidRequest(f"{value!r} is not a valid date. Write one as in 2013-01-31")


def _boolean(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise InvalidRequest(f"Hive and Spark read the boolean {value!r} differently. Write true or false")
    return value.lower()


def _timestamp(value: str) -> str:
    match = _MOMENT.fullmatch(value)
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in (match.groups()[:6] if match else ()))
        moment = f"{date(year, month, day).isoformat()} {time(hour, minute, second).isoformat()}"
    except ValueError:
        raise InvalidRequest(f"{value!r} is not a valid timestamp. Write one as in 2013-01-31 10:00:00.5") from None
    fraction = ((match and match[7]) or "").rstrip("0")
    if not fraction or len(fraction) > 6:
        raise InvalidRequest(
            f"{value!r} has two names: Hive stores it as '{moment}.{fraction or '0'}', "
            f"Spark as '{moment}{fraction and '.'}{fraction[:6]}'. Lock the level above it instead"
        )
    return f"{moment}.{fraction}"


def _floating(value: str, kind: str) -> str:
    sign, whole, fraction = _parts(value) if _NUMBER.fullmatch(value) else ("", "", "")
    digits = (whole + fraction).strip("0")
    plain = len(whole) <= 7 and (whole != "0" or not digits or not fraction.startswith("000"))
    if not whole or not plain or len(digits) > _DIGITS[kind] or (sign and not digits):
        raise InvalidRequest(
            f"{value!r} is not a valid {kind}, or it would be stored with an exponent or fewer digits. Write one as in 1.5"
        )
    return f"{sign}{whole}.{fraction or '0'}"


def _decimal(value: str, precision: int, scale: int, kind: str) -> str:
    if not _NUMBER.fullmatch(value):
        raise InvalidRequest(f"{value!r} is not a valid {kind}. Write a number with {scale} decimals")
    sign, whole, fraction = _parts(value)
    if len(fraction) > scale or len(whole.lstrip("0")) > precision - scale:
        raise InvalidRequest(f"{value!r} has more digits than a {kind} can store. Write fewer")
    sign = sign if (whole + fraction).strip("0") else ""
    short, full = (sign + whole + ("." + digits if digits else "") for digits in (fraction, fraction.ljust(scale, "0")))
    if short != full:
        raise InvalidRequest(
            f"{value!r} has two names: Hive stores it as {short!r}, Spark as {full!r}. Lock the level above it instead"
        )
    return full


def _parts(number: str) -> tuple[str, str, str]:
    """Split a number into its sign, the digits before the point and the digits after it, without superfluous zeros."""
    whole, _, fraction = number.lstrip("+-").partition(".")
    return "-" if number.startswith("-") else "", whole.lstrip("0") or "0", fraction.rstrip("0")


def _short(value: str, most: int, kind: str) -> str:
    if len(value) > most:
        raise InvalidRequest(
            f"{value!r} is longer than a {kind}. Hive would cut it off, and Spark would refuse it. Write a shorter value"
        )
    return value


def _plain(value: str) -> str:
    """Return *value* of a column of unknown type, or refuse it."""
    if (kept := _usual(value)) != value:
        meant = f"another spelling of {kept!r}" if kept else "a date, a timestamp or a number that Hive would rewrite"
        raise InvalidRequest(f"{value!r} looks like {meant}")
    return value


def _usual(value: str) -> str:
    """The usual spelling of *value* if it looks like a date, a boolean or a number; empty if it has several."""
    if (stripped := value.strip(" ")) != value:
        return _usual(stripped)
    if value.lower() in ("true", "false"):
        return value.lower()
    if _DAY.fullmatch(value) or _MOMENT_LIKE.fullmatch(value):
        try:
            return _date(value)
        except InvalidRequest:
            return ""
    if _NUMBER.fullmatch(value):
        sign, whole, fraction = _parts(value)
        number = whole + ("." + fraction if fraction else "")
        return number if number == "0" else sign + number
    return "" if _SCIENTIFIC.fullmatch(value) else value
