"""Shows a user that a statement waits for its locks."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from airflow_hivelock.locks.backend import Blocked
from airflow_hivelock.locks.rules import few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.model import Lock
    from airflow_hivelock.locks.pending import Silent

LOG_S = 60.0
"""The time between two log lines of a waiting job without a terminal, in seconds."""

MOST_SHOWN = 3

log = logging.getLogger(__name__)


class Progress:
    """Shows one wait. In a notebook or terminal it rewrites one line each second. Elsewhere it logs a line each minute.

    :param locks: the locks that the statement waits for.
    :param shown: whether to rewrite the line. None means only in a notebook or terminal.
    """

    def __init__(self, locks: Sequence[Lock], shown: bool | None = None) -> None:
        self._wanted = few(locks, MOST_SHOWN)
        self._shown = _is_read() if shown is None else shown
        self._width = 0
        self._logged_s: float | None = None

    def tell(self, outcome: Blocked | Silent, waited_s: float) -> None:
        """Show the seconds waited, and the blockers."""
        why = "; ".join(map(str, outcome.by[:MOST_SHOWN])) if isinstance(outcome, Blocked) else str(outcome)
        text = f"Waiting {waited_s:.0f} s for {self._wanted}: {why}"
        if self._shown:
            sys.stderr.write(f"\r{text:<{self._width}}")
            sys.stderr.flush()
            self._width = len(text)
        if self._logged_s is None or waited_s - self._logged_s >= LOG_S:
            self._logged_s = waited_s
            log.log(logging.DEBUG if self._shown else logging.INFO, "%s", text)

    def end(self) -> None:
        """Remove the line."""
        if self._width:
            sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.flush()


def _is_read() -> bool:
    """Whether this is a notebook or a terminal."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()
