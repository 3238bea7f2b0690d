"""Prints results to standard output: a terminal, a pipe, a file, or nothing if the caller has closed it."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.locks.invalid import printable

if TYPE_CHECKING:
    from airflow_hivelock.locks.statements.statement import Result

# Without the tab and the line feed, which the formats write. The others change the direction or the lines of a text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """Return *text* with escapes such as ``\\x1b`` for control characters, except tabs and line feeds.

    Text from the lock store could control a terminal, and a pipe, a task's log or a CI log also ends at one.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _json(records: list[dict[str, Any]], *, ascii_only: bool) -> str:
    """Return *records* in JSON. It has JSON's own escapes for control characters, so that the values stay the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(records, ensure_ascii=ascii_only))


def print_result(result: Result, output: str) -> None:
    """Print *result* in the format *output*.

    :raises BrokenPipeError: the reader of the output, for example head, has closed it.
    :raises HiveLockError: the output cannot be written, for example because a disk is full.
    """
    if sys.stdout is None:  # as with >&-
        return
    if output == "json":
        unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        text = _json(result.records(), ascii_only=not unicode)
    elif output == "hive" and result.text is not None:
        text = result.text
    else:
        rows = [
            [printable(value) if isinstance(value, str) else value for value in record.values()]
            for record in result.records()
        ]
        text = tabulate(rows, result.columns, "simple", disable_numparse=True)
    if text:
        _write(shown(text))


def print_text(text: str) -> None:
    """Print *text*, which a reader can cut: the help or the version. A closed or full output is not an error."""
    if sys.stdout is not None:
        with suppress(BrokenPipeError, HiveLockError):
            _write(text)


def _write(text: str) -> None:
    encoding = sys.stdout.encoding
    writable = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(f"{writable}\n")
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python writes the rest at its end, and fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise HiveLockError(
            f"the statement has run, but its result cannot be written to standard output: {error}. SHOW LEASE * lists the "
            "leases that are held"
        ) from error
