"""Prints results to standard output: a terminal, a pipe, a file, or nothing if the caller has closed it."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from tabulate import tabulate

from airflow_hivelock.locks.errors import HiveLockError
from airflow_hivelock.locks.invalid import printable

if TYPE_CHECKING:
    from airflow_hivelock.locks.statements.statement import Result

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shown(text: str) -> str:
    """Return *text* without control characters, because text from the lock store could control the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_result(result: Result, output: str) -> None:
    """Print *result* in the format *output*.

    :raises BrokenPipeError: the reader of the output, for example head, has closed it.
    :raises HiveLockError: the output cannot be written, for example because a disk is full.
    """
    if sys.stdout is None:  # as with >&-
        return
    if output == "json":
        unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        text = json.dumps(result.records(), ensure_ascii=not unicode)
    elif output == "hive" and result.text is not None:
        text = result.text
    else:
        rows = [
            [printable(value) if isinstance(value, str) else value for value in record.values()]
            for record in result.records()
        ]
        text = tabulate(rows, result.columns, "simple", disable_numparse=True)
    if text:
        _write(shown(text) if sys.stdout.isatty() else text)


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
