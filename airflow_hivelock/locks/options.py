"""What the options of a lock store's URL say, and the libraries that a store needs."""

from __future__ import annotations

from importlib import import_module

from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest

DAY_S = 86_400.0
YEAR_S = 366 * DAY_S


def seconds(name: str, value: str | float, *, most_s: float = YEAR_S, or_none: bool = False) -> float:
    """A time in seconds, above 0 unless there may be *or_none*.

    :raises InvalidRequest: it is no such number.
    """
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not (0 <= found <= most_s) or (found == 0 and not or_none):
        above = "from 0" if or_none else "above 0"
        raise InvalidRequest(f"{name}={value!r} is not a number of seconds, {above} up to {most_s:,.0f}")
    return found


def truth(name: str, text: str) -> bool:
    """True or false.

    :raises InvalidRequest: neither.
    """
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name}={text!r}: use true or false")
    return text == "true"


def need(why: str, *modules: str, extra: str) -> None:
    """:raises HiveLockError: one of the client libraries is not installed; *extra* brings it."""
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        raise HiveLockError(f"{why}, pip install 'airflow-hivelock[{extra}]' ({error})") from error
