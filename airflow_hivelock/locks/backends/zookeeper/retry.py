"""The pauses and the bound of a call that tries again because another client was quicker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 5
FIRST_S, LONGEST_S = 0.005, 0.5
GIVE_UP_S = 10.0


def pause_s(tried: int) -> float:
    """How long to pause after so many failed tries, in seconds.

    A few tries follow at once, because most need only those. Then the pauses grow, so that rivals do not keep the
    servers busy.
    """
    return 0.0 if tried < AT_ONCE else min(LONGEST_S, FIRST_S * 2 ** min(tried - AT_ONCE, 10))


class Retry:
    """The tries of one call; *reason* is in the error when all have failed. A request has no such limit: its manager
    has the deadline."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None], reason: str) -> None:
        self._clock = clock
        self._sleep = sleep
        self._reason = reason
        self._until = clock() + GIVE_UP_S
        self._tried = 0

    def again(self) -> None:
        """Pause before the next try; or raise StoreUnavailable, because there have been enough."""
        self._tried += 1
        if self._clock() >= self._until:
            raise StoreUnavailable(f"{self._reason}, {self._tried} times in a row. Try again")
        if pause := pause_s(self._tried):
            self._sleep(pause)
