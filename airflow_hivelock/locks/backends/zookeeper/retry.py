"""How often, and how far apart, a compare-and-set that came too late is tried again: the rule of every loop that reads again.

A few tries follow at once, for most need no more. Then pauses grow, lest processes in each other's way keep the servers busy.
The pauses of a request are its manager's, which knows the deadline; any other call pauses here, and soon gives up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 5
FIRST_S, LONGEST_S = 0.005, 0.5
GIVE_UP_S = 10.0


def pause_s(tried: int) -> float:
    """How long to pause after so many tries in vain, in seconds."""
    return 0.0 if tried < AT_ONCE else min(LONGEST_S, FIRST_S * 2 ** min(tried - AT_ONCE, 10))


class Retry:
    """The tries of one call.

    :param clock: monotonic seconds.
    :param vain: what happened each time, for the error.
    """

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None], vain: str) -> None:
        self._clock = clock
        self._sleep = sleep
        self._vain = vain
        self._until = clock() + GIVE_UP_S
        self._tried = 0

    def again(self) -> None:
        """Pause for as long as it takes before the next one.

        :raises StoreUnavailable: there have been enough.
        """
        self._tried += 1
        if self._clock() >= self._until:
            raise StoreUnavailable(f"{self._vain}, {self._tried} times in turn; try again")
        if pause := pause_s(self._tried):
            self._sleep(pause)
